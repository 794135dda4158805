package audit

import (
	"errors"
	"fmt"
	"time"

	"countersign/tokens"
)

// anchor holds the export against what an anchor has kept.
func (v *verifier) anchor(records []Record) {
	if len(records) == 0 {
		return
	}
	var last Record
	lost := v.recoveries(records)
	newest := Mark{}
	ahead := 0
	for i, r := range records {
		c := r.Checkpoint
		entry := fmt.Sprintf("checkpoint %d", c.N)
		switch {
		case c.Digest() != c.Hash || errors.Is(checkSignature(v.keys, c), tokens.ErrBadStatement):
			v.inAnchor(i, AnchorBroken, entry, "The anchor's own record is not what was signed.")
			continue
		case c.Ledger != v.header.Ledger:
			v.inAnchor(i, AnchorBroken, entry, "The anchor belongs to another ledger, %s.", c.Ledger)
			continue
		case i > 0 && !sameRecord(last, r) && follows(last, r) != nil:
			v.inAnchor(i, AnchorBroken, entry, "It does not follow the record before it, %d.", last.Checkpoint.N)
		}
		last = r
		if lost[i] {
			continue
		}
		newest = markOf(c)
		hash, there := v.seals.byN[c.N]
		switch {
		case there && hash != c.Hash:
			v.inAnchor(i, Rewritten, entry, "The anchor holds it with the hash %.12s, and the export has %.12s.", c.Hash, hash)
		case there, c.N < v.header.After.N: // known, or before what was exported
		case c.N > v.seals.last.N && c.At.After(v.header.MadeAt):
			ahead++ // made after the export
		case c.N > v.seals.last.N:
			v.inAnchor(i, RolledBackKind, entry, "The anchor holds it since %s, and the export, made at %s, ends at checkpoint %d: it is an old copy, or its end was cut off.",
				c.At.Format(time.RFC3339), v.header.MadeAt.Format(time.RFC3339), v.seals.last.N)
		default:
			v.inAnchor(i, Missing, entry, "The anchor holds it, and it is not in the export.")
		}
	}
	v.report.Anchored = &newest
	if ahead > 0 {
		v.report.note("The anchor goes on after the export was made, by %d checkpoints.", ahead)
	}
	if behind := v.report.Newest - newest.Seq; newest.N < v.seals.last.N && behind > 0 {
		v.report.note("The anchor ends at checkpoint %d; nothing outside the ledger vouches for the last %d events.", newest.N, behind)
	}
}

// recoveries finds the records that a restore cut off: those behind the checkpoint
// that it kept, before the record that tells of it. Its statement counts when a key
// of the set signed it, or when the ledger's own history tells the same, which a
// checkpoint covers.
func (v *verifier) recoveries(records []Record) map[int]bool {
	lost := map[int]bool{}
	for i, r := range records {
		if r.Recovery == "" {
			continue
		}
		told, err := readRecovery(v.keys, r.Recovery)
		if err != nil || told.Ledger != v.header.Ledger {
			v.inAnchor(i, BadSignature, fmt.Sprintf("recovery at checkpoint %d", r.Checkpoint.N), "The statement about the restore was not signed by a key of the key set.")
			continue
		}
		v.recovered(told, true)
		for before := range i {
			if c := records[before].Checkpoint; c.N > told.Kept.N {
				lost[before] = true
			}
		}
		v.report.note("Rolled back and recovered at %s: the ledger was put back to checkpoint %d (event %d). %s", told.At.Format(time.RFC3339), told.Kept.N, told.Kept.Seq, lostText(told.Lost))
	}
	return lost
}

func lostText(lost []Lost) string {
	if len(lost) == 0 {
		return "No anchor held more."
	}
	text := ""
	for _, l := range lost {
		text += fmt.Sprintf("The anchor %s held checkpoint %d (event %d) of %s. ", l.Anchor, l.N, l.Seq, l.At.Format(time.RFC3339))
	}
	return text + "What lies between is lost from the ledger."
}

func (v *verifier) inAnchor(i int, kind Kind, entry, format string, args ...any) {
	v.report.add(Finding{Kind: kind, In: inAnchor, Line: i + 1, Entry: entry, Text: fmt.Sprintf(format, args...)})
}
