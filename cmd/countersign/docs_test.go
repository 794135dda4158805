package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"countersign/examples/shop"
	"countersign/tools"
	"countersign/tools/httptool"
	"countersign/tools/tooltest"
)

// docs/writing-a-tool.md grows its tools step by step. A block of YAML that
// begins with `tool:` begins a manifest; any other shows the top-level parts
// that it adds to, or replaces in, the manifest of the block before it, or in the
// one that "# NAME, continued" names.
type lesson struct {
	step     int
	name     string // of the tool
	manifest string // as it stands after the step
}

var (
	topLevel  = regexp.MustCompile(`^[a-z_]+:`)
	continued = regexp.MustCompile(`^# ([a-z_]+), continued\n`)
)

// parts splits a manifest into its top-level keys, each with its lines.
func parts(text string) (keys []string, byKey map[string]string) {
	byKey = map[string]string{}
	for line := range strings.Lines(text) {
		if key := topLevel.FindString(line); key != "" {
			keys = append(keys, key)
		}
		if len(keys) > 0 {
			byKey[keys[len(keys)-1]] += line
		}
	}
	return keys, byKey
}

func lessons(t *testing.T) []lesson {
	t.Helper()
	page, err := os.ReadFile("../../docs/writing-a-tool.md")
	require.NoError(t, err)
	manifests := map[string]string{}
	name := ""
	var all []lesson
	for step, block := range yamlBlocks(string(page)) {
		if m := continued.FindStringSubmatch(block); m != nil {
			name = m[1]
			require.Contains(t, manifests, name)
		}
		keys, fresh := parts(block)
		if said, ok := fresh["tool:"]; ok {
			name = strings.TrimSpace(strings.TrimPrefix(said, "tool:"))
			manifests[name] = block
		} else {
			order, now := parts(manifests[name])
			for _, key := range keys {
				if now[key] == "" {
					order = append(order, key)
				}
				now[key] = fresh[key]
			}
			text := ""
			for _, key := range order {
				text += now[key]
			}
			manifests[name] = text
		}
		all = append(all, lesson{step + 1, name, manifests[name]})
	}
	require.Greater(t, len(all), 10)
	return all
}

// After each step the manifest loads.
func TestWritingATool_EveryStepLoads(t *testing.T) {
	for _, l := range lessons(t) {
		_, err := tools.ParseManifest([]byte(l.manifest))
		require.NoError(t, err, "step %d, %s:\n%s", l.step, l.name, l.manifest)
	}
	first := lessons(t)[0].manifest
	require.LessOrEqual(t, strings.Count(first, "\n"), 20, "the smallest tool")
}

// finished writes the tools of the page, as they stand at its end, into a folder.
func finished(t *testing.T) (dir string, byName map[string]string) {
	t.Helper()
	dir, byName = t.TempDir(), map[string]string{}
	require.NoError(t, os.Mkdir(filepath.Join(dir, "tools"), 0o700))
	for _, l := range lessons(t) {
		byName[l.name] = l.manifest
	}
	for name, text := range byName {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "tools", name+".yaml"), []byte(text), 0o600))
	}
	return dir, byName
}

// What the page shows of `tool validate` is what it prints.
func TestWritingATool_ShownOutput(t *testing.T) {
	page, err := os.ReadFile("../../docs/writing-a-tool.md")
	require.NoError(t, err)
	dir, _ := finished(t)
	first := lessons(t)[0].manifest
	t.Chdir(dir)
	status, out, errs := run(t, "tool", "validate", "tools")
	require.Zero(t, status, out)
	require.Empty(t, errs)
	for line := range strings.Lines(out) {
		if !strings.Contains(line, "get_order") {
			require.True(t, strings.Contains(string(page), "\n"+line), "the page lacks: %s", line)
		}
	}
	broken := strings.Replace(first, `"order/${args.order_id}"`, `"order/${args.ordr_id}"`, 1)
	require.NoError(t, os.WriteFile("tools/hold_order.yaml", []byte(broken), 0o600))
	status, out, _ = run(t, "tool", "validate", "tools/hold_order.yaml")
	require.Equal(t, 1, status)
	require.True(t, strings.Contains(string(page), "```text\n"+out+"```"), "the page shows another output than\n%s", out)
}

var fencedConfig = regexp.MustCompile("(?ms)^```yaml config\n(.*?)^```$")

func TestWritingATool_Configuration(t *testing.T) {
	page, err := os.ReadFile("../../docs/writing-a-tool.md")
	require.NoError(t, err)
	blocks := fencedConfig.FindAllStringSubmatch(string(page), -1)
	require.NotEmpty(t, blocks)
	for _, b := range blocks {
		file := filepath.Join(t.TempDir(), "countersign.yaml")
		require.NoError(t, os.WriteFile(file, []byte(b[1]), 0o600))
		_, err := loadConfig(file, noEnv)
		require.NoError(t, err)
	}
}

// The tools that the page ends with keep their promises in front of the real
// shop: the contract suite, and the read.
func TestWritingATool_AgainstTheShop(t *testing.T) {
	if testing.Short() {
		t.Skip()
	}
	dir, _ := finished(t)
	loaded, err := tools.Load(filepath.Join(dir, "tools"))
	require.NoError(t, err)

	s, err := shop.Open(shop.Config{Dir: t.TempDir()})
	require.NoError(t, err)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	t.Cleanup(func() { require.NoError(t, errors.Join(s.Close(), <-served)) })
	line := tooltest.NewLine(t, "http://"+ln.Addr().String())
	allow, err := httptool.ParseAllowed(line.Address())
	require.NoError(t, err)
	client, err := httptool.Open(httptool.Upstream{Name: "shop", URL: line.URL, Allow: []httptool.Allowed{allow}})
	require.NoError(t, err)
	byName := map[string]*tools.Tool{}
	for _, l := range loaded {
		byName[l.Manifest.Spec.Name], err = tools.Compile(l.Manifest, tools.CompileEnv{UpstreamURL: client.URL(), NewConnector: client.Connector})
		require.NoError(t, err)
	}

	got, err := byName["get_order"].Read(t.Context(), tools.Call{Args: map[string]any{"order_id": "ord_1001"}})
	require.NoError(t, err)
	require.Equal(t, "Birch Bakery", got.(map[string]any)["customer"])

	tooltest.Run(t, tooltest.Suite{
		Tool: byName["hold_order"], Line: line, Previews: 50, Success: http.StatusCreated, EffectID: "id",
		Tools: func(name string) (*tools.Tool, bool) { tool, ok := byName[name]; return tool, ok },
		Before: func(n int) {
			if n%8 == 0 { // eight orders are open
				require.NoError(t, s.Reset())
			}
		},
		Args: func(n int) map[string]any {
			return map[string]any{"order_id": fmt.Sprintf("ord_10%02d", 1+n%8), "reason": "asked by phone"}
		},
		Spoil: func(map[string]any) { s.Set(shop.Switches{RefuseNext: 1}) },
		Change: func(args map[string]any) {
			resp, err := http.Post("http://"+ln.Addr().String()+"/orders/"+args["order_id"].(string)+"/change", "application/json", strings.NewReader("{}"))
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
		},
		Effects: s.EffectCount, Requests: s.RequestCount,
	})
}
