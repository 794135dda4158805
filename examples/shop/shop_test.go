package shop_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/examples/shop"
)

// running is a shop behind a real listener, and a client of it.
type running struct {
	*shop.Shop
	t    *testing.T
	url  string
	auth string
}

// start opens a shop and serves it on a free loopback port until the test ends.
func start(t *testing.T, cfg shop.Config) *running {
	t.Helper()
	if cfg.Dir == "" {
		cfg.Dir = t.TempDir()
	}
	s, err := shop.Open(cfg)
	require.NoError(t, err)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		require.NoError(t, <-served)
	})
	return &running{Shop: s, t: t, url: "http://" + ln.Addr().String(), auth: cfg.Key}
}

// request builds a request; headers are name, value, name, value.
func (s *running) request(method, path, body string, headers ...string) *http.Request {
	s.t.Helper()
	r, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
	require.NoError(s.t, err)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if s.auth != "" {
		r.Header.Set("Authorization", "Bearer "+s.auth)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
	}
	return r
}

// send sends one request on a connection of its own and follows no redirect, so
// nothing is sent twice behind the test's back.
func send(r *http.Request) (*http.Response, []byte, error) {
	client := &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	reply, err := client.Do(r)
	if err != nil {
		return nil, nil, err
	}
	defer reply.Body.Close()
	body, err := io.ReadAll(reply.Body)
	return reply, body, err
}

// call sends and returns status and body; no answer is a failure.
func (s *running) call(method, path, body string, headers ...string) (int, string) {
	s.t.Helper()
	reply, got, err := send(s.request(method, path, body, headers...))
	require.NoError(s.t, err)
	return reply.StatusCode, strings.TrimSuffix(string(got), "\n")
}

// want calls and compares status and JSON body.
func (s *running) want(status int, want, method, path, body string, headers ...string) {
	s.t.Helper()
	gotStatus, got := s.call(method, path, body, headers...)
	require.Equal(s.t, status, gotStatus, "%s %s: %s", method, path, got)
	require.JSONEq(s.t, want, got, "%s %s", method, path)
}

// received waits until n effectful requests have been received.
func (s *running) received(n int) {
	for s.RequestCount() < n {
		time.Sleep(time.Millisecond)
	}
}

// clock stands still until it is moved.
type clock struct{ nanos atomic.Int64 }

var morning = time.Date(2031, 5, 6, 10, 30, 0, 0, time.UTC)

func newClock() *clock {
	c := &clock{}
	c.nanos.Store(morning.UnixNano())
	return c
}

func (c *clock) Now() time.Time { return time.Unix(0, c.nanos.Load()) }

func (c *clock) move(d time.Duration) { c.nanos.Add(int64(d)) }

// lineCount counts the lines of a log, torn ones too.
func lineCount(t *testing.T, dir, name string) int {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	require.NoError(t, err)
	return bytes.Count(data, []byte("\n"))
}

func TestShop_Holds(t *testing.T) {
	s := start(t, shop.Config{Now: newClock().Now})
	s.want(200, `{"id":"ord_1001","customer":"Birch Bakery","status":"open","total":24900,"currency":"EUR",
		"address_id":"adr_2001","hold_id":null,"version":1}`, "GET", "/orders/ord_1001", "")
	s.want(201, `{"id":"hold_88","order":"ord_1001","state":"held"}`,
		"POST", "/orders/ord_1001/holds", `{"reason":"asked by phone","reference":"r-1"}`)
	s.want(200, `{"id":"ord_1001","customer":"Birch Bakery","status":"held","total":24900,"currency":"EUR",
		"address_id":"adr_2001","hold_id":"hold_88","version":2}`, "GET", "/orders/ord_1001", "")
	s.want(422, `{"message":"Order ord_1001 is already held by hold_88."}`, "POST", "/orders/ord_1001/holds", "")
	s.want(422, `{"message":"Order ord_1009 is shipped and can't be held."}`, "POST", "/orders/ord_1009/holds", "")
	s.want(404, `{"message":"There is no order \"ord_9\"."}`, "POST", "/orders/ord_9/holds", "")

	held := `{"id":"hold_88","order":"ord_1001","state":"held","reason":"asked by phone","reference":"r-1",
		"release_id":"","release_reference":"","created":"2031-05-06T10:30:00Z"}`
	s.want(200, held, "GET", "/holds/hold_88", "")
	s.want(200, `{"items":[`+held+`]}`, "GET", "/holds?order=ord_1001", "")
	s.want(200, `{"items":[`+held+`]}`, "GET", "/holds?order=ord_1001&reference=r-1", "")
	s.want(200, `{"items":[]}`, "GET", "/holds?order=ord_1001&reference=r-2", "")
	s.want(200, `{"items":[]}`, "GET", "/holds?order=ord_1002", "")
	s.want(404, `{"message":"There is no hold \"hold_1\"."}`, "GET", "/holds/hold_1", "")

	s.want(404, `{"message":"There is no hold \"hold_1\"."}`, "POST", "/holds/hold_1/release", "")
	s.want(200, `{"id":"hold_88","order":"ord_1001","state":"released","release_id":"rel_3"}`,
		"POST", "/holds/hold_88/release", `{"reference":"r-3"}`)
	s.want(422, `{"message":"Hold hold_88 is already released."}`, "POST", "/holds/hold_88/release", "")
	s.want(200, `{"id":"hold_88","order":"ord_1001","state":"released","reason":"asked by phone","reference":"r-1",
		"release_id":"rel_3","release_reference":"r-3","created":"2031-05-06T10:30:00Z"}`, "GET", "/holds/hold_88", "")
	s.want(201, `{"id":"hold_89","order":"ord_1001","state":"held"}`, "POST", "/orders/ord_1001/holds", "")

	require.Equal(t, 3, s.EffectCount())
	require.Len(t, s.Requests(), 8)
	require.Equal(t, 9, s.ReadCount())
}

func TestShop_OrderLists(t *testing.T) {
	s := start(t, shop.Config{})
	count := func(query string) int {
		status, body := s.call("GET", "/orders"+query, "")
		require.Equal(t, 200, status, body)
		var list struct{ Items []shop.Order }
		require.NoError(t, json.Unmarshal([]byte(body), &list))
		return len(list.Items)
	}
	require.Equal(t, 10, count(""))
	require.Equal(t, 10, count("?status=any"))
	require.Equal(t, 8, count("?status=open"))
	require.Equal(t, 3, count("?status=open&limit=3"))
	require.Equal(t, 1, count("?status=cancelled"))
	require.Equal(t, 0, count("?status=held"))
	s.want(400, `{"message":"status is any, open, held, shipped or cancelled."}`, "GET", "/orders?status=lost", "")
	for _, bad := range []string{"0", "101", "x", "-1"} {
		s.want(400, `{"message":"limit is a whole number from 1 to 100."}`, "GET", "/orders?limit="+bad, "")
	}
}

func TestShop_Refunds(t *testing.T) {
	s := start(t, shop.Config{Now: newClock().Now})
	s.want(200, `{"id":"pay_a1","order":"ord_1001","customer":"Birch Bakery","amount":24900,"currency":"EUR",
		"refunded":0,"refundable":24900,"status":"captured"}`, "GET", "/payments/pay_a1", "")
	s.want(201, `{"id":"re_12","payment":"pay_a1","amount":12000,"currency":"EUR","state":"pending"}`,
		"POST", "/refunds", `{"payment":"pay_a1","amount":12000}`, "Idempotency-Key", "k-1")
	s.want(200, `{"id":"pay_a1","order":"ord_1001","customer":"Birch Bakery","amount":24900,"currency":"EUR",
		"refunded":12000,"refundable":12900,"status":"partly_refunded"}`, "GET", "/payments/pay_a1", "")
	s.want(422, `{"message":"Only 129.00 EUR of pay_a1 can still be refunded."}`,
		"POST", "/refunds", `{"payment":"pay_a1","amount":12901}`, "Idempotency-Key", "k-2")
	s.want(422, `{"message":"Only 0.00 EUR of pay_b1 can still be refunded."}`,
		"POST", "/refunds", `{"payment":"pay_b1","amount":1}`)
	s.want(422, `{"message":"amount is at least 1, in minor units."}`, "POST", "/refunds", `{"payment":"pay_a1","amount":0}`)
	s.want(404, `{"message":"There is no payment \"pay_zz\"."}`, "POST", "/refunds", `{"payment":"pay_zz","amount":1}`)
	s.want(404, `{"message":"There is no refund \"re_1\"."}`, "POST", "/refunds/re_1/cancel", "")

	row := `{"id":"re_12","payment":"pay_a1","amount":12000,"currency":"EUR","state":"pending","idempotency_key":"k-1",
		"cancel_id":"","cancel_reference":"","created":"2031-05-06T10:30:00Z"}`
	s.want(200, row, "GET", "/refunds/re_12", "")
	s.want(200, `{"items":[`+row+`]}`, "GET", "/refunds?idempotency_key=k-1", "")
	s.want(200, `{"items":[`+row+`]}`, "GET", "/refunds?payment=pay_a1", "")
	s.want(200, `{"items":[]}`, "GET", "/refunds?idempotency_key=k-1&payment=pay_a2", "")
	s.want(200, `{"items":[]}`, "GET", "/refunds?idempotency_key=k-2", "")

	s.want(200, `{"id":"re_12","state":"cancelled","cancel_id":"can_2"}`,
		"POST", "/refunds/re_12/cancel", `{"reference":"r-9"}`)
	s.want(422, `{"message":"Refund re_12 is already cancelled."}`, "POST", "/refunds/re_12/cancel", "")
	s.want(200, `{"id":"pay_a1","order":"ord_1001","customer":"Birch Bakery","amount":24900,"currency":"EUR",
		"refunded":0,"refundable":24900,"status":"captured"}`, "GET", "/payments/pay_a1", "")

	s.want(201, `{"id":"re_13","payment":"pay_a1","amount":24900,"currency":"EUR","state":"pending"}`,
		"POST", "/refunds", `{"payment":"pay_a1","amount":24900}`)
	status, _ := s.call("POST", "/refunds/re_13/settle", "")
	require.Equal(t, 200, status)
	s.want(422, `{"message":"Refund re_13 is already settled."}`, "POST", "/refunds/re_13/cancel", "")
	s.want(200, `{"id":"pay_a1","order":"ord_1001","customer":"Birch Bakery","amount":24900,"currency":"EUR",
		"refunded":24900,"refundable":0,"status":"refunded"}`, "GET", "/payments/pay_a1", "")
	require.Equal(t, 3, s.EffectCount(), "settling is no effect of a request")
}

func TestShop_SeedFitsTheDemo(t *testing.T) {
	s := start(t, shop.Config{})
	status, body := s.call("GET", "/payments", "")
	require.Equal(t, 200, status)
	var list struct{ Items []shop.Payment }
	require.NoError(t, json.Unmarshal([]byte(body), &list))
	require.Len(t, list.Items, 10)
	large := 0
	for _, p := range list.Items {
		require.Regexp(t, "^pay_[a-z0-9]+$", p.ID)
		if p.Refundable > 50000 {
			large++
		}
	}
	require.GreaterOrEqual(t, list.Items[0].Refundable, int64(12000))
	require.GreaterOrEqual(t, large, 3)
}

func TestShop_Addresses(t *testing.T) {
	s := start(t, shop.Config{Now: newClock().Now})
	s.want(200, `{"id":"adr_2002","customer":"Customer 17","street":"Mill Lane 12","city":"Utrecht","postcode":"3511",
		"country":"NL","version":1}`, "GET", "/addresses/adr_2002", "")
	place := `"street":"Weir Lane 3","city":"Utrecht","postcode":"3512","country":"NL"`
	s.want(200, `{"change_id":"chg_7","address":{"id":"adr_2002","customer":"Customer 17",`+place+`,"version":2}}`,
		"PUT", "/addresses/adr_2002", `{`+place+`,"version":1,"reference":"r-1"}`)
	moved := `{"message":"Address adr_2002 was changed since and is now version 2."}`
	s.want(412, moved, "PUT", "/addresses/adr_2002", `{`+place+`,"version":1}`)
	s.want(412, moved, "PUT", "/addresses/adr_2002", `{`+place+`}`, "If-Match", `"1"`)
	s.want(200, `{"change_id":"chg_8","address":{"id":"adr_2002","customer":"Customer 17",`+place+`,"version":3}}`,
		"PUT", "/addresses/adr_2002", `{`+place+`}`, "If-Match", `"2"`)
	s.want(404, `{"message":"There is no address \"adr_1\"."}`, "PUT", "/addresses/adr_1", `{`+place+`}`)
	s.want(404, `{"message":"There is no address \"adr_1\"."}`, "GET", "/addresses/adr_1/changes", "")
	s.want(422, `{"message":"country is two capital letters (ISO 3166-1)."}`,
		"PUT", "/addresses/adr_2002", `{"street":"a","city":"b","postcode":"c","country":"nl"}`)
	s.want(422, `{"message":"street has 1 to 100 characters."}`,
		"PUT", "/addresses/adr_2002", `{"street":"","city":"b","postcode":"c","country":"NL"}`)
	s.want(200, `{"items":[{"id":"chg_7","address":"adr_2002","version":2,"reference":"r-1","created":"2031-05-06T10:30:00Z",
		"before":{"street":"Mill Lane 12","city":"Utrecht","postcode":"3511","country":"NL"},"after":{`+place+`}}]}`,
		"GET", "/addresses/adr_2002/changes?reference=r-1", "")
	reply, _, err := send(s.request("GET", "/addresses/adr_2002", ""))
	require.NoError(t, err)
	require.Equal(t, `"3"`, reply.Header.Get("ETag"))
	require.Equal(t, 2, s.EffectCount())
}

func TestShop_Letters(t *testing.T) {
	s := start(t, shop.Config{})
	letter := `{"to":"adr_2001","subject":"Your order","body":"It is on hold."}`
	s.want(202, `{"id":"let_5"}`, "POST", "/letters", letter, "Idempotency-Key", "same")
	s.want(202, `{"id":"let_6"}`, "POST", "/letters", letter, "Idempotency-Key", "same")
	s.want(422, `{"message":"to is an address id; there is no address \"nobody\"."}`,
		"POST", "/letters", `{"to":"nobody","subject":"a","body":"b"}`)
	s.want(422, `{"message":"subject has 1 to 120 characters."}`, "POST", "/letters", `{"to":"adr_2001","subject":"","body":"b"}`)
	require.Equal(t, 2, s.EffectCount(), "letters know no keys")
}

func TestShop_BadRequestsChangeNothing(t *testing.T) {
	s := start(t, shop.Config{})
	cases := map[string]struct {
		status  int
		body    string
		headers []string
	}{
		"not json":         {400, `{"payment"`, nil},
		"unknown member":   {400, `{"payment":"pay_a1","amount":1,"note":"x"}`, nil},
		"something behind": {400, `{"payment":"pay_a1","amount":1}{}`, nil},
		"a fraction":       {400, `{"payment":"pay_a1","amount":1.5}`, nil},
		"not utf-8":        {400, "{\"payment\":\"\xff\",\"amount\":1}", nil},
		"a list":           {400, `[]`, nil},
		"empty":            {415, ``, nil},
		"text":             {415, `{"payment":"pay_a1","amount":1}`, []string{"Content-Type", "text/plain"}},
		"too long":         {413, `{"payment":"` + strings.Repeat("x", 64<<10) + `","amount":1}`, nil},
		"long key":         {422, `{"payment":"pay_a1","amount":1}`, []string{"Idempotency-Key", strings.Repeat("k", 256)}},
		"another site":     {403, `{"payment":"pay_a1","amount":1}`, []string{"Origin", "http://elsewhere.example"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			before := len(s.Requests())
			status, body := s.call("POST", "/refunds", c.body, c.headers...)
			require.Equal(t, c.status, status, body)
			require.Contains(t, body, `{"message":"`)
			require.Len(t, s.Requests(), before+1, "also a refused request was received")
			require.Equal(t, status, s.Requests()[before].Status)
		})
	}
	status, _ := s.call("POST", "/nowhere", "{}")
	require.Equal(t, 404, status)
	status, _ = s.call("DELETE", "/orders/ord_1001", "")
	require.Equal(t, 405, status)
	require.Len(t, s.Requests(), len(cases)+2)
	require.Zero(t, s.EffectCount())
}

func TestShop_Keys(t *testing.T) {
	s := start(t, shop.Config{Key: "write", ReadKey: "read"})
	for _, c := range []struct {
		auth        string
		read, write int
	}{{"Bearer write", 200, 201}, {"Bearer read", 200, 401}, {"Bearer other", 401, 401}, {"Basic write", 401, 401}, {"", 401, 401}} {
		status, _ := s.call("GET", "/orders", "", "Authorization", c.auth)
		require.Equal(t, c.read, status, c.auth)
		status, _ = s.call("POST", "/orders/ord_1001/holds", "", "Authorization", c.auth)
		require.Equal(t, c.write, status, c.auth)
	}
	require.Equal(t, 1, s.EffectCount())
	require.Len(t, s.Requests(), 5)

	only := start(t, shop.Config{Key: "write"})
	status, _ := only.call("GET", "/orders", "", "Authorization", "Bearer ")
	require.Equal(t, 401, status, "an empty secret is no read key")
}

func TestShop_RequestRecord(t *testing.T) {
	s := start(t, shop.Config{Now: newClock().Now})
	body := `{"payment":"pay_a1","amount":100}`
	for range 2 {
		s.call("POST", "/refunds", body, "Idempotency-Key", "k-1")
	}
	s.call("POST", "/refunds", body+" ", "Idempotency-Key", "k-1")
	got := s.Requests()
	require.Len(t, got, 3)
	require.Equal(t, shop.Request{
		Number: 1, Time: morning, Method: "POST", Path: "/refunds", Key: "k-1", Status: 201,
		Body: fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(body))),
	}, got[0])
	require.Equal(t, got[0].Body, got[1].Body)
	require.NotEqual(t, got[0].Body, got[2].Body)
	require.Equal(t, 1, s.EffectCount())
	require.Equal(t, 1, s.Effects()[0].Request)
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	require.NoError(t, err)
	return text
}
