package storetest

import (
	"time"

	"github.com/stretchr/testify/require"

	"countersign/ledger"
	"countersign/tools"
)

var openCases = []testCase{
	{"everything is born together", func(w *world) {
		p := w.put(w.preview(acme, "k", 1))
		o := w.opening(p, ledger.Succeeded)
		n := &o.New[0]
		n.Evidence = &ledger.Evidence{ID: "evd_1", Operation: n.Operation.ID, Kind: "adoption", Verdict: tools.Succeeded, EffectID: "re_1", By: ledger.Gateway("guard"), At: w.Clock.Now()}
		require.NoError(w, w.Store.Open(w.ctx, o))

		op := w.read(acme, n.Operation.ID)
		w.same(n.Operation, op)
		pl, err := w.Store.Plan(w.ctx, acme, op.ID, 1)
		require.NoError(w, err)
		w.same(n.Plan, pl)
		m, err := w.Store.Manifest(w.ctx, op.ToolVersion)
		require.NoError(w, err)
		w.same(n.Manifest, m)
		evs, err := w.Store.Events(w.ctx, acme, op.ID)
		require.NoError(w, err)
		require.Len(w, evs, 1)
		require.Positive(w, evs[0].Seq)
		want := n.Event
		want.Seq = evs[0].Seq
		w.same(want, evs[0])
		evd, err := w.Store.Evidence(w.ctx, acme, op.ID)
		require.NoError(w, err)
		w.same([]ledger.Evidence{*n.Evidence}, evd)
		ds, err := w.Store.Decisions(w.ctx, acme, op.ID)
		require.NoError(w, err)
		require.Empty(w, ds)
	}},
	{"the same write id again is applied and changes nothing", func(w *world) {
		o := w.opening(w.put(w.preview(acme, "k", 1)), ledger.Running)
		require.NoError(w, w.Store.Open(w.ctx, o))
		w.untouched(func() { require.NoError(w, w.Store.Open(w.ctx, o)) })
		// Also when everything has moved on since.
		w.apply(o.New[0].Operation, ledger.VerbFinish, to(ledger.Failed))
		w.freeze(acme)
		w.Clock.Advance(time.Hour)
		w.untouched(func() { require.NoError(w, w.Store.Open(w.ctx, o)) })
	}},
	{"a preview is needed and alive", func(w *world) {
		p := w.preview(acme, "k", 1)
		o := w.opening(p, ledger.Pending)
		w.untouched(func() { w.refused(ledger.PreviewGone, w.Store.Open(w.ctx, o)) })
		w.put(p)
		late := w.opening(w.put(w.preview(acme, "l", 1)), ledger.Pending)
		w.Clock.Advance(p.ExpiresAt.Sub(w.Clock.Now()) - 1)
		require.NoError(w, w.Store.Open(w.ctx, o))
		w.Clock.Advance(1)
		w.untouched(func() { w.refused(ledger.PreviewExpired, w.Store.Open(w.ctx, late)) })
	}},
	{"another tenant's preview does not do", func(w *world) {
		p := w.put(w.preview(other, "k", 1))
		p.Tenant = acme
		w.untouched(func() { w.refused(ledger.PreviewGone, w.Store.Open(w.ctx, w.opening(p, ledger.Pending))) })
	}},
	{"the guard row still has the epoch", func(w *world) {
		p := w.put(w.preview(acme, "k", 1))
		o := w.opening(p, ledger.Pending)
		o.Epoch = 1
		w.untouched(func() { w.refused(ledger.EpochMoved, w.Store.Open(w.ctx, o)) })
		w.freeze(acme)
		o.Epoch = 0
		w.untouched(func() { w.refused(ledger.EpochMoved, w.Store.Open(w.ctx, o)) })
		o.Epoch = 2
		w.untouched(func() { w.refused(ledger.EpochMoved, w.Store.Open(w.ctx, o)) })
		o.Epoch = 1
		require.NoError(w, w.Store.Open(w.ctx, o))
	}},
	{"another tenant's guard row is not asked", func(w *world) {
		w.freeze(other)
		o := w.opening(w.put(w.preview(acme, "k", 1)), ledger.Pending)
		require.NoError(w, w.Store.Open(w.ctx, o))
	}},
	{"not after its time", func(w *world) {
		o := w.opening(w.put(w.preview(acme, "k", 1)), ledger.Running)
		o.New[0].NotAfter = w.Clock.Now().Add(-1)
		w.untouched(func() { w.refused(ledger.TooLate, w.Store.Open(w.ctx, o)) })
		o.New[0].NotAfter = w.Clock.Now()
		require.NoError(w, w.Store.Open(w.ctx, o))
	}},
	{"the head is the one that was evaluated", func(w *world) {
		first := w.open(acme, "k", ledger.Running)
		failed := w.apply(first, ledger.VerbFinish, to(ledger.Failed))
		p := w.put(w.preview(acme, "k", 2))
		// In the same version as the head, so that only the id tells them apart.
		elsewhere := w.apply(w.open(acme, "l", ledger.Running), ledger.VerbFinish, to(ledger.Failed))
		for name, head := range map[string]ledger.Head{
			"none":              {},
			"an older version":  {Operation: first},
			"a newer version":   {Operation: w.move(failed, ledger.VerbReopen, to(ledger.Failed)).Operation},
			"another operation": {Operation: elsewhere},
		} {
			o := w.opening(p, ledger.Running)
			o.New[0].Head = head
			w.untouched(func() {
				w.Log(name)
				w.refused(ledger.HeadMoved, w.Store.Open(w.ctx, o))
			})
		}
		o := w.opening(p, ledger.Running)
		o.New[0].Head = ledger.Head{Operation: failed}
		require.NoError(w, w.Store.Open(w.ctx, o))
	}},
	{"a head where none is", func(w *world) {
		elsewhere := w.open(acme, "l", ledger.Running)
		o := w.opening(w.put(w.preview(acme, "k", 1)), ledger.Running)
		o.New[0].Head = ledger.Head{Operation: elsewhere}
		w.untouched(func() { w.refused(ledger.HeadMoved, w.Store.Open(w.ctx, o)) })
	}},
	{"generations follow one another", func(w *world) {
		for _, g := range []int{0, 2} {
			o := w.opening(w.put(w.preview(acme, "k", g)), ledger.Running)
			w.untouched(func() { w.refused(ledger.HeadMoved, w.Store.Open(w.ctx, o)) })
		}
		first := w.open(acme, "k", ledger.Failed)
		for _, g := range []int{1, 3} {
			o := w.opening(w.put(w.preview(acme, "k", g)), ledger.Running)
			o.New[0].Head = ledger.Head{Operation: first}
			w.untouched(func() { w.refused(ledger.HeadMoved, w.Store.Open(w.ctx, o)) })
		}
	}},
	{"unique by tenant, tool, key and generation, and by nothing less", func(w *world) {
		w.open(acme, "k", ledger.Running)
		w.open(other, "k", ledger.Running)
		w.open(acme, "K", ledger.Running)
		w.open(acme, "k ", ledger.Running)
		p := w.preview(acme, "k", 1)
		p.Tool = "refund_2"
		w.openAs(w.put(p), ledger.Running, ledger.Head{})
		require.Len(w, w.listAll(ledger.Filter{Tenant: acme}), 4)
	}},
	{"late evidence for the first while the second runs", func(w *world) {
		// A unique index over what is live would make this write fail.
		first := w.open(acme, "k", ledger.Failed)
		w.openAs(w.put(w.preview(acme, "k", 2)), ledger.Running, ledger.Head{Operation: first})
		w.apply(first, ledger.VerbContradict, to(ledger.Unknown))
	}},
	{"what exists is named before what else is wrong", func(w *world) {
		p := w.put(w.preview(acme, "k", 1))
		w.openAs(p, ledger.Running, ledger.Head{})
		o := w.opening(p, ledger.Running)
		o.New[0].NotAfter = w.Clock.Now()
		w.freeze(acme)
		w.Clock.Advance(time.Hour)
		w.untouched(func() { w.refused(ledger.HeadMoved, w.Store.Open(w.ctx, o)) })
	}},
	{"several: all of them", func(w *world) {
		a, b := w.opening(w.put(w.preview(acme, "a", 1)), ledger.Pending), w.opening(w.put(w.preview(acme, "b", 1)), ledger.Pending)
		o := ledger.Opening{WriteID: a.WriteID, New: append(a.New, b.New...)}
		require.NoError(w, w.Store.Open(w.ctx, o))
		require.Equal(w, []string{a.New[0].Operation.ID, b.New[0].Operation.ID}, ids(w.listAll(ledger.Filter{Tenant: acme, OldestFirst: true})))
		w.untouched(func() { require.NoError(w, w.Store.Open(w.ctx, o)) })
		found, err := w.Store.ByWrite(w.ctx, o.WriteID)
		require.NoError(w, err)
		require.Equal(w, a.New[0].Operation.ID, found.ID)
	}},
	{"several: none, whichever is refused", func(w *world) {
		taken := w.put(w.preview(acme, "taken", 1))
		w.openAs(taken, ledger.Running, ledger.Head{})
		for bad := range 3 {
			o := ledger.Opening{WriteID: w.id("w_")}
			for i := range 3 {
				p := taken
				if i != bad {
					p = w.put(w.preview(acme, w.id("key_"), 1))
				}
				o.New = append(o.New, w.opening(p, ledger.Pending).New...)
			}
			w.untouched(func() { w.refused(ledger.HeadMoved, w.Store.Open(w.ctx, o)) })
		}
	}},
	{"several under one key refuse themselves", func(w *world) {
		p := w.put(w.preview(acme, "k", 1))
		o := ledger.Opening{WriteID: w.id("w_"), New: append(w.opening(p, ledger.Pending).New, w.opening(p, ledger.Pending).New...)}
		w.untouched(func() { w.refused(ledger.HeadMoved, w.Store.Open(w.ctx, o)) })
	}},
}

var headCases = []testCase{
	{"none", func(w *world) {
		h, err := w.Store.Head(w.ctx, acme, tool, "k")
		require.NoError(w, err)
		require.False(w, h.Exists())
		_, err = w.Store.Generation(w.ctx, acme, tool, ledger.KeyDigest("k"), 1)
		require.ErrorIs(w, err, ledger.ErrNotFound)
	}},
	{"the newest generation, as it stands now", func(w *world) {
		first := w.open(acme, "k", ledger.Running)
		h, err := w.Store.Head(w.ctx, acme, tool, "k")
		require.NoError(w, err)
		w.same(first, h.Operation)
		first = w.apply(first, ledger.VerbFinish, to(ledger.Failed))
		h, err = w.Store.Head(w.ctx, acme, tool, "k")
		require.NoError(w, err)
		w.same(first, h.Operation)
		second := w.openAs(w.put(w.preview(acme, "k", 2)), ledger.Running, h)
		h, err = w.Store.Head(w.ctx, acme, tool, "k")
		require.NoError(w, err)
		w.same(second, h.Operation)
		for g, want := range map[int]ledger.Operation{1: first, 2: second} {
			got, err := w.Store.Generation(w.ctx, acme, tool, ledger.KeyDigest("k"), g)
			require.NoError(w, err)
			w.same(want, got)
		}
		_, err = w.Store.Generation(w.ctx, acme, tool, ledger.KeyDigest("k"), 3)
		require.ErrorIs(w, err, ledger.ErrNotFound)
	}},
	{"the newest rejected ask that nobody reopened", func(w *world) {
		ask := func(key, agent string) ledger.Operation {
			p := w.preview(acme, key, 1)
			p.Agent, p.ArgsDigest = agent, "same-args"
			return w.openAs(w.put(p), ledger.AwaitingApproval, ledger.Head{})
		}
		find := func(agent string) (ledger.Operation, error) {
			return w.Store.RejectedAsk(w.ctx, acme, tool, "same-args", agent)
		}
		a, b := ask("a", "agent-1"), ask("b", "agent-1")
		_, err := find("agent-1")
		require.ErrorIs(w, err, ledger.ErrNotFound, "nobody said no yet")
		a = w.apply(a, ledger.VerbReject, to(ledger.Rejected))
		b = w.apply(b, ledger.VerbReject, to(ledger.Rejected))
		got, err := find("agent-1")
		require.NoError(w, err)
		w.same(b, got)
		reopen := func(op *ledger.Operation) { op.Reopened = true }
		w.apply(b, ledger.VerbReopen, reopen)
		got, err = find("agent-1")
		require.NoError(w, err)
		w.same(a, got)
		w.apply(a, ledger.VerbReopen, reopen)
		_, err = find("agent-1")
		require.ErrorIs(w, err, ledger.ErrNotFound)

		w.apply(ask("c", "agent-2"), ledger.VerbReject, to(ledger.Rejected))
		_, err = find("agent-1")
		require.ErrorIs(w, err, ledger.ErrNotFound, "another agent's ask")
		_, err = w.Store.RejectedAsk(w.ctx, acme, "other_tool", "same-args", "agent-2")
		require.ErrorIs(w, err, ledger.ErrNotFound)
		_, err = w.Store.RejectedAsk(w.ctx, acme, tool, "other-args", "agent-2")
		require.ErrorIs(w, err, ledger.ErrNotFound)
	}},
	{"a rejected ask that was contradicted is none", func(w *world) {
		op := w.apply(w.open(acme, "k", ledger.AwaitingApproval), ledger.VerbReject, to(ledger.Rejected))
		w.apply(op, ledger.VerbContradict, to(ledger.Unknown))
		_, err := w.Store.RejectedAsk(w.ctx, acme, tool, op.ArgsDigest, op.Agent.ID)
		require.ErrorIs(w, err, ledger.ErrNotFound)
	}},
	{"a manifest is kept by its version", func(w *world) {
		w.open(acme, "k", ledger.Running)
		p := w.preview(acme, "l", 1)
		p.ToolVersion = "v2"
		o := w.opening(w.put(p), ledger.Running)
		o.New[0].Manifest = ledger.Manifest{Version: "v2", Text: []byte("name: x # ünï <&>\r\n\ttab\n"), Upstream: "u", UpstreamURL: "http://127.0.0.1:1"}
		require.NoError(w, w.Store.Open(w.ctx, o))
		m, err := w.Store.Manifest(w.ctx, "v2")
		require.NoError(w, err)
		w.same(o.New[0].Manifest, m)
		m, err = w.Store.Manifest(w.ctx, "v1")
		require.NoError(w, err)
		require.Equal(w, "name: refund", string(m.Text))
		_, err = w.Store.Manifest(w.ctx, "v3")
		require.ErrorIs(w, err, ledger.ErrNotFound)
	}},
}
