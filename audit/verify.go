package audit

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"
	"strings"

	"countersign/ledger"
	"countersign/tokens"
)

// VerifyOptions say what an export is held against.
type VerifyOptions struct {
	// Keys are those that the auditor trusts. Nil takes them from the export: that
	// shows damage, not a forger who signed with keys of their own.
	Keys tokens.PublicKeys
	// Anchor are the records of an anchor, oldest first.
	Anchor []Record
}

// ErrNotAnExport: the text is no export, or one of another format.
var ErrNotAnExport = errors.New("this is not an export that this program can verify")

// maxLine bounds one line of an export.
const maxLine = 32 << 20

// verifier reads an export from its first line to its last. Its memory grows with
// the number of operations and checkpoints, not with that of events.
type verifier struct {
	report Report
	keys   tokens.PublicKeys
	header Header
	n      int // the line
	stage  int
	sum    hash.Hash
	footer bool

	guards guardRows
	chain  chain
	seals  seals
	rows   rows
}

// Verify checks an export, without the ledger and without a network. What is wrong
// is in the report; an error means that there is nothing to check.
func Verify(in io.Reader, o VerifyOptions) (Report, error) {
	v := &verifier{sum: sha256.New(), keys: o.Keys}
	v.report.Counts = map[string]int64{}
	v.report.Trusted = o.Keys != nil
	lines := bufio.NewReaderSize(in, 64<<10)
	for {
		text, err := readLine(lines)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return v.report, err
		}
		v.n++
		if err := v.line(text); err != nil {
			return v.report, err
		}
	}
	if v.n == 0 {
		return v.report, ErrNotAnExport
	}
	v.finish()
	v.anchor(o.Anchor)
	v.sortFindings()
	v.report.OK = len(v.report.Findings) == 0
	return v.report, nil
}

// readLine reads one line with its end; the last may lack it.
func readLine(r *bufio.Reader) ([]byte, error) {
	var text []byte
	for {
		part, err := r.ReadSlice('\n')
		text = append(text, part...)
		switch {
		case len(text) > maxLine:
			return nil, fmt.Errorf("%w: a line is longer than %d bytes", ErrNotAnExport, maxLine)
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && len(text) > 0:
			return text, nil
		}
		return text, err
	}
}

// bad adds a finding about the line that is being read.
func (v *verifier) bad(kind Kind, entry, format string, args ...any) (place int) {
	return v.badAt(v.n, kind, entry, format, args...)
}

// badAt adds a finding and gives its place in the list; below zero when the list
// is full.
func (v *verifier) badAt(n int, kind Kind, entry, format string, args ...any) (place int) {
	return v.report.add(Finding{Kind: kind, In: inExport, Line: n, Entry: entry, Text: fmt.Sprintf(format, args...)})
}

// become makes a finding one of another kind, once more is known.
func (v *verifier) become(place int, kind Kind, format string, args ...any) {
	if place >= 0 {
		v.report.Findings[place].Kind, v.report.Findings[place].Text = kind, fmt.Sprintf(format, args...)
	}
}

// stages give the order in which lines stand.
var stages = map[string]int{
	kindHeader: 1, kindGuard: 2, kindEvent: 3, kindCheckpoint: 3,
	kindOperation: 4, kindPlan: 4, kindDecision: 4, kindEvidence: 4, kindFooter: 5,
}

// line checks one line.
func (v *verifier) line(text []byte) error {
	l, err := parseLine(text)
	if v.n == 1 {
		if err != nil || l.Kind != kindHeader || l.Header.Format != ExportFormat {
			return ErrNotAnExport
		}
	}
	if err != nil {
		v.sum.Write(text)
		v.bad(Altered, "the line", "It is not a line that an export has: %v.", err)
		return nil
	}
	if l.Kind == kindFooter {
		v.checkFooter(*l.Footer)
		return nil
	}
	v.sum.Write(text)
	v.report.Counts[l.Kind]++
	switch stage := stages[l.Kind]; {
	case v.footer:
		v.bad(Reordered, "a "+l.Kind, "It stands behind the footer.")
	case stage < v.stage:
		v.bad(Reordered, "a "+l.Kind, "It stands behind lines that it must stand before.")
	default:
		if v.stage = stage; stage >= 4 {
			v.endOfEvents()
		}
	}
	switch l.Kind {
	case kindHeader:
		return v.begin(*l.Header)
	case kindGuard:
		v.guard(*l.Guard)
	case kindEvent:
		v.event(*l.Event)
	case kindCheckpoint:
		v.checkpoint(*l.Checkpoint)
	case kindOperation:
		v.operation(*l.Operation)
	case kindPlan:
		v.plan(*l.Plan)
	case kindDecision:
		v.decision(*l.Decision)
	case kindEvidence:
		v.evidence(*l.Evidence)
	}
	return nil
}

// parseLine reads a line that is spelt exactly as Export spells it: nothing unknown,
// repeated or in another case can hide in one.
func parseLine(text []byte) (l line, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	d.DisallowUnknownFields()
	if err := d.Decode(&l); err != nil {
		return l, errors.New("it can't be read")
	}
	there := map[string]bool{
		kindHeader: l.Header != nil, kindGuard: l.Guard != nil, kindEvent: l.Event != nil, kindCheckpoint: l.Checkpoint != nil,
		kindOperation: l.Operation != nil, kindPlan: l.Plan != nil, kindDecision: l.Decision != nil, kindEvidence: l.Evidence != nil,
		kindFooter: l.Footer != nil,
	}
	for kind, is := range there {
		if is != (kind == l.Kind) {
			return l, errors.New("its kind and its content differ")
		}
	}
	if !there[l.Kind] {
		return l, errors.New("its kind is unknown")
	}
	again, err := encodeLine(l)
	if err != nil || !bytes.Equal(again, text) {
		return l, errors.New("it is spelt otherwise than it was exported")
	}
	return l, nil
}

func (v *verifier) begin(h Header) error {
	if v.n > 1 {
		v.bad(Doubled, "the header", "There is more than one header.")
		return nil
	}
	v.header = h
	v.report.Ledger, v.report.MadeAt, v.report.Since = h.Ledger, h.MadeAt, h.Since
	own, err := tokens.ParseJWKS(h.JWKS)
	if err != nil {
		v.bad(Altered, "the header", "Its keys can't be read: %v.", err)
	}
	if v.keys == nil {
		if v.keys = own; v.keys == nil {
			v.keys = tokens.PublicKeys{}
		}
		v.report.note("The keys are those of the export itself. Give the published key set (--jwks) to be sure who signed.")
	}
	v.chain.begin(h)
	v.seals.begin(h)
	if a := h.After; a.N > 0 {
		if a.Digest() != a.Hash || a.Ledger != h.Ledger {
			v.bad(Altered, fmt.Sprintf("checkpoint %d", a.N), "The checkpoint that the export begins behind is not what was signed.")
		} else {
			v.signature(a)
		}
		v.report.note("The export begins behind checkpoint %d (event %d); what lies before is not checked.", a.N, a.Seq)
	}
	return nil
}

// checkFooter compares what the file holds with what was exported.
func (v *verifier) checkFooter(f Footer) {
	if v.footer {
		v.bad(Doubled, "the footer", "There is more than one footer.")
		return
	}
	v.footer = true
	v.endOfEvents()
	lost := false
	for _, kind := range []string{kindHeader, kindGuard, kindEvent, kindCheckpoint, kindOperation, kindPlan, kindDecision, kindEvidence} {
		if have, want := v.report.Counts[kind], f.Counts[kind]; have != want {
			lost = true
			v.bad(Missing, "the footer", "The export was made with %d lines of kind %s; here are %d.", want, kind, have)
		}
	}
	signed := f
	signed.Signature = ""
	payload, _, err := v.keys.Verify(ExportType, f.Signature)
	switch {
	case errors.Is(err, tokens.ErrUnknownKey) && v.report.Trusted:
		v.bad(BadSignature, "the footer", "The export was signed by a key that is not in the key set.")
	case err != nil || string(payload) != string(mustJSON(signed)):
		v.bad(BadSignature, "the footer", "The footer is not what was signed when the export was made.")
	}
	if f.Digest != hex.EncodeToString(v.sum.Sum(nil)) && !lost && len(v.report.Findings) == 0 {
		v.bad(Altered, "the file", "It is not the file that was exported: some line was changed that no chain covers.")
	}
}

// endOfEvents says what can be said once the last event was read.
func (v *verifier) endOfEvents() {
	if !v.chain.ended {
		v.chain.ended = true
		v.report.Newest = v.chain.seq
		v.closeSeals()
	}
}

// finish says what can only be said at the end of the file.
func (v *verifier) finish() {
	v.endOfEvents()
	if !v.footer {
		v.bad(TailCut, "the end of the file", "There is no footer: the export broke off, or its end was cut off.")
	}
	v.closeRow()
	v.closeRows()
}

// sortFindings puts what was found in the file before what was found in the anchor,
// each in the order of its lines.
func (v *verifier) sortFindings() {
	slices.SortStableFunc(v.report.Findings, func(a, b Finding) int {
		return cmp.Or(-strings.Compare(a.In, b.In), cmp.Compare(a.Line, b.Line))
	})
}

// guardRows are the guard rows by tenant.
type guardRows struct {
	tenant string
	last   ledger.Guard
	hashes map[string]map[int64]string
	// restored are the statements about restores that stand in rows.
	restored map[string]bool
}

// guard checks one guard row: the rows of a tenant form a chain.
func (v *verifier) guard(g ledger.Guard) {
	rows := &v.guards
	if rows.hashes == nil {
		rows.hashes, rows.restored = map[string]map[int64]string{}, map[string]bool{}
	}
	entry := fmt.Sprintf("guard row %d of tenant %s", g.Epoch, g.Tenant)
	before := rows.last
	if g.Tenant != rows.tenant {
		if rows.hashes[g.Tenant] != nil {
			v.bad(Reordered, entry, "The rows of the tenant do not stand together.")
		}
		before = ledger.Guard{Tenant: g.Tenant}
		rows.tenant = g.Tenant
	}
	if rows.hashes[g.Tenant] == nil {
		rows.hashes[g.Tenant] = map[int64]string{}
	}
	// Rows that were written before they formed a chain have no hash, and stand
	// before all that do.
	unchained := g.Hash == "" && before.Hash == ""
	switch {
	case !unchained && !g.Intact(g.Prev):
		v.bad(Altered, entry, "It is not what was written.")
	case g.Epoch == before.Epoch:
		v.bad(Doubled, entry, "There are two rows of that epoch.")
	case g.Epoch < before.Epoch:
		v.bad(Reordered, entry, "It stands behind the row %d.", before.Epoch)
	case g.Epoch > before.Epoch+1:
		v.bad(Missing, entry, "The rows %d to %d are missing before it.", before.Epoch+1, g.Epoch-1)
	case g.Prev != before.Hash:
		v.bad(Rewritten, entry, "It does not follow the row before it.")
	}
	v.guardStatement(g, entry)
	rows.hashes[g.Tenant][g.Epoch] = g.Hash
	rows.last = g
}

// guardStatement checks what is signed in a guard row: an override, or a recovery.
// A key that is not published any more is no matter here: the checkpoints cover the
// row.
func (v *verifier) guardStatement(g ledger.Guard, entry string) {
	c := g.Change
	switch {
	case c.What == restoredChange && c.Signature != "":
		v.guards.restored[c.Signature] = true
		r, err := readRecovery(v.keys, c.Signature)
		switch {
		case err != nil && !errors.Is(err, tokens.ErrUnknownKey):
			v.bad(BadSignature, entry, "The statement about the restore is not what was signed.")
		case err != nil:
			// The checkpoints cover the row, and with it what it says.
			if r, err = unverifiedRecovery(c.Signature); err != nil || r.Ledger != v.header.Ledger {
				v.bad(Altered, entry, "Its statement about the restore can't be read, or is about another ledger.")
				return
			}
			v.recovered(r, false)
		case r.Ledger != v.header.Ledger:
			v.bad(Altered, entry, "Its statement about the restore is about another ledger.")
		default:
			v.recovered(r, false)
		}
	case c.Open > 0 && c.Signature != "":
		payload, _, err := v.keys.Verify(OverrideType, c.Signature)
		if err == nil && string(payload) != string(g.Statement()) || errors.Is(err, tokens.ErrBadStatement) {
			v.bad(BadSignature, entry, "The signature of the override is not over this row.")
		}
	case c.Open > 0:
		v.report.note("%s lifted a freeze over %d unknown outcomes without a signature.", entry, c.Open)
	}
}

// recovered lists a recovery once.
func (v *verifier) recovered(r Recovery, anchored bool) {
	for i := range v.report.Recoveries {
		if there := &v.report.Recoveries[i]; there.At.Equal(r.At) && there.Kept == r.Kept {
			there.Anchored = there.Anchored || anchored
			return
		}
	}
	v.report.Recoveries = append(v.report.Recoveries, Recovered{Recovery: r, Anchored: anchored})
}
