package shop_test

import (
	"bufio"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"countersign/examples/shop"
)

// page gets the page as a browser would and checks its headers.
func (s *running) page() string {
	s.t.Helper()
	reply, body, err := send(s.request("GET", "/", "", "Accept", "text/html"))
	require.NoError(s.t, err)
	require.Equal(s.t, 200, reply.StatusCode, string(body))
	require.Equal(s.t, "text/html; charset=utf-8", reply.Header.Get("Content-Type"))
	require.Equal(s.t, "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "+
		"form-action 'self'; base-uri 'none'; frame-ancestors 'none'", reply.Header.Get("Content-Security-Policy"))
	return string(body)
}

func TestPage_Fresh(t *testing.T) {
	s := start(t, shop.Config{Key: "secret"})
	html := s.page()
	for _, want := range []string{
		`<title>0 effects · Acme shop</title>`,
		`<dd id="effect-count">0</dd>`,
		`Nothing yet. Previews only read, so they never appear here; the first commit does.`,
		`<button>Cut the next reply</button>`,
		`Birch Bakery`,
		`<td data-label="Refundable" class="num">2500.00 EUR</td>`,
		`<td data-label="Where">Quay Street 4, 20095 Hamburg, DE</td>`,
		`No refund was made.`,
		`No letter has left the house.`,
	} {
		require.Contains(t, html, want)
	}
	require.NotContains(t, html, "something is switched on")
	require.NotContains(t, html, "secret")
}

func TestPage_TellsWhatHappened(t *testing.T) {
	s := start(t, shop.Config{Now: newClock().Now})
	doOneOfEach(s)
	s.call("POST", "/letters", `{"to":"adr_2002","subject":"<script>alert(1)</script>","body":"x"}`, "Idempotency-Key", "k<b>")
	s.Set(shop.Switches{CutNext: 1, AnswerNext: shop.AnswerTrickle})
	html := s.page()
	for _, want := range []string{
		`<title>9 effects · Acme shop</title>`,
		`<dd id="effect-count">9</dd>`,
		`Write requests received (9)`,
		`Order ord_1001 of Birch Bakery is held. <code>hold_88</code>`,
		`Hold hold_88 is released, order ord_1001 is open again. <code>rel_3</code>`,
		`2.00 EUR of pay_a3 goes back to Harbour Cycles. <code>re_13</code>`,
		`<span class="no">by hand</span>`,
		`Refund re_13 has settled.`,
		`<small>key <code>k&lt;b&gt;</code></small>`,
		`<h3>&lt;script&gt;alert(1)&lt;/script&gt;</h3>`,
		`<code>POST /refunds/re_12/cancel</code>`,
		`<span class="badge on">armed: 1</span>`,
		`<option value="trickle" selected>`,
		`<button class="strong">Switch everything off</button>`,
		`<time datetime="2031-05-06T10:30:00Z">10:30:00 UTC</time>`,
	} {
		require.Contains(t, html, want)
	}
	require.NotContains(t, html, "<script>alert")
	require.Less(t, strings.Index(html, "Refund re_13 has settled."), strings.Index(html, "is held."), "newest first")
}

func TestPage_ListsAreBounded(t *testing.T) {
	s := start(t, shop.Config{})
	for range 60 {
		s.call("POST", "/letters", `{"to":"adr_2002","subject":"a","body":"x"}`)
	}
	html := s.page()
	require.Equal(t, 50, strings.Count(html, `A letter leaves for`))
	require.Equal(t, 20, strings.Count(html, `<code>POST /letters</code>`))
	require.Equal(t, 20, strings.Count(html, `class="body"`))
	require.Contains(t, html, `<dd id="effect-count">60</dd>`)
}

// The page asks for nothing outside, and what it asks for is there.
func TestPage_IsSelfContained(t *testing.T) {
	s := start(t, shop.Config{})
	html := s.page()
	require.NotRegexp(t, `(?i)https?://|style="|\son[a-z]+="`, html)
	links := regexp.MustCompile(`(?:href|src|action)="([^"]+)"`).FindAllStringSubmatch(html, -1)
	require.NotEmpty(t, links)
	for _, link := range links {
		require.True(t, strings.HasPrefix(link[1], "/"), link[1])
		if strings.Contains(link[1], "/change") {
			continue
		}
		status, _ := s.call("GET", link[1], "")
		require.Equal(t, 200, status, link[1])
	}
	for name, contentType := range map[string]string{"/style.css": "text/css; charset=utf-8", "/app.js": "text/javascript; charset=utf-8"} {
		reply, body, err := send(s.request("GET", name, ""))
		require.NoError(t, err)
		require.Equal(t, contentType, reply.Header.Get("Content-Type"))
		require.NotContains(t, string(body), "http")
		status, _ := s.call("GET", name, "", "If-None-Match", reply.Header.Get("ETag"))
		require.Equal(t, http.StatusNotModified, status)
	}
}

// Every form of the page works as a plain post and leads back to the page.
func TestPage_FormsWorkWithoutScript(t *testing.T) {
	s := start(t, shop.Config{Key: "secret"})
	s.auth = "" // the page needs no key
	browser := []string{
		"Content-Type", "application/x-www-form-urlencoded", "Accept", "text/html,*/*",
		"Origin", s.url, "Sec-Fetch-Site", "same-origin",
	}
	form := regexp.MustCompile(`(?s)<form method="post" action="([^"]+)"[^>]*>(.*?)</form>`)
	field := regexp.MustCompile(`<input[^>]* name="([^"]+)"[^>]* value="([^"]*)"|<input name="([^"]+)"[^>]* value="([^"]*)"`)
	forms := form.FindAllStringSubmatch(s.page(), -1)
	require.Greater(t, len(forms), 30)
	for _, f := range forms {
		var values []string
		for _, v := range field.FindAllStringSubmatch(f[2], -1) {
			values = append(values, v[1]+v[3]+"="+v[2]+v[4])
		}
		reply, body, err := send(s.request("POST", f[1], strings.Join(values, "&"), browser...))
		require.NoError(t, err)
		require.Equal(t, http.StatusSeeOther, reply.StatusCode, "%s %v: %s", f[1], values, body)
		require.Regexp(t, `^/#(switches|orders|payments|addresses)$`, reply.Header.Get("Location"))
	}
	sw := s.Switches()
	require.Equal(t, shop.Switches{CutNext: 1, ErrorNext: 1, RefuseNext: 1, Refuse: true, ForgetKeys: true}, sw)
	status, body := s.call("POST", "/switches",
		"cut_next=0&error_next=0&refuse_next=0&refuse=0&hold_ms=0&slow_ms=0&lag_ms=0&answer_next=&forget_keys=0", browser...)
	require.Equal(t, http.StatusSeeOther, status, body)
	require.Equal(t, shop.Switches{}, s.Switches())
	require.Zero(t, s.EffectCount(), "changes by hand are no effects")
}

func TestPage_ChangesByHand(t *testing.T) {
	s := start(t, shop.Config{Key: "secret"})
	s.want(200, `{"id":"ord_1001","customer":"Birch Bakery","status":"open","total":25000,"currency":"EUR",
		"address_id":"adr_2001","hold_id":null,"version":2}`, "POST", "/orders/ord_1001/change", "")
	s.want(200, `{"id":"ord_1001","customer":"Birch Bakery","status":"shipped","total":25000,"currency":"EUR",
		"address_id":"adr_2001","hold_id":null,"version":3}`, "POST", "/orders/ord_1001/change", `{"status":"shipped"}`)
	s.want(200, `{"id":"adr_2001","customer":"Birch Bakery","street":"Quay Street 5","city":"Hamburg","postcode":"20095",
		"country":"DE","version":2}`, "POST", "/addresses/adr_2001/change", "")
	s.want(200, `{"id":"pay_a8","order":"ord_1008","customer":"Customer 42","amount":3320,"currency":"EUR","refunded":100,
		"refundable":3220,"status":"partly_refunded"}`, "POST", "/payments/pay_a8/change", "")
	for _, c := range []struct {
		status     int
		path, body string
		headers    []string
	}{
		{404, "/orders/ord_1/change", "", nil},
		{404, "/addresses/adr_1/change", "", nil},
		{404, "/payments/pay_1/change", "", nil},
		{404, "/refunds/re_1/settle", "", nil},
		{422, "/orders/ord_1001/change", `{"status":"shipped"}`, nil},
		{422, "/orders/ord_1002/change", `{"status":"held"}`, nil},
		{400, "/orders/ord_1002/change", `{"total":"5"}`, nil},
		{422, "/payments/pay_b1/change", "", nil},
		{403, "/orders/ord_1002/change", "", []string{"Origin", "http://elsewhere.example"}},
		{421, "/orders/ord_1002/change", "", []string{"Host", "shop.elsewhere.example"}},
	} {
		status, body := s.call("POST", c.path, c.body, c.headers...)
		require.Equal(t, c.status, status, "%s %s: %s", c.path, c.body, body)
	}
	s.want(200, `{"id":"ord_1002","customer":"Customer 17","status":"open","total":8950,"currency":"EUR",
		"address_id":"adr_2002","hold_id":null,"version":1}`, "GET", "/orders/ord_1002", "")
	require.Zero(t, s.EffectCount())
	require.Empty(t, s.Requests())
}

func TestPage_HostNames(t *testing.T) {
	s := start(t, shop.Config{})
	for host, want := range map[string]int{
		"localhost:8421": 200, "127.0.0.1:8421": 200, "[::1]:8421": 200, "shop": 200, "shop.localhost": 200,
		"shop.example": 421, "127.0.0.1.example:8421": 421, "localhost.": 421,
	} {
		status, _ := s.call("GET", "/", "", "Host", host)
		require.Equal(t, want, status, host)
	}
}

func TestEvents_FollowTheCounts(t *testing.T) {
	s := start(t, shop.Config{})
	client := &http.Client{Transport: &http.Transport{}}
	reply, err := client.Do(s.request("GET", "/events", ""))
	require.NoError(t, err)
	defer reply.Body.Close()
	require.Equal(t, "text/event-stream", reply.Header.Get("Content-Type"))
	lines := bufio.NewScanner(reply.Body)
	until := func(want string) {
		t.Helper()
		for lines.Scan() {
			if lines.Text() == "data: "+want {
				return
			}
		}
		require.Fail(t, "the stream ended", "before %s: %v", want, lines.Err())
	}
	until(`{"effects":0,"requests":0}`)
	s.call("POST", "/orders/ord_1001/holds", "")
	until(`{"effects":1,"requests":1}`)
	s.call("POST", "/orders/ord_1001/holds", "")
	until(`{"effects":1,"requests":2}`)
	s.Set(shop.Switches{CutNext: 1})
	until(`{"effects":1,"requests":2}`)
	require.NoError(t, s.Close())
	for lines.Scan() { // the stream ends with the shop
	}
}

func TestCounts(t *testing.T) {
	s := start(t, shop.Config{Now: newClock().Now})
	s.want(200, `{"count":0,"items":[]}`, "GET", "/effects", "")
	s.want(200, `{"count":0,"reads":0,"items":[]}`, "GET", "/requests", "")
	s.call("GET", "/orders", "")
	s.call("POST", "/letters", `{"to":"adr_2001","subject":"a","body":"b"}`, "Idempotency-Key", "k-1")
	s.want(200, `{"count":1,"items":[{"number":1,"time":"2031-05-06T10:30:00Z","verb":"send","id":"let_5","target":"letter/let_5",
		"text":"A letter leaves for Birch Bakery: \"a\".","idempotency_key":"k-1","request":1,"rows":{"letter":{
		"id":"let_5","to":"adr_2001","subject":"a","body":"b","created":"2031-05-06T10:30:00Z"}}}]}`, "GET", "/effects", "")
	s.want(200, `{"count":1,"reads":1,"items":[{"number":1,"time":"2031-05-06T10:30:00Z","method":"POST","path":"/letters",
		"idempotency_key":"k-1","status":202,"body":"`+s.Requests()[0].Body+`"}]}`, "GET", "/requests", "")
}
