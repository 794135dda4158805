package reconcile

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"countersign/fault"
	"countersign/ledger"
	"countersign/tools"
)

// AskNow asks about an unknown operation at a person's wish, also one that is on
// the people's list; an effect that is found settles it, and every other answer is
// kept as evidence and moves nothing: it stays on the list. It asks likewise about
// one that ended without effect after it was sent: an effect that is found
// contradicts that (I9), and nothing else moves it. An answer that is younger than a
// second is not asked for again.
func (r *Reconciler) AskNow(ctx context.Context, tenant, id string) (ledger.Operation, error) {
	op, err := r.cfg.Ledger.Operation(ctx, tenant, id)
	switch {
	case err != nil:
		return op, err
	case op.State.Void() && len(op.Attempts) == 0:
		return op, refused(op, "It was never sent: there is nothing to ask about.")
	case op.State.Void(): // what was believed may be wrong
	case op.State != ledger.Unknown:
		return op, refused(op, "Its outcome is known: the operation is %s.", op.State)
	}
	t, err := r.cfg.Registry.Version(ctx, op.ToolVersion)
	switch {
	case fault.Is(err, fault.StoreUnavailable), ctx.Err() != nil:
		return op, err
	case err != nil, !askable(&t.Spec):
		return op, refused(op, "The tool %s can't be asked; only a person can find out.", op.Tool)
	}
	evidence, err := r.cfg.Ledger.Evidence(ctx, tenant, id)
	if err != nil {
		return op, err
	}
	asked := lookupsOf(op, evidence)
	if n := len(asked); n > 0 && r.cfg.Ledger.Now().Sub(asked[n-1].At) < r.cfg.Settings.FirstPause {
		return op, nil
	}
	return r.ask(ctx, op, t, len(asked))
}

// refused says that a question makes no sense for an operation.
func refused(op ledger.Operation, format string, args ...any) error {
	e := fault.New(fault.InvalidState, format, args...)
	e.Operation = op.ID
	return e
}

// ask asks the outside system and writes down what it said. n is how often it was
// asked before.
func (r *Reconciler) ask(ctx context.Context, op ledger.Operation, t *tools.Tool, n int) (ledger.Operation, error) {
	plan, err := r.cfg.Ledger.Plan(ctx, op.Tenant, op.ID, op.Round)
	if err != nil {
		return op, err
	}
	answer := r.question(ctx, op, plan, t)
	if ctx.Err() != nil {
		return op, ctx.Err()
	}
	if answer, err = r.itsOwn(ctx, op, answer); err != nil {
		return op, err
	}
	if err := r.record(ctx, op, n, answer); err != nil {
		return op, err
	}
	return r.cfg.Ledger.Operation(ctx, op.Tenant, op.ID)
}

// itsOwn leaves of an answer about an operation that ended without effect what can
// be its own. Its key was free since: who is asked by arguments shows the effect of
// another generation too, and that must neither contradict nor freeze anything.
// It looks behind the answer, so that a generation that was opened meanwhile is seen.
func (r *Reconciler) itsOwn(ctx context.Context, op ledger.Operation, a tools.Answer) (tools.Answer, error) {
	if !op.State.Void() || len(a.EffectIDs) == 0 {
		return a, nil
	}
	own := slices.Clone(a.EffectIDs)
	for f := (ledger.Filter{Tenant: op.Tenant, Tool: op.Tool, Key: op.Key}); ; {
		page, err := r.cfg.Ledger.List(ctx, f)
		if err != nil {
			return a, err
		}
		for _, other := range page.Operations {
			switch {
			case other.ID == op.ID:
			case other.EffectID != "":
				own = slices.DeleteFunc(own, func(id string) bool { return id == other.EffectID })
			case other.State.Live() && len(other.Attempts) > 0:
				return tools.Answer{Kind: tools.LookupFailed, Seen: a.Seen, Because: "What it shows may be the effect of " + other.ID + ", which is " + string(other.State) + " under the same key."}, nil
			}
		}
		if f.Cursor = page.Next; f.Cursor == "" {
			break
		}
	}
	switch a.EffectIDs = own; len(own) {
	case 0:
		a.Kind, a.Because = tools.Absent, "What it shows is the effect of another operation under the same key."
	case 1:
		a.Kind, a.Because = tools.Present, ""
	}
	return a, nil
}

// question asks, and tells who counts. A stop is no answer: then ctx is over.
func (r *Reconciler) question(ctx context.Context, op ledger.Operation, plan tools.Plan, t *tools.Tool) tools.Answer {
	began := r.cfg.Ledger.Now()
	asking, done := r.cfg.Asking(ctx, op)
	answer := r.lookup(asking, t, plan)
	done(answer)
	if ctx.Err() != nil {
		return answer
	}
	r.cfg.OnLookup(op, answer, r.cfg.Ledger.Now().Sub(began))
	if answer.Kind == tools.LookupFailed {
		r.cfg.Logger.Warn("a lookup failed; it proves nothing", "operation", op.ID, "tool", op.Tool, "because", answer.Because)
	}
	return answer
}

// record keeps an answer as evidence, each effect that it shows a piece of its own,
// and lets the evidence move the operation.
func (r *Reconciler) record(ctx context.Context, op ledger.Operation, n int, answer tools.Answer) error {
	ids := answer.EffectIDs
	if answer.Kind != tools.Present && answer.Kind != tools.BrokenPromise || len(ids) == 0 {
		ids = []string{""}
	}
	for _, id := range ids {
		ev := ledger.Evidence{
			ID: askID(op, n, answer.Kind, id), Operation: op.ID, Covers: len(op.Attempts), Kind: "lookup", Verdict: tools.Unknown,
			Answer: answer.Kind, EffectID: id, Because: answer.Because, By: ledger.Reconciler, Seen: answer.Seen, At: r.cfg.Ledger.Now(),
		}
		if id != "" {
			ev.Verdict = tools.Succeeded
		}
		if _, err := r.cfg.Ledger.AddEvidence(ctx, op.Tenant, ev); err != nil {
			return err
		}
	}
	return nil
}

// askID names the n-th answer about the attempts that there are. One that is told
// twice is kept once; two that differ are both kept, also when two processes
// asked at the same time.
func askID(op ledger.Operation, n int, kind tools.AnswerKind, effect string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%d\n%d\n%d\n%s\n%s", op.ID, len(op.Attempts), op.UnknownSince.UnixNano(), n, kind, effect))
	return "evd_" + hex.EncodeToString(sum[:16])
}

// verify asks once behind a repeat, where that can be asked: an outside system
// that honours keys has one effect for both requests. Only what shows another
// effect is written down, and freezes the tool (I4).
func (r *Reconciler) verify(ctx context.Context, op ledger.Operation, plan tools.Plan, t *tools.Tool) {
	if !askable(&t.Spec) || ctx.Err() != nil {
		return
	}
	now, err := r.cfg.Ledger.Operation(ctx, op.Tenant, op.ID)
	if err != nil || !now.State.Effective() {
		return // a doubt is looked at as any other
	}
	answer := r.question(ctx, now, plan, t)
	if ctx.Err() != nil || !slices.ContainsFunc(answer.EffectIDs, func(id string) bool { return id != now.EffectID }) {
		return
	}
	if err := r.record(ctx, now, 0, answer); err != nil {
		r.cfg.Logger.Error("two effects were seen for one key, and that could not be written down", "operation", op.ID, "tool", op.Tool, "effect_ids", answer.EffectIDs, "error", err)
	}
}

// lookup shields the process from a connector that panics or never comes back:
// neither is an answer.
func (r *Reconciler) lookup(ctx context.Context, t *tools.Tool, plan tools.Plan) (a tools.Answer) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.AskFor)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			r.cfg.Logger.Error("a connector panicked in a lookup", "tool", t.Name, "panic", p)
			a = tools.Answer{Kind: tools.LookupFailed, Because: "The connector broke off."}
		}
	}()
	return t.Connector.Lookup(ctx, plan)
}
