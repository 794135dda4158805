package api_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzBody sends any bytes as the body of every route that takes one: the answer
// is one that the contract declares and never the gateway's own fault, and
// nothing is opened. The corpus of bad inputs is where it starts.
func FuzzBody(f *testing.F) {
	r := newRig(f)
	for _, in := range inputs(f, "body") {
		if text := in.text(f); len(text) < 10_000 {
			for _, d := range doors {
				if d.body != "" && d.body != noBody && in.on(d.operation) {
					f.Add(filled(text, d.body))
					break
				}
			}
		}
	}
	for _, d := range doors {
		f.Add(d.body)
	}
	before := r.state()
	f.Fuzz(func(t *testing.T, body string) {
		mine := *r
		mine.t = t
		for _, d := range doors {
			if d.body == "" {
				continue
			}
			req := httptest.NewRequest(http.MethodPost, r.server.URL+d.path, strings.NewReader(body))
			req.Header.Set("Content-Type", "application/json")
			if d.person {
				req.AddCookie(r.ann)
			} else {
				req.Header.Set("Authorization", "Bearer "+r.clerk)
			}
			w := httptest.NewRecorder()
			r.api.ServeHTTP(w, req)
			require.Less(t, w.Code, 500, "%s: %s", d.operation, w.Body)
			code := ""
			if w.Code >= 400 {
				var doc struct{ Code string }
				require.NoError(t, json.Unmarshal(w.Body.Bytes(), &doc))
				code = " " + doc.Code
			}
			require.True(t, isDeclared(d.operation, w.Code, code), "%s %d%s: %q", d.operation, w.Code, code, body)
		}
		require.Equal(t, before, mine.state())
	})
}
