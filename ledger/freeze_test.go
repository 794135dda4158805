package ledger_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/fault"
	"countersign/ledger"
	"countersign/tools"
)

// touch makes a tenant's guard row.
func (r *rig) touch(tenants ...string) {
	r.t.Helper()
	for _, name := range tenants {
		_, _, err := r.ChangeGuard(r.ctx, name, ledger.Change{What: "tools", By: person}, func(g *ledger.Guard) { g.Tools = map[string]string{"hold_order": "v1"} })
		require.NoError(r.t, err)
	}
}

func (r *rig) guard(name string) ledger.Guard {
	r.t.Helper()
	g, err := r.Guard(r.ctx, name)
	require.NoError(r.t, err)
	return g
}

func ids(ops []ledger.Operation) []string {
	list := []string{}
	for _, op := range ops {
		list = append(list, op.ID)
	}
	return list
}

// TestFreeze_ScopesAndLevels: what each scope holds, and that the stricter level
// speaks where several stand.
func TestFreeze_ScopesAndLevels(t *testing.T) {
	r := newRig(t)
	r.touch(tenant, "other")
	freeze := func(s ledger.Scope, l ledger.FreezeLevel) {
		t.Helper()
		_, err := r.Freeze(r.ctx, s, l, person, "stop")
		require.NoError(t, err)
	}
	level := func(name, tool string) ledger.FreezeLevel {
		f, _ := r.guard(name).Frozen(tool)
		return f.Level
	}
	freeze(ledger.Scope{Tenant: tenant, Tool: "a"}, ledger.FreezeAll)
	require.Equal(t, ledger.FreezeAll, level(tenant, "a"))
	require.Empty(t, level(tenant, "b"))
	require.Empty(t, level("other", "a"))
	freeze(ledger.Scope{Tenant: tenant}, ledger.FreezeNew)
	require.Equal(t, ledger.FreezeAll, level(tenant, "a"))
	require.Equal(t, ledger.FreezeNew, level(tenant, "b"))
	freeze(ledger.Scope{Tenant: tenant, Everything: true}, ledger.FreezeAll)
	require.Equal(t, ledger.FreezeAll, level(tenant, "b"))
	require.Equal(t, ledger.FreezeAll, level("other", "a"))

	freeze(ledger.Scope{Tenant: tenant, Everything: true}, ledger.FreezeNew)
	require.Equal(t, ledger.FreezeAll, level("other", "a"), "never loosened")
	require.NoError(t, r.Unfreeze(r.ctx, ledger.Unfreezing{Scope: ledger.Scope{Tenant: "other", Everything: true}, By: person}))
	require.Empty(t, level("other", "a"), "lifted in all at once")
	require.Equal(t, ledger.FreezeNew, level(tenant, "b"), "and nothing of a narrower scope")
	require.NoError(t, r.Unfreeze(r.ctx, ledger.Unfreezing{Scope: ledger.Scope{Tenant: tenant}, By: person}))
	require.Empty(t, level(tenant, "b"))
	require.Equal(t, ledger.FreezeAll, level(tenant, "a"))
	freeze(ledger.Scope{Tenant: tenant, Tool: "b"}, ledger.FreezeNew)
	freeze(ledger.Scope{Tenant: tenant, Tool: "b"}, ledger.FreezeAll)
	require.Len(t, r.guard(tenant).Freezes, 2, "a stricter one takes the place of its own scope")
	require.Equal(t, ledger.FreezeAll, level(tenant, "b"))
	r.intact(tenant)
	r.intact("other")
}

// TestFreeze_ListsWhatRuns: of its scope, each once; also when the freeze stood
// already, and when the store's answer was lost: the list must not be lost with it.
func TestFreeze_ListsWhatRuns(t *testing.T) {
	r := newRig(t)
	r.touch(tenant)
	a := r.born(r.ask("a", nil))
	b := r.born(r.ask("b", func(q *ledger.OpenRequest) { q.Preview.Tool = "cancel_order" }))
	r.done("c")
	freeze := func(s ledger.Scope, l ledger.FreezeLevel) []string {
		t.Helper()
		ops, err := r.Freeze(r.ctx, s, l, person, "stop")
		require.NoError(t, err)
		return ids(ops)
	}
	tool := ledger.Scope{Tenant: tenant, Tool: "hold_order"}
	require.Equal(t, []string{a.ID}, freeze(tool, ledger.FreezeNew))
	epoch := r.epoch()
	require.Equal(t, []string{a.ID}, freeze(tool, ledger.FreezeNew), "it stood already")
	require.Equal(t, epoch, r.epoch(), "and wrote nothing")
	require.Equal(t, []string{a.ID, b.ID}, freeze(ledger.Scope{Tenant: tenant, Everything: true}, ledger.FreezeAll))
	for name, script := range withLostForGood() {
		require.NoError(t, r.Unfreeze(r.ctx, ledger.Unfreezing{Scope: tool, By: person, Reason: "x"}))
		epoch := r.epoch()
		r.store.script = append([]bool(nil), script...)
		ops, err := r.Freeze(r.ctx, tool, ledger.FreezeAll, person, "stop")
		if name == "lost to the end" {
			require.True(t, fault.Is(err, fault.OutcomeUnclear), "%v", err)
		} else {
			require.NoError(t, err, name)
			require.Equal(t, []string{a.ID}, ids(ops), name)
		}
		require.Equal(t, epoch+1, r.epoch(), "%s: it stands once", name)
	}
	r.intact(tenant)
}

func withLostForGood() map[string][]bool {
	all := maps.Clone(lostAnswers)
	all["lost to the end"] = lostForGood
	return all
}

// TestFreeze_EverythingMeetsNewTenants: a tenant that appears while everything is
// frozen is frozen, whichever of the two is first.
func TestFreeze_EverythingMeetsNewTenants(t *testing.T) {
	everything := ledger.Scope{Everything: true}
	r := newRig(t)
	r.touch(tenant)
	_, err := r.Freeze(r.ctx, everything, ledger.FreezeAll, person, "stop")
	require.NoError(t, err)
	r.touch("new")
	f, ok := r.guard("new").Frozen("hold_order")
	require.True(t, ok && f.Everything && f.Level == ledger.FreezeAll)
	require.Equal(t, "v1", r.guard("new").Tools["hold_order"])
	require.Equal(t, r.guard(tenant).Freezes, r.guard("new").Freezes, "who froze, and why, comes along")
	tenants, err := r.store.Tenants(r.ctx)
	require.NoError(t, err)
	require.Equal(t, []string{tenant, "new"}, tenants, "no tenant without a name")
	require.NoError(t, r.Unfreeze(r.ctx, ledger.Unfreezing{Scope: everything, By: person}))
	r.touch("newer")
	require.Empty(t, r.guard("newer").Freezes)
	rows := r.intact("newer")
	require.Len(t, rows, 2)
	require.Equal(t, "tenant", rows[0].Change.What)
	require.Empty(t, rows[0].Tools, "whoever freezes everything sees the tenant before anything can be sent in it")

	// At every point of the birth of the new tenant's row.
	for at := range 6 {
		t.Run(fmt.Sprint("call ", at), func(t *testing.T) {
			r := newRig(t)
			r.touch(tenant)
			truly := r.store.Store
			n := 0
			between := func() {
				if n++; n != at+1 {
					return
				}
				r.store.Store = truly
				_, err := r.Freeze(r.ctx, everything, ledger.FreezeAll, person, "stop")
				require.NoError(t, err)
			}
			r.store.Store = &interrupted{Store: truly, call: between}
			r.touch("new")
			if n > at {
				_, ok := r.guard("new").Frozen("hold_order")
				require.True(t, ok)
			}
			r.intact("new")
		})
	}
}

// TestFreeze_EverythingMeetsATenantUnderWay: the tenant appears, and somebody lifts
// the freeze in one tenant, at every point of the freeze.
func TestFreeze_EverythingMeetsATenantUnderWay(t *testing.T) {
	everything := ledger.Scope{Everything: true}
	for at := range 7 {
		t.Run(fmt.Sprint("call ", at), func(t *testing.T) {
			r := newRig(t)
			r.touch("a", "b")
			truly := r.store.Store
			n := 0
			r.store.Store = &interrupted{Store: truly, call: func() {
				if n++; n != at+1 {
					return
				}
				r.store.Store = truly
				r.touch("new")
				require.NoError(t, r.Unfreeze(r.ctx, ledger.Unfreezing{Scope: everything, By: person}))
			}}
			_, err := r.Freeze(r.ctx, everything, ledger.FreezeAll, person, "stop")
			require.NoError(t, err)
			require.Greater(t, n, at)
			for _, name := range []string{"a", "b", "new"} {
				_, ok := r.guard(name).Frozen("hold_order")
				require.True(t, ok, name)
				r.intact(name)
			}
		})
	}
}

// interrupted is a store in which something happens before each call that a change
// of a guard row makes.
type interrupted struct {
	ledger.Store
	call func()
}

func (i *interrupted) Guard(ctx context.Context, tenant string) (ledger.Guard, error) {
	i.call()
	return i.Store.Guard(ctx, tenant)
}

func (i *interrupted) Tenants(ctx context.Context) ([]string, error) {
	i.call()
	return i.Store.Tenants(ctx)
}

func (i *interrupted) ChangeGuard(ctx context.Context, c ledger.GuardChange) ([]ledger.Operation, error) {
	i.call()
	return i.Store.ChangeGuard(ctx, c)
}

// TestUnfreeze_OverUnknowns: refused while outcomes of the scope are not known,
// lifted by an override with a reason, whose signature covers the very row.
func TestUnfreeze_OverUnknowns(t *testing.T) {
	r := newRig(t)
	r.touch(tenant, "other")
	op := r.doubtful("k")
	var signed []byte
	r.sign = func(statement []byte) (string, error) { signed = statement; return "jws-1", nil }
	for name, c := range map[string]struct {
		scope ledger.Scope
		open  bool
	}{
		"its tool":     {ledger.Scope{Tenant: tenant, Tool: "hold_order"}, true},
		"another tool": {ledger.Scope{Tenant: tenant, Tool: "cancel_order"}, false},
		"its tenant":   {ledger.Scope{Tenant: tenant}, true},
		"everything":   {ledger.Scope{Tenant: "other", Everything: true}, true},
		"other tenant": {ledger.Scope{Tenant: "other"}, false},
	} {
		signed = nil
		_, err := r.Freeze(r.ctx, c.scope, ledger.FreezeAll, person, "stop")
		require.NoError(t, err)
		before := r.guard(c.scope.Tenant)
		u := ledger.Unfreezing{Scope: c.scope, By: person}
		if c.open {
			require.True(t, fault.Is(r.Unfreeze(r.ctx, u), fault.UnknownsOpen), name)
			u.Override = true
			require.True(t, fault.Is(r.Unfreeze(r.ctx, u), fault.DecisionInvalid), name)
			require.Equal(t, before, r.guard(c.scope.Tenant), name)
			r.sign = func([]byte) (string, error) { return "", errors.New("no key") }
			u.Reason = "the shop was asked by telephone \xff"
			require.Error(t, r.Unfreeze(r.ctx, u), "%s: what can't be signed is not overridden", name)
			require.Equal(t, before, r.guard(c.scope.Tenant), name)
			r.sign = func(statement []byte) (string, error) { signed = statement; return "jws-1", nil }
		}
		require.NoError(t, r.Unfreeze(r.ctx, u), name)
		g := r.guard(c.scope.Tenant)
		require.NotContains(t, fmt.Sprint(g.Freezes), "stop", name)
		require.Equal(t, "unfreeze", g.Change.What)
		require.Equal(t, person, g.Change.By)
		rows := r.intact(c.scope.Tenant)
		if !c.open {
			require.Zero(t, g.Change.Open)
			require.Empty(t, g.Change.Signature)
			require.Nil(t, signed)
			continue
		}
		require.Equal(t, 1, g.Change.Open, name)
		require.Equal(t, "jws-1", g.Change.Signature)
		if !c.scope.Everything {
			require.Equal(t, string(rows[len(rows)-1].Statement()), string(signed), name)
			var said ledger.Guard
			require.NoError(t, json.Unmarshal(signed, &said))
			require.Equal(t, g.Epoch, said.Epoch)
			require.Equal(t, g.Tenant, said.Tenant)
			require.Equal(t, g.Prev, said.Prev)
			require.Empty(t, said.Change.Signature)
		}
	}
	_, err := r.Resolve(r.ctx, tenant, op.ID, person, ledger.Statement{Reason: "looked"})
	require.NoError(t, err)
	_, err = r.Freeze(r.ctx, ledger.Scope{Tenant: tenant}, ledger.FreezeAll, person, "stop")
	require.NoError(t, err)
	require.NoError(t, r.Unfreeze(r.ctx, ledger.Unfreezing{Scope: ledger.Scope{Tenant: tenant}, By: person}))
}

// TestUnfreeze_LeavesWhatCameMeanwhile: a contradiction freezes the tool between an
// operator's look and the lifting. What nobody saw stays.
func TestUnfreeze_LeavesWhatCameMeanwhile(t *testing.T) {
	r := newRig(t)
	r.touch(tenant)
	failed := r.concluded(r.born(r.ask("k", nil)), tools.Outcome{Verdict: tools.NoEffect})
	tool := ledger.Scope{Tenant: tenant, Tool: "hold_order"}
	_, err := r.Freeze(r.ctx, tool, ledger.FreezeNew, person, "stop")
	require.NoError(t, err)
	truly := r.store.Store
	n := 0
	r.store.Store = &interrupted{Store: truly, call: func() {
		if n++; n == 3 { // the look at the row, the row to change, and before it is written
			r.store.Store = truly
			r.proven(failed, 1, "e_late")
		}
	}}
	err = r.Unfreeze(r.ctx, ledger.Unfreezing{Scope: tool, By: person})
	require.Equal(t, 3, n)
	require.True(t, fault.Is(err, fault.ToolFrozen), "%v", err)
	require.True(t, r.stopped("hold_order"))
	rows := r.intact(tenant)
	require.Equal(t, "contradiction", rows[len(rows)-1].Change.By.ID, "it took the place of the weaker one, which is gone")
	require.NoError(t, r.Unfreeze(r.ctx, ledger.Unfreezing{Scope: tool, By: person}))
	require.False(t, r.stopped("hold_order"))
}

// TestGuardHistory_ManyChanges: whoever changes the row, by people, by
// contradictions, by second effects, at the same time: one chain without a gap.
func TestGuardHistory_ManyChanges(t *testing.T) {
	r := newRig(t)
	r.touch(tenant)
	var failed, done []ledger.Operation
	for i := range 6 {
		on := func(q *ledger.OpenRequest) { q.Preview.Tool = fmt.Sprint("tool_", i) }
		failed = append(failed, r.concluded(r.born(r.ask(fmt.Sprint("f", i), on)), tools.Outcome{Verdict: tools.NoEffect}))
		done = append(done, r.concluded(r.born(r.ask(fmt.Sprint("d", i), on)), tools.Outcome{Verdict: tools.Succeeded, EffectID: "e"}))
	}
	var wg sync.WaitGroup
	errs := make(chan error, 100)
	for i := range 6 {
		wg.Go(func() {
			_, err := r.AddEvidence(r.ctx, tenant, r.proof(failed[i], 1, "e_late"))
			errs <- err
		})
		wg.Go(func() {
			_, err := r.AddEvidence(r.ctx, tenant, r.proof(done[i], 1, "e_second"))
			errs <- err
		})
		wg.Go(func() {
			_, err := r.Freeze(r.ctx, ledger.Scope{Tenant: tenant, Tool: fmt.Sprint("tool_", i)}, ledger.FreezeNew, ledger.Actor{Name: "a\xff"}, "b\xfe")
			errs <- err
		})
		wg.Go(func() { errs <- r.PeopleChanged(r.ctx, tenant) })
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
	for i := range 6 {
		require.True(t, r.stopped(fmt.Sprint("tool_", i)), "a freeze of new work does not loosen it")
		require.Equal(t, ledger.Succeeded, r.read(failed[i]).State)
	}
	require.EqualValues(t, 6, r.guard(tenant).People)
	rows := r.intact(tenant)
	automatic := 0
	for _, g := range rows {
		if g.Change.By.ID == "contradiction" {
			automatic++
		}
	}
	require.GreaterOrEqual(t, automatic, 6)
	spoiled := rows[2]
	spoiled.Change.Reason = "another"
	require.False(t, spoiled.Intact(rows[1].Hash))
	require.False(t, rows[3].Intact(rows[1].Hash))
}

// unchangeable is a store in which no guard row is changed by itself.
type unchangeable struct{ ledger.Store }

func (unchangeable) ChangeGuard(context.Context, ledger.GuardChange) ([]ledger.Operation, error) {
	return nil, errLost
}

// TestSecondEffect_FrozenInTheSameWrite: whoever dies right after the write that
// brings the second effect leaves the tool frozen (I4).
func TestSecondEffect_FrozenInTheSameWrite(t *testing.T) {
	for name, bring := range map[string]func(*rig, ledger.Operation){
		"the outcome of a dispatch": func(r *rig, op ledger.Operation) {
			require.NoError(r.t, r.store.AddEvidence(r.ctx, tenant, r.proof(op, 1, "e1")))
			r.concluded(op, tools.Outcome{Verdict: tools.Succeeded, EffectID: "e2"})
		},
		"late evidence": func(r *rig, op ledger.Operation) {
			op = r.concluded(op, tools.Outcome{Verdict: tools.Unknown})
			require.NoError(r.t, r.store.AddEvidence(r.ctx, tenant, r.proof(op, 1, "e1")))
			r.proven(op, 1, "e2")
		},
		"a person's word": func(r *rig, op ledger.Operation) {
			op = r.concluded(op, tools.Outcome{Verdict: tools.Unknown})
			require.NoError(r.t, r.store.AddEvidence(r.ctx, tenant, r.proof(op, 1, "e1")))
			_, err := r.Resolve(r.ctx, tenant, op.ID, person, ledger.Statement{Happened: true, EffectID: "e2", Reason: "seen"})
			require.NoError(r.t, err)
		},
	} {
		r := newRig(t)
		r.touch(tenant)
		op := r.born(r.ask("k", nil))
		truly := r.store.Store
		r.store.Store = unchangeable{truly} // no freeze by a write of its own
		bring(r, op)
		r.store.Store = truly
		require.True(t, r.stopped("hold_order"), name)
		rows := r.intact(tenant)
		last := rows[len(rows)-1]
		require.Equal(t, "contradiction", last.Change.By.ID, name)
		require.Equal(t, r.read(op).UpdatedAt, last.Change.At, name)
		byWrite, err := r.store.ByWrite(r.ctx, r.last(op).WriteID)
		require.NoError(t, err)
		require.Equal(t, op.ID, byWrite.ID)
	}
	t.Run("and where nothing moves, before it is written down", func(t *testing.T) {
		r := newRig(t)
		op := r.done("k")
		truly := r.store.Store
		r.store.Store = unwilling{truly} // whoever writes evidence down dies
		_, err := r.AddEvidence(r.ctx, tenant, r.proof(op, 1, "e2"))
		require.Error(t, err)
		require.True(t, r.stopped("hold_order"))
		r.store.Store = truly
		r.advance(time.Second)
		r.proven(op, 1, "e2")
		tally, err := r.Tally(r.ctx, tenant)
		require.NoError(t, err)
		require.EqualValues(t, 1, tally.Duplicates)
	})
}
