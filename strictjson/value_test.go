package strictjson_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"countersign/strictjson"
)

func TestGet(t *testing.T) {
	v := parse(t, `{"foo":["bar","baz",{"deep":null}],"":0,"a/b":1,"c%d":2,"e^f":3,"g|h":4,"i\\j":5,"k\"l":6," ":7,"m~n":8,"~1":9,"0":10}`)
	for pointer, want := range map[string]string{
		// RFC 6901, section 5
		"/foo": `["bar","baz",{"deep":null}]`, "/foo/0": `"bar"`, "/": `0`, "/a~1b": `1`, "/c%d": `2`, "/e^f": `3`,
		"/g|h": `4`, `/i\j`: `5`, `/k"l`: `6`, "/ ": `7`, "/m~0n": `8`,
		"/~01": `9`, "/0": `10`, "/foo/2/deep": `null`,
	} {
		got, ok := strictjson.Get(v, pointer)
		require.True(t, ok, pointer)
		require.Equal(t, want, string(strictjson.Canonical(got)), pointer)
	}
	whole, ok := strictjson.Get(v, "")
	require.True(t, ok)
	require.Equal(t, v, whole)
	for _, pointer := range []string{
		"foo", "#/foo", "/bar", "/foo/3", "/foo/-", "/foo/-1", "/foo/+1", "/foo/01", "/foo/1e0", "/foo/", "/foo/0/x", "/foo/0/",
		"/foo/99999999999999999999", "/a/b", "/m~n", "/m~2n", "/m~", "/Foo", "//", "/foo/2/deep/x", "/foo//2",
	} {
		_, ok := strictjson.Get(v, pointer)
		require.False(t, ok, pointer)
	}
}

func TestJoin(t *testing.T) {
	require.Equal(t, "/a", strictjson.Join("", "a"))
	require.Equal(t, "/a/", strictjson.Join("/a", ""))
	require.Equal(t, "/a/b~1c~0~01", strictjson.Join("/a", "b/c~~1"))
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.String().Draw(t, "name")
		got, ok := strictjson.Get(map[string]any{name: []any{"x"}}, strictjson.Join(strictjson.Join("", name), "0"))
		require.True(t, ok)
		require.Equal(t, "x", got)
	})
}

func TestClone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := value(3).Draw(t, "value")
		before := strictjson.Canonical(v)
		c := strictjson.Clone(v)
		require.Equal(t, v, c)
		spoil(c)
		require.Equal(t, string(before), string(strictjson.Canonical(v)))
	})
}

// spoil changes every object and array that it reaches.
func spoil(v any) {
	switch v := v.(type) {
	case map[string]any:
		for _, member := range v {
			spoil(member)
		}
		clear(v)
		v["spoilt"] = true
	case []any:
		for i, element := range v {
			spoil(element)
			v[i] = "spoilt"
		}
	}
}
