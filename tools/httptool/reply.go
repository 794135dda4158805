package httptool

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"countersign/fault"
	"countersign/strictjson"
	"countersign/tools"
)

// maxExcerpt is how much of an answer's body is kept as evidence.
const maxExcerpt = 2 << 10

// keptHeaders are the fields of an answer that are kept as evidence.
var keptHeaders = []string{
	"Content-Type", "Date", "Retry-After", "Request-Id", "X-Request-Id", "X-Correlation-Id", "Traceresponse",
}

// receive reads an answer within the limits (S57). It always gives a reply; what
// could not be received whole is said in Reply.Incomplete, what could not be
// understood in Reply.Unreadable. whole is false when the connection must not be
// used again.
func (c *Client) receive(resp *http.Response, x *tools.Exchange, secrets []string) (reply tools.Reply, whole bool) {
	reply = tools.Reply{Status: resp.StatusCode, Headers: headerTexts(resp.Header)}
	x.Status = resp.StatusCode
	x.Headers = map[string]string{}
	for _, name := range keptHeaders {
		if v := resp.Header.Get(name); v != "" {
			x.Headers[strings.ToLower(name)] = withoutSecrets(cleanText(v, 200), secrets)
		}
	}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		resp.Body.Close() // it is the connection itself
		reply.Incomplete = "it asks for another protocol."
		x.Error, x.AnsweredAt = "The upstream asks for another protocol.", c.up.Now()
		return reply, false
	}
	limit := c.up.Limits.BodyBytes
	body, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	over := int64(len(body)) > limit
	if over {
		body = body[:limit]
	}
	resp.Body.Close()
	x.AnsweredAt = c.up.Now()
	x.BodyBytes = int64(len(body))
	if len(body) > 0 {
		sum := sha256.Sum256(body)
		x.BodyDigest = "sha256:" + hex.EncodeToString(sum[:])
		x.Excerpt = withoutSecrets(cleanText(string(body[:min(len(body), maxExcerpt)]), maxExcerpt), secrets)
	}
	switch {
	case over:
		reply.Incomplete = "it is longer than the limit."
		x.Error = "The upstream's answer is longer than the limit."
		return reply, false
	case err != nil:
		x.Error = words(err)
		reply.Incomplete = strings.ToLower(x.Error[:1]) + x.Error[1:]
		return reply, false
	}
	reply.Body, reply.Unreadable = parseBody(resp, body)
	return reply, true
}

// parseBody reads JSON strictly and plain text as text. Whatever else comes is
// unreadable.
func parseBody(resp *http.Response, body []byte) (any, string) {
	if encoding := resp.Header.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return nil, "it is compressed although that was not asked for."
	}
	if len(body) == 0 {
		return nil, ""
	}
	// A body that ends with the connection may have been cut anywhere. Only an
	// object or a list shows that it is whole.
	endless := resp.ContentLength < 0 && len(resp.TransferEncoding) == 0
	kind, params, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if charset := params["charset"]; err == nil && charset != "" && !strings.EqualFold(charset, "utf-8") && !strings.EqualFold(charset, "us-ascii") {
		return nil, "it is not in UTF-8."
	}
	switch {
	case err != nil, kind == "application/json", kind == "text/json", strings.HasSuffix(kind, "+json"):
		v, err := strictjson.Parse(body, strictjson.ReplyLimits)
		if err != nil {
			return nil, "it is not acceptable JSON (" + string(fault.Of(err).Code) + ")."
		}
		switch v.(type) {
		case map[string]any, []any:
			return v, ""
		}
		if endless {
			return nil, "nothing shows that it is whole."
		}
		return v, ""
	case kind == "text/plain":
		text := string(body)
		if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
			return nil, "it is not in UTF-8."
		}
		if endless {
			return nil, "nothing shows that it is whole."
		}
		return text, ""
	}
	return nil, "it is " + cleanText(kind, 60) + ", not JSON."
}

// headerTexts gives the header fields as expressions see them.
func headerTexts(h http.Header) map[string]string {
	out := make(map[string]string, len(h))
	for name, values := range h {
		if name == "Set-Cookie" {
			continue // never kept, never used
		}
		out[strings.ToLower(name)] = strings.ToValidUTF8(strings.Join(values, ", "), "\uFFFD")
	}
	return out
}

// cleanText makes bytes from outside storable: valid UTF-8 without U+0000, at
// most the given number of bytes.
func cleanText(s string, most int) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
	for len(s) > most {
		_, size := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-size]
	}
	return s
}

// withoutSecrets takes out credentials that an upstream echoes (I18).
func withoutSecrets(s string, secrets []string) string {
	for _, secret := range secrets {
		if len(secret) >= 4 {
			s = strings.ReplaceAll(s, secret, "[secret]")
		}
	}
	return s
}

// retryAfter reads the Retry-After of an answer; zero when there is none.
func retryAfter(h http.Header, now time.Time) time.Duration {
	v := h.Get("Retry-After")
	if v == "" {
		return 0
	}
	if d, err := time.ParseDuration(v + "s"); err == nil && d > 0 {
		return d
	}
	if at, err := http.ParseTime(v); err == nil && at.After(now) {
		return at.Sub(now)
	}
	return 0
}
