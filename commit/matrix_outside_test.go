package commit_test

import (
	"context"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/examples/shop"
	"countersign/ledger"
	"countersign/preview"
	"countersign/tools"
	"countersign/tools/tooltest"
)

// lineRig is a gateway whose line to a real shop can be cut.
func lineRig(t *testing.T) (*rig, *shop.Shop, *tooltest.Line) {
	t.Helper()
	var line *tooltest.Line
	r, s := shopRigOver(t, func(url string) string {
		line = tooltest.NewLine(t, url)
		return line.URL
	})
	return r, s, line
}

// refundArgs is a call of a tool that honours keys and can be asked.
func refundArgs(n int) map[string]any {
	return args("", "case", fmt.Sprintf("c-%d", n), "payment_id", "pay_a1", "amount", 100)
}

func without(in map[string]any, name string) map[string]any { delete(in, name); return in }

// TestMatrix_Row01_CutBeforeTheCall: the upstream's address refuses connections when
// it should be sent: nothing is sent, it waits with the attempt on record, and it is
// sent once the line is there again.
func TestMatrix_Row01_CutBeforeTheCall(t *testing.T) {
	t.Parallel() // it waits for a claim to end
	r, s, line := lineRig(t)
	p := r.preview(agent, "refund_payment", without(refundArgs(1), "order_id"))
	op := r.mustCommit(agent, "refund_payment", p.Token).Operation
	fresh := r.op(op.ID)
	line.Refuse()
	r.approve(carl, fresh)
	r.work()
	require.Zero(t, s.RequestCount(), "the guard could not even be read")
	require.Equal(t, ledger.Pending, r.op(op.ID).State)
	line.Restore()
	require.Eventually(t, func() bool { r.work(); return r.op(op.ID).State == ledger.Succeeded }, 30*time.Second, 200*time.Millisecond)
	require.Equal(t, 1, s.EffectCount())

	// And when the line is cut behind the guard: the mark stands, not one byte went out.
	hold := r.preview(agent, "hold_order", args("ord_1001"))
	tool, ok := r.registry.Get("hold_order")
	require.True(t, ok)
	tool.Connector = cutBehindGuard{hooked{Connector: tool.Connector}, line}
	res, err := r.commits.Commit(t.Context(), commitNow(hold.Token))
	require.NoError(t, err)
	require.NoError(t, r.executor.Drain(t.Context()))
	got := r.op(res.Operation.ID)
	require.Equal(t, ledger.Pending, got.State)
	require.Len(t, got.Attempts, 1)
	require.Empty(t, got.EffectID)
	require.Equal(t, 1, s.EffectCount())
	tool.Connector = tool.Connector.(cutBehindGuard).Connector
	line.Restore()
	require.Eventually(t, func() bool { r.work(); return r.op(got.ID).State == ledger.Succeeded }, 30*time.Second, 200*time.Millisecond)
	require.Equal(t, 2, s.EffectCount())
	require.Equal(t, []ledger.Verb{"open", "release", "dispatch", "finish"}, r.verbs(got.ID))
}

// cutBehindGuard cuts the line when the guard was read.
type cutBehindGuard struct {
	hooked
	line *tooltest.Line
}

func (c cutBehindGuard) Guard(ctx context.Context, p tools.Plan) (tools.Guard, error) {
	g, err := c.hooked.Guard(ctx, p)
	c.line.Refuse()
	return g, err
}

// TestMatrix_Row02_ReplyCutOnTheLine: the line forwards the request and cuts the
// reply. The shop's own log has one effect, which the lookup finds; nothing is sent
// a second time.
func TestMatrix_Row02_ReplyCutOnTheLine(t *testing.T) {
	r, s, line := lineRig(t)
	line.Fail(tooltest.Fault{Forward: true})
	op := r.do(agent, "hold_order", args("ord_1001")).Operation
	require.Eventually(t, func() bool { return r.op(op.ID).State == ledger.Succeeded }, 30*time.Second, 20*time.Millisecond)
	require.Equal(t, []ledger.Verb{"open", "finish", "resolve"}, r.verbs(op.ID))
	require.Len(t, line.Received(), 1)
	require.Equal(t, 1, s.EffectCount())
	require.Equal(t, s.Effects()[0].ID, r.op(op.ID).EffectID)
}

// TestMatrix_Row35_WhatItSaysIsNotWhatItDid: the shop answers 500 and did it,
// 201 and did not, 201 cut off, 201 that is no JSON, 429, a flood of 1xx, a body
// without end, one byte at a time. None of them is a success or a failure by itself:
// what happened is looked up, and one request was sent.
func TestMatrix_Row35_WhatItSaysIsNotWhatItDid(t *testing.T) {
	reply := func(text string) func(io.Writer) {
		return func(w io.Writer) { _, _ = io.WriteString(w, text) } // the peer may be gone
	}
	flood := func(head, piece string) func(io.Writer) {
		return func(w io.Writer) {
			_, err := io.WriteString(w, head)
			for err == nil {
				_, err = io.WriteString(w, piece)
			}
		}
	}
	const created = "HTTP/1.1 201 Created\r\nContent-Type: application/json\r\n"
	for name, fault := range map[string]tooltest.Fault{
		"500 and did it":         {Forward: true, Answer: reply("HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n")},
		"500 and did not":        {Answer: reply("HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n")},
		"429 and did it":         {Forward: true, Answer: reply("HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n")},
		"cut off":                {Forward: true, Answer: reply(created + "Content-Length: 400\r\n\r\n{\"id\":\"hold_")},
		"not JSON":               {Forward: true, Answer: reply(created + "Content-Length: 2\r\n\r\nOK")},
		"success without an id":  {Answer: reply(created + "Content-Length: 2\r\n\r\n{}")},
		"a flood of 1xx":         {Forward: true, Answer: flood("", "HTTP/1.1 103 Early Hints\r\n\r\n")},
		"a body without end":     {Forward: true, Answer: flood(created+"\r\n", "                                ")},
		"a header without end":   {Forward: true, Answer: flood(created+"X: ", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")},
		"another status as well": {Forward: true, Answer: reply("HTTP/1.1 204 No Content\r\n\r\n")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, s, line := lineRig(t)
			line.Fail(fault)
			p := r.preview(agent, "hold_order", args("ord_1001"))
			res, err := r.commits.Commit(context.Background(), commitNow(p.Token))
			require.NoError(t, err)
			require.NoError(t, r.executor.Drain(context.Background()))
			require.Eventually(t, func() bool { return len(r.lookups(res.Operation.ID)) > 0 }, 30*time.Second, 20*time.Millisecond)
			got := r.op(res.Operation.ID)
			if fault.Forward {
				require.Equal(t, ledger.Succeeded, got.State)
				require.Equal(t, s.Effects()[0].ID, got.EffectID)
			} else {
				require.Equal(t, ledger.Unknown, got.State, "absent once is no proof")
			}
			require.Len(t, line.Received(), 1)
			require.Equal(t, []ledger.Verb{"open", "finish"}, r.verbs(got.ID)[:2])
		})
	}
	t.Run("201 and did not", func(t *testing.T) {
		// A lie that no gateway can see at once: it says what the declared proof says.
		// The lookup that a person asks for shows nothing, and the record says whose
		// word it was.
		r, s, line := lineRig(t)
		line.Fail(tooltest.Fault{Answer: reply(created + "Content-Length: 32\r\n\r\n{\"id\":\"hold_x\",\"state\":\"active\"}")})
		op := r.do(agent, "hold_order", args("ord_1001")).Operation
		require.Equal(t, ledger.Succeeded, op.State)
		require.Zero(t, s.EffectCount())
		list, err := r.ledger.Evidence(context.Background(), tenant, op.ID)
		require.NoError(t, err)
		require.Equal(t, "response", list[0].Kind)
		require.Equal(t, 201, list[0].Seen.Status)
	})
}

// TestMatrix_Row41_RotatedUnderLoad: keys are rotated while agents preview and
// commit: nobody is wrongly refused. A token of a retired key opens nothing and
// still replays; one of a key that nobody knows is refused.
func TestMatrix_Row41_RotatedUnderLoad(t *testing.T) {
	r := newRig(t, tooltest.FakeTool("hold_order"))
	spent := r.preview(agent, "hold_order", args("spent")).Token
	first := r.mustCommit(agent, "hold_order", spent).Operation
	unspent := r.preview(agent, "hold_order", args("unspent")).Token
	failed := make(chan error, 8)
	rotate := make(chan struct{})
	for w := range 8 {
		go func() {
			for i := range 12 {
				res, err := r.previews.Preview(context.Background(), previewRequest("hold_order", fmt.Sprintf("ord_%d_%d", w, i)))
				if err == nil {
					rotate <- struct{}{} // the key changes between preview and commit
					_, err = r.commit(agent, "hold_order", res.Token)
				}
				if err != nil {
					failed <- err
					return
				}
			}
			failed <- nil
		}()
	}
	rotations := 0
	for ended := 0; ended < 8; {
		select {
		case <-rotate:
			if rotations++; rotations%10 == 0 {
				_, err := r.keys.Rotate(r.clock.Now())
				require.NoError(t, err)
			}
		case err := <-failed:
			require.NoError(t, err)
			ended++
		}
	}
	require.Equal(t, 96, rotations)
	r.clock.Add(3 * time.Hour) // every key of before is retired
	_, err := r.keys.Rotate(r.clock.Now())
	require.NoError(t, err)
	again := r.mustCommit(agent, "hold_order", spent)
	require.True(t, again.Replayed)
	require.Equal(t, first.ID, again.Operation.ID)
	_, err = r.commit(agent, "hold_order", unspent)
	requireCode(t, err, "token_expired")
	stranger := newRig(t, tooltest.FakeTool("hold_order"))
	_, err = r.commit(agent, "hold_order", stranger.preview(agent, "hold_order", args("ord_9")).Token)
	requireCode(t, err, "token_invalid")
	_, err = r.previews.Preview(context.Background(), preview.Request{Agent: agent, Tool: "hold_order", Args: args("spent")})
	require.NoError(t, err)
}
