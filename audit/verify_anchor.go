package audit

import (
	"errors"
	"fmt"
	"slices"
	"strings"
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

// recoveries finds the records that a restore cut off: those that stand before the
// record which tells of it and are not in the ledger. They are excused when they are
// newer than the checkpoint that was kept, or when the statement names the anchor's
// newest of them; all others stay findings. The statement counts when a key of the
// set signed it, or when the ledger's own history, which a checkpoint covers, has it.
func (v *verifier) recoveries(records []Record) map[int]bool {
	lost := map[int]bool{}
	for i, r := range records {
		if r.Recovery == "" {
			continue
		}
		entry := fmt.Sprintf("recovery at checkpoint %d", r.Checkpoint.N)
		told, err := readRecovery(v.keys, r.Recovery)
		if errors.Is(err, tokens.ErrUnknownKey) && v.guards.restored[r.Recovery] {
			told, err = unverifiedRecovery(r.Recovery)
		}
		if err != nil || told.Ledger != v.header.Ledger {
			v.inAnchor(i, BadSignature, entry, "The statement about the restore was not signed by a key of the key set.")
			continue
		}
		v.recovered(told, true)
		named := i > 0 && slices.ContainsFunc(told.Lost, func(l Lost) bool { return l.Hash == records[i-1].Checkpoint.Hash })
		from, to := int64(0), int64(0)
		for before := range i {
			c := records[before].Checkpoint
			if v.seals.byN[c.N] == c.Hash || lost[before] || c.N < v.header.After.N || !named && c.N <= told.Kept.N {
				continue
			}
			lost[before] = true
			if from == 0 {
				from = c.N
			}
			to = c.N
		}
		v.report.note("Rolled back and recovered at %s: the ledger was put back, and had kept checkpoint %d (event %d). %s", told.At.Format(time.RFC3339), told.Kept.N, told.Kept.Seq, lostText(told.Lost))
		if from > 0 {
			v.report.note("The checkpoints %d to %d of the anchor are not in the ledger any more; what they covered is lost from it.", from, to)
		}
	}
	return lost
}

func lostText(lost []Lost) string {
	if len(lost) == 0 {
		return "No anchor held more."
	}
	held := make([]string, len(lost))
	for i, l := range lost {
		held[i] = fmt.Sprintf("The anchor %s held checkpoint %d (event %d) of %s.", l.Anchor, l.N, l.Seq, l.At.Format(time.RFC3339))
	}
	return strings.Join(held, " ")
}

func (v *verifier) inAnchor(i int, kind Kind, entry, format string, args ...any) {
	v.report.add(Finding{Kind: kind, In: inAnchor, Line: i + 1, Entry: entry, Text: fmt.Sprintf(format, args...)})
}
