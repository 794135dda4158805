package pocketbase_test

import (
	"context"
	"net/url"
	"os"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"countersign/strictjson"
	"countersign/tools"
	"countersign/tools/httptool"
	"countersign/tools/tooltest"
)

// bench is the tools of this example against one PocketBase, without a gateway:
// what the manifests and the connector do by themselves.
type bench struct {
	t      *testing.T
	server *server
	// line leads from the tools to the gatekeeper and can be cut.
	line  *tooltest.Line
	gate  *gatekeeper
	tools map[string]*tools.Tool
}

func newBench(t *testing.T) *bench {
	t.Helper()
	s := start(t)
	gate := newGatekeeper(t, s.url)
	line := tooltest.NewLine(t, gate.url)
	return &bench{t: t, server: s, line: line, gate: gate, tools: compile(t, line.URL, s.tokenFile)}
}

// compile makes the tools as the config beside them says.
func compile(t *testing.T, at, tokenFile string) map[string]*tools.Tool {
	t.Helper()
	loaded, err := tools.Load("tools")
	require.NoError(t, err)
	address, err := url.Parse(at)
	require.NoError(t, err)
	allowed, err := httptool.ParseAllowed(address.Host)
	require.NoError(t, err)
	client, err := httptool.Open(httptool.Upstream{
		Name: "pocketbase", URL: at, Allow: []httptool.Allowed{allowed},
		Auth: &httptool.Credential{Bearer: func() (string, error) {
			text, err := os.ReadFile(tokenFile)
			return string(text), err
		}},
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.Zero(t, client.RefusedWrites())
		client.Close()
	})
	out := map[string]*tools.Tool{}
	for _, l := range loaded {
		require.Equal(t, "pocketbase", l.Manifest.Spec.Upstream)
		tool, err := tools.Compile(l.Manifest, tools.CompileEnv{UpstreamURL: client.URL(), NewConnector: client.Connector})
		require.NoError(t, err)
		out[tool.Name] = tool
	}
	return out
}

// given parses arguments as a body would be.
func given(t *testing.T, text string) map[string]any {
	t.Helper()
	args, err := strictjson.ParseObject([]byte(text), strictjson.DefaultLimits)
	require.NoError(t, err)
	return args
}

// call is a checked call under the key that the ledger would give it; intent
// stands for a key of its own where a test wants several.
func (b *bench) call(tool string, args map[string]any, intent string) tools.Call {
	b.t.Helper()
	checked, _, err := b.tools[tool].CheckArgs(args)
	require.NoError(b.t, err)
	call := tools.Call{Args: checked, Agent: tools.Agent{ID: "agt_1", Name: "clerk", Tenant: "default"}}
	if b.tools[tool].Access == tools.Write {
		value, err := b.tools[tool].BusinessKey(checked, call.Agent)
		require.NoError(b.t, err)
		call.Key = tools.Key{Value: value, Generation: 1, Upstream: uuid.NewSHA1(uuid.NameSpaceURL, []byte(tool+value+intent)).String()}
	}
	return call
}

// plan previews a call.
func (b *bench) plan(tool, args string) tools.Plan { b.t.Helper(); return b.planAs("", tool, args) }

func (b *bench) planAs(intent, tool, args string) tools.Plan {
	b.t.Helper()
	plan, err := b.tools[tool].Preview(context.Background(), b.call(tool, given(b.t, args), intent))
	require.NoError(b.t, err)
	return plan
}

// send dispatches a plan once.
func (b *bench) send(plan tools.Plan) tools.Outcome {
	b.t.Helper()
	return b.tools[plan.Tool].Dispatch(context.Background(), plan, tools.Dispatch{
		Operation: "op_1", Attempt: 1, Deadline: time.Now().Add(time.Minute), Timeout: 10 * time.Second,
	})
}

// do previews and dispatches, and wants success.
func (b *bench) do(tool, args string) (tools.Plan, tools.Outcome) {
	b.t.Helper()
	plan := b.plan(tool, args)
	out := b.send(plan)
	require.Equal(b.t, tools.Succeeded, out.Verdict, out.Because)
	return plan, out
}

func (b *bench) lookup(plan tools.Plan) tools.Answer {
	b.t.Helper()
	return b.tools[plan.Tool].Lookup(context.Background(), plan)
}

func (b *bench) guard(plan tools.Plan) tools.Guard {
	b.t.Helper()
	g, err := b.tools[plan.Tool].Guard(context.Background(), plan)
	require.NoError(b.t, err)
	return g
}

// undo previews the undo of a plan under a key of its own.
func (b *bench) undo(plan tools.Plan, effectID string, result map[string]any) (tools.Plan, error) {
	b.t.Helper()
	u, err := b.tools[plan.Tool].Undo(plan, effectID, result)
	require.NoError(b.t, err)
	require.True(b.t, u.Possible, u.Because)
	require.Equal(b.t, b.tools[plan.Tool].UndoTool, u.Tool)
	return b.tools[u.Tool].Preview(context.Background(), b.call(u.Tool, u.Args, "undo of "+plan.Key.Upstream))
}

// sent are the effectful requests that came down the line.
func (b *bench) sent() (requests []string) {
	for _, r := range b.line.Received() {
		requests = append(requests, r.Method+" "+r.Path)
	}
	return requests
}
