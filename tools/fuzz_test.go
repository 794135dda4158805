package tools_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"countersign/examples/shop"
	"countersign/fault"
	"countersign/strictjson"
	"countersign/tools"
)

// FuzzParseManifest: any text gives a manifest or problems with places, never a
// panic.
func FuzzParseManifest(f *testing.F) {
	f.Add(everything)
	f.Add(smallest)
	for _, seed := range []string{"a: &x [*x]", "? a\n: b", "- a\n- b", "{", "\xff", "tool: 1\n\ttool: 2", "input: {$ref: '#'}", "%YAML 1.2\n---\n", "a: !!binary x", "a: |\n  x", "<<: {a: b}"} {
		f.Add(seed)
	}
	names, _ := fs.Glob(shop.Manifests, "*.yaml")
	for _, name := range names {
		text, _ := fs.ReadFile(shop.Manifests, name)
		f.Add(string(text))
	}
	files, _ := filepath.Glob("testdata/broken/*.yaml")
	for _, file := range files {
		text, _ := os.ReadFile(file)
		f.Add(string(text))
	}
	f.Fuzz(func(t *testing.T, text string) {
		m, err := tools.ParseManifest([]byte(text))
		if err == nil {
			if m.Spec.Name == "" || m.Digest == "" || len(m.Spec.InputSchema) == 0 {
				t.Fatalf("a manifest without name, digest or input: %+v", m.Spec)
			}
			return
		}
		var bad *tools.ManifestError
		if !errors.As(err, &bad) || len(bad.Problems) == 0 {
			t.Fatalf("not a ManifestError with problems: %v", err)
		}
		lines := strings.Count(text, "\n") + strings.Count(text, "\r") + 1
		for _, p := range bad.Problems {
			if p.Line < 1 || p.Line > lines || p.Column < 1 || p.Message == "" {
				t.Fatalf("a problem without a place: %+v", p)
			}
		}
	})
}

// FuzzRender: whatever stands in the arguments, it stays in its place in path,
// query, header, body, text and key.
func FuzzRender(f *testing.F) {
	for _, seed := range []string{"", ".", "..", "a/b", "?x=1", "#", "%2e%2e", "a\r\nX-Evil: 1", "é", "${7*7}", "$${", "\"}", "\u202e", "\x7f", "+", "&=", "://", "\\", "'", "a b", "%00", "\xff"} {
		f.Add(seed, seed)
		f.Add("x", seed)
	}
	m := parse(f, strings.NewReplacer(
		"  json:\n    parcels: \"${reads.order.body.parcels.map(p, p.id)}\"\n", "  json:\n    parcels: []\n",
		`order_id: {type: string, pattern: "^ord_[0-9]+$"}`, `order_id: {type: string}`,
		`X-Pin: '${args.?pin.orValue("none")}'`, `X-Pin: '${args.?note.orValue("none")}'`,
	).Replace(everything))
	tool := bound(f, m)
	replies := shipReplies(f)
	f.Fuzz(func(t *testing.T, id, note string) {
		if !utf8.ValidString(id+note) || strings.ContainsRune(id+note, 0) || len(id+note) > 200 {
			return
		}
		if _, err := strictjson.Parse(strictjson.Canonical([]any{id, note}), strictjson.DefaultLimits); err != nil {
			return // such values never pass the decoder
		}
		args, _, err := tool.CheckArgs(map[string]any{"order_id": id, "note": note})
		if err != nil {
			return
		}
		key, err := tool.BusinessKey(args, anna)
		if err != nil {
			if !fault.Is(err, fault.TooLong) {
				t.Fatal(err)
			}
		} else if strings.Count(key, "/") != 2 || strings.ContainsFunc(key, func(r rune) bool { return r < 0x21 || r > 0x7e }) {
			t.Fatalf("the key %q", key)
		}
		_, req, err := m.Plan(tools.Call{Args: args, Agent: anna, Key: tools.Key{Value: key, Upstream: "u"}}, replies)
		if err != nil {
			if code := fault.Of(err).Code; code != fault.ForbiddenText && code != fault.SchemaViolation {
				t.Fatal(err)
			}
			return
		}
		u, err := url.ParseRequestURI(req.Path)
		if err != nil || u.Host != "" || u.RawQuery != "dry=false" {
			t.Fatalf("the path %q: %v", req.Path, err)
		}
		segments := strings.Split(u.EscapedPath(), "/")
		if back, err := url.PathUnescape(segments[2]); len(segments) != 4 || err != nil || back != id || id == "" || id == "." || id == ".." {
			t.Fatalf("the path %q of %q", req.Path, id)
		}
		for _, h := range req.Header {
			if strings.ContainsFunc(h.Value, func(r rune) bool { return r < 0x20 || r > 0x7e }) {
				t.Fatalf("the header %q", h)
			}
		}
		v, err := strictjson.Parse(req.Body, strictjson.DefaultLimits)
		if err != nil {
			t.Fatalf("the body %q: %v", req.Body, err)
		}
		body := v.(map[string]any)
		if body["note"] != note || body["mixed"] != "order "+id+", express false" || body["literal"] != "${not an expression}" {
			t.Fatalf("the body %q", req.Body)
		}
	})
}

// FuzzJudge: an answer is success only if it is the declared one.
func FuzzJudge(f *testing.F) {
	m := parse(f, everything)
	plan := planned(f, m)
	for _, body := range []string{`{"state":"shipped","id":88}`, `{"state":"shipped","id":"88"}`, `{"state":"refused"}`, `null`, `[]`, `{"message":"x"}`, `{"state":"shipped","id":1.5}`, `{"state":"shipped","id":1e2}`} {
		for _, status := range []int{200, 201, 404, 409, 500} {
			f.Add(status, body)
		}
	}
	f.Fuzz(func(t *testing.T, status int, body string) {
		v, err := strictjson.Parse([]byte(body), strictjson.ReplyLimits)
		reply := tools.Reply{Status: status, Headers: map[string]string{}, Body: v}
		if err != nil {
			reply.Body, reply.Unreadable = nil, "it is not JSON."
		}
		out := m.Judge(plan, reply)
		switch out.Verdict {
		case tools.Succeeded:
			object, ok := v.(map[string]any)
			id, isNumber := object["id"].(json.Number)
			if !ok || status != 200 && status != 201 || object["state"] != "shipped" || !isNumber || out.EffectID == "" || err != nil {
				t.Fatalf("%d %s is no success: %+v (%v)", status, body, out, id)
			}
		case tools.NoEffect:
			if status != 404 && status != 422 && status != 200 && status != 409 {
				t.Fatalf("%d is no declared rejection", status)
			}
		case tools.Unknown:
		default:
			t.Fatalf("%d %s: %+v", status, body, out)
		}
	})
}

func BenchmarkParseManifest(b *testing.B) {
	text := []byte(everything)
	for b.Loop() {
		if _, err := tools.ParseManifest(text); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCheckArgs(b *testing.B) {
	tool := bound(b, parse(b, base(b)))
	args := object(b, `{"case":"c-1","payment_id":"pay_1","amount":1200}`)
	for b.Loop() {
		if _, _, err := tool.CheckArgs(args); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPlan is the mapping of a preview: everything but the reads.
func BenchmarkPlan(b *testing.B) {
	for name, text := range map[string]string{"refund": base(b), "everything": everything} {
		b.Run(name, func(b *testing.B) {
			m := parse(b, text)
			if text == everything {
				benchmarkPlan(b, m, callOf(b, m, shipArgs), shipReplies(b))
				return
			}
			call := callOf(b, m, `{"case":"c-1","payment_id":"pay_1","amount":1200}`)
			replies := map[string]tools.Reply{"payment": ok(b, `{"refundable":5000,"refunded":0,"currency":"EUR","status":"captured"}`)}
			benchmarkPlan(b, m, call, replies)
		})
	}
}

func benchmarkPlan(b *testing.B, m *tools.Manifest, call tools.Call, replies map[string]tools.Reply) {
	for b.Loop() {
		if _, _, err := m.Plan(call, replies); err != nil {
			b.Fatal(err)
		}
	}
}
