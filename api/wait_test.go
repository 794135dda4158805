package api_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/examples/shop"
)

// later runs a call beside the test.
func (r *rig) later(c call) <-chan answer {
	done := make(chan answer, 1)
	go func() { done <- r.do(c) }()
	return done
}

// A commit waits for its outcome, but not longer than it was told.
func TestWait_Commit(t *testing.T) {
	r := newRig(t)
	token := r.preview("ord_1001").str("commit_token")
	r.shop.Set(shop.Switches{HoldMS: 300})
	c := r.spend("hold_order", r.clerk, token)
	c.path += "?wait=0"
	now := r.want(c, 202, "")
	require.Equal(t, "running", now.str("state"))
	require.Equal(t, "poll", now.str("next", "action"))
	require.Equal(t, "1", now.Header.Get("Retry-After"))
	require.Equal(t, "/v1/operations/"+now.str("id")+"?wait=30", now.str("next", "url"))
	done := r.want(get(now.str("next", "url"), r.clerk), 200, "")
	require.Equal(t, "succeeded", done.str("state"))
	require.Equal(t, 1, r.shop.RequestCount())
}

// What waits for people is answered at once; a long poll on it ends with the
// decision and what follows from it.
func TestWait_People(t *testing.T) {
	r := newRig(t)
	id := r.refund("c-1", 100)
	poll := r.later(get("/v1/operations/"+id+"?wait=60", r.clerk))
	r.decide(id, r.ann, "reject", "no").ok(200)
	a := <-poll
	require.Equal(t, 200, a.StatusCode)
	require.Equal(t, "rejected", a.str("state"))
}

// A dispatch goes on when the agent hangs up; the repeat says how it ended.
func TestWait_HangUp(t *testing.T) {
	r := newRig(t)
	token := r.preview("ord_1001").str("commit_token")
	r.shop.Set(shop.Switches{HoldMS: 300})
	ctx, hangUp := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.server.URL+"/v1/tools/hold_order/commit", strings.NewReader(asJSON(map[string]any{"commit_token": token})))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+r.clerk)
	req.Header.Set("Content-Type", "application/json")
	gone := make(chan error, 1)
	go func() {
		res, err := http.DefaultClient.Do(req)
		if err == nil {
			res.Body.Close()
		}
		gone <- err
	}()
	require.Eventually(t, func() bool { return r.shop.RequestCount() == 1 }, 10*time.Second, time.Millisecond)
	hangUp()
	require.Error(t, <-gone)
	a := r.want(r.spend("hold_order", r.clerk, token), 200, "")
	require.Equal(t, "succeeded", a.str("state"))
	require.Equal(t, true, a.at("replayed"))
	require.Equal(t, 1, r.shop.EffectCount())
}

// A gateway that is about to stop lets nobody wait.
func TestWait_Draining(t *testing.T) {
	stop := make(chan struct{})
	r := newRig(t, func(o *options) { o.draining = stop })
	id := r.refund("c-1", 100)
	poll := r.later(get("/v1/operations/"+id+"?wait=60", r.clerk))
	close(stop)
	a := <-poll
	require.Equal(t, 202, a.StatusCode)
	require.Equal(t, "awaiting_approval", a.str("state"))
	r.want(get("/v1/operations/"+id+"?wait=60", r.clerk), 202, "")
}

// A session that ends while its holder waits learns nothing more.
func TestWait_SignedOut(t *testing.T) {
	r := newRig(t)
	id := r.refund("c-1", 100)
	before := r.store.looks()
	poll := r.later(get("/v1/operations/"+id+"?wait=60", "").as(r.ann))
	// The handler has looked once, and the wait once.
	require.Eventually(t, func() bool { return r.store.looks() >= before+2 }, 10*time.Second, time.Millisecond)
	ann, err := r.identity.OperatorNamed(context.Background(), tenant, "ann")
	require.NoError(t, err)
	require.NoError(t, r.identity.DisableOperator(context.Background(), tenant, ann.ID))
	r.want(post("/v1/operations/"+id+"/cancel", r.clerk, `{}`), 200, "")
	a := <-poll
	require.Equal(t, 401, a.StatusCode)
}
