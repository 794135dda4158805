package storetest

import (
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/ledger"
)

// inRun builds the birth of an operation in an agent's run, on a stored preview.
func (w *world) inRun(tenant, agent, run string) ledger.Opening {
	w.Helper()
	p := w.preview(tenant, w.id("key_"), 1)
	p.Agent, p.Run = agent, &ledger.Run{ID: run, Step: "1", Call: w.id("call_")}
	o := w.opening(w.put(p), ledger.Succeeded)
	o.New[0].OpenRun = true
	return o
}

// grow opens an operation in a run.
func (w *world) grow(tenant, agent, run string) ledger.Operation {
	w.Helper()
	o := w.inRun(tenant, agent, run)
	require.NoError(w, w.Store.Open(w.ctx, o))
	return o.New[0].Operation
}

func (w *world) run(tenant, agent, run string) ledger.RunHead {
	w.Helper()
	h, err := w.Store.RunHead(w.ctx, tenant, agent, run)
	require.NoError(w, err)
	return h
}

// undoing builds the birth of an undo of op with op's own move.
func (w *world) undoing(op ledger.Operation) ledger.Opening {
	w.Helper()
	p := w.preview(op.Tenant, ledger.UndoKey(op.ID), 1)
	p.Agent, p.Run, p.Parent = op.Agent.ID, op.Run, op.ID
	o := w.opening(w.put(p), ledger.Pending)
	child := &o.New[0].Operation
	child.Parent = op.ID
	o.Moves = []ledger.Move{w.beside(op, o.WriteID, ledger.VerbCompensate, func(op *ledger.Operation) {
		op.State, op.Child = ledger.Compensating, child.ID
	})}
	return o
}

// closing builds the closing of a run as it stands.
func (w *world) closing(h ledger.RunHead) *ledger.RunHead {
	h.ClosedAt, h.ClosedBy, h.Closing = w.Clock.Now(), ledger.Gateway("test"), "prv_closing"
	return &h
}

var runCases = []testCase{
	{"none: its names and nothing in it", func(w *world) {
		w.same(ledger.RunHead{Tenant: acme, Agent: "agent-1", ID: "r"}, w.run(acme, "agent-1", "r"))
		p, err := w.Store.Runs(w.ctx, ledger.RunFilter{Tenant: acme})
		require.NoError(w, err)
		require.Empty(w, p.Runs)
		require.Empty(w, p.Next)
	}},
	{"counts what was opened in it, and when the newest was", func(w *world) {
		for i := range 3 {
			op := w.grow(acme, "agent-1", "r")
			w.same(ledger.RunHead{Tenant: acme, Agent: "agent-1", ID: "r", Operations: i + 1, Newest: op.CreatedAt}, w.run(acme, "agent-1", "r"))
			w.apply(op, ledger.VerbReopen, to(ledger.Failed))
			w.Clock.Advance(time.Second + 1)
		}
	}},
	{"runs belong to tenant and agent", func(w *world) {
		for i, r := range [][3]string{{acme, "agent-1", "r"}, {acme, "agent-2", "r"}, {acme, "agent-1", "R"}, {other, "agent-1", "r"}, {acme, "agent-1r", ""}, {acme, "agent-", "1r"}} {
			require.Zero(w, w.run(r[0], r[1], r[2]).Operations, i)
			w.grow(r[0], r[1], r[2])
			require.Equal(w, 1, w.run(r[0], r[1], r[2]).Operations, i)
		}
	}},
	{"undos and what has no run are not counted", func(w *world) {
		op := w.grow(acme, "agent-1", "r")
		before := w.run(acme, "agent-1", "r")
		w.open(acme, "k", ledger.Pending)
		w.Clock.Advance(time.Second)
		require.NoError(w, w.Store.Open(w.ctx, w.undoing(op)))
		w.same(before, w.run(acme, "agent-1", "r"))
	}},
	{"a refused opening, and the same write id again, count nothing", func(w *world) {
		o := w.inRun(acme, "agent-1", "r")
		late := o
		late.WriteID, late.Epoch = w.id("w_"), 1
		w.untouched(func() { w.refused(ledger.EpochMoved, w.Store.Open(w.ctx, late)) })
		require.NoError(w, w.Store.Open(w.ctx, o))
		w.untouched(func() { require.NoError(w, w.Store.Open(w.ctx, o)) })
		require.Equal(w, 1, w.run(acme, "agent-1", "r").Operations)
	}},
	{"closed in the write that opens its undos, and nothing is opened in it then", func(w *world) {
		op := w.grow(acme, "agent-1", "r")
		o := w.undoing(op)
		o.CloseRun = w.closing(w.run(acme, "agent-1", "r"))
		require.NoError(w, w.Store.Open(w.ctx, o))
		h := w.run(acme, "agent-1", "r")
		require.True(w, h.Closed())
		w.same(*o.CloseRun, h)
		w.untouched(func() { w.refused(ledger.RunClosed, w.Store.Open(w.ctx, w.inRun(acme, "agent-1", "r"))) })
		w.untouched(func() { require.NoError(w, w.Store.Open(w.ctx, o), "the same write id again") })
		w.grow(acme, "agent-2", "r")
		w.grow(acme, "agent-1", "another")
		w.grow(other, "agent-1", "r")
	}},
	{"at one place of a run stands one intent", func(w *world) {
		at := func(agent string, run ledger.Run, tool, key string, state ledger.State) ledger.Opening {
			p := w.preview(acme, key, 1)
			p.Agent, p.Run, p.Tool = agent, &run, tool
			head, err := w.Store.Head(w.ctx, acme, tool, key)
			require.NoError(w, err)
			p.Generation = head.Operation.Generation + 1
			o := w.opening(w.put(p), state)
			o.New[0].OpenRun, o.New[0].Head = true, head
			return o
		}
		place := ledger.Run{ID: "r", Step: "1", Call: "a"}
		open := func(o ledger.Opening) ledger.Operation {
			w.Helper()
			require.NoError(w, w.Store.Open(w.ctx, o))
			return o.New[0].Operation
		}
		there := func() (ids []string) {
			for _, op := range w.listAll(ledger.Filter{Tenant: acme, Agent: "agent-1", Place: &place}) {
				ids = append(ids, op.ID)
			}
			return ids
		}
		first := open(at("agent-1", place, "tool", "k1", ledger.Running))
		for _, o := range []ledger.Opening{at("agent-1", place, "tool", "k2", ledger.Running), at("agent-1", place, "other_tool", "k1", ledger.Running)} {
			w.untouched(func() { w.refused(ledger.PlaceTaken, w.Store.Open(w.ctx, o)) })
		}
		// Elsewhere, of somebody else, in a place that is not named whole, or without a look at the run.
		open(at("agent-1", ledger.Run{ID: "r", Step: "1", Call: "b"}, "tool", "k3", ledger.Running))
		open(at("agent-1", ledger.Run{ID: "r", Step: "1a", Call: ""}, "tool", "k4", ledger.Running))
		open(at("agent-1", ledger.Run{ID: "r", Step: "1a", Call: ""}, "tool", "k5", ledger.Running))
		open(at("agent-2", place, "tool", "k6", ledger.Running))
		w.same([]string{first.ID}, there())
		// The next generation of the key stands there with it.
		first = w.apply(first, ledger.VerbFinish, to(ledger.Succeeded))
		again := open(at("agent-1", place, "tool", "k1", ledger.Running))
		w.same([]string{again.ID, first.ID}, there())
		w.untouched(func() {
			w.refused(ledger.PlaceTaken, w.Store.Open(w.ctx, at("agent-1", place, "tool", "k7", ledger.Running)))
		})

		// What had no effect frees it.
		place.Call = "void"
		void := w.apply(open(at("agent-1", place, "tool", "k8", ledger.Running)), ledger.VerbFinish, to(ledger.Failed))
		next := open(at("agent-1", place, "tool", "k9", ledger.Running))
		w.same([]string{next.ID, void.ID}, there())

		// Undos are at none.
		place.Call = "undone"
		parent := open(at("agent-1", place, "tool", "k10", ledger.Succeeded))
		require.NoError(w, w.Store.Open(w.ctx, w.undoing(parent)))
		w.same([]string{parent.ID}, there())
	}},
	{"of two calls at one place one is opened", func(w *world) {
		for range 20 {
			call := w.id("call_")
			errs := together(8, func(int) error {
				o := w.inRun(acme, "agent-1", "r")
				o.New[0].Operation.Run.Call = call
				return w.Store.Open(w.ctx, o)
			})
			winnerOf(w, errs, ledger.PlaceTaken)
		}
	}},
	{"an undo is opened in a closed run too", func(w *world) {
		a, b := w.grow(acme, "agent-1", "r"), w.grow(acme, "agent-1", "r")
		o := w.undoing(a)
		o.CloseRun = w.closing(w.run(acme, "agent-1", "r"))
		require.NoError(w, w.Store.Open(w.ctx, o))
		require.NoError(w, w.Store.Open(w.ctx, w.undoing(b)))
	}},
	{"a run that grew is not closed, nor one that is closed, nor one that is not there", func(w *world) {
		op := w.grow(acme, "agent-1", "r")
		was := w.run(acme, "agent-1", "r")
		second := w.grow(acme, "agent-1", "r")
		closing := func(h ledger.RunHead, of ledger.Operation) error {
			o := w.undoing(of)
			o.CloseRun = w.closing(h)
			return w.Store.Open(w.ctx, o)
		}
		w.untouched(func() { w.refused(ledger.RunMoved, closing(was, op)) })
		none := was
		none.ID = "none"
		w.untouched(func() { w.refused(ledger.RunMoved, closing(none, op)) })
		foreign := w.run(acme, "agent-1", "r")
		foreign.Agent = "agent-2"
		w.untouched(func() { w.refused(ledger.RunMoved, closing(foreign, op)) })
		now := w.run(acme, "agent-1", "r")
		require.NoError(w, closing(now, op))
		w.untouched(func() { w.refused(ledger.RunClosed, closing(now, second)) })
	}},
	{"of those who close it one wins, and whoever opens in it is before or never", func(w *world) {
		for range 10 {
			run := w.id("run_")
			var parents []ledger.Operation
			for range 4 {
				parents = append(parents, w.grow(acme, "agent-1", run))
			}
			h := w.run(acme, "agent-1", run)
			openings := make([]ledger.Opening, 8)
			for i := range openings {
				if i < 4 {
					openings[i] = w.undoing(parents[i])
					openings[i].CloseRun = w.closing(h)
				} else {
					openings[i] = w.inRun(acme, "agent-1", run)
				}
			}
			errs := together(len(openings), func(i int) error { return w.Store.Open(w.ctx, openings[i]) })
			closed, grew := 0, 0
			for i, err := range errs {
				var r *ledger.Refused
				switch {
				case err == nil && i < 4:
					closed++
				case err == nil:
					grew++
				default:
					require.ErrorAs(w, err, &r)
					require.Contains(w, []ledger.Why{ledger.RunMoved, ledger.RunClosed}, r.Why)
				}
			}
			now := w.run(acme, "agent-1", run)
			require.Equal(w, 4+grew, now.Operations)
			require.Equal(w, closed == 1, now.Closed())
			require.True(w, closed == 1 && grew == 0 || closed == 0 && grew == 4, "%d closed, %d grew", closed, grew)
		}
	}},
	{"listed by their newest operation, page by page", func(w *world) {
		var want []ledger.RunHead
		for i := range 7 {
			agent := fmt.Sprintf("agent-%d", i%2)
			w.grow(acme, agent, fmt.Sprint("run-", i))
			w.grow(other, agent, fmt.Sprint("run-", i))
			w.Clock.Advance(time.Second)
		}
		w.grow(acme, "agent-0", "run-2") // now the newest
		for _, i := range []int{2, 6, 5, 4, 3, 1, 0} {
			want = append(want, w.run(acme, fmt.Sprintf("agent-%d", i%2), fmt.Sprint("run-", i)))
		}
		for _, limit := range []int{0, 1, 2, 3, 7, 8} {
			for _, agent := range []string{"", "agent-0", "agent-1", "nobody"} {
				var wanted, got []ledger.RunHead
				for _, h := range want {
					if agent == "" || h.Agent == agent {
						wanted = append(wanted, h)
					}
				}
				f := ledger.RunFilter{Tenant: acme, Agent: agent, Limit: limit}
				for {
					p, err := w.Store.Runs(w.ctx, f)
					require.NoError(w, err)
					require.True(w, limit == 0 || len(p.Runs) <= limit)
					got = append(got, p.Runs...)
					if f.Cursor = p.Next; p.Next == "" {
						break
					}
				}
				w.same(wanted, got, "limit %d, agent %q", limit, agent)
			}
		}
		for _, cursor := range []string{"x", "e30", "\x00"} {
			_, err := w.Store.Runs(w.ctx, ledger.RunFilter{Tenant: acme, Cursor: cursor})
			require.ErrorIs(w, err, ledger.ErrBadCursor)
		}
		_, err := w.Store.Runs(w.ctx, ledger.RunFilter{})
		require.Error(w, err, "never without a tenant")
	}},
	{"a closed run keeps its place in the list", func(w *world) {
		op := w.grow(acme, "agent-1", "old")
		w.grow(acme, "agent-1", "new")
		o := w.undoing(op)
		o.CloseRun = w.closing(w.run(acme, "agent-1", "old"))
		require.NoError(w, w.Store.Open(w.ctx, o))
		p, err := w.Store.Runs(w.ctx, ledger.RunFilter{Tenant: acme})
		require.NoError(w, err)
		w.same([]ledger.RunHead{w.run(acme, "agent-1", "new"), w.run(acme, "agent-1", "old")}, p.Runs)
	}},
	{"50 when nothing is asked, never more than 200", func(w *world) {
		for i := range 201 {
			w.grow(acme, "agent-1", fmt.Sprint(i))
		}
		for limit, want := range map[int]int{0: 50, -1: 50, 200: 200, 201: 200} {
			p, err := w.Store.Runs(w.ctx, ledger.RunFilter{Tenant: acme, Limit: limit})
			require.NoError(w, err)
			require.Len(w, p.Runs, want, "limit %d", limit)
			require.NotEmpty(w, p.Next)
		}
	}},
}
