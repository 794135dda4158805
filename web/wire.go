package web

import (
	"bytes"
	"encoding/json"
	"strings"
)

// request is the shape of a rendered HTTP request, as connectors that speak HTTP
// keep it in Plan.Wire.
type request struct {
	Encoding int    `json:"encoding"`
	Method   string `json:"method"`
	URL      string `json:"url"`
	Header   []struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	} `json:"header"`
	Body string `json:"body"`
}

// wireText lays out what will be sent. A request of a shape that is known down to
// the last member is drawn as HTTP; everything else as the JSON that it is, so
// that nothing is left out.
func wireText(wire json.RawMessage) string {
	var r request
	d := json.NewDecoder(bytes.NewReader(wire))
	d.DisallowUnknownFields()
	if d.Decode(&r) != nil || d.More() || r.Method == "" || r.URL == "" {
		return indented(wire)
	}
	var b strings.Builder
	b.WriteString(r.Method + " " + r.URL + "\n")
	for _, h := range r.Header {
		b.WriteString(h.Name + ": " + h.Value + "\n")
	}
	if r.Body != "" {
		b.WriteString("\n" + r.Body)
	}
	return b.String()
}
