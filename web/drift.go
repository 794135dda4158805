package web

import (
	"context"
	"regexp"
	"strings"

	"countersign/ledger"
	"countersign/strictjson"
	"countersign/tools"
)

// driftRow is one value that people said yes to and that changed before it was
// sent, so that they are asked anew.
type driftRow struct {
	Name     string
	Was, Now *value
}

// drift compares what the plans of the last round and of this one were read from.
// It is empty when people were asked anew for another reason, or when the earlier
// plan can't be read: the reason in words stands beside it in any case.
func (p *Pages) drift(ctx context.Context, d drawer, op ledger.Operation, plan tools.Plan, events []ledger.Event) []driftRow {
	again := lastRevise(events)
	if op.State != ledger.AwaitingApproval || op.Round < 2 || again == nil || again.Code != "drift" {
		return nil
	}
	before, err := p.cfg.Ledger.Plan(ctx, op.Tenant, op.ID, op.Round-1)
	if err != nil {
		return nil
	}
	was := map[string]any{}
	for _, b := range before.Basis {
		was[b.Field] = b.Value
	}
	names := map[string]int{}
	for _, b := range plan.Basis {
		names[lastPart(b.Field)]++
	}
	var out []driftRow
	for _, b := range plan.Basis {
		old, ok := was[b.Field]
		if !ok || strictjson.Equal(old, b.Value) {
			continue
		}
		name := lastPart(b.Field)
		if names[name] > 1 {
			name = b.Field
		}
		from, to := d.value(old), d.value(b.Value)
		out = append(out, driftRow{Name: name, Was: &from, Now: &to})
	}
	return out
}

var plainPath = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.]*$`)

// lastPart names a field by the end of its path; what is no plain path stays as it
// is.
func lastPart(field string) string {
	if !plainPath.MatchString(field) {
		return field
	}
	return field[strings.LastIndex(field, ".")+1:]
}
