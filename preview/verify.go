package preview

import (
	"context"
	"errors"

	"countersign/ledger"
	"countersign/tools"
)

// Verify asks the outside systems whether the effects of a run are still there,
// and adds ledger.StaleAbsentOutside where one says no (R56). Only an upstream
// whose lookups see at once what was done is believed; the others, a failed
// lookup, and effects that were only found there, are left as they are. The
// record itself does not change.
func (s *Service) Verify(ctx context.Context, j ledger.Journal) (ledger.Journal, error) {
	entries := make([]ledger.JournalEntry, len(j.Entries))
	copy(entries, j.Entries)
	j.Entries = entries
	for i := range j.Entries {
		e := &j.Entries[i]
		if e.Operation.State != ledger.Succeeded || e.Operation.Adopted {
			continue
		}
		absent, err := s.absent(ctx, e.Operation)
		if err != nil {
			return j, err
		}
		if absent {
			e.Stale = append(e.Stale[:len(e.Stale):len(e.Stale)], ledger.StaleAbsentOutside)
		}
	}
	return j, nil
}

// absent asks for one effect.
func (s *Service) absent(ctx context.Context, op ledger.Operation) (bool, error) {
	t, err := s.cfg.Registry.Version(ctx, op.ToolVersion)
	switch {
	case errors.Is(err, tools.ErrUpstreamGone):
		return false, nil
	case err != nil:
		return false, err
	case t.Consistency != tools.Strong:
		return false, nil
	}
	plan, err := s.cfg.Ledger.Plan(ctx, op.Tenant, op.ID, op.Round)
	if err != nil {
		return false, err
	}
	return t.Lookup(ctx, plan).Kind == tools.Absent, nil
}
