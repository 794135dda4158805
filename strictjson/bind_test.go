package strictjson_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/fault"
	"countersign/strictjson"
)

type run struct {
	ID   string `json:"id"`
	Step int    `json:"step"`
}

type named struct {
	Label string `json:"label"`
	Shade colour `json:"shade"`
}

type document struct {
	named
	Tool    string            `json:"tool"`
	Dry     bool              `json:"dry,omitempty"`
	Count   int64             `json:"count"`
	Small   int8              `json:"small"`
	Size    uint16            `json:"size"`
	Rate    float64           `json:"rate"`
	Exact   json.Number       `json:"exact"`
	Args    any               `json:"args"`
	Object  map[string]any    `json:"object"`
	Labels  map[string]string `json:"labels"`
	Runs    []run             `json:"runs"`
	Run     *run              `json:"run"`
	Again   *string           `json:"again_of"`
	At      time.Time         `json:"at"`
	Plain   string
	Ignored string `json:"-"`
	private string
}

func TestBind(t *testing.T) {
	v := parse(t, `{
		"label":"l","shade":"red","tool":"t","dry":true,"count":9007199254740991,"small":-1.28e2,"size":65535,"rate":0.25,"exact":1.50,
		"args":{"n":1e0,"l":[null]},"object":{"x":null},"labels":{"a":"b"},"runs":[{"id":"r","step":3},{}],
		"run":{"id":"q"},"again_of":"op_1","at":"2026-01-02T03:04:05Z","Plain":"p"}`)
	var d document
	require.NoError(t, strictjson.Bind(v, &d))
	require.Empty(t, d.private)
	again := "op_1"
	require.Equal(t, document{
		named: named{Label: "l", Shade: "red"},
		Tool:  "t", Dry: true, Count: 9007199254740991, Small: -128, Size: 65535, Rate: 0.25, Exact: "1.50",
		Args:   map[string]any{"n": json.Number("1e0"), "l": []any{nil}},
		Object: map[string]any{"x": nil},
		Labels: map[string]string{"a": "b"}, Runs: []run{{ID: "r", Step: 3}, {}}, Run: &run{ID: "q"}, Again: &again,
		At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Plain: "p",
	}, d)
}

func TestBind_absent_and_null(t *testing.T) {
	again := "x"
	d := document{Tool: "default", Labels: map[string]string{"kept": "yes"}, Again: &again, Args: "x", Run: &run{ID: "old", Step: 7}}
	require.NoError(t, strictjson.Bind(parse(t, `{"again_of":null,"args":null,"run":{"id":"new"}}`), &d))
	// null empties what can be empty; an object is not mixed with an old one.
	require.Equal(t, document{Tool: "default", Labels: map[string]string{"kept": "yes"}, Run: &run{ID: "new"}}, d)
}

func TestBind_other_tops(t *testing.T) {
	var list []int
	require.NoError(t, strictjson.Bind(parse(t, `[1,2]`), &list))
	require.Equal(t, []int{1, 2}, list)
	var s string
	require.NoError(t, strictjson.Bind("x", &s))
	require.Equal(t, "x", s)
	var v any
	require.NoError(t, strictjson.Bind(parse(t, `[null]`), &v))
	require.Equal(t, []any{nil}, v)
	var byName map[colour]*run
	require.NoError(t, strictjson.Bind(parse(t, `{"red":{"step":1},"blue":null}`), &byName))
	require.Equal(t, map[colour]*run{"red": {Step: 1}, "blue": nil}, byName)
}

func TestBind_refuses(t *testing.T) {
	for name, c := range map[string]struct {
		text    string
		code    fault.Code
		pointer string
		says    string
	}{
		"unknown":                {`{"other":1}`, fault.UnknownMember, "/other", `"other"`},
		"unknown/nested":         {`{"runs":[{},{"a/b":1}]}`, fault.UnknownMember, "/runs/1/a~1b", `"a/b"`},
		"unknown/exact-case":     {`{"Tool":"x"}`, fault.UnknownMember, "/Tool", `"Tool"`},
		"unknown/second-case":    {`{"tool":"a","TOOL":"b"}`, fault.UnknownMember, "/TOOL", `"TOOL"`},
		"kelvin-key":             {`{"dr\u212a":true}`, fault.UnknownMember, "/dr\u212a", `"dr\u212a"`},
		"kelvin-key/long-s":      {`{"label\u017f":{}}`, fault.UnknownMember, "/label\u017f", `"label\u017f"`},
		"proto-key":              {`{"__proto__":{}}`, fault.UnknownMember, "/__proto__", `"__proto__"`},
		"proto-key/constructor":  {`{"constructor":{}}`, fault.UnknownMember, "/constructor", `"constructor"`},
		"unknown/ignored":        {`{"Ignored":"x"}`, fault.UnknownMember, "/Ignored", "not known"},
		"unknown/dash":           {`{"-":"x"}`, fault.UnknownMember, "/-", "not known"},
		"unknown/private":        {`{"private":"x"}`, fault.UnknownMember, "/private", "not known"},
		"unknown/embedded-name":  {`{"named":{}}`, fault.UnknownMember, "/named", "not known"},
		"unknown/first-by-name":  {`{"z":1,"y":1,"tool":1}`, fault.SchemaViolation, "/tool", "a number"},
		"number-as-string":       {`{"count":"100"}`, fault.SchemaViolation, "/count", "is a string. It must be an integer"},
		"number-as-string/float": {`{"rate":"1"}`, fault.SchemaViolation, "/rate", "must be a number"},
		"number-as-string/exact": {`{"exact":"1"}`, fault.SchemaViolation, "/exact", "must be a number"},
		"number-as-string/uint":  {`{"size":"1"}`, fault.SchemaViolation, "/size", "must be an integer"},
		"string-as-number":       {`{"tool":1}`, fault.SchemaViolation, "/tool", "is a number. It must be a string"},
		"bool-as-string":         {`{"dry":"true"}`, fault.SchemaViolation, "/dry", "must be a boolean"},
		"wrong-type":             {`{"object":"{}"}`, fault.SchemaViolation, "/object", "is a string. It must be an object"},
		"wrong-type/array":       {`{"runs":{}}`, fault.SchemaViolation, "/runs", "is an object. It must be an array"},
		"wrong-type/struct":      {`{"run":[]}`, fault.SchemaViolation, "/run", "is an array. It must be an object"},
		"wrong-type/element":     {`{"runs":[{},true]}`, fault.SchemaViolation, "/runs/1", "is a boolean"},
		"wrong-type/in-map":      {`{"labels":{"a":"x","b":1}}`, fault.SchemaViolation, "/labels/b", "must be a string"},
		"wrong-type/top":         {`[]`, fault.SchemaViolation, "", "at the top is an array"},
		"wrong-type/time":        {`{"at":1}`, fault.SchemaViolation, "/at", "must be a string"},
		"malformed-time":         {`{"at":"yesterday"}`, fault.SchemaViolation, "/at", "not well formed"},
		"null-required":          {`{"object":null}`, fault.SchemaViolation, "/object", "is null. It must be an object"},
		"null-required/string":   {`{"tool":null}`, fault.SchemaViolation, "/tool", "is null"},
		"null-required/slice":    {`{"runs":null}`, fault.SchemaViolation, "/runs", "is null"},
		"null-required/element":  {`{"runs":[null]}`, fault.SchemaViolation, "/runs/0", "is null"},
		"null-required/number":   {`{"count":null}`, fault.SchemaViolation, "/count", "is null"},
		"null-required/top":      {`null`, fault.SchemaViolation, "", "is null"},
		"fraction":               {`{"count":1.5}`, fault.SchemaViolation, "/count", "1.5"},
		"too-big":                {`{"small":128}`, fault.SchemaViolation, "/small", "128"},
		"too-big/uint":           {`{"size":65536}`, fault.SchemaViolation, "/size", "65536"},
		"negative":               {`{"size":-1}`, fault.SchemaViolation, "/size", "-1"},
	} {
		t.Run(name, func(t *testing.T) {
			d := document{Tool: "kept", Count: 7, named: named{Label: "kept"}}
			before := d
			err := strictjson.Bind(parse(t, c.text), &d)
			var f *fault.Error
			require.ErrorAs(t, err, &f)
			require.Equal(t, c.code, f.Code)
			require.Len(t, f.Pointers, 1)
			require.Equal(t, c.pointer, f.Pointers[0].Pointer)
			require.Contains(t, f.Detail, c.says)
			require.Equal(t, before, d)
		})
	}
}

// A refusal deep inside leaves nothing of what came before it.
func TestBind_changes_nothing_on_error(t *testing.T) {
	d := document{Labels: map[string]string{"kept": "yes"}, Runs: []run{{ID: "kept"}}, Run: &run{ID: "kept"}}
	err := strictjson.Bind(parse(t, `{"labels":{"a":"b"},"run":{"id":"x"},"runs":[{"id":"x"}],"tool":1}`), &d)
	require.Error(t, err)
	require.Equal(t, document{Labels: map[string]string{"kept": "yes"}, Runs: []run{{ID: "kept"}}, Run: &run{ID: "kept"}}, d)
}

func TestBind_outer_field_wins(t *testing.T) {
	var d struct {
		named
		Label int `json:"label"`
	}
	require.NoError(t, strictjson.Bind(parse(t, `{"label":1,"shade":"red"}`), &d))
	require.Equal(t, 1, d.Label)
	require.Equal(t, named{Shade: "red"}, d.named)
}

// Mistakes of the program are no fault of the caller.
func TestBind_wrong_destinations(t *testing.T) {
	object := parse(t, `{"a":1}`)
	for _, dst := range []any{nil, document{}, (*document)(nil), new(chan int), new(map[int]any), new(complex128), &struct {
		A func() `json:"a"`
	}{}} {
		err := strictjson.Bind(object, dst)
		require.Error(t, err)
		require.Equal(t, fault.Internal, fault.Of(err).Code)
		require.True(t, strings.HasPrefix(err.Error(), "strictjson: Bind"))
	}
}
