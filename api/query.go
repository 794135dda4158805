package api

import (
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v5"

	"countersign/fault"
	"countersign/strictjson"
)

// checkQuery holds the query to the contract: known names, each once unless it
// may repeat, values that fit. A misspelt filter must not quietly match all.
func (s *Server) checkQuery(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rt := of(r.Context()).route
		values, err := url.ParseQuery(r.URL.RawQuery)
		if err != nil {
			s.refuse(w, r, fault.Wrap(err, fault.ParameterInvalid, "The query can't be read: it is not well encoded."))
			return
		}
		for _, name := range sorted(values) {
			if err := rt.checkParameter(name, values[name]); err != nil {
				s.refuse(w, r, err)
				return
			}
		}
		if err := rt.checkKey(r.Header.Values("Idempotency-Key")); err != nil {
			s.refuse(w, r, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func sorted(values url.Values) []string {
	names := make([]string, 0, len(values))
	for name := range values {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (rt *route) checkParameter(name string, values []string) error {
	p, known := rt.query[name]
	if !known {
		return fault.New(fault.ParameterInvalid, "The query parameter %s is not known here.%s", strictjson.Echo(name), choices(rt))
	}
	if len(values) > 1 && !p.repeats {
		return fault.New(fault.ParameterInvalid, "The query parameter %s stands %d times; it must stand once.", name, len(values))
	}
	var v any = scalar(p.schema, values[0])
	if p.repeats {
		list := make([]any, len(values))
		for i, text := range values {
			list[i] = text
		}
		v = list
	}
	if err := p.schema.Validate(v); err != nil {
		bad := p.schema
		if items := resolve(bad).Items2020; items != nil {
			bad = items
		}
		return fault.New(fault.ParameterInvalid, "The query parameter %s %s.", name, demand(bad))
	}
	return nil
}

// choices names the parameters that a route takes.
func choices(rt *route) string {
	if len(rt.query) == 0 {
		return " This address takes none."
	}
	names := make([]string, 0, len(rt.query))
	for name := range rt.query {
		names = append(names, name)
	}
	slices.Sort(names)
	return " There are: " + strings.Join(names, ", ") + "."
}

var wholeNumber = regexp.MustCompile(`^(0|[1-9][0-9]{0,8})$`)

// scalar is the value that a text stands for under a schema.
func scalar(schema *jsonschema.Schema, text string) any {
	if slices.Contains(resolve(schema).Types, "integer") && wholeNumber.MatchString(text) {
		return json.Number(text)
	}
	return text
}

// checkKey holds the Idempotency-Key header to the contract, where the route
// has one.
func (rt *route) checkKey(values []string) error {
	switch {
	case rt.key == nil || len(values) == 0:
		return nil
	case len(values) > 1:
		return fault.New(fault.IdempotencyKeyInvalid, "The header Idempotency-Key stands %d times; it must stand once.", len(values))
	case rt.key.Validate(values[0]) != nil:
		return fault.New(fault.IdempotencyKeyInvalid, "The header Idempotency-Key %s.", demand(rt.key))
	}
	return nil
}
