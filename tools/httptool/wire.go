package httptool

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"unicode/utf8"

	"countersign/tools"
)

// wire is exactly what will be sent, but for the credentials, the host line and
// the length: the form that Plan.Wire has for this connector.
type wire struct {
	Encoding int                 `json:"encoding"`
	Method   string              `json:"method"`
	URL      string              `json:"url"`
	Header   []tools.HeaderField `json:"header"`
	// Body is the body as text; BodyBase64 is used when it is not UTF-8.
	Body       string `json:"body,omitempty"`
	BodyBase64 string `json:"body_base64,omitempty"`
}

const wireEncoding = 1

// render makes the wire of a request at preview.
func (c *Client) render(r tools.Request) wire {
	w := wire{Encoding: wireEncoding, Method: r.Method, URL: c.URL() + r.Path, Header: withOwnHeader(r.Header)}
	if utf8.Valid(r.Body) {
		w.Body = string(r.Body)
	} else {
		w.BodyBase64 = base64.StdEncoding.EncodeToString(r.Body)
	}
	return w
}

// withOwnHeader adds what every request says of itself.
func withOwnHeader(fields []tools.HeaderField) []tools.HeaderField {
	out := slices.Clone(fields)
	if !slices.ContainsFunc(out, func(f tools.HeaderField) bool { return f.Name == "Accept" }) {
		out = append(out, tools.HeaderField{Name: "Accept", Value: "application/json"})
	}
	return append(out, tools.HeaderField{Name: "User-Agent", Value: userAgent})
}

// readWire takes a stored wire back.
func readWire(raw json.RawMessage) (w wire, body []byte, err error) {
	if err := json.Unmarshal(raw, &w); err != nil {
		return wire{}, nil, err
	}
	if w.Encoding != wireEncoding {
		return wire{}, nil, fmt.Errorf("the wire has the encoding %d", w.Encoding)
	}
	body = []byte(w.Body)
	if w.BodyBase64 != "" {
		if body, err = base64.StdEncoding.DecodeString(w.BodyBase64); err != nil {
			return wire{}, nil, err
		}
	}
	return w, body, nil
}

func setHeader(h http.Header, fields []tools.HeaderField) {
	for _, f := range fields {
		h[f.Name] = append(h[f.Name], f.Value)
	}
}
