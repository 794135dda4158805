package web_test

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/fault"
	"countersign/identity"
	"countersign/ledger"
	"countersign/web"
)

func TestSignIn(t *testing.T) {
	r := newRig(t)
	r.operator("mara", "support")
	b := r.browser()
	f := b.get("/sign-in").form(t, "/sign-in", "")
	require.Equal(t, []string{"name", "password"}, f.required)

	// Whatever was wrong, it is said in one text, and the name stays typed.
	var said []string
	for _, c := range [][2]string{{"mara", "wrong horse battery"}, {"nobody", password}, {"mara", ""}, {"", ""}, {`"><script>`, password}} {
		got := b.send(f, "name", c[0], "password", c[1])
		require.Equal(t, 401, got.Status)
		require.Empty(t, got.Header["Set-Cookie"])
		said = append(said, got.notice(t))
		again := got.form(t, "/sign-in", "")
		require.Equal(t, c[0], again.fields.Get("name"))
		require.Empty(t, again.fields.Get("password"))
	}
	for _, s := range said {
		require.Equal(t, "The name or the password is wrong.", s)
	}

	got := b.send(f, "name", " Mara ", "password", password)
	require.Equal(t, 303, got.Status, got.Body)
	require.Equal(t, "/approvals", got.Location)
	cookie := got.Header.Get("Set-Cookie")
	require.Contains(t, cookie, "HttpOnly")
	require.Contains(t, cookie, "SameSite=Lax")
	require.NotContains(t, cookie, "__Host-", "plain http on loopback")
	require.Equal(t, "/approvals", b.get("/sign-in").Location, "who is in needs no door")
	require.Equal(t, "/approvals", b.get("/").Location)

	out := b.post("/sign-out")
	require.Equal(t, 303, out.Status)
	require.Equal(t, "/sign-in", b.get("/approvals").Location)
}

// After signing in one comes back to where one was, and nowhere else.
func TestSignIn_ReturnsToOwnPathsOnly(t *testing.T) {
	r := newRig(t)
	r.operator("mara", "support")
	b := r.browser()
	got := b.get("/operations?state=unknown&tool=send_letter")
	require.Equal(t, 303, got.Status)
	f := b.follow(got).form(t, "/sign-in", "")
	require.Equal(t, "/operations?state=unknown&tool=send_letter", f.fields.Get("next"))
	require.Equal(t, "/operations?state=unknown&tool=send_letter", b.send(f, "name", "mara", "password", password).Location)

	for _, next := range []string{
		"https://evil.example/", "//evil.example/", "///evil.example", "/\\evil.example", "\\\\evil.example", "javascript:alert(1)",
		"http:evil.example", "/\t/evil.example", "/\r\n/evil.example", "evil.example", "", "?x", "#x", "/sign-out", "/sign-in", "/setup",
		"/events?queue=1", "/", "/..//evil.example/%2e%2e//x", "//", "/%5cevil.example", "http://user@evil.example", "/%09/evil.example\n",
	} {
		b := r.browser()
		got := b.post("/sign-in", "name", "mara", "password", password, "next", next)
		require.Equal(t, 303, got.Status, next)
		u, err := url.Parse(got.Location)
		require.NoError(t, err)
		require.True(t, u.Host == "" && strings.HasPrefix(got.Location, "/") && !strings.HasPrefix(got.Location, "//"), "%q leads to %q", next, got.Location)
	}
	require.Equal(t, "/operations/op_1?done=x", web.OwnPath("/operations/op_1?done=x"))
	require.Equal(t, "/approvals", web.OwnPath("/%5cevil.example"))
}

// Guessing is slowed down, and the answer says for how long.
func TestSignIn_Throttled(t *testing.T) {
	r := newRigWith(t, func(c *web.Config) {
		c.Address = func(req *http.Request) netip.Addr { return netip.MustParseAddr(req.Header.Get("X-Test-Address")) }
	})
	r.operator("mara", "support")
	try := func(address, pass string) page {
		b := r.browser()
		req, err := http.NewRequest(http.MethodPost, r.server.URL+"/sign-in", strings.NewReader(url.Values{"name": {"mara"}, "password": {pass}}.Encode()))
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("X-Test-Address", address)
		return b.do(req)
	}
	var last page
	for range 10 {
		last = try("192.0.2.7", "wrong horse battery")
	}
	require.Equal(t, 429, last.Status)
	require.NotEmpty(t, last.Header.Get("Retry-After"))
	require.Contains(t, last.notice(t), "Too many tries")
	require.Equal(t, 429, try("192.0.2.7", password).Status, "the right password waits too")
	require.Equal(t, 303, try("198.51.100.1", password).Status, "from elsewhere it does not")
}

// The whole way in without scripts: the code by hand, then the password.
func TestSetup(t *testing.T) {
	r := newRig(t)
	_, code, err := r.identity.CreateOperator(context.Background(), tenant, "mara", []string{"support"})
	require.NoError(t, err)
	b := r.browser()
	f := b.get("/setup").form(t, "/setup", "")
	require.Equal(t, []string{"code"}, f.required)
	wrong := b.send(f, "code", "wrong"+code)
	require.Equal(t, 401, wrong.Status)
	require.Contains(t, wrong.notice(t), "not valid")
	require.Equal(t, []string{"code"}, wrong.form(t, "/setup", "").required)

	second := b.send(f, "code", " "+code+" ")
	require.Equal(t, 200, second.Status)
	f = second.form(t, "/setup", "")
	require.Equal(t, []string{"password"}, f.required)
	require.Equal(t, "mara", f.fields.Get("name"))
	require.Contains(t, second.Body, `autocomplete="new-password"`)
	for _, weak := range []string{"", "short", "password123", "mara", strings.Repeat("x", 300)} {
		got := b.send(f, "password", weak)
		require.Equal(t, 422, got.Status, weak)
		require.NotEmpty(t, got.notice(t))
		require.NotContains(t, got.Body, `value="`+weak+`x`)
		f = got.form(t, "/setup", "") // the code is good for another try
	}
	// The name in the form is for password managers; it decides nothing.
	got := b.send(f, "password", password, "name", "somebody-else")
	require.Equal(t, 303, got.Status, got.Body)
	require.Equal(t, "/approvals", got.Location)
	require.Contains(t, b.follow(got).one(t, "me"), "mara", "signed in")

	used := r.browser().send(f, "password", password)
	require.Equal(t, 401, used.Status)
	require.Equal(t, []string{"code"}, used.form(t, "/setup", "").required, "the code is what is wrong")
	require.NotContains(t, r.log.String(), code)
}

// Without a session a page is only a door, and a form does nothing.
func TestSignedOut(t *testing.T) {
	r := newRig(t)
	op := r.ask(r.agent, "refund_payment", args("case", "1", "payment_id", "pay_a1", "amount", 100))
	b := r.browser()
	for _, path := range []string{"/", "/approvals", "/operations", "/operations/" + op.ID, "/operations/nothing", "/tools", "/tools/refund_payment", "/tools/nothing"} {
		got := b.get(path)
		require.Equal(t, 303, got.Status, path)
		require.True(t, strings.HasPrefix(got.Location, "/sign-in"), path)
		require.NotContains(t, got.Body, "Refund")
	}
	for _, verb := range []string{"decision", "reopen", "cancel", "resolve"} {
		got := b.post(at(op.ID)+"/"+verb, "decision", "approve", "reason", "x")
		require.Equal(t, 401, got.Status, verb)
		require.Contains(t, got.Body, "nothing was changed")
	}
	require.Equal(t, 401, b.get("/events?queue=1").Status)
	require.Equal(t, 401, b.get("/approvals?live=1").Status)
	require.EqualValues(t, 1, r.op(op.ID).Version)
	got := b.get("/nowhere")
	require.Equal(t, 404, got.Status)
	require.Contains(t, got.Body, "There is no page at this address")
}

// A session that is over, or whose operator was disabled, sees nothing more.
func TestSession_Ends(t *testing.T) {
	r := newRig(t)
	mara, tomas := r.as("mara", "support"), r.as("tomas", "support")
	// What a page does by itself keeps no session alive; what a person does, does.
	for range 4 {
		r.clock.Add(10 * time.Minute)
		require.Equal(t, 200, mara.get("/approvals").Status)
		if got := tomas.get("/approvals?live=1"); got.Status != 200 {
			require.Equal(t, 401, got.Status)
		}
	}
	require.Equal(t, 303, tomas.get("/approvals").Status)
	require.NoError(t, r.identity.DisableOperator(context.Background(), tenant, r.people["mara"].ID))
	require.Equal(t, 303, mara.get("/approvals").Status)
	require.Equal(t, 401, r.browser().post("/sign-in", "name", "mara", "password", password).Status)
}

// A GET decides nothing, whatever its address says (design: people).
func TestGET_NeverDecides(t *testing.T) {
	r := newRig(t)
	op := r.ask(r.agent, "refund_payment", args("case", "1", "payment_id", "pay_a1", "amount", 100))
	mara := r.as("mara", "support")
	digest := mara.get(at(op.ID)).form(t, decision(op.ID), "approve").fields.Get("shown_digest")
	for _, verb := range []string{"decision", "reopen", "cancel", "resolve"} {
		for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPut, http.MethodDelete, http.MethodPatch} {
			req, err := http.NewRequest(method, r.server.URL+at(op.ID)+"/"+verb+"?decision=approve&checked=yes&reason=x&shown_digest="+url.QueryEscape(digest), nil)
			require.NoError(t, err)
			req.Header.Set("X-HTTP-Method-Override", "POST")
			req.Header.Set("Sec-Fetch-Site", "same-origin")
			require.Equal(t, 405, mara.do(req).Status, "%s %s", method, verb)
		}
	}
	require.EqualValues(t, 1, r.op(op.ID).Version)
	require.Contains(t, mara.get(decision(op.ID)).Body, "That is not done here")
}

// Another site can't act for who is signed in here (S51), and is told kindly.
func TestCrossOrigin(t *testing.T) {
	r := newRig(t)
	op := r.ask(r.agent, "refund_payment", args("case", "1", "payment_id", "pay_a1", "amount", 100))
	mara := r.as("mara", "support")
	f := mara.get(at(op.ID)).form(t, decision(op.ID), "approve")
	for _, site := range []string{"cross-site", "same-site"} {
		evil := &browser{t: t, r: r, client: mara.client, site: site}
		for _, got := range []page{evil.send(f, "checked", "yes"), evil.post("/sign-out"), evil.post("/sign-in", "name", "mara", "password", password), evil.post("/setup", "code", "x")} {
			require.Equal(t, 403, got.Status, site)
			require.Contains(t, got.Body, "sent from another site")
			require.Empty(t, got.Header["Set-Cookie"])
		}
	}
	// An old browser sends only Origin.
	req, err := http.NewRequest(http.MethodPost, r.server.URL+decision(op.ID), strings.NewReader(f.fields.Encode()))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Origin", "https://evil.example")
	require.Equal(t, 403, mara.do(req).Status)
	require.EqualValues(t, 1, r.op(op.ID).Version)
	require.Equal(t, 200, mara.get("/approvals").Status, "still signed in")
}

// Behind a proxy that changes the Host, the public origin is ours.
func TestCrossOrigin_PublicURL(t *testing.T) {
	r := newRigWith(t, func(c *web.Config) { c.PublicURL = "https://approve.example/page" })
	r.operator("mara", "support")
	for origin, status := range map[string]int{"https://approve.example": 303, "https://approve.example.evil": 403, "http://approve.example": 403} {
		req, err := http.NewRequest(http.MethodPost, r.server.URL+"/sign-in", strings.NewReader("name=mara&password="+url.QueryEscape(password)))
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Origin", origin)
		require.Equal(t, status, r.browser().do(req).Status, origin)
	}
}

// A form that is too large or no form changes nothing and is answered.
func TestForms_Malformed(t *testing.T) {
	r := newRig(t)
	op := r.ask(r.agent, "refund_payment", args("case", "1", "payment_id", "pay_a1", "amount", 100))
	mara := r.as("mara", "support")
	for name, c := range map[string]struct{ kind, body string }{
		"bad escape": {"application/x-www-form-urlencoded", "decision=%zz"},
		"too large":  {"application/x-www-form-urlencoded", "decision=approve&reason=" + strings.Repeat("x", 70_000)},
		"json":       {"application/json", `{"decision":"approve"}`},
		"plain text": {"text/plain", "decision=approve"},
		"multipart":  {"multipart/form-data; boundary=x", "--x\r\nContent-Disposition: form-data; name=\"decision\"\r\n\r\napprove\r\n--x--\r\n"},
		"semicolons": {"application/x-www-form-urlencoded", "decision=approve;checked=yes"},
		"empty":      {"", ""},
	} {
		req, err := http.NewRequest(http.MethodPost, r.server.URL+decision(op.ID), strings.NewReader(c.body))
		require.NoError(t, err)
		req.Header.Set("Content-Type", c.kind)
		got := mara.do(req)
		require.GreaterOrEqual(t, got.Status, 400, name)
		require.Less(t, got.Status, 500, name)
		require.Contains(t, got.Body, "</html>", name)
	}
	require.EqualValues(t, 1, r.op(op.ID).Version)
}

// A template that is on no list, or broken, stops the start.
func TestTemplates_AllAccountedFor(t *testing.T) {
	views, err := web.ParseViews(web.TemplateFiles)
	require.NoError(t, err)
	require.NotEmpty(t, views)
	copied := func() fstest.MapFS {
		m := fstest.MapFS{}
		require.NoError(t, fs.WalkDir(web.TemplateFiles, ".", func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			body, err := fs.ReadFile(web.TemplateFiles, name)
			m[name] = &fstest.MapFile{Data: body}
			return err
		}))
		return m
	}
	for name, spoil := range map[string]func(fstest.MapFS){
		"is on no list":        func(m fstest.MapFS) { m["templates/stray.html"] = &fstest.MapFile{Data: []byte("x")} },
		"stray2.html":          func(m fstest.MapFS) { m["templates/parts/stray2.html"] = &fstest.MapFile{Data: []byte("x")} },
		"no files":             func(m fstest.MapFS) { delete(m, "templates/approvals.html") },
		"defines no content":   func(m fstest.MapFS) { m["templates/tools.html"] = &fstest.MapFile{Data: []byte("x")} },
		"missing value for if": func(m fstest.MapFS) { m["templates/tools.html"] = &fstest.MapFile{Data: []byte("{{if}}")} },
		"\"nope\" not defined": func(m fstest.MapFS) {
			m["templates/tools.html"] = &fstest.MapFile{Data: []byte("{{define \"content\"}}{{nope}}{{end}}")}
		},
		"unexpected {{end}}":  func(m fstest.MapFS) { m["templates/parts/record.html"] = &fstest.MapFile{Data: []byte("{{end}}")} },
		"templates/parts/who": func(m fstest.MapFS) { delete(m, "templates/parts/who.html") },
	} {
		m := copied()
		spoil(m)
		_, err := web.ParseViews(m)
		require.ErrorContains(t, err, name)
	}
}

func TestNew_NeedsItsParts(t *testing.T) {
	_, err := web.New(web.Config{})
	require.ErrorContains(t, err, "Config needs")
}

// What goes wrong inside is logged once and shown without detail.
func TestProblem_Internal(t *testing.T) {
	r := newRig(t)
	mara := r.as("mara", "support")
	require.NoError(t, r.db.Close())
	r.db = nil
	got := mara.get("/approvals")
	require.Equal(t, 503, got.Status, got.Body)
	require.NotContains(t, got.Body, "sql")
	require.Equal(t, 1, strings.Count(r.log.String(), "level=ERROR"), r.log.String())
	require.Contains(t, got.Body, "</html>")
}

// Every code has its status and its heading.
func TestProblem_Known(t *testing.T) {
	r := newRig(t)
	for code, status := range map[fault.Code]int{
		fault.StoreUnavailable: 503, fault.DiskFull: 507, fault.OutcomeUnclear: 503, fault.Internal: 500, fault.ToolRefused: 422, fault.SchemaViolation: 422, fault.ToolFrozen: 423,
	} {
		w := newRecorder()
		req, err := http.NewRequest(http.MethodGet, "/approvals", nil)
		require.NoError(t, err)
		r.pages.SessionError(w, req, fault.New(code, "A sentence."))
		require.Equal(t, status, w.Code)
		require.Contains(t, w.Body.String(), "A sentence.")
	}
	w := newRecorder()
	req, err := http.NewRequest(http.MethodGet, "/approvals", nil)
	require.NoError(t, err)
	r.pages.SessionError(w, req, errors.New("secret detail"))
	require.Equal(t, 500, w.Code)
	require.NotContains(t, w.Body.String(), "secret detail")
	require.Contains(t, r.log.String(), "secret detail")
}

// A frozen tool says so where people decide.
func TestFrozen(t *testing.T) {
	r := newRig(t)
	op := r.ask(r.agent, "refund_payment", args("case", "1", "payment_id", "pay_a1", "amount", 100))
	_, err := r.ledger.Freeze(context.Background(), ledger.Scope{Tenant: tenant, Tool: "refund_payment"}, ledger.FreezeAll, ledger.Gateway("test"), "Two effects were seen.")
	require.NoError(t, err)
	mara := r.as("mara", "support")
	require.Contains(t, mara.get(at(op.ID)).one(t, "stands"), "The tool is frozen")
	require.Contains(t, mara.get("/tools").Body, "Frozen")
	require.Contains(t, mara.get("/tools/refund_payment").Body, "Two effects were seen.")
}

// An owner who is nobody's account is named, and one who can't be read is shown by
// id.
func TestWho_Owner(t *testing.T) {
	r := newRig(t)
	mara, tomas := r.as("mara", "support"), r.as("tomas", "support")
	op := r.ask(r.agent, "refund_payment", args("case", "1", "payment_id", "pay_a1", "amount", 100))
	require.Contains(t, mara.get(at(op.ID)).Body, "the demo itself")
	own, _, err := r.identity.CreateAgent(context.Background(), tenant, "her-bot", r.people["mara"].ID, []string{identity.AllTools})
	require.NoError(t, err)
	op = r.ask(own, "refund_payment", args("case", "2", "payment_id", "pay_a2", "amount", 100))
	require.Contains(t, tomas.get(at(op.ID)).Body, `<dt>Owner</dt><dd><bdi dir="ltr">mara</bdi>`)
}
