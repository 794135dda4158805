// Package tooltest proves that a tool keeps the promises that it declares, and
// lends the rest of the module a tool that needs no network.
//
// What lives here: Fake, a scripted tools.Connector that counts requests and
// effects; FakeTool, a ready *tools.Tool around one; and Run, the contract
// suite that every connector and every manifest can be run against.
//
// How it flows: a test makes a tool (a fake one, or one compiled from a
// manifest with a real connector), says how to read the upstream's own log and
// how to break the upstream, and Run checks previews, replies, lookups, undo and
// every way in which a reply can be lost. A bug found in one connector becomes a
// case for all.
//
// What does not live here: any real connector, and any rule about states (the
// ledger's tests).
package tooltest

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	"countersign/fault"
	"countersign/tools"
)

// DefaultInput is the input schema of a FakeTool. order_id is the business key.
const DefaultInput = `{
  "type": "object",
  "additionalProperties": false,
  "required": ["order_id"],
  "properties": {
    "order_id": {"type": "string", "minLength": 1},
    "amount": {"type": "integer", "minimum": 0, "description": "minor units"},
    "note": {"type": "string", "default": ""}
  }
}`

// Option changes a FakeTool.
type Option func(*tools.Tool, *Fake)

// FakeTool returns a write tool that needs no network: reversible, approved
// automatically, key template "<name>/<order_id>", no key support, no lookup.
// Options change that. Its fake is FakeOf(tool).
func FakeTool(name string, opts ...Option) *tools.Tool {
	f := NewFake()
	t := &tools.Tool{
		Spec: tools.Spec{
			Name:           name,
			Description:    "A scripted tool.",
			Access:         tools.Write,
			Version:        "sha256:fake-" + name + "-1",
			Manifest:       []byte("tool: " + name + "\n"),
			Upstream:       "fake",
			UpstreamURL:    "http://fake.invalid",
			Reversible:     true,
			InputSchema:    json.RawMessage(DefaultInput),
			KeySource:      tools.KeyTemplate,
			Consistency:    tools.NoLookup,
			Timeout:        10 * time.Second,
			Approval:       []tools.ApprovalRule{Auto()},
			ApprovalExpiry: time.Hour,
			ApprovalMaxAge: time.Hour,
		},
		Connector: f,
		BusinessKey: func(args map[string]any, _ tools.Agent) (string, error) {
			return fmt.Sprintf("%s/%v", name, args["order_id"]), nil
		},
		Redact: func(args map[string]any) map[string]any { return args },
	}
	f.spec = &t.Spec
	f.predict = predictHold
	for _, opt := range opts {
		opt(t, f)
	}
	t.CheckArgs = checkFakeArgs
	return t
}

// FakeOf gives the fake behind a FakeTool.
func FakeOf(t *tools.Tool) *Fake { return t.Connector.(*Fake) }

// checkFakeArgs is DefaultInput in code.
func checkFakeArgs(args map[string]any) (map[string]any, []tools.Warning, error) {
	out := map[string]any{"note": ""}
	for name, v := range args {
		switch name {
		case "order_id", "note":
			if _, ok := v.(string); !ok {
				return nil, nil, fault.New(fault.SchemaViolation, "The arguments do not fit the tool's schema.").
					At("/"+name, "must be text")
			}
		case "amount":
			if _, ok := v.(json.Number); !ok {
				return nil, nil, fault.New(fault.SchemaViolation, "The arguments do not fit the tool's schema.").
					At("/amount", "must be a whole number")
			}
		default:
			return nil, nil, fault.New(fault.SchemaViolation, "The arguments do not fit the tool's schema.").
				At("/"+name, "is not an argument of this tool")
		}
		out[name] = v
	}
	if id, _ := out["order_id"].(string); id == "" {
		return nil, nil, fault.New(fault.SchemaViolation, "The arguments do not fit the tool's schema.").
			At("/order_id", "is required")
	}
	return out, nil, nil
}

// predictHold is what a FakeTool says will happen: an order goes from open to
// held; an amount becomes money in EUR.
func predictHold(args map[string]any) []tools.Effect {
	e := tools.Effect{
		Verb:    "hold",
		Target:  fmt.Sprintf("order/%v", args["order_id"]),
		Before:  map[string]any{"status": "open"},
		After:   map[string]any{"status": "held"},
		Summary: fmt.Sprintf("Order %v will be held.", args["order_id"]),
		Count:   1,
	}
	if n, ok := args["amount"].(json.Number); ok {
		if amount, err := n.Int64(); err == nil {
			e.Money = &tools.Money{Amount: amount, Currency: "EUR"}
		}
	}
	return []tools.Effect{e}
}

// Auto is an approval rule that asks nobody.
func Auto() tools.ApprovalRule {
	return tools.ApprovalRule{Name: "default", Outcome: tools.OutcomeAuto, Match: always}
}

// Approve is an approval rule that always asks n members of group.
func Approve(group string, n int) tools.ApprovalRule {
	return tools.ApprovalRule{
		Name: "default", Outcome: tools.OutcomeApprove, Groups: map[string]int{group: n}, Match: always,
	}
}

// ApproveAbove asks n members of group when the predicted money in EUR is more
// than amount minor units.
func ApproveAbove(amount int64, group string, n int) tools.ApprovalRule {
	return tools.ApprovalRule{
		Name:    fmt.Sprintf("above %d", amount),
		When:    fmt.Sprintf(`effects.money("EUR") > %d`, amount),
		Outcome: tools.OutcomeApprove,
		Groups:  map[string]int{group: n},
		Match: func(_ map[string]any, effects []tools.Effect, _ tools.Agent) (bool, error) {
			var sum int64
			for _, e := range effects {
				if e.Money != nil {
					sum += e.Money.Amount
				}
			}
			return sum > amount, nil
		},
	}
}

// Deny is an approval rule that always refuses.
func Deny(reason string) tools.ApprovalRule {
	return tools.ApprovalRule{Name: "default", Outcome: tools.OutcomeDeny, Reason: reason, Match: always}
}

func always(map[string]any, []tools.Effect, tools.Agent) (bool, error) { return true, nil }

// WithApproval replaces the rules.
func WithApproval(rules ...tools.ApprovalRule) Option {
	return func(t *tools.Tool, _ *Fake) { t.Approval = rules }
}

// Irreversible makes the tool irreversible: one approver of any group, and a yes
// at most ten minutes old.
func Irreversible() Option {
	return func(t *tools.Tool, _ *Fake) {
		t.Reversible = false
		t.Approval = []tools.ApprovalRule{Approve(tools.AnyGroup, 1)}
		t.ApprovalMaxAge = 10 * time.Minute
	}
}

// ReadOnly makes it a read tool.
func ReadOnly() Option {
	return func(t *tools.Tool, _ *Fake) {
		t.Access = tools.Read
		t.Approval, t.BusinessKey, t.KeySource = nil, nil, ""
	}
}

// HonoursKey makes the fake upstream remember keys for retention.
func HonoursKey(retention time.Duration) Option {
	return func(t *tools.Tool, f *Fake) {
		t.HonoursKey, t.KeyRetention = true, retention
		f.honoursKey, f.remembers = true, retention
	}
}

// WithLookup lets outcomes be asked for; what was sent takes effect within a
// minute or never.
func WithLookup(c tools.Consistency) Option {
	return func(t *tools.Tool, _ *Fake) { t.Consistency, t.MaxInFlight = c, time.Minute }
}

// MaxInFlight says how long what was sent may still take effect.
func MaxInFlight(d time.Duration) Option {
	return func(t *tools.Tool, _ *Fake) { t.Spec.MaxInFlight = d }
}

// WithUndo names the tool that reverses this one.
func WithUndo(tool string) Option {
	return func(t *tools.Tool, f *Fake) { t.UndoTool, f.undo = tool, tool }
}

// KeyFrom says where the idempotency key comes from.
func KeyFrom(source tools.KeySource) Option {
	return func(t *tools.Tool, _ *Fake) {
		t.KeySource = source
		if source != tools.KeyTemplate {
			t.BusinessKey = nil
		}
	}
}

// NeedsRun refuses calls without a run.
func NeedsRun() Option {
	return func(t *tools.Tool, _ *Fake) { t.Spec.NeedsRun = true }
}

// Versioned gives the tool another version digest, as a changed manifest would.
func Versioned(n int) Option {
	return func(t *tools.Tool, _ *Fake) { t.Version = fmt.Sprintf("sha256:fake-%s-%d", t.Name, n) }
}

// WithTimeout bounds one dispatch.
func WithTimeout(d time.Duration) Option {
	return func(t *tools.Tool, _ *Fake) { t.Timeout = d }
}

// WithEffects replaces the prediction.
func WithEffects(predict func(args map[string]any) []tools.Effect) Option {
	return func(_ *tools.Tool, f *Fake) { f.predict = predict }
}

// WithSensitive redacts one top-level argument.
func WithSensitive(name string) Option {
	return func(t *tools.Tool, _ *Fake) {
		t.Sensitive = append(t.Sensitive, "/"+name)
		inner := t.Redact
		t.Redact = func(args map[string]any) map[string]any {
			out := map[string]any{}
			for k, v := range inner(args) {
				if k == name {
					text, _ := json.Marshal(v)
					v = fmt.Sprintf("redacted:%x", sha256.Sum256(text))
				}
				out[k] = v
			}
			return out
		}
	}
}

// WithClock sets the fake's clock.
func WithClock(now func() time.Time) Option {
	return func(_ *tools.Tool, f *Fake) { f.Now = now }
}
