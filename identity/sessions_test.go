package identity_test

import (
	"bytes"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/fault"
	"countersign/identity"
)

// page is a server with a few handlers behind Sessions, and a browser for it.
type page struct {
	*world
	*httptest.Server
	sessions *identity.Sessions
	browser  *http.Client
	mux      *http.ServeMux
	jar      *cookiejar.Jar

	mu     sync.Mutex
	failed []error
	// complaints are net/http's; log.Logger writes them one by one.
	complaints bytes.Buffer
}

func newPage(t *testing.T, secure bool) *page {
	p := &page{world: newWorld(t), mux: http.NewServeMux()}
	p.sessions = identity.NewSessions(p.Service, identity.SessionsConfig{
		Secure:     secure,
		Background: func(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/poll") },
		OnError: func(w http.ResponseWriter, _ *http.Request, err error) {
			p.mu.Lock()
			p.failed = append(p.failed, err)
			p.mu.Unlock()
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, "no session")
		},
	})
	p.mux.HandleFunc("POST /sign-in", func(w http.ResponseWriter, r *http.Request) {
		o, err := p.OperatorNamed(r.Context(), tenant, r.FormValue("name"))
		if err == nil {
			err = p.sessions.SignIn(r.Context(), o)
		}
		if err == nil {
			o, err = p.sessions.Operator(r.Context())
		}
		answer(w, "welcome "+o.Name, err)
	})
	p.mux.HandleFunc("POST /sign-out", func(w http.ResponseWriter, r *http.Request) {
		answer(w, "bye", p.sessions.SignOut(r.Context()))
	})
	who := func(w http.ResponseWriter, r *http.Request) {
		o, err := p.sessions.Operator(r.Context())
		answer(w, o.Name, err)
	}
	p.mux.HandleFunc("/", who)
	p.Server = httptest.NewUnstartedServer(p.sessions.LoadAndSave(p.mux))
	p.Config.ErrorLog = log.New(&p.complaints, "", 0)
	if secure {
		p.StartTLS()
	} else {
		p.Start()
	}
	t.Cleanup(func() {
		p.Server.Close()
		require.Empty(t, p.complaints.String(), "what net/http found wrong with the handlers")
	})
	p.browser = p.Client()
	var err error
	p.jar, err = cookiejar.New(nil)
	require.NoError(t, err)
	p.browser.Jar = p.jar
	return p
}

func answer(w http.ResponseWriter, text string, err error) {
	w.Header().Set("Cache-Control", "no-store")
	if err != nil {
		w.WriteHeader(http.StatusUnauthorized)
		text = string(fault.Of(err).Code)
	}
	_, _ = io.WriteString(w, text)
}

// get and post give the answer's text.
func (p *page) get(path string) string {
	p.t.Helper()
	text, _ := p.do(http.MethodGet, path, "")
	return text
}

func (p *page) post(path, form string) string {
	p.t.Helper()
	text, _ := p.do(http.MethodPost, path, form)
	return text
}

func (p *page) do(method, path, form string) (string, *http.Response) {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), method, p.URL+path, strings.NewReader(form))
	require.NoError(p.t, err)
	if form != "" {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	res, err := p.browser.Do(req)
	require.NoError(p.t, err)
	body, err := io.ReadAll(res.Body)
	require.NoError(p.t, err)
	require.NoError(p.t, res.Body.Close())
	return string(body), res
}

func (p *page) enter(name string) {
	p.t.Helper()
	p.person(name)
	require.Equal(p.t, "welcome "+name, p.post("/sign-in", "name="+name))
	require.Equal(p.t, name, p.get("/"))
}

// cookie is what the browser holds.
func (p *page) cookie() string {
	p.t.Helper()
	u, err := url.Parse(p.URL)
	require.NoError(p.t, err)
	for _, c := range p.jar.Cookies(u) {
		return c.Value
	}
	return ""
}

func (p *page) setCookie(value string) {
	p.t.Helper()
	u, err := url.Parse(p.URL)
	require.NoError(p.t, err)
	p.jar.SetCookies(u, []*http.Cookie{{Name: "countersign", Value: value, Path: "/"}})
}

// nobody is the answer to who is not signed in.
const nobody = string(fault.Unauthenticated)

// S25: what the cookie says, on both kinds of door.
func TestSessions_Cookie(t *testing.T) {
	for name, secure := range map[string]bool{"__Host-countersign": true, "countersign": false} {
		t.Run(name, func(t *testing.T) {
			p := newPage(t, secure)
			p.person("ada")
			_, res := p.do(http.MethodGet, "/", "")
			require.Empty(t, res.Cookies(), "a visitor gets none")
			require.Contains(t, res.Header.Values("Vary"), "Cookie")

			check := func(c *http.Cookie) {
				t.Helper()
				require.Equal(t, name, c.Name)
				require.Equal(t, secure, c.Secure)
				require.True(t, c.HttpOnly)
				require.Equal(t, http.SameSiteLaxMode, c.SameSite)
				require.Equal(t, "/", c.Path)
				require.Empty(t, c.Domain)
			}
			_, res = p.do(http.MethodPost, "/sign-in", "name=ada")
			require.Len(t, res.Cookies(), 1)
			c := res.Cookies()[0]
			check(c)
			require.Regexp(t, `^[A-Za-z0-9_-]{43}$`, c.Value, "256 random bits")
			require.True(t, c.Expires.IsZero(), "gone with the browser")
			require.Zero(t, c.MaxAge)
			require.Contains(t, res.Header.Values("Cache-Control"), "no-store", "the handler's own stays")

			text, res := p.do(http.MethodGet, "/", "")
			require.Equal(t, "ada", text)
			require.Empty(t, res.Cookies(), "only signing in and out set cookies")

			_, res = p.do(http.MethodPost, "/sign-out", "")
			require.Len(t, res.Cookies(), 1)
			check(res.Cookies()[0])
			require.Empty(t, res.Cookies()[0].Value)
			require.Negative(t, res.Cookies()[0].MaxAge)
			require.Empty(t, p.cookie())
			require.Equal(t, nobody, p.get("/"))
		})
	}
}

// A token that somebody planted is never taken over, and each sign-in has its own.
func TestSessions_Fixation(t *testing.T) {
	p := newPage(t, false)
	p.person("ada")
	planted := strings.Repeat("A", 43)
	p.setCookie(planted)
	require.Equal(t, nobody, p.get("/"))
	require.Equal(t, "welcome ada", p.post("/sign-in", "name=ada"))
	first := p.cookie()
	require.NotEqual(t, planted, first)

	// Signing in again, as another person too, leaves nothing of the old session.
	p.enter("bea")
	second := p.cookie()
	require.NotEqual(t, first, second)
	for what, old := range map[string]string{"planted": planted, "before": first, "empty": "", "cut": second[:42], "longer": second + "A"} {
		p.setCookie(old)
		require.Equal(t, nobody, p.get("/"), what)
	}
	p.setCookie(second)
	require.Equal(t, "bea", p.get("/"))
}

func TestSessions_SignOut(t *testing.T) {
	p := newPage(t, false)
	p.enter("ada")
	token := p.cookie()
	require.Equal(t, "bye", p.post("/sign-out", ""))
	p.setCookie(token)
	require.Equal(t, nobody, p.get("/"), "ended in the store, not only in the browser")
	require.Equal(t, "bye", p.post("/sign-out", ""), "again")
}

func TestSessions_Idle(t *testing.T) {
	p := newPage(t, false)
	p.enter("ada")
	for range 4 {
		p.clock.pass(identity.SessionIdle - time.Second)
		require.Equal(t, "ada", p.get("/"), "use keeps it")
	}
	// What the page does by itself is no use.
	for range 3 {
		p.clock.pass(identity.SessionIdle/3 - time.Second)
		require.Equal(t, "ada", p.get("/poll"))
	}
	p.clock.pass(3 * time.Second)
	require.Equal(t, nobody, p.get("/poll"))
	require.Equal(t, nobody, p.get("/"))
}

func TestSessions_Life(t *testing.T) {
	p := newPage(t, false)
	p.enter("ada")
	begin := p.clock.Now()
	step := identity.SessionIdle - time.Second
	for p.clock.Now().Add(step).Before(begin.Add(identity.SessionLife)) {
		p.clock.pass(step)
		require.Equal(t, "ada", p.get("/"))
	}
	p.clock.pass(begin.Add(identity.SessionLife).Sub(p.clock.Now()) - 1)
	require.Equal(t, "ada", p.get("/"))
	p.clock.pass(1)
	require.Equal(t, nobody, p.get("/"), "however much it is used")

	require.Equal(t, "welcome ada", p.post("/sign-in", "name=ada"))
	p.clock.pass(step)
	require.Equal(t, "ada", p.get("/"), "a new sign-in has a life of its own")
}

// A page of forty requests is one write.
func TestSessions_FewWrites(t *testing.T) {
	p := newPage(t, false)
	p.enter("ada")
	before := p.store.extensions.Load()
	p.clock.pass(identity.SessionGrain - 1)
	for range 20 {
		require.Equal(t, "ada", p.get("/"))
	}
	require.Equal(t, before, p.store.extensions.Load())
	p.clock.pass(1)
	for range 20 {
		require.Equal(t, "ada", p.get("/"))
	}
	require.Equal(t, before+1, p.store.extensions.Load())
}

func TestSessions_TakenAway(t *testing.T) {
	for what, c := range map[string]struct {
		take func(*page, identity.Operator)
		end  string
	}{
		"disabled": {func(p *page, o identity.Operator) {
			require.NoError(p.t, p.DisableOperator(p.t.Context(), tenant, o.ID))
		}, nobody},
		"password set anew": {func(p *page, o identity.Operator) {
			code, err := p.NewSetupLink(p.t.Context(), tenant, o.ID, 0)
			require.NoError(p.t, err)
			require.Equal(p.t, "ada", p.get("/"), "a link alone ends nothing")
			_, err = p.CompleteSetup(p.t.Context(), code, password)
			require.NoError(p.t, err)
		}, nobody},
		"nothing": {func(*page, identity.Operator) {}, "ada"},
	} {
		t.Run(what, func(t *testing.T) {
			p := newPage(t, false)
			p.enter("ada")
			o, err := p.OperatorNamed(t.Context(), tenant, "ada")
			require.NoError(t, err)
			c.take(p, o)
			require.Equal(t, c.end, p.get("/"))
			require.Equal(t, c.end, p.get("/"))
		})
	}
}

// A handler that lasts sees the end of the session in its midst, and its late
// answer neither brings the session back nor touches the cookie of a newer one.
func TestSessions_SlowRequest(t *testing.T) {
	p := newPage(t, false)
	arrived, goOn := make(chan struct{}), make(chan struct{})
	p.mux.HandleFunc("/slow", func(w http.ResponseWriter, r *http.Request) {
		before, err := p.sessions.Operator(r.Context())
		if err != nil {
			answer(w, "", err)
			return
		}
		close(arrived)
		select {
		case <-goOn:
		case <-t.Context().Done(): // the test has failed
			return
		}
		after, err := p.sessions.Operator(r.Context())
		answer(w, before.Name+" then "+after.Name, err)
	})
	p.enter("ada")
	old := p.cookie()
	slow := make(chan *http.Response)
	go func() {
		req, _ := http.NewRequest(http.MethodGet, p.URL+"/slow", nil)
		req.AddCookie(&http.Cookie{Name: "countersign", Value: old})
		res, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			res = &http.Response{Status: err.Error()}
		}
		slow <- res
	}()
	<-arrived
	require.Equal(t, "bye", p.post("/sign-out", ""))
	require.Equal(t, "welcome ada", p.post("/sign-in", "name=ada"))
	close(goOn)
	res := <-slow
	require.Equal(t, http.StatusUnauthorized, res.StatusCode, res.Status)
	require.NoError(t, res.Body.Close())
	require.Empty(t, res.Cookies())
	require.Equal(t, "ada", p.get("/"))
	p.setCookie(old)
	require.Equal(t, nobody, p.get("/"))
}

// Streams and long polls: the first bytes arrive while the handler runs, a
// session that began before them is stored and set first, and deadlines pass
// through.
func TestSessions_Streams(t *testing.T) {
	flushes := map[string]func(http.ResponseWriter) error{
		"ResponseController": func(w http.ResponseWriter) error { return http.NewResponseController(w).Flush() },
		"Flusher": func(w http.ResponseWriter) error {
			f, ok := w.(http.Flusher)
			if !ok {
				return errors.New("no Flusher")
			}
			f.Flush()
			return nil
		},
	}
	for name, flush := range flushes {
		t.Run(name, func(t *testing.T) {
			p := newPage(t, false)
			o := p.person("ada")
			seen := make(chan struct{})
			p.mux.HandleFunc("/stream", func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(http.StatusEarlyHints) // no answer yet
				err := errors.Join(
					p.sessions.SignIn(r.Context(), o),
					http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Minute)),
					http.NewResponseController(w).EnableFullDuplex(),
				)
				if err != nil {
					answer(w, "", err)
					return
				}
				w.Header().Set("Content-Type", "text/event-stream")
				_ = flush(w)
				_, _ = io.WriteString(w, "data: 1\n\n")
				if flush(w) != nil {
					return
				}
				select {
				case <-seen:
				case <-r.Context().Done(): // the test has failed
					return
				}
				_, _ = io.WriteString(w, "data: 2\n\n")
			})
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.URL+"/stream", nil)
			require.NoError(t, err)
			res, err := p.browser.Do(req)
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, res.StatusCode)
			require.Equal(t, "text/event-stream", res.Header.Get("Content-Type"))
			require.Len(t, res.Cookies(), 1)
			first := make([]byte, 9)
			_, err = io.ReadFull(res.Body, first)
			require.NoError(t, err)
			require.Equal(t, "data: 1\n\n", string(first))
			require.Equal(t, "ada", p.get("/"), "signed in while the stream still runs")
			close(seen)
			rest, err := io.ReadAll(res.Body)
			require.NoError(t, err)
			require.NoError(t, res.Body.Close())
			require.Equal(t, "data: 2\n\n", string(rest))
		})
	}
}

// A handler that writes nothing has signed in all the same.
func TestSessions_SilentHandler(t *testing.T) {
	p := newPage(t, false)
	o := p.person("ada")
	p.mux.HandleFunc("/silent", func(_ http.ResponseWriter, r *http.Request) {
		if err := p.sessions.SignIn(r.Context(), o); err != nil {
			panic(err)
		}
	})
	require.Empty(t, p.get("/silent"))
	require.Equal(t, "ada", p.get("/"))
}

// Two middlewares around one handler store the session once.
func TestSessions_Nested(t *testing.T) {
	p := newPage(t, false)
	p.person("ada")
	p.mux.Handle("POST /nested/", p.sessions.LoadAndSave(http.StripPrefix("/nested", p.mux)))
	text, res := p.do(http.MethodPost, "/nested/sign-in", "name=ada")
	require.Equal(t, "welcome ada", text)
	require.Len(t, res.Cookies(), 1)
	require.Empty(t, p.failed)
	require.Equal(t, "ada", p.get("/"))
}

func TestSessions_StoreGone(t *testing.T) {
	t.Run("at reading", func(t *testing.T) {
		p := newPage(t, false)
		p.enter("ada")
		require.NoError(t, p.db.Close())
		text, res := p.do(http.MethodGet, "/", "")
		require.Equal(t, http.StatusServiceUnavailable, res.StatusCode)
		require.Equal(t, "no session", text)
		require.Len(t, p.failed, 1)
		refused(t, fault.StoreUnavailable, p.failed[0])
	})
	// A sign-in that can't be stored: OnError answers alone, whatever the
	// handler writes, and no cookie goes out.
	handlers := map[string]func(http.ResponseWriter){
		"write": func(w http.ResponseWriter) {
			if _, err := io.WriteString(w, "welcome"); err == nil {
				panic("written")
			}
			_, _ = io.WriteString(w, "welcome")
		},
		"redirect": func(w http.ResponseWriter) {
			w.Header().Set("Location", "/")
			w.WriteHeader(http.StatusSeeOther)
			_, _ = io.WriteString(w, "welcome")
		},
		"flush": func(w http.ResponseWriter) {
			if http.NewResponseController(w).Flush() == nil {
				panic("flushed")
			}
			_, _ = io.WriteString(w, "welcome")
		},
		"nothing": func(http.ResponseWriter) {},
	}
	for what, write := range handlers {
		t.Run(what, func(t *testing.T) {
			p := newPage(t, false)
			o := p.person("ada")
			p.mux.HandleFunc("/sign-in-late", func(w http.ResponseWriter, r *http.Request) {
				if err := p.sessions.SignIn(r.Context(), o); err != nil {
					panic(err)
				}
				if err := p.db.Close(); err != nil {
					panic(err)
				}
				write(w)
			})
			text, res := p.do(http.MethodGet, "/sign-in-late", "")
			require.Equal(t, http.StatusServiceUnavailable, res.StatusCode)
			require.Equal(t, "no session", text)
			require.Empty(t, res.Cookies())
			require.Len(t, p.failed, 1)
			refused(t, fault.StoreUnavailable, p.failed[0])
		})
	}
}

func TestNewSessions_NeedsOnError(t *testing.T) {
	w := newWorld(t)
	require.Panics(t, func() { identity.NewSessions(w.Service, identity.SessionsConfig{}) })
}

func TestSweep(t *testing.T) {
	p := newPage(t, false)
	p.enter("ada")
	_, code, err := p.CreateOperator(t.Context(), tenant, "bea", nil)
	require.NoError(t, err)
	begin := p.clock.Now()
	require.NoError(t, p.Sweep(t.Context()))
	require.Equal(t, "ada", p.get("/"), "what lives stays")
	p.clock.pass(identity.SessionLife)
	require.NoError(t, p.Sweep(t.Context()))
	// Back to when both were alive: they are gone for good.
	p.clock.pass(begin.Sub(p.clock.Now()))
	require.Equal(t, nobody, p.get("/"))
	_, err = p.PeekSetup(t.Context(), code)
	refused(t, fault.Unauthenticated, err)
}
