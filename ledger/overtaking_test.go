package ledger_test

import (
	"context"

	"countersign/ledger"
)

// overtaking is a store in which somebody else moves the parent of an undo just
// before the undo's own write.
type overtaking struct {
	ledger.Store
	parent ledger.Operation
	times  int
}

func (o *overtaking) Apply(ctx context.Context, t ledger.Transition) error {
	if o.times > 0 && len(t.Also) > 0 {
		o.times--
		op, err := o.Store.Operation(ctx, o.parent.Tenant, o.parent.ID)
		if err != nil {
			return err
		}
		expect := op.Version
		op.Version++
		op.WriteID = ledger.NewID("w_")
		ev := ledger.Event{
			Operation: op.ID, Tenant: op.Tenant, Tool: op.Tool, At: op.UpdatedAt, Verb: "test", From: op.State, To: op.State,
			Version: op.Version, WriteID: op.WriteID, Prev: op.Chain,
		}
		ev.Hash = ledger.Seal(ev)
		op.Chain = ev.Hash
		if err := o.Store.Apply(ctx, ledger.Transition{WriteID: op.WriteID, Operation: op, Expect: expect, Event: ev}); err != nil {
			return err
		}
	}
	return o.Store.Apply(ctx, t)
}

// before is a store in which something happens just before a transition.
type before struct {
	ledger.Store
	apply func()
}

func (b *before) Apply(ctx context.Context, t ledger.Transition) error {
	b.apply()
	return b.Store.Apply(ctx, t)
}

// blind is a store that can't be asked for writes.
type blind struct{ ledger.Store }

func (*blind) ByWrite(context.Context, string) (ledger.Operation, error) {
	return ledger.Operation{}, errLost
}
