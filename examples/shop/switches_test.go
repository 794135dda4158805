package shop_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"countersign/examples/shop"
)

const refund = `{"payment":"pay_a3","amount":100}`

func TestSwitches_CutNext(t *testing.T) {
	s := start(t, shop.Config{})
	s.Set(shop.Switches{CutNext: 1})
	// A refusal is no reply to an accepted request: the cut waits for one.
	status, _ := s.call("POST", "/orders/ord_9/holds", "")
	require.Equal(t, 404, status)
	_, _, err := send(s.request("POST", "/orders/ord_1001/holds", ""))
	require.ErrorIs(t, err, syscall.ECONNRESET)
	require.Equal(t, 1, s.EffectCount())
	require.Zero(t, s.Requests()[1].Status)
	require.Zero(t, s.Switches().CutNext)
	status, _ = s.call("POST", "/orders/ord_1002/holds", "")
	require.Equal(t, 201, status)
}

// Rows 35 and 36 of the fault matrix: the peer takes the request on a kept-alive
// connection and closes it.
func TestSwitches_CutKeptAlive(t *testing.T) {
	s := start(t, shop.Config{})
	client := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 1}}
	defer client.CloseIdleConnections()
	reply, err := client.Do(s.request("GET", "/orders/ord_1001", ""))
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, reply.Body)
	require.NoError(t, err)
	require.NoError(t, reply.Body.Close())

	s.Set(shop.Switches{CutNext: 1})
	reused := false
	r := s.request("POST", "/orders/ord_1001/holds", "{}")
	r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		GotConn: func(c httptrace.GotConnInfo) { reused = c.Reused },
	}))
	_, err = client.Do(r) //nolint:bodyclose // there is no reply
	require.ErrorIs(t, err, syscall.ECONNRESET)
	require.True(t, reused, "the connection was kept alive")
	require.Equal(t, 1, s.EffectCount())
	require.Len(t, s.Requests(), 1)
}

// Trap 1: Go's transport sends a POST with an Idempotency-Key again when its
// reused connection dies. The shop sees both, and honours the key.
func TestSwitches_CutShowsASilentRepeat(t *testing.T) {
	s := start(t, shop.Config{})
	client := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 1}}
	defer client.CloseIdleConnections()
	for i, switches := range []shop.Switches{{}, {CutNext: 1}} {
		s.Set(switches)
		reply, err := client.Do(s.request("POST", "/refunds", refund, "Idempotency-Key", []string{"k-1", "k-2"}[i]))
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, reply.Body)
		require.NoError(t, err)
		require.NoError(t, reply.Body.Close())
	}
	require.Equal(t, 2, s.EffectCount())
	require.Len(t, s.Requests(), 3)
}

func TestSwitches_Refuse(t *testing.T) {
	s := start(t, shop.Config{})
	s.Set(shop.Switches{RefuseNext: 2})
	refused := `{"message":"Refused by a switch, nothing was done."}`
	s.want(422, refused, "POST", "/refunds", refund)
	s.want(422, refused, "POST", "/orders/ord_1001/holds", "")
	s.want(201, `{"id":"re_12","payment":"pay_a3","amount":100,"currency":"EUR","state":"pending"}`, "POST", "/refunds", refund)
	s.Set(shop.Switches{Refuse: true})
	for range 3 {
		s.want(422, refused, "POST", "/refunds", refund)
	}
	require.Equal(t, 1, s.EffectCount())
	require.Len(t, s.Requests(), 6)
}

func TestSwitches_ErrorNext(t *testing.T) {
	s := start(t, shop.Config{})
	s.Set(shop.Switches{ErrorNext: 1})
	s.want(500, `{"message":"Something went wrong."}`, "POST", "/refunds", refund, "Idempotency-Key", "k-1")
	require.Equal(t, 1, s.EffectCount())
	s.want(201, `{"id":"re_12","payment":"pay_a3","amount":100,"currency":"EUR","state":"pending"}`,
		"POST", "/refunds", refund, "Idempotency-Key", "k-1")
	require.Equal(t, 1, s.EffectCount())
}

func TestSwitches_HoldAndSlow(t *testing.T) {
	effects := make(chan shop.Effect, 2)
	s := start(t, shop.Config{OnEffect: func(e shop.Effect) { effects <- e }})
	s.Set(shop.Switches{HoldMS: 40, SlowMS: 40})
	began := time.Now()
	status, _ := s.call("POST", "/refunds", refund)
	require.Equal(t, 201, status)
	require.GreaterOrEqual(t, time.Since(began), 80*time.Millisecond)

	// A caller that hangs up does not stop a held request.
	<-effects
	s.Set(shop.Switches{HoldMS: 300})
	ctx, hangUp := context.WithCancel(t.Context())
	go func() {
		s.received(2)
		hangUp()
	}()
	_, _, err := send(s.request("POST", "/letters", `{"to":"adr_2001","subject":"a","body":"b"}`).WithContext(ctx))
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, shop.VerbSend, (<-effects).Verb)
}

func TestSwitches_CloseEndsAHeldRequestWithoutEffect(t *testing.T) {
	dir := t.TempDir()
	s := start(t, shop.Config{Dir: dir})
	s.Set(shop.Switches{HoldMS: 60_000})
	failed := make(chan error, 1)
	go func() {
		_, _, err := send(s.request("POST", "/refunds", refund))
		failed <- err
	}()
	s.received(1)
	require.NoError(t, s.Close())
	require.Error(t, <-failed)
	require.Zero(t, start(t, shop.Config{Dir: dir}).EffectCount())
}

func TestSwitches_AnswerNext(t *testing.T) {
	s := start(t, shop.Config{})
	good := func(n string) string {
		return `{"id":"` + n + `","payment":"pay_a3","amount":100,"currency":"EUR","state":"pending"}`
	}
	next := func(how shop.Answer) (*http.Response, []byte, error) {
		s.Set(shop.Switches{AnswerNext: how})
		defer func() { require.Equal(t, shop.Switches{}, s.Switches(), "used up") }()
		return send(s.request("POST", "/refunds", refund))
	}

	_, body, err := next(shop.AnswerTruncated)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.True(t, strings.HasPrefix(good("re_12"), string(body)) && len(body) > 0, "%q", body)
	require.Equal(t, 1, s.EffectCount())

	reply, body, err := next(shop.AnswerNotJSON)
	require.NoError(t, err)
	require.Equal(t, 201, reply.StatusCode)
	require.False(t, json.Valid(body))
	require.Equal(t, 2, s.EffectCount())

	reply, body, err = next(shop.AnswerHuge)
	require.NoError(t, err)
	require.Equal(t, 201, reply.StatusCode)
	require.Greater(t, len(body), 32<<20)
	require.JSONEq(t, good("re_14"), string(bytes.TrimSpace(body)))
	require.Equal(t, 3, s.EffectCount())

	var hints int
	s.Set(shop.Switches{AnswerNext: shop.AnswerHints})
	r := s.request("POST", "/refunds", refund)
	r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		Got1xxResponse: func(int, textproto.MIMEHeader) error { hints++; return nil },
	}))
	reply, body, err = send(r)
	require.NoError(t, err)
	require.Equal(t, 201, reply.StatusCode)
	require.JSONEq(t, good("re_15"), string(body))
	require.Equal(t, 1000, hints)
	require.Equal(t, 4, s.EffectCount())

	reply, body, err = next(shop.AnswerNotDone)
	require.NoError(t, err)
	require.Equal(t, 201, reply.StatusCode)
	require.JSONEq(t, good("re_16"), string(body))

	reply, _, err = next(shop.AnswerTooMany)
	require.NoError(t, err)
	require.Equal(t, 429, reply.StatusCode)
	require.Equal(t, "1", reply.Header.Get("Retry-After"))

	reply, _, err = next(shop.AnswerRedirect)
	require.NoError(t, err)
	require.Equal(t, 307, reply.StatusCode)
	require.Equal(t, "/refunds", reply.Header.Get("Location"))
	require.Equal(t, 4, s.EffectCount(), "the last three did nothing")
	require.Len(t, s.Requests(), 7)
}

func TestSwitches_Trickle(t *testing.T) {
	s := start(t, shop.Config{})
	s.Set(shop.Switches{AnswerNext: shop.AnswerTrickle})
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	reply, err := client.Do(s.request("POST", "/refunds", refund))
	require.NoError(t, err)
	defer reply.Body.Close()
	first := make([]byte, 64)
	n, err := reply.Body.Read(first)
	require.NoError(t, err)
	require.Equal(t, "{", string(first[:n]), "the rest is still to come")
	require.Equal(t, 1, s.EffectCount())
}

func TestSwitches_ForgetKeysAndLag(t *testing.T) {
	c := newClock()
	s := start(t, shop.Config{Now: c.Now})
	s.Set(shop.Switches{ForgetKeys: true, LagMS: 5000})
	for range 2 {
		status, _ := s.call("POST", "/refunds", refund, "Idempotency-Key", "k-1")
		require.Equal(t, 201, status)
	}
	require.Equal(t, 2, s.EffectCount(), "a broken promise (row 38)")
	s.want(200, `{"items":[]}`, "GET", "/refunds?idempotency_key=k-1", "") // row 39
	c.move(5 * time.Second)
	_, body := s.call("GET", "/refunds?idempotency_key=k-1", "")
	require.Contains(t, body, `"id":"re_12"`)
	require.Contains(t, body, `"id":"re_13"`)
}

func TestShop_IdempotentRefunds(t *testing.T) {
	s := start(t, shop.Config{})
	var wg sync.WaitGroup
	bodies := make([]string, 50)
	statuses := make([]int, 50)
	replayed := make([]bool, 50)
	for i := range bodies {
		wg.Go(func() {
			reply, body, err := send(s.request("POST", "/refunds", refund, "Idempotency-Key", "k-1"))
			if err == nil {
				statuses[i], bodies[i], replayed[i] = reply.StatusCode, string(body), reply.Header.Get("Idempotent-Replayed") == "true"
			}
		})
	}
	wg.Wait()
	first := 0
	for i := range bodies {
		require.Equal(t, 201, statuses[i])
		require.Equal(t, bodies[0], bodies[i])
		if !replayed[i] {
			first++
		}
	}
	require.Equal(t, 1, first)
	require.Equal(t, 1, s.EffectCount())
	require.Len(t, s.Requests(), 50)
	s.want(409, `{"message":"The key was used for another refund, re_12."}`,
		"POST", "/refunds", `{"payment":"pay_a3","amount":101}`, "Idempotency-Key", "k-1")
	s.want(409, `{"message":"The key was used for another refund, re_12."}`,
		"POST", "/refunds", `{"payment":"pay_a5","amount":100}`, "Idempotency-Key", "k-1")

	// The first reply stays the first reply, whatever became of the refund.
	s.call("POST", "/refunds/re_12/cancel", "")
	s.want(201, `{"id":"re_12","payment":"pay_a3","amount":100,"currency":"EUR","state":"pending"}`,
		"POST", "/refunds", refund, "Idempotency-Key", "k-1")
	require.Equal(t, 2, s.EffectCount())
}

func TestShop_KeyIsHonouredForADay(t *testing.T) {
	c := newClock()
	s := start(t, shop.Config{Now: c.Now})
	for i, step := range []struct {
		wait    time.Duration
		effects int
	}{{0, 1}, {24*time.Hour - time.Second, 1}, {time.Second, 2}, {time.Hour, 2}} {
		c.move(step.wait)
		status, body := s.call("POST", "/refunds", refund, "Idempotency-Key", "k-1")
		require.Equal(t, 201, status, body)
		require.Equal(t, step.effects, s.EffectCount(), "step %d", i)
	}
}

func TestSwitches_Routes(t *testing.T) {
	s := start(t, shop.Config{Key: "secret"})
	all := shop.Switches{
		CutNext: 1, ErrorNext: 2, RefuseNext: 3, Refuse: true, AnswerNext: shop.AnswerHuge,
		HoldMS: 4, SlowMS: 5, LagMS: 6, ForgetKeys: true,
	}
	text, err := json.Marshal(all)
	require.NoError(t, err)
	s.want(200, string(text), "POST", "/switches", string(text))
	require.Equal(t, all, s.Switches())
	s.want(200, string(text), "GET", "/switches", "")

	form := []string{"Content-Type", "application/x-www-form-urlencoded"}
	status, _ := s.call("POST", "/switches", "cut_next=0&refuse=0&answer_next=", form...)
	require.Equal(t, 200, status)
	all.CutNext, all.Refuse, all.AnswerNext = 0, false, ""
	require.Empty(t, cmp.Diff(all, s.Switches()), "only what was named has changed")

	for _, bad := range []struct {
		status  int
		body    string
		headers []string
	}{
		{422, `{"cut_next":-1}`, nil},
		{422, `{"cut_next":1001}`, nil},
		{422, `{"cut_next":1.5}`, nil},
		{422, `{"cut_next":null}`, nil},
		{422, `{"cut_next":5,"slow_ms":120001}`, nil},
		{422, `{"refuse":2}`, nil},
		{422, `{"answer_next":"explode"}`, nil},
		{422, `{"explode_next":1}`, nil},
		{400, `{"cut_next":1`, nil},
		{400, `[]`, nil},
		{422, `cut_next=x`, form},
		{400, `cut_next=1&cut_next=1`, form},
		{400, `cut_next=%zz`, form},
		{413, `{"x":"` + strings.Repeat("x", 64<<10) + `"}`, nil},
		{415, `{"cut_next":1}`, []string{"Content-Type", "text/plain"}},
		{403, `cut_next=1`, append([]string{"Origin", "http://elsewhere.example"}, form...)},
		{403, `cut_next=1`, append([]string{"Sec-Fetch-Site", "cross-site"}, form...)},
		{421, `cut_next=1`, append([]string{"Host", "shop.elsewhere.example"}, form...)},
	} {
		status, body := s.call("POST", "/switches", bad.body, bad.headers...)
		require.Equal(t, bad.status, status, "%.60s: %s", bad.body, body)
		require.Empty(t, cmp.Diff(all, s.Switches()), "%.60s", bad.body)
	}
	require.Empty(t, s.Requests(), "switches are no requests for a change")
}
