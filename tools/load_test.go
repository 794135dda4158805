package tools_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"countersign/examples/shop"
	"countersign/tools"
)

const cancelRefund = `tool: cancel_refund
access: write
upstream: shop
key: "cancel/${args.refund_id}"
input: {required: [refund_id], properties: {refund_id: {type: string}, why: {type: string, default: ""}}}
preview:
  effects: [{verb: cancel, target: "${args.refund_id}", after: {state: cancelled}}]
commit:
  post: "/refunds/${args.refund_id}/cancel"
  succeeded: {status: [200], effect_id: "${body.id}"}
`

func TestLoadFS_shop(t *testing.T) {
	loaded, err := tools.LoadFS(shop.Manifests)
	require.NoError(t, err)
	require.Len(t, loaded, 8)
	for _, l := range loaded {
		require.Equal(t, l.Manifest.Spec.Name+".yaml", l.File)
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	write("refund.yaml", base(t))
	write("cancel.yml", cancelRefund)
	asJSON := write("ask.json", `{"tool":"ask","access":"read","upstream":"shop","input":{},"read":{"get":"/x"}}`)
	write(".hidden.yaml", "not a manifest")
	write("README.md", "not a manifest")
	loaded, err := tools.Load(dir, asJSON)
	require.NoError(t, err)
	require.Len(t, loaded, 3, "JSON is YAML, but is read only when it is named")

	only, err := tools.Load(filepath.Join(dir, "cancel.yml"))
	require.NoError(t, err)
	require.Equal(t, "cancel_refund", only[0].Manifest.Spec.Name)

	_, err = tools.Load(dir, filepath.Join(dir, "nowhere.yaml"))
	require.ErrorContains(t, err, "nowhere.yaml")
}

// All problems of all files come back at once, each with its file.
func TestLoadFS_problems(t *testing.T) {
	load := func(files map[string]string) string {
		fsys := fstest.MapFS{}
		for name, text := range files {
			fsys[name] = &fstest.MapFile{Data: []byte(text)}
		}
		loaded, err := tools.LoadFS(fsys)
		require.Nil(t, loaded)
		require.Error(t, err)
		return err.Error()
	}
	text := load(map[string]string{
		"a.yaml": base(t, "args.amount > reads", "args.amuont > reads"),
		"b.yaml": base(t, "upstream: shop", "upsteam: shop"),
		"c.yaml": cancelRefund,
		"d.yaml": cancelRefund,
	})
	require.Contains(t, text, "a.yaml:16:24: There is no `amuont`")
	require.Contains(t, text, "b.yaml:5:1: The key `upsteam`")
	require.Contains(t, text, "d.yaml: the tool cancel_refund is described twice, first in c.yaml")

	require.Contains(t, load(map[string]string{"a.yaml": base(t)}), "a.yaml:31:14: There is no tool `cancel_refund`")
	require.Contains(t, load(map[string]string{
		"a.yaml": base(t),
		"c.yaml": "tool: cancel_refund\naccess: read\nupstream: shop\ninput: {}\nread: {get: /x}\n",
	}), "`cancel_refund` is a read tool")
	require.Contains(t, load(map[string]string{
		"a.yaml": base(t, `args: {refund_id: "${effect_id}"}`, `args: {refund: "${effect_id}"}`), "c.yaml": cancelRefund,
	}), "`cancel_refund` does not take `refund`")
	require.Contains(t, load(map[string]string{
		"a.yaml": base(t, `args: {refund_id: "${effect_id}"}, `, ``), "c.yaml": cancelRefund,
	}), "`cancel_refund` needs the argument `refund_id`")
}

func TestLoadFS_undoOfABrokenFileIsNotBlamed(t *testing.T) {
	_, err := tools.LoadFS(fstest.MapFS{
		"a.yaml": {Data: []byte(base(t))},
		"c.yaml": {Data: []byte(strings.Replace(cancelRefund, "access: write", "access: wirte", 1))},
	})
	require.ErrorContains(t, err, "c.yaml")
	require.NotContains(t, err.Error(), "There is no tool")
}
