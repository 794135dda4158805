package api

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/go-chi/chi/v5"

	"countersign/fault"
	"countersign/strictjson"
	"countersign/tools"
)

// advised is a refusal with a next step of its own, where the table's would not
// help this caller. Zero members leave the table's.
type advised struct {
	refusal *fault.Error
	action  NextAction
	url     string
	text    string
}

// Error implements error.
func (a *advised) Error() string { return a.refusal.Error() }

// Unwrap gives the refusal itself to errors.As.
func (a *advised) Unwrap() error { return a.refusal }

// on puts the advice over the table's.
func (a *advised) on(n *Next) {
	if a.action != "" {
		n.Action = a.action
	}
	if a.url != "" {
		n.URL = a.url
	}
	if a.text != "" {
		n.Text = a.text
	}
}

// advise finds a better next step for a refusal on a route of one tool.
func (s *Server) advise(who principal, tool string, err error) error {
	if err == nil || who == (principal{}) {
		return err
	}
	e := fault.Of(err)
	t, known := s.cfg.Registry.Get(tool)
	switch {
	case e.Code == fault.ToolNotFound:
		return s.didYouMean(who, tool, e)
	case !known || !mayUse(who, tool):
		return err
	case e.Code == fault.ToolAccess && t.Access == tools.Read:
		at := "/v1/tools/" + tool + "/call"
		return &advised{e, NextActionStop, at, "Stop previewing and committing it: the tool only reads. POST the same args to " + at + "; the answer has the result."}
	case e.Code == fault.ToolAccess:
		at := "/v1/tools/" + tool + "/preview"
		return &advised{e, NextActionPreviewAgain, at, "The tool writes, so it is not called: POST the same args to " + at + ", look at the effects, then commit with the token."}
	case e.Code == fault.IdempotencyKeyReused:
		return &advised{refusal: e, text: anotherKey(t)}
	case e.Code == fault.UnknownMember:
		return argOutside(t, e)
	}
	return err
}

// anotherKey says what makes another key for another intent.
func anotherKey(t *tools.Tool) string {
	const first = "If you meant the earlier call, use its first result. "
	switch {
	case t.KeySource == tools.KeyFromCaller:
		return first + "If this is another intent, send another key."
	case t.KeySource == tools.KeyFromRun:
		return first + "The key is made from the run, step and call; another intent needs another call there."
	case len(t.KeyArgs) > 0:
		return first + "The key is made from the arguments; another intent needs another value there (" + strings.Join(t.KeyArgs, ", ") + ")."
	default:
		return first + "The key is made by the tool; another intent needs other values in the arguments that make it."
	}
}

// argOutside points an argument that stands at the top of the body to its place.
func argOutside(t *tools.Tool, e *fault.Error) error {
	var input struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if err := json.Unmarshal(t.InputSchema, &input); err != nil || len(e.Pointers) != 1 {
		return e
	}
	for name := range input.Properties {
		if e.Pointers[0].Pointer == strictjson.Join("", name) {
			return &advised{refusal: e, text: `Put it under args: {"args": {` + strictjson.Echo(name) + `: …}}. Nothing was changed.`}
		}
	}
	return e
}

// didYouMean names the tools that the caller may use and may have meant.
func (s *Server) didYouMean(who principal, name string, e *fault.Error) error {
	var near []string
	for _, t := range s.cfg.Registry.List() {
		if mayUse(who, t.Name) && resembles(name, t.Name) {
			near = append(near, t.Name)
		}
	}
	if len(near) == 0 {
		return e
	}
	const most = 3
	if len(near) > most {
		near = near[:most]
	}
	said := *e
	said.Detail = strings.TrimSuffix(e.Detail, ".") + "; did you mean " + strings.Join(near, " or ") + "?"
	return &said
}

// maxTypos is how many letters may differ between a name and what was meant.
const maxTypos = 2

// resembles reports whether a name is a mistyped or an unfinished other one.
func resembles(given, name string) bool {
	const enough = 3 // letters, before a beginning says something
	if len(given) > len(name)+maxTypos {
		return len(given) <= 2*len(name) && strings.HasPrefix(given, name)
	}
	if len(given) >= enough && strings.HasPrefix(name, given) {
		return true
	}
	return len(given) >= enough && distance(given, name) <= maxTypos
}

// distance counts the letters to add, drop or change between two short names
// (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		corner := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := corner
			if a[i] != b[j] {
				change++
			}
			corner = row[j+1]
			row[j+1] = min(change, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}

// mayUse reports whether a caller may use a tool; an operator sees all.
func mayUse(who principal, tool string) bool {
	return who.operator != nil || who.agent.May(tool)
}

// toolInPath is the tool that a request's address names; empty when it names
// none.
func toolInPath(r *http.Request) string {
	if c := chi.RouteContext(r.Context()); c != nil {
		return c.URLParam("tool")
	}
	return ""
}

// noRoute is the 404 of an address below a tool, whether the tool exists or not:
// who asks is not known yet.
func noRoute(tool string) error {
	below := "/v1/tools/" + tool
	return &advised{
		refusal: fault.New(fault.NotFound, "There is no such route; below a tool there are only preview, commit and call."),
		text: "POST to " + below + "/preview and then " + below + "/commit when the tool writes, or to " + below +
			"/call when it reads; GET /v1/tools says which. See /openapi.yaml for all routes that exist.",
	}
}
