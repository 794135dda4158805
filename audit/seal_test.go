package audit_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/audit"
	"countersign/ledger"
)

// scripted is an anchor that fails when told to.
type scripted struct {
	*audit.FileAnchor
	fail error
}

func (a *scripted) Append(ctx context.Context, r audit.Record) error {
	if a.fail != nil {
		return a.fail
	}
	return a.FileAnchor.Append(ctx, r)
}

// overtaken is a store before which somebody else always seals first, a few times.
type overtaken struct {
	ledger.Store
	times int
	seal  func()
	lose  int // answers of Seal that get lost
}

func (o *overtaken) Seal(ctx context.Context, c ledger.Checkpoint) error {
	if o.times > 0 {
		o.times--
		o.seal()
	}
	err := o.Store.Seal(ctx, c)
	if err == nil && o.lose > 0 {
		o.lose--
		return &ledger.Ambiguous{Err: errors.New("lost")}
	}
	return err
}

func TestSealer_CoversEverythingInBoundedSteps(t *testing.T) {
	r := newRig(t)
	r.settings = func(c *audit.SealerConfig) { c.MaxEvents = 4 }
	r.closed(func() {})
	r.life()
	n, err := r.sealer.RunOnce(r.ctx)
	require.NoError(t, err)
	list := r.checkpoints()
	require.Len(t, list, n)
	events, err := r.db.AllEventsAfter(r.ctx, 0, 1000)
	require.NoError(t, err)
	require.Len(t, list, (len(events)+3)/4, "several in a row when behind")
	for i, c := range list {
		require.EqualValues(t, i+1, c.N)
		require.LessOrEqual(t, c.Seq-c.After, int64(4))
		require.Equal(t, ledger.EventsDigest(events[c.After:c.Seq]), c.Events)
		require.Equal(t, r.guard().Hash, c.Guards[tenant].Hash)
	}
	require.EqualValues(t, len(events), list[len(list)-1].Seq)

	// Nothing new, no checkpoint; a guard row alone is something new.
	n, err = r.sealer.RunOnce(r.ctx)
	require.NoError(t, err)
	require.Zero(t, n)
	_, err = r.ledger.Freeze(r.ctx, ledger.Scope{Tenant: tenant}, ledger.FreezeAll, ann, "stop")
	require.NoError(t, err)
	n, err = r.sealer.RunOnce(r.ctx)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	list = r.checkpoints()
	require.Equal(t, list[len(list)-1].After, list[len(list)-1].Seq)
	whole(t, r.verify(r.export()))
}

// Two gateways seal at once: one is first, the other looks again, and nothing is
// left out or covered twice.
func TestSealer_AnotherWasFirst(t *testing.T) {
	r := newRig(t)
	race := &overtaken{times: 3, lose: 2}
	r.between = func(s ledger.Store) ledger.Store { race.Store = s; return race }
	r.closed(func() {})
	other := audit.NewSealer(audit.SealerConfig{Store: r.db, Ledger: r.ledger.ID(), Keys: r.keys, Now: r.now})
	race.seal = func() {
		r.ask(fmt.Sprint("meanwhile", race.times), true)
		_, err := other.RunOnce(r.ctx)
		require.NoError(t, err)
		r.ask(fmt.Sprint("behind it", race.times), true)
	}
	r.ask("k", false)
	_, err := r.sealer.RunOnce(r.ctx)
	require.NoError(t, err)
	require.Zero(t, race.times, "three times another was first")
	r.ask("k2", false)
	n, err := r.sealer.RunOnce(r.ctx)
	require.NoError(t, err, "an answer that was lost is told again")
	require.Equal(t, 1, n)
	report := r.verify(r.export())
	whole(t, report)
	require.Zero(t, report.Unsealed)
}

// What was altered is never vouched for by a signature.
func TestSealer_SealsNothingAltered(t *testing.T) {
	for name, c := range map[string]struct{ sql, says string }{
		"event":      {`UPDATE events SET doc = json_set(doc, '$.actor.id', 'per_eve') WHERE seq = 3`, "the event 3 of the ledger"},
		"gone":       {`DELETE FROM events WHERE seq = 3`, "the event 4 of the ledger"},
		"guard row":  {`UPDATE guards SET doc = json_set(doc, '$.change.reason', 'x') WHERE epoch = (SELECT max(epoch) FROM guards)`, "guard row"},
		"checkpoint": {`UPDATE checkpoints SET doc = json_set(doc, '$.ledger', 'led_x') WHERE n = 1`, "the checkpoint 1"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.seal()
			r.life()
			r.tamper(c.sql)
			n, err := r.sealer.RunOnce(r.ctx)
			require.ErrorContains(t, err, c.says)
			require.Zero(t, n)
			require.Len(t, r.checkpoints(), 1)
		})
	}
}

// An anchor that is away alarms and stops nothing; when it is back it gets
// everything, in order, also from another process.
func TestSealer_AnchorOutage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "anchor.jsonl")
	away := &scripted{FileAnchor: audit.NewFileAnchor(path)}
	r := newRig(t, away)
	r.seal()
	require.Len(t, r.anchorRecords(path), 1)
	away.fail = errors.New("the disk is away")
	for i := range 3 {
		r.ask(fmt.Sprint(i), false)
		r.seal()
	}
	require.Len(t, r.checkpoints(), 4)
	state := r.sealer.Anchors()[0]
	require.EqualValues(t, 1, state.Anchored)
	require.False(t, state.Failing.IsZero())
	require.ErrorIs(t, state.Err, away.fail)
	require.Contains(t, r.log.String(), "level=ERROR msg=\"an anchor fails")

	r.closed(func() {}) // a new process knows nothing but what the anchor and the store have
	away.fail = nil
	n, err := r.sealer.RunOnce(r.ctx)
	require.NoError(t, err)
	require.Zero(t, n, "an empty period makes no checkpoint, and anchors what was not")
	records := r.anchorRecords(path)
	require.Len(t, records, 4)
	for i, c := range r.checkpoints() {
		require.Equal(t, c, records[i].Checkpoint)
	}
	require.True(t, r.sealer.Anchors()[0].Failing.IsZero())
	whole(t, r.verify(r.export(), records...))
}

// Run seals by itself: what is there at its start, and as soon as enough events
// are.
func TestSealer_Run(t *testing.T) {
	r := newRig(t)
	r.settings = func(c *audit.SealerConfig) { c.EveryEvents, c.Every = 3, time.Hour }
	r.closed(func() {})
	ctx, stop := context.WithCancel(r.ctx)
	ended := make(chan error, 1)
	go func() { ended <- r.sealer.Run(ctx) }()
	sealed := func(seq int64) func() bool {
		return func() bool {
			c, err := r.db.LastCheckpoint(r.ctx)
			return err == nil && c.N > 0 && c.Seq >= seq
		}
	}
	require.Eventually(t, sealed(0), time.Minute, 10*time.Millisecond)
	for i := range 3 {
		r.ask(fmt.Sprint(i), false)
	}
	require.Eventually(t, sealed(3), time.Minute, 10*time.Millisecond)
	stop()
	require.NoError(t, <-ended)
}

// A recovery that breaks off before the anchor was told is brought to its end by
// the next one.
func TestRecover_BreaksOffAndIsResumed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "anchor.jsonl")
	away := &scripted{FileAnchor: audit.NewFileAnchor(path)}
	r := newRig(t, away)
	r.ask("k", false)
	r.seal()
	backup := filepath.Join(r.dir, "backup.db")
	require.NoError(t, r.db.Backup(r.ctx, backup))
	r.ask("k2", false)
	r.seal()
	r.closed(func() { putBack(t, backup, r.path) })

	away.fail = errors.New("the disk is away")
	first, err := audit.Recover(r.ctx, r.recovery("why"))
	require.ErrorIs(t, err, away.fail)
	require.ErrorContains(t, err, "again when the anchor is back")
	require.Error(t, audit.Refusal(must(audit.Compare(r.ctx, r.db, r.ledger.ID(), r.anchors)), false))
	generation, keys := r.guard().Generation, r.keys.PublicKeys(r.now())

	r.closed(func() {})
	away.fail = nil
	second, err := audit.Recover(r.ctx, r.recovery("why again"))
	require.NoError(t, err)
	require.True(t, second.Resumed)
	require.Equal(t, first.Recovery, second.Recovery)
	require.Equal(t, generation, r.guard().Generation)
	require.Equal(t, keys, r.keys.PublicKeys(r.now()))
	require.NoError(t, audit.Refusal(must(audit.Compare(r.ctx, r.db, r.ledger.ID(), r.anchors)), false))
	report := r.verify(r.export(), r.anchorRecords(path)...)
	whole(t, report)
	require.Len(t, report.Recoveries, 1)
}

// Also without any anchor a recovery does its work, and the ledger tells of it.
func TestRecover_WithoutAnchors(t *testing.T) {
	r := newRig(t)
	op := r.ask("k", false)
	did, err := audit.Recover(r.ctx, r.recovery("from tape"))
	require.NoError(t, err)
	require.Empty(t, did.Lost)
	require.Equal(t, 1, did.Unknown)
	require.Equal(t, ledger.Unknown, r.op(op.ID).State)
	report := r.verify(r.export())
	whole(t, report)
	require.Equal(t, "from tape", report.Recoveries[0].Reason)
	require.False(t, report.Recoveries[0].Anchored)

	// Years later, with the key dropped that signed the statement, the chain still
	// vouches for it.
	_, err = r.keys.EmergencyRevoke(r.now())
	require.NoError(t, err)
	r.ask("k3", true)
	r.seal()
	report = r.verify(r.export())
	whole(t, report)
	require.Equal(t, "from tape", report.Recoveries[0].Reason)
}
