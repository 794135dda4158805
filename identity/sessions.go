package identity

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"time"

	"github.com/alexedwards/scs/v2"

	"countersign/fault"
)

// How long a session lives (S25).
const (
	// SessionIdle ends a session that was not used.
	SessionIdle = 15 * time.Minute
	// SessionLife ends a session however much it is used.
	SessionLife = 8 * time.Hour
	// sessionGrain is how stale IdleUntil may be, so that not every request is a
	// durable write. A session lives at least SessionIdle less this.
	sessionGrain = 30 * time.Second
)

// The cookie's name. Browsers take the __Host- prefix only over https, where it
// keeps other hosts of the domain from setting the cookie (RFC 6265bis, section
// 4.1.3.2).
const (
	secureCookie = "__Host-countersign"
	plainCookie  = "countersign"
)

// SessionsConfig is what Sessions are made of.
type SessionsConfig struct {
	// Secure says that browsers reach the page over https, by our TLS or by
	// public_url. False is for plain http on loopback: a cookie with another name
	// and without the Secure flag.
	Secure bool
	// Background tells the requests that a page makes by itself, such as polls
	// and streams. They see the session but don't keep it alive, so that a page
	// left open is idle. Nil means that there are none.
	Background func(*http.Request) bool
	// OnError answers a request whose session can't be read or stored. Required.
	OnError func(http.ResponseWriter, *http.Request, error)
}

// Sessions keep operators signed in. It is scs with its token, its cookie and
// its renewal, on our Store. Three things are not left to scs:
//
//   - The clock. Our store adapter ends sessions by Config.Now.
//   - The idle time. With scs's own every request writes the whole session and
//     the cookie again, so a slow request would bring back a session that was
//     signed out meanwhile, or overwrite the cookie of a newer one. Here a
//     request at most extends a session that still exists, and only SignIn and
//     SignOut write cookies.
//   - The token in the store. Only its hash ever gets there (S25).
type Sessions struct {
	service *Service
	cfg     SessionsConfig
	scs     *scs.SessionManager
}

// NewSessions makes the Sessions of a Service's operators. One process has one.
func NewSessions(s *Service, cfg SessionsConfig) *Sessions {
	if cfg.OnError == nil {
		panic("identity: SessionsConfig needs OnError")
	}
	name := plainCookie
	if cfg.Secure {
		name = secureCookie
	}
	sessions := &Sessions{service: s, cfg: cfg}
	// Not scs.New: it starts a goroutine for a store in memory that we don't use.
	sessions.scs = &scs.SessionManager{
		Lifetime:  SessionLife,
		Store:     sessionStore{s},
		Codec:     scs.GobCodec{},
		ErrorFunc: sessions.fail,
		Cookie: scs.SessionCookie{
			Name:     name,
			Path:     "/",
			HttpOnly: true,
			SameSite: http.SameSiteLaxMode,
			Secure:   cfg.Secure,
			// Gone with the browser, at the latest; the store ends it before.
			Persist: false,
		},
	}
	return sessions
}

// LoadAndSave gives the handlers behind it their session. What SignIn and
// SignOut did is written, with the cookie, before the first byte of the answer;
// if that fails, OnError answers in the handler's place. A second LoadAndSave
// around the same request does nothing.
func (s *Sessions) LoadAndSave(next http.Handler) http.Handler {
	inner := s.scs.LoadAndSave(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		req := r.Context().Value(requestKey{}).(*request)
		next.ServeHTTP(&upperWriter{ResponseWriter: w, req: req}, r)
	}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Context().Value(requestKey{}) != nil {
			next.ServeHTTP(w, r)
			return
		}
		req := &request{background: s.cfg.Background != nil && s.cfg.Background(r)}
		inner.ServeHTTP(&lowerWriter{w, req}, r.WithContext(context.WithValue(r.Context(), requestKey{}, req)))
	})
}

// request is what LoadAndSave remembers of a request.
type request struct {
	background bool
	// failed: OnError has answered.
	failed bool
}

type requestKey struct{}

// fail answers once and lets nothing of the handler's answer follow.
func (s *Sessions) fail(w http.ResponseWriter, r *http.Request, err error) {
	s.cfg.OnError(w, r, storeFault(err))
	r.Context().Value(requestKey{}).(*request).failed = true
}

// SignIn makes the request's session one of the operator, under a new token
// (against session fixation) and with nothing left of an earlier one.
func (s *Sessions) SignIn(ctx context.Context, o Operator) error {
	if err := s.scs.Clear(ctx); err != nil {
		return storeFault(err)
	}
	if err := s.scs.RenewToken(ctx); err != nil {
		return storeFault(err)
	}
	s.scs.Put(ctx, "tenant", o.Tenant)
	s.scs.Put(ctx, "operator", o.ID)
	s.scs.Put(ctx, "password", passwordMark(o))
	return nil
}

// SignOut ends the session here and in the store.
func (s *Sessions) SignOut(ctx context.Context) error {
	return storeFault(s.scs.Destroy(ctx))
}

// Operator tells who is signed in, or Unauthenticated. It asks the store each
// time, so a handler that lasts (a stream, a long poll) asks again before it
// tells more: the session may have been signed out or gone idle since. An
// operator who was disabled, or whose password was set anew, is signed out.
func (s *Sessions) Operator(ctx context.Context) (Operator, error) {
	id := s.scs.GetString(ctx, "operator")
	if id == "" {
		return Operator{}, signedOut()
	}
	// A session that this very request opened is not stored yet.
	if s.scs.Status(ctx) == scs.Unmodified {
		_, err := s.service.cfg.Store.Session(ctx, tokenHash(s.scs.Token(ctx)), s.service.now())
		if errors.Is(err, ErrNotFound) {
			return Operator{}, signedOut()
		}
		if err != nil {
			return Operator{}, storeFault(err)
		}
	}
	o, err := s.service.cfg.Store.Operator(ctx, s.scs.GetString(ctx, "tenant"), id)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return Operator{}, storeFault(err)
	}
	if err != nil || !o.DisabledAt.IsZero() || passwordMark(o) != s.scs.GetString(ctx, "password") {
		// Without SignOut, whose cookie would overwrite that of a newer session
		// when this request is slow. A cookie of a dead session does no harm.
		if err := s.service.cfg.Store.DeleteSession(ctx, tokenHash(s.scs.Token(ctx))); err != nil {
			return Operator{}, storeFault(err)
		}
		return Operator{}, signedOut()
	}
	return o, nil
}

func signedOut() error {
	return fault.New(fault.Unauthenticated, "Nobody is signed in, or the session is over. Sign in.")
}

// passwordMark changes whenever the password is set, since its hash has a random
// salt. It ties a session to the password that opened it.
func passwordMark(o Operator) string {
	sum := sha256.Sum256([]byte(o.Password))
	return base64.RawURLEncoding.EncodeToString(sum[:16])
}

// sessionStore is scs.CtxStore on the identity store.
type sessionStore struct{ service *Service }

func tokenHash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// FindCtx reads a session that is not over, and notes its use.
func (s sessionStore) FindCtx(ctx context.Context, token string) ([]byte, bool, error) {
	now := s.service.now()
	hash := tokenHash(token)
	found, err := s.service.cfg.Store.Session(ctx, hash, now)
	if errors.Is(err, ErrNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	if req, ok := ctx.Value(requestKey{}).(*request); ok && !req.background {
		if until := idleUntil(now, found.ExpiresAt); until.Sub(found.IdleUntil) >= sessionGrain {
			// A failure only shortens the session, and a person must be able to look
			// while the disk is full.
			_ = s.service.cfg.Store.ExtendSession(ctx, hash, until)
		}
	}
	return found.Data, true, nil
}

// CommitCtx stores a new session; its life counts from now, not from scs's
// clock. SignIn always takes a new token, so there is none to overwrite.
func (s sessionStore) CommitCtx(ctx context.Context, token string, data []byte, _ time.Time) error {
	now := s.service.now()
	expires := now.Add(SessionLife)
	return s.service.cfg.Store.CreateSession(ctx, Session{
		TokenHash: tokenHash(token), Data: data, IdleUntil: idleUntil(now, expires), ExpiresAt: expires,
	})
}

// DeleteCtx ends a session.
func (s sessionStore) DeleteCtx(ctx context.Context, token string) error {
	return s.service.cfg.Store.DeleteSession(ctx, tokenHash(token))
}

func idleUntil(now, expires time.Time) time.Time {
	if until := now.Add(SessionIdle); until.Before(expires) {
		return until
	}
	return expires
}

// Find, Commit and Delete are demanded by scs.Store; scs calls the ones with a
// context instead.

func (s sessionStore) Find(token string) ([]byte, bool, error) {
	return s.FindCtx(context.Background(), token)
}

func (s sessionStore) Commit(token string, data []byte, expiry time.Time) error {
	return s.CommitCtx(context.Background(), token, data, expiry)
}

func (s sessionStore) Delete(token string) error {
	return s.DeleteCtx(context.Background(), token)
}
