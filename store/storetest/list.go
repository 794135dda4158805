package storetest

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/stretchr/testify/require"

	"countersign/ledger"
	"countersign/tools"
)

var listCases = []testCase{
	{"every filter, alone and with every other", func(w *world) {
		all := w.populate()
		yes, no := true, false
		parts := []struct {
			name string
			set  func(*ledger.Filter)
			keep func(ledger.Operation) bool
		}{
			{"state", func(f *ledger.Filter) { f.States = []ledger.State{ledger.Unknown} }, func(op ledger.Operation) bool { return op.State == ledger.Unknown }},
			{"final state", func(f *ledger.Filter) { f.States = []ledger.State{ledger.Failed} }, func(op ledger.Operation) bool { return op.State == ledger.Failed }},
			{"states", func(f *ledger.Filter) {
				f.States = []ledger.State{ledger.Pending, ledger.Unknown, ledger.Pending}
			}, func(op ledger.Operation) bool { return op.State == ledger.Pending || op.State == ledger.Unknown }},
			{"final states", func(f *ledger.Filter) { f.States = []ledger.State{ledger.Failed, ledger.Running} }, func(op ledger.Operation) bool { return op.State == ledger.Failed || op.State == ledger.Running }},
			{"tool", func(f *ledger.Filter) { f.Tool = "tool_1" }, func(op ledger.Operation) bool { return op.Tool == "tool_1" }},
			{"key", func(f *ledger.Filter) { f.Key = "key-2" }, func(op ledger.Operation) bool { return op.Key == "key-2" }},
			{"agent", func(f *ledger.Filter) { f.Agent = "agent-1" }, func(op ledger.Operation) bool { return op.Agent.ID == "agent-1" }},
			{"place in a run", func(f *ledger.Filter) {
				f.Agent, f.Place = "agent-1", &ledger.Run{ID: "run-1", Step: "17", Call: "18"}
			}, func(op ledger.Operation) bool {
				return op.Parent == "" && op.Agent.ID == "agent-1" && op.Run != nil && op.Run.Step == "17"
			}},
			{"run", func(f *ledger.Filter) { f.Run = "run-1" }, func(op ledger.Operation) bool { return op.Run != nil && op.Run.ID == "run-1" }},
			{"args", func(f *ledger.Filter) { f.Args = "args-1" }, func(op ledger.Operation) bool { return op.ArgsDigest == "args-1" }},
			{"parent", func(f *ledger.Filter) { f.Parent = "op_parent-1" }, func(op ledger.Operation) bool { return op.Parent == "op_parent-1" }},
			{"undo", func(f *ledger.Filter) { f.Undo = &yes }, func(op ledger.Operation) bool { return op.Parent != "" }},
			{"no undo", func(f *ledger.Filter) { f.Undo = &no }, func(op ledger.Operation) bool { return op.Parent == "" }},
			{"goal", func(f *ledger.Filter) { f.Goal = &tools.Goal{Group: "g", Value: "v1"} }, func(op ledger.Operation) bool { return op.Goal != nil && op.Goal.Value == "v1" }},
			{"on list", func(f *ledger.Filter) { f.OnList = &yes }, func(op ledger.Operation) bool { return op.OnList }},
			{"not on list", func(f *ledger.Filter) { f.OnList = &no }, func(op ledger.Operation) bool { return !op.OnList }},
			{"nothing", func(*ledger.Filter) {}, func(ledger.Operation) bool { return true }},
			{"no such", func(f *ledger.Filter) { f.Agent = "nobody" }, func(op ledger.Operation) bool { return op.Agent.ID == "nobody" }},
		}
		for i, a := range parts {
			for _, b := range parts[i:] {
				f := ledger.Filter{Tenant: acme, Limit: 7, OldestFirst: true}
				a.set(&f)
				b.set(&f)
				keep := func(op ledger.Operation) bool { return b.keep(op) && (a.keep(op) || overwritten(a.name, b.name)) }
				var want []string
				for _, op := range all {
					if keep(op) {
						want = append(want, op.ID)
					}
				}
				name := a.name + " and " + b.name
				require.ElementsMatch(w, want, ids(w.listAll(f)), name)
				require.Equal(w, append([]string{}, want...), ids(w.listAll(f)), "%s, oldest first", name)
				f.OldestFirst = false
				slices.Reverse(want)
				require.Equal(w, append([]string{}, want...), ids(w.listAll(f)), "%s, newest first", name)
			}
		}
	}},
	{"whole operations", func(w *world) {
		all := w.populate()
		got := w.listAll(ledger.Filter{Tenant: acme, OldestFirst: true})
		w.same(all, got)
	}},
	{"a page is as long as was asked, and the last has no next", func(w *world) {
		for range 5 {
			w.open(acme, w.id("k"), ledger.Pending)
		}
		for limit, wants := range map[int][]int{1: {1, 1, 1, 1, 1}, 2: {2, 2, 1}, 4: {4, 1}, 5: {5}, 6: {5}} {
			f := ledger.Filter{Tenant: acme, Limit: limit}
			var got []int
			for {
				p, err := w.Store.List(w.ctx, f)
				require.NoError(w, err)
				got = append(got, len(p.Operations))
				if f.Cursor = p.Next; p.Next == "" {
					break
				}
			}
			require.Equal(w, wants, got, "limit %d", limit)
		}
	}},
	{"50 when nothing is asked, never more than 200", func(w *world) {
		errs := together(8, func(int) error {
			for range 26 {
				p := w.preview(acme, w.id("k"), 1)
				if err := w.Store.PutPreview(w.ctx, p); err != nil {
					return err
				}
				if err := w.Store.Open(w.ctx, w.opening(p, ledger.Pending)); err != nil {
					return err
				}
			}
			return nil
		})
		for _, err := range errs {
			require.NoError(w, err)
		}
		for limit, want := range map[int]int{0: 50, -1: 50, 200: 200, 201: 200, 1 << 40: 200} {
			p, err := w.Store.List(w.ctx, ledger.Filter{Tenant: acme, Limit: limit})
			require.NoError(w, err)
			require.Len(w, p.Operations, want, "limit %d", limit)
			require.NotEmpty(w, p.Next)
		}
		require.Len(w, w.listAll(ledger.Filter{Tenant: acme, Limit: 200}), 208)
	}},
	{"pages hold still while others open and move", func(w *world) {
		var was []string
		for range 40 {
			was = append(was, w.open(acme, w.id("k"), ledger.Pending).ID)
		}
		stop := make(chan struct{})
		var wg sync.WaitGroup
		opened := make(chan string, 1<<16)
		failed := make(chan error, 4)
		for range 4 {
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					p := w.preview(acme, w.id("k"), 1)
					if err := w.Store.PutPreview(w.ctx, p); err != nil {
						failed <- err
						return
					}
					o := w.opening(p, ledger.Pending)
					if err := w.Store.Open(w.ctx, o); err != nil {
						failed <- err
						return
					}
					opened <- o.New[0].Operation.ID
				}
			})
		}
		<-opened
		newest := ids(w.listAll(ledger.Filter{Tenant: acme, Limit: 3}))
		oldest := []string{}
		f := ledger.Filter{Tenant: acme, Limit: 3, OldestFirst: true}
		for len(oldest) < len(was) {
			p, err := w.Store.List(w.ctx, f)
			require.NoError(w, err)
			oldest = append(oldest, ids(p.Operations)...)
			f.Cursor = p.Next
		}
		close(stop)
		wg.Wait()
		close(failed)
		for err := range failed {
			require.NoError(w, err)
		}
		require.Equal(w, was, oldest[:len(was)])
		require.Len(w, slices.Compact(slices.Sorted(slices.Values(newest))), len(newest), "something was listed twice")
		slices.Reverse(newest)
		require.Equal(w, was, newest[:len(was)], "what was there before is listed once and in order")
	}},
	{"a cursor that is not one of ours", func(w *world) {
		for range 3 {
			w.open(acme, w.id("k"), ledger.Pending)
		}
		f := ledger.Filter{Tenant: acme, Limit: 1}
		p, err := w.Store.List(w.ctx, f)
		require.NoError(w, err)
		good := p.Next
		bad := []string{
			"x", " ", "0", "-1", "null", "==", "e30", "e30=", "bnVsbA", "W10", "MQ", "\x00", "ü", good + "A", good + "=", good + "\n", " " + good, good[1:], good[:len(good)-1],
			strings.ToUpper(good), strings.Repeat("A", 100_000),
			base64.RawURLEncoding.EncodeToString([]byte(`{"v":1,"n":-1}`)),
			base64.RawURLEncoding.EncodeToString([]byte(`{"v":1,"n":0}`)),
			base64.RawURLEncoding.EncodeToString([]byte(`{"v":2,"n":1}`)),
			base64.RawURLEncoding.EncodeToString([]byte(`{"v":1,"n":1,"x":1}`)),
			base64.RawURLEncoding.EncodeToString([]byte(`{"v":1,"n":1e400}`)),
			base64.RawURLEncoding.EncodeToString([]byte(`{"v":1,"n":"1; DROP TABLE operations"}`)),
			base64.RawURLEncoding.EncodeToString([]byte(`' OR 1=1 --`)),
		}
		for _, c := range bad {
			f.Cursor = c
			_, err := w.Store.List(w.ctx, f)
			require.ErrorIs(w, err, ledger.ErrBadCursor, "%.80q", c)
		}
		f.Cursor, f.OldestFirst = good, true
		_, err = w.Store.List(w.ctx, f)
		require.ErrorIs(w, err, ledger.ErrBadCursor, "a cursor of the other direction")
	}},
	{"never without a tenant", func(w *world) {
		w.open(acme, "k", ledger.Pending)
		p, err := w.Store.List(w.ctx, ledger.Filter{})
		require.Error(w, err)
		require.Empty(w, p.Operations)
	}},
}

// overwritten: two filters set the same field, and only the second counts.
func overwritten(a, b string) bool {
	group := func(name string) string {
		switch {
		case strings.Contains(name, "state"):
			return "state"
		case strings.Contains(name, "on list"):
			return "list"
		case strings.Contains(name, "undo"):
			return "undo"
		case name == "no such":
			return "agent"
		}
		return name
	}
	return group(a) == group(b)
}

// populate opens operations that differ in everything that a list filters by,
// and as many of another tenant. It gives the first tenant's, oldest first.
func (w *world) populate() []ledger.Operation {
	w.Helper()
	var all []ledger.Operation
	states := []ledger.State{ledger.Pending, ledger.Unknown, ledger.Failed, ledger.Running}
	for i := range 48 {
		for _, tenant := range []string{acme, other} {
			p := w.preview(tenant, fmt.Sprintf("key-%d", i%5), 1)
			p.Tool = fmt.Sprintf("tool_%d", i%3)
			p.Agent = fmt.Sprintf("agent-%d", i%2)
			p.ArgsDigest = fmt.Sprintf("args-%d", i/4%3)
			if i%4 != 3 {
				p.Run = &ledger.Run{ID: fmt.Sprintf("run-%d", i%4), Step: fmt.Sprint(i), Call: fmt.Sprint(i + 1)}
			}
			head, err := w.Store.Head(w.ctx, tenant, p.Tool, p.Key)
			require.NoError(w, err)
			p.Generation = head.Operation.Generation + 1
			o := w.opening(w.put(p), states[i/2%4])
			n := &o.New[0]
			n.Head = head
			n.Operation.OnList = i%6 == 1
			switch {
			case i%5 < 2:
				n.Operation.Parent = fmt.Sprintf("op_parent-%d", i%5)
			case i%5 == 3:
				n.Operation.Goal = &tools.Goal{Group: "g", Value: fmt.Sprintf("v%d", i%2)}
				n.GoalHead, err = w.Store.Goal(w.ctx, tenant, *n.Operation.Goal)
				require.NoError(w, err)
			}
			require.NoError(w, w.Store.Open(w.ctx, o))
			if tenant == acme {
				all = append(all, o.New[0].Operation)
			}
		}
	}
	return all
}
