package tooltest

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// HostileAnswer is an answer that proves nothing: whatever it says, the outcome
// of the request that it follows is unknown.
type HostileAnswer struct {
	Name   string
	Answer func(w io.Writer)
	// Endless answers are ended by the tool's timeout only.
	Endless bool
}

// answer is a whole HTTP answer with a body. It says that the connection ends
// with it, as it does.
func answer(status int, contentType, body string, header ...string) func(io.Writer) {
	var b strings.Builder
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %d\r\nConnection: close\r\n", status, http.StatusText(status), contentType, len(body))
	for _, h := range header {
		b.WriteString(h + "\r\n")
	}
	b.WriteString("\r\n" + body)
	return raw(b.String())
}

// HostileAnswers are answers that no tool may take for success or for a definite
// rejection. success is the status that the tool declares as succeeded; good is a
// body that would be success with it, as the upstream really answers.
func HostileAnswers(success int, good []byte) []HostileAnswer {
	const jsonType = "application/json"
	body := string(good)
	head := fmt.Sprintf("HTTP/1.1 %d OK\r\nContent-Type: application/json\r\n", success)
	out := []HostileAnswer{
		{Name: "empty", Answer: raw("")},
		{Name: "half a status line", Answer: raw("HTTP/1.1 20")},
		{Name: "not HTTP", Answer: raw("SSH-2.0-OpenSSH_9.2\r\n")},
		{Name: "status 999999", Answer: raw("HTTP/1.1 999999 Huge\r\n\r\n")},
		{Name: "negative length", Answer: raw(head + "Content-Length: -5\r\n\r\n")},
		{Name: "two lengths", Answer: raw(fmt.Sprintf("%sContent-Length: %d\r\nContent-Length: %d\r\n\r\n%s", head, len(body), len(body)+1, body))},
		{Name: "truncated", Answer: raw(fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", head, len(body), body[:len(body)/2]))},
		{Name: "truncated chunks", Answer: raw(fmt.Sprintf("%sTransfer-Encoding: chunked\r\n\r\n%x\r\n%s", head, len(body), body))},
		{Name: "bad chunks", Answer: raw(head + "Transfer-Encoding: chunked\r\n\r\nzz\r\n")},
		{Name: "HTML", Answer: answer(success, "text/html", "<html><body>OK</body></html>")},
		{Name: "JSON called HTML", Answer: answer(success, "text/html", body)},
		{Name: "not JSON", Answer: answer(success, jsonType, "OK")},
		{Name: "no body", Answer: answer(success, jsonType, "")},
		{Name: "null", Answer: answer(success, jsonType, "null")},
		{Name: "a list", Answer: answer(success, jsonType, "["+body+"]")},
		{Name: "text after the body", Answer: answer(success, jsonType, body+body)},
		{Name: "byte order mark", Answer: answer(success, jsonType, "\xef\xbb\xbf"+body)},
		{Name: "bad UTF-8", Answer: answer(success, jsonType, strings.Replace(body, "{", "{\"x\":\"\xff\",", 1))},
		{Name: "UTF-16", Answer: answer(success, jsonType+"; charset=utf-16", body)},
		{Name: "gzip", Answer: answer(success, jsonType, gzipped([]byte(body)), "Content-Encoding: gzip")},
		{Name: "gzip bomb", Answer: answer(success, jsonType, gzipped(bytes.Repeat([]byte(" "), 64<<20)), "Content-Encoding: gzip")},
		{Name: "depth 100,000", Answer: answer(success, jsonType, strings.Repeat("[", 100_000)+strings.Repeat("]", 100_000))},
		{Name: "duplicate keys", Answer: answer(success, jsonType, duplicated(body))},
		{Name: "endless body", Answer: repeated(head+"\r\n", bytes.Repeat([]byte(" "), 32<<10), 1<<30)},
		{Name: "endless chunks", Answer: repeated(head+"Transfer-Encoding: chunked\r\n\r\n", []byte("400\r\n"+strings.Repeat(" ", 1024)+"\r\n"), 1<<30)},
		{Name: "endless trailer", Answer: repeated(fmt.Sprintf("%sTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n", head, len(body), body), []byte("X-Flood: 1234567890123456789012345678901234567890\r\n"), 1<<30)},
		{Name: "endless header", Answer: repeated(head+"X: ", bytes.Repeat([]byte("a"), 32<<10), 1<<30)},
		{Name: "header flood", Answer: repeated(head, []byte("X-Flood: 1234567890123456789012345678901234567890\r\n"), 1<<30)},
		{Name: "1xx flood", Answer: repeated("", []byte("HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\n"), 1<<30)},
		{Name: "100 and nothing more", Answer: raw("HTTP/1.1 100 Continue\r\n\r\n")},
		{Name: "switching protocols", Answer: raw("HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n" + body)},
		{Name: "trickle", Answer: trickled(head+"Content-Length: 1000000\r\n\r\n", 20*time.Millisecond), Endless: true},
		{Name: "trickled header", Answer: trickled(head+"X: ", 20*time.Millisecond), Endless: true},
	}
	for _, status := range []int{301, 302, 303, 307, 308} {
		out = append(out, HostileAnswer{Name: fmt.Sprintf("redirect %d", status), Answer: answer(status, jsonType, body, "Location: /effects")})
	}
	for _, status := range []int{408, 409, 425, 429, 500, 502, 503, 504} {
		out = append(out, HostileAnswer{Name: fmt.Sprintf("status %d", status), Answer: answer(status, jsonType, `{"message":"busy","code":"busy"}`)})
	}
	return out
}

// duplicated gives the first member of an object twice.
func duplicated(body string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(body), "{"), ":")
	return strings.Replace(body, "{", "{"+name+`:"first",`, 1)
}

func gzipped(data []byte) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Write(data)
	w.Close()
	return b.String()
}
