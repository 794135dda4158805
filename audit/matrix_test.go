package audit_test

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/audit"
	"countersign/ledger"
)

// sealedLife is a ledger with a life in it, three checkpoints, and events behind
// them.
func sealedLife(t *testing.T, anchors ...audit.Anchor) (*rig, map[string]ledger.Operation) {
	t.Helper()
	r := newRig(t, anchors...)
	r.seal()
	all := r.life()
	r.seal()
	for i := range 3 {
		r.ask(fmt.Sprintf("more%d", i), true)
	}
	r.seal()
	r.ask("tail", true)
	return r, all
}

func TestVerify_WholeLedger(t *testing.T) {
	r, all := sealedLife(t)
	report := r.verify(r.export())
	whole(t, report)
	require.Equal(t, r.ledger.ID(), report.Ledger)
	require.EqualValues(t, 3, report.Sealed.N)
	require.EqualValues(t, 1, report.Unsealed)
	require.EqualValues(t, len(all)+4, report.Counts["operation"])
	require.Equal(t, report.Newest, report.Counts["event"])
	require.EqualValues(t, 3, report.Counts["decision"])
	require.True(t, report.Trusted)
	// The keys of the export itself do for damage, and the report says so.
	own, err := audit.Verify(strings.NewReader(r.export()), audit.VerifyOptions{})
	require.NoError(t, err)
	whole(t, own)
	require.Contains(t, strings.Join(own.Notes, " "), "--jwks")
}

// Matrix row 45: an audit row is altered, removed, reordered, doubled, cut off, or
// rewritten with care, in the ledger's own file. Verify names the first bad entry.
func TestMatrix_Row45_AuditRowsChanged(t *testing.T) {
	const doc = `UPDATE events SET doc = json_set(doc, %s) WHERE seq = 5`
	for name, c := range map[string]struct {
		sql   []string
		kind  audit.Kind
		entry string
	}{
		"who did it":                    {[]string{fmt.Sprintf(doc, `'$.actor.id', 'per_eve'`)}, audit.Altered, "event 5 of"},
		"when":                          {[]string{fmt.Sprintf(doc, `'$.at', '2026-11-05T09:30:09Z'`)}, audit.Altered, "event 5 of"},
		"what was shown":                {[]string{fmt.Sprintf(doc, `'$.digest', 'sha256:other'`)}, audit.Altered, "event 5 of"},
		"its hash":                      {[]string{fmt.Sprintf(doc, `'$.hash', '00'`)}, audit.Altered, "event 5 of"},
		"a removed event":               {[]string{`DELETE FROM events WHERE seq = 5`}, audit.Missing, "event 6 of"},
		"removed, and numbered anew":    {[]string{`DELETE FROM events WHERE seq = 5`, `UPDATE events SET seq = -(seq - 1) WHERE seq > 5`, `UPDATE events SET seq = -seq WHERE seq < 0`}, audit.Missing, "event 5 of"},
		"two of one operation swapped":  {swapped(4, 5), audit.Reordered, "event 4 of"},
		"two of different ones swapped": {swapped(2, 3), audit.Reordered, "event 3 of"},
		"the tail cut off":              {[]string{`DELETE FROM events WHERE seq > 8`}, audit.TailCut, "checkpoint 2"},
		"the unsealed tail cut off":     {[]string{`DELETE FROM events WHERE seq = (SELECT max(seq) FROM events)`}, audit.Missing, "operation op_"},
		"a row put back":                {[]string{`UPDATE operations SET doc = json_set(doc, '$.state', 'failed') WHERE key = 'auto'`}, audit.RowDiffers, "operation op_"},
		"a row of an older version":     {[]string{`UPDATE operations SET doc = json_set(doc, '$.version', 1) WHERE key = 'auto'`}, audit.RowDiffers, "operation op_"},
		"a row that went ahead":         {[]string{`UPDATE operations SET doc = json_set(doc, '$.version', 9) WHERE key = 'auto'`}, audit.TailCut, "operation op_"},
		"another effect":                {[]string{`UPDATE operations SET doc = json_set(doc, '$.effect_id', 'hold_9') WHERE key = 'auto'`}, audit.RowDiffers, "operation op_"},
		"another plan":                  {[]string{`UPDATE operations SET doc = json_set(doc, '$.plan_digest', 'x') WHERE key = 'auto'`}, audit.RowDiffers, "operation op_"},
		"evidence removed":              {[]string{`DELETE FROM evidence WHERE n = 1`}, audit.Missing, "operation op_"},
		"evidence of another effect":    {[]string{`UPDATE evidence SET doc = json_set(doc, '$.effect_id', 'hold_9') WHERE n = 1`}, audit.Altered, "operation op_"},
		"what evidence says":            {[]string{`UPDATE evidence SET doc = json_set(doc, '$.because', 'made up') WHERE n = 1`}, audit.Altered, "evidence evd_"},
		"what was seen":                 {[]string{`UPDATE evidence SET doc = json_set(doc, '$.seen.status', 299) WHERE n = 1`}, audit.Altered, "evidence evd_"},
		"a decision removed":            {[]string{`DELETE FROM decisions WHERE n = 1`}, audit.Missing, "operation op_"},
		"a decision of somebody else":   {[]string{`UPDATE decisions SET doc = json_set(doc, '$.person', 'per_eve') WHERE n = 1`}, audit.Altered, "decision of per_eve"},
		"a decision made up":            {[]string{`INSERT INTO decisions (operation, round, person, word, doc) SELECT operation, round, 'per_eve', word, json_set(doc, '$.person', 'per_eve') FROM decisions WHERE n = 1`}, audit.Altered, "decision of per_eve"},
		"a freeze taken out":            {[]string{`DELETE FROM guards WHERE epoch = 3`}, audit.Missing, "guard row 4"},
		"a freeze altered":              {[]string{`UPDATE guards SET doc = json_set(doc, '$.change.reason', 'x') WHERE epoch = 3`}, audit.Altered, "guard row 3"},
		"the newest guard row cut off":  {[]string{`DELETE FROM guards WHERE epoch = 4`}, audit.TailCut, "checkpoint 2"},
		"a checkpoint altered":          {[]string{`UPDATE checkpoints SET doc = json_set(doc, '$.at', '2026-11-05T09:30:09Z') WHERE n = 2`}, audit.Altered, "checkpoint 2"},
		"a checkpoint removed":          {[]string{`DELETE FROM checkpoints WHERE n = 2`}, audit.Missing, "checkpoint 3"},
		"a signature altered":           {[]string{`UPDATE checkpoints SET doc = json_set(doc, '$.signature', replace(json_extract(doc, '$.signature'), '.', '.A')) WHERE n = 2`}, audit.BadSignature, "checkpoint 2"},
		"the signature of another":      {[]string{`UPDATE checkpoints SET doc = json_set(doc, '$.signature', (SELECT json_extract(doc, '$.signature') FROM checkpoints WHERE n = 1)) WHERE n = 2`}, audit.BadSignature, "checkpoint 2"},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := sealedLife(t)
			whole(t, r.verify(r.export()))
			r.tamper(c.sql...)
			first(t, r.verify(r.export()), c.kind, c.entry)
		})
	}
}

// swapped lets two events change places in the file.
func swapped(a, b int) []string {
	return []string{
		fmt.Sprintf(`UPDATE events SET seq = 0 WHERE seq = %d`, a),
		fmt.Sprintf(`UPDATE events SET seq = %d WHERE seq = %d`, a, b),
		fmt.Sprintf(`UPDATE events SET seq = %d WHERE seq = 0`, b),
	}
}

// Who rewrites an event and every hash behind it, but can't sign, is found by the
// checkpoint; who can sign as well, by the anchor (row 45; S73).
func TestMatrix_Row45_Rewritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "anchor.jsonl")
	r, all := sealedLife(t, audit.NewFileAnchor(path))
	events, err := r.ledger.Events(r.ctx, tenant, all["rejected"].ID)
	require.NoError(t, err)
	events[1].Actor.ID = "per_eve"
	events[1].Hash = ledger.Checkpoint{}.Hash
	events[1] = resealed(t, events[1])
	id := all["rejected"].ID
	r.tamper(
		fmt.Sprintf(`UPDATE events SET doc = json_set(doc, '$.actor.id', 'per_eve', '$.hash', '%s') WHERE seq = %d`, events[1].Hash, events[1].Seq),
		fmt.Sprintf(`UPDATE operations SET doc = json_set(doc, '$.chain', '%s') WHERE id = '%s'`, events[1].Hash, id),
		fmt.Sprintf(`UPDATE decisions SET doc = json_set(doc, '$.person', 'per_eve') WHERE json_extract(doc, '$.operation') = '%s'`, id),
	)
	first(t, r.verify(r.export()), audit.Rewritten, "checkpoint 2")

	// With the keys all checkpoints can be made anew. The export is then whole.
	r.tamper(`DELETE FROM checkpoints`)
	kept := r.anchors
	r.closed(func() { r.anchors = nil })
	r.seal()
	whole(t, r.verify(r.export()))
	first(t, r.verify(r.export(), r.anchorRecords(path)...), audit.Rewritten, "checkpoint 1")
	found, err := audit.Compare(r.ctx, r.db, r.ledger.ID(), kept)
	require.NoError(t, err)
	require.True(t, found[0].Standing.RolledBack(), "%s", found[0].Standing)
	require.ErrorContains(t, audit.Refusal(found, false), "countersign recover --restored")
}

// A move that the table does not allow is found also where every hash is right.
func TestMatrix_Row45_ForbiddenMove(t *testing.T) {
	r := newRig(t)
	op := r.decide(r.ask("k", true), ledger.VerbReject)
	events, err := r.ledger.Events(r.ctx, tenant, op.ID)
	require.NoError(t, err)
	for name, change := range map[string]func(*ledger.Event){
		"to another state":         func(e *ledger.Event) { e.To = ledger.Succeeded },
		"by another verb":          func(e *ledger.Event) { e.Verb = ledger.VerbFinish },
		"from where it never was":  func(e *ledger.Event) { e.From = ledger.Pending },
		"with an attempt too many": func(e *ledger.Event) { e.Attempt = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			e := events[1]
			change(&e)
			e = resealed(t, e)
			text := replaceEvent(t, r.export(), e)
			first(t, r.verify(text), audit.Forbidden, fmt.Sprintf("event %d of", e.Seq))
		})
	}
}

// Two events for one version can't be in a store; in an export they are found.
func TestMatrix_Row45_TwoEventsOfOneVersion(t *testing.T) {
	r := newRig(t)
	op := r.decide(r.ask("k", true), ledger.VerbReject)
	events, err := r.ledger.Events(r.ctx, tenant, op.ID)
	require.NoError(t, err)
	second := events[1]
	second.Actor.ID = "per_eve"
	second = resealed(t, second)
	second.Seq++
	lines := strings.SplitAfter(r.export(), "\n")
	for i, l := range lines {
		if strings.Contains(l, events[1].Hash) && strings.HasPrefix(l, `{"kind":"event"`) {
			lines[i] = l + eventLine(t, second)
		}
	}
	first(t, r.verify(strings.Join(lines, "")), audit.Doubled, fmt.Sprintf("event %d of", second.Seq))
}

// The export itself: changed, cut, or put in another order on its way.
func TestMatrix_Row45_ExportChanged(t *testing.T) {
	r, _ := sealedLife(t)
	text := r.export(func(q *audit.ExportRequest) { q.Redact = keep })
	whole(t, r.verify(text))
	lines := strings.SplitAfter(strings.TrimSuffix(text, "\n"), "\n")
	lines[len(lines)-1] += "\n"

	t.Run("any line removed", func(t *testing.T) {
		for i := 1; i < len(lines); i++ {
			report := r.verify(strings.Join(append(append([]string{}, lines[:i]...), lines[i+1:]...), ""))
			require.False(t, report.OK, lines[i])
		}
	})
	t.Run("any two neighbours swapped", func(t *testing.T) {
		for i := 2; i < len(lines); i++ {
			swapped := append([]string{}, lines...)
			swapped[i-1], swapped[i] = swapped[i], swapped[i-1]
			require.False(t, r.verify(strings.Join(swapped, "")).OK, "%s%s", lines[i-1], lines[i])
		}
	})
	t.Run("any line twice", func(t *testing.T) {
		for i := range lines {
			require.False(t, r.verify(strings.Join(append(append(append([]string{}, lines[:i+1]...), lines[i]), lines[i+1:]...), "")).OK, lines[i])
		}
	})
	t.Run("cut anywhere", func(t *testing.T) {
		for i := 1; i < len(lines); i++ {
			report := r.verify(strings.Join(lines[:i], ""))
			require.False(t, report.OK)
		}
		report := r.verify(text[:len(text)-30])
		require.False(t, report.OK)
	})
	t.Run("hidden beside the truth", func(t *testing.T) {
		for _, hidden := range []string{`{"kind":"event","Kind":"x",`, `{"kind":"event", `, `{"x":1,"kind":"event",`} {
			spoilt := strings.Replace(text, `{"kind":"event",`, hidden, 1)
			require.NotEqual(t, text, spoilt)
			first(t, r.verify(spoilt), audit.Altered, "the line")
		}
	})
}

// Each value of an export, changed alone, is found.
func TestMatrix_Row45_AnyValueChanged(t *testing.T) {
	r := newRig(t)
	r.end(r.send(r.decide(r.ask("k", true), ledger.VerbApprove)), "succeeded")
	r.seal()
	r.ask("tail", true)
	text := r.export(func(q *audit.ExportRequest) { q.Redact = keep })
	whole(t, r.verify(text))
	lines := strings.SplitAfter(text, "\n")
	value := regexp.MustCompile(`":("[^"]+"|[0-9]+|true|false)`)
	changed := 0
	for i, l := range lines {
		for _, at := range value.FindAllStringIndex(l, -1) {
			old := l[at[0]+2 : at[1]]
			next := map[bool]string{true: `"x` + old[1:], false: "4" + old}[old[0] == '"']
			if old == "true" || old == "false" {
				next = map[string]string{"true": "false", "false": "true"}[old]
			}
			spoilt := append([]string{}, lines...)
			spoilt[i] = l[:at[0]+2] + next + l[at[1]:]
			report, err := audit.Verify(strings.NewReader(strings.Join(spoilt, "")), audit.VerifyOptions{Keys: r.keys.PublicKeys(r.now())})
			if err == nil {
				require.False(t, report.OK, "%s: %s -> %s", l, old, next)
			}
			changed++
		}
	}
	require.Greater(t, changed, 150)
}

// Matrix row 44: an old copy of the file is put back. The anchor tells, the start is
// refused, and recover makes it safe and says so for ever.
func TestMatrix_Row44_RestoredBackup(t *testing.T) {
	path := filepath.Join(t.TempDir(), "anchor.jsonl")
	anchor := audit.NewFileAnchor(path)
	r, all := sealedLife(t, anchor)
	r.seal()
	backup := filepath.Join(r.dir, "backup.db")
	require.NoError(t, r.db.Backup(r.ctx, backup))
	oldKey, oldGuard := r.keys.PublicKeys(r.now()), r.guard()
	receipt, _, err := audit.Receipts{Store: r.db, Ledger: r.ledger.ID(), Keys: r.keys, Now: r.now}.Issue(r.ctx, r.ledger.Reader, tenant, all["auto"].ID)
	require.NoError(t, err)

	// Work goes on; what waited is done, which the copy does not know.
	lost := r.end(r.send(all["pending"]), "succeeded")
	r.seal()
	r.ask("lost for ever", false)
	r.seal()
	before := r.anchorRecords(path)
	newest := before[len(before)-1].Checkpoint

	r.closed(func() { putBack(t, backup, r.path) })
	found, err := audit.Compare(r.ctx, r.db, r.ledger.ID(), r.anchors)
	require.NoError(t, err)
	require.Equal(t, audit.Ahead, found[0].Standing)
	refusal := audit.Refusal(found, true)
	require.ErrorContains(t, refusal, "The ledger is older than its anchor")
	require.ErrorContains(t, refusal, "countersign recover --restored")
	first(t, r.verify(r.export(), before...), audit.RolledBackKind, fmt.Sprintf("checkpoint %d", newest.N-1))
	// The sealer builds nothing on the anchor's truth by itself.
	r.ask("another", true)
	r.seal()
	require.Equal(t, audit.Ahead, must(audit.Compare(r.ctx, r.db, r.ledger.ID(), r.anchors))[0].Standing)
	r.ask("one more", true)
	r.seal()
	require.Len(t, r.anchorRecords(path), len(before))
	require.Contains(t, r.log.String(), "an anchor fails")
	require.Equal(t, audit.Forked, must(audit.Compare(r.ctx, r.db, r.ledger.ID(), r.anchors))[0].Standing, "the same number, another checkpoint")

	did, err := audit.Recover(r.ctx, r.recovery("the disk died"))
	require.NoError(t, err)
	require.False(t, did.Resumed)
	require.Equal(t, newest.Hash, did.Lost[0].Hash)
	require.Len(t, did.Doubted, 4+4+2, "pending, unsent, waiting, running; the four that wait since; another, one more")

	// What was open is in doubt, what had ended stays, no key is free.
	for name, op := range all {
		now := r.op(op.ID)
		switch name {
		case "pending", "waiting", "running":
			require.Equal(t, ledger.Unknown, now.State, name)
			require.True(t, now.OnList, name)
			require.True(t, now.Touched())
			head, err := r.ledger.Head(r.ctx, tenant, op.Tool, op.Key)
			require.NoError(t, err)
			require.Equal(t, op.ID, head.Operation.ID)
			require.True(t, head.Operation.State.Live(), "its key is not free")
		case "unsent": // was pending too
			require.Equal(t, ledger.Unknown, now.State, name)
		default:
			require.Equal(t, op.State, now.State, name)
		}
	}
	require.Equal(t, lost.ID, all["pending"].ID)
	g := r.guard()
	require.Equal(t, oldGuard.Generation+1, g.Generation, "every token is void")
	f, frozen := g.Frozen("hold_order")
	require.True(t, frozen && f.Everything && f.Level == ledger.FreezeAll)
	for kid := range oldKey {
		require.NotContains(t, r.keys.PublicKeys(r.now()), kid, "no key of before signs or verifies")
	}
	_, _, err = audit.VerifyReceipt(oldKey, receipt)
	require.NoError(t, err, "who kept the old key set can still check what it signed")

	// The next start accepts it, the anchor goes on, and everybody can see why.
	require.NoError(t, audit.Refusal(must(audit.Compare(r.ctx, r.db, r.ledger.ID(), r.anchors)), false))
	r.closed(func() {})
	r.ask("after", true) // waits behind the freeze; opened by the ledger's own verb
	r.seal()
	after := r.anchorRecords(path)
	require.Equal(t, before, after[:len(before)], "the anchor keeps what was")
	report := r.verify(r.export(), after...)
	whole(t, report)
	require.Len(t, report.Recoveries, 1)
	require.True(t, report.Recoveries[0].Anchored)
	require.Equal(t, "the disk died", report.Recoveries[0].Reason)
	require.Contains(t, strings.Join(report.Notes, "\n"), "Rolled back and recovered at "+did.At.Format(time.RFC3339))
	require.Positive(t, report.Covered, "checkpoints of the dropped key are covered by the new one")

	// An anchor that lost the statement shows a ledger that went back.
	silent := append([]audit.Record{}, after...)
	for i := range silent {
		silent[i].Recovery = ""
	}
	require.False(t, r.verify(r.export(), silent...).OK)
	// Nor does a statement of somebody else excuse anything.
	forged := append([]audit.Record{}, after...)
	other := newRig(t)
	for i := range forged {
		if forged[i].Recovery != "" {
			forged[i].Recovery, err = other.keys.Sign(audit.RecoveryType, []byte(`{"ledger":"`+r.ledger.ID()+`","kept":{"n":1,"seq":0,"hash":""}}`))
			require.NoError(t, err)
		}
	}
	report = r.verify(r.export(), forged...)
	require.False(t, report.OK)
	require.Contains(t, fmt.Sprint(report.Findings), audit.BadSignature)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
