package audit

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"countersign/fault"
	"countersign/ledger"
	"countersign/tokens"
)

// restoredChange is what a guard row says that a recovery wrote.
const restoredChange = "restored"

// Recovery is the signed statement about a restore: the ledger was put back, and
// people went on from there knowingly.
type Recovery struct {
	Ledger string    `json:"ledger"`
	At     time.Time `json:"at"`
	Reason string    `json:"reason,omitempty"`
	// Kept is the newest checkpoint that the ledger still had; zero when none.
	Kept Mark `json:"kept"`
	// Lost are the newest checkpoints of the anchors that the ledger no longer had.
	Lost []Lost `json:"lost,omitempty"`
}

// Lost is what an anchor held beyond the ledger.
type Lost struct {
	Anchor string `json:"anchor"`
	Mark
}

// readRecovery verifies a statement about a restore.
func readRecovery(keys tokens.PublicKeys, statement string) (Recovery, error) {
	payload, _, err := keys.Verify(RecoveryType, statement)
	if err != nil {
		return Recovery{}, err
	}
	return parseRecovery(payload)
}

// unverifiedRecovery reads a statement whose key is not known, and which something
// else vouches for.
func unverifiedRecovery(statement string) (Recovery, error) {
	_, rest, _ := strings.Cut(statement, ".")
	body, _, _ := strings.Cut(rest, ".")
	payload, err := base64.RawURLEncoding.DecodeString(body)
	if err != nil {
		return Recovery{}, tokens.ErrBadStatement
	}
	return parseRecovery(payload)
}

func parseRecovery(payload []byte) (r Recovery, err error) {
	d := json.NewDecoder(bytes.NewReader(payload))
	d.DisallowUnknownFields()
	if d.Decode(&r) != nil {
		return r, tokens.ErrBadStatement
	}
	return r, nil
}

// RecoverConfig is what a recovery needs. No gateway may run.
type RecoverConfig struct {
	Ledger *ledger.Ledger
	Store  ledger.Store
	Keys   *tokens.KeySet
	// Sealer has the anchors.
	Sealer *Sealer
	// Tenants are recovered beside those that have a guard row.
	Tenants []string
	Reason  string
}

// Recovering is what a recovery found and did.
type Recovering struct {
	Recovery
	// Found is how each anchor stood before.
	Found []Comparison `json:"-"`
	// Resumed: an earlier recovery had broken off, and was brought to its end.
	Resumed bool `json:"resumed"`
	// Doubted are the operations that were put in doubt, in the order of their birth.
	Doubted []ledger.Operation `json:"-"`
	// Unknown counts all operations that are unknown now.
	Unknown int `json:"unknown"`
	// Head is the newest checkpoint now.
	Head Mark `json:"head"`
}

// Recover makes a ledger that came out of a backup safe to start, and says so to
// everybody who holds an anchor. In this order, so that it can break off anywhere
// and be run again: everything is frozen at "all"; all keys are dropped and the
// ledger generation is raised, which voids every token; what waited or ran is put in
// doubt, on the people's list; a checkpoint covers all that; the anchors get it with
// the signed statement. What had ended stays as it is.
func Recover(ctx context.Context, c RecoverConfig) (Recovering, error) {
	var did Recovering
	found, err := Compare(ctx, c.Store, c.Ledger.ID(), c.Sealer.cfg.Anchors)
	if err != nil {
		return did, err
	}
	did.Found = found
	for _, f := range found {
		if f.Standing == Foreign {
			return did, errors.New(f.String())
		}
	}
	tenants, err := c.tenants(ctx)
	if err != nil {
		return did, err
	}
	by := ledger.Gateway("recover")
	for _, tenant := range tenants {
		scope := ledger.Scope{Tenant: tenant, Everything: true}
		if _, err := c.Ledger.Freeze(ctx, scope, ledger.FreezeAll, by, "The ledger was restored from a backup."); err != nil {
			return did, err
		}
	}
	statement, err := c.statement(ctx, tenants, &did)
	if err != nil {
		return did, err
	}
	if err := c.void(ctx, tenants, statement, did.Reason); err != nil {
		return did, err
	}
	if err := c.doubt(ctx, tenants, &did); err != nil {
		return did, err
	}
	if _, err := c.Sealer.seal(ctx); err != nil {
		return did, err
	}
	head, err := c.Store.LastCheckpoint(ctx)
	if err != nil {
		return did, ledger.StoreFault(err)
	}
	did.Head = markOf(head)
	return did, c.tell(ctx, statement, did.Recovery)
}

func (c RecoverConfig) tenants(ctx context.Context) ([]string, error) {
	known, err := c.Store.Tenants(ctx)
	if err != nil {
		return nil, ledger.StoreFault(err)
	}
	all := append(slices.Clone(c.Tenants), known...)
	slices.Sort(all)
	return slices.Compact(all), nil
}

// statement signs what was found with a key of its own; or finds the statement of
// a recovery that broke off before every anchor had it.
func (c RecoverConfig) statement(ctx context.Context, tenants []string, did *Recovering) (string, error) {
	newest, err := c.Store.LastCheckpoint(ctx)
	if err != nil {
		return "", ledger.StoreFault(err)
	}
	did.Recovery = Recovery{Ledger: c.Ledger.ID(), At: c.Ledger.Now(), Reason: c.Reason, Kept: markOf(newest)}
	for _, f := range did.Found {
		if f.Standing.RolledBack() {
			did.Lost = append(did.Lost, Lost{f.Anchor, markOf(f.Record.Checkpoint)})
		}
	}
	if broken, r, err := c.brokenOff(ctx, tenants, did.Lost); err != nil || broken != "" {
		did.Recovery, did.Resumed = r, true
		return broken, err
	}
	// The file that lay in the backup may hold keys that were revoked since.
	if _, err := c.Keys.EmergencyRevoke(c.Ledger.Now()); err != nil {
		return "", fault.Wrap(err, fault.Internal, "The signing keys could not be replaced; nothing else was changed but the freeze.")
	}
	return c.Keys.Sign(RecoveryType, mustJSON(did.Recovery))
}

// brokenOff finds, in the guard rows, a statement about just what the anchors still
// say: its recovery did not reach them.
func (c RecoverConfig) brokenOff(ctx context.Context, tenants []string, lost []Lost) (string, Recovery, error) {
	keys := c.Keys.PublicKeys(c.Ledger.Now())
	for _, tenant := range tenants {
		if len(lost) == 0 {
			break
		}
		row, err := c.newestRestored(ctx, tenant)
		if err != nil {
			return "", Recovery{}, err
		}
		if r, err := readRecovery(keys, row.Change.Signature); err == nil && tellsOf(r.Lost, lost) {
			return row.Change.Signature, r, nil
		}
	}
	return "", Recovery{}, nil
}

// tellsOf reports that every anchor that still contradicts is told of.
func tellsOf(told, lost []Lost) bool {
	for _, l := range lost {
		if !slices.ContainsFunc(told, func(t Lost) bool { return t.Anchor == l.Anchor && t.Hash == l.Hash }) {
			return false
		}
	}
	return true
}

// newestRestored reads the newest guard row that a recovery wrote; a zero one when
// there is none.
func (c RecoverConfig) newestRestored(ctx context.Context, tenant string) (newest ledger.Guard, err error) {
	for after := int64(0); ; {
		rows, err := c.Store.GuardHistory(ctx, tenant, after, page)
		if err != nil || len(rows) == 0 {
			return newest, ledger.StoreFault(err)
		}
		for _, g := range rows {
			if after = g.Epoch; g.Change.What == restoredChange {
				newest = g
			}
		}
	}
}

// void raises the ledger generation of every tenant, once for each recovery.
func (c RecoverConfig) void(ctx context.Context, tenants []string, statement, reason string) error {
	why := ledger.Change{What: restoredChange, By: ledger.Gateway("recover"), Reason: reason, Signature: statement}
	for _, tenant := range tenants {
		row, err := c.newestRestored(ctx, tenant)
		if err != nil {
			return err
		}
		if row.Change.Signature == statement {
			continue
		}
		if _, _, err := c.Ledger.ChangeGuard(ctx, tenant, why, func(g *ledger.Guard) { g.Generation++ }); err != nil {
			return err
		}
	}
	return nil
}

// doubt puts everything that waited or ran in doubt, and counts what is unknown.
func (c RecoverConfig) doubt(ctx context.Context, tenants []string, did *Recovering) error {
	for _, tenant := range tenants {
		f := ledger.Filter{Tenant: tenant, States: []ledger.State{ledger.AwaitingApproval, ledger.Pending, ledger.Running}, OldestFirst: true, Limit: 200}
		err := each(ctx, c.Ledger.Reader, f, func(op ledger.Operation) error {
			op, err := c.Ledger.Restore(ctx, tenant, op.ID)
			if err == nil {
				did.Doubted = append(did.Doubted, op)
			}
			return err
		})
		if err != nil {
			return err
		}
		f.States = []ledger.State{ledger.Unknown}
		if err := each(ctx, c.Ledger.Reader, f, func(ledger.Operation) error { did.Unknown++; return nil }); err != nil {
			return err
		}
	}
	return nil
}

// each calls do for every operation of a list.
func each(ctx context.Context, r ledger.Reader, f ledger.Filter, do func(ledger.Operation) error) error {
	for {
		list, err := r.List(ctx, f)
		if err != nil {
			return err
		}
		for _, op := range list.Operations {
			if err := do(op); err != nil {
				return err
			}
		}
		if f.Cursor = list.Next; f.Cursor == "" {
			return nil
		}
	}
}

// tell gives the anchors the first checkpoint after the restore, with the
// statement, and everything that follows. An anchor that agreed with the ledger
// first gets what it lacks of the time before.
func (c RecoverConfig) tell(ctx context.Context, statement string, r Recovery) error {
	var failed []error
	for _, a := range c.Sealer.cfg.Anchors {
		if err := c.tellOne(ctx, a, statement, r); err != nil {
			failed = append(failed, fmt.Errorf("the anchor %s was not told of the recovery: %w", a.Name(), err))
		}
	}
	if len(failed) > 0 {
		failed = append(failed, errors.New("the ledger itself is recovered; run `countersign recover --restored` again when the anchor is back, for no gateway starts against it"))
	}
	return errors.Join(failed...)
}

func (c RecoverConfig) tellOne(ctx context.Context, a Anchor, statement string, r Recovery) error {
	stands, err := compare(ctx, c.Store, c.Ledger.ID(), a)
	if err != nil {
		return err
	}
	from := r.Kept.N
	switch stands.Standing {
	case Unreadable:
		return stands.Err
	case Agrees:
		from = stands.Record.Checkpoint.N
	case Empty:
		from = 0
	}
	for {
		list, err := c.Store.Checkpoints(ctx, from, page)
		if err != nil || len(list) == 0 {
			return ledger.StoreFault(err)
		}
		for _, next := range list {
			record := Record{Checkpoint: next}
			if next.N == r.Kept.N+1 {
				record.Recovery = statement
			}
			if err := within(ctx, anchorTimeout, func(ctx context.Context) error { return a.Append(ctx, record) }); err != nil {
				return err
			}
			from = next.N
		}
	}
}
