package sqlstore

import (
	"bytes"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"countersign/ledger"
	"countersign/tools"
)

// encode makes the JSON of a document. Characters of HTML stay as they are, so
// that raw JSON inside (a plan's wire) keeps its bytes.
func encode(v any) (string, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return "", fmt.Errorf("sqlstore: encode %T: %w", v, err)
	}
	return string(bytes.TrimSuffix(b.Bytes(), []byte("\n"))), nil
}

// decode reads a document back. Numbers of no fixed type stay json.Number, with
// every digit that they had.
func decode(doc string, v any) error {
	d := json.NewDecoder(bytes.NewReader([]byte(doc)))
	d.UseNumber()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("sqlstore: decode %T: %w", v, err)
	}
	return nil
}

// document scans a row of one column, doc.
func document[T any](rows *sql.Rows) (v T, err error) {
	doc, err := column[string](rows)
	if err == nil {
		err = decode(doc, &v)
	}
	return v, err
}

// planDoc keeps Wire as text: encoding/json would tidy up raw JSON, and a wire
// is handed back byte for byte.
type planDoc struct {
	tools.Plan
	Wire string `json:"wire"`
}

func newPlanDoc(p tools.Plan) planDoc { return planDoc{Plan: p, Wire: string(p.Wire)} }

func (d planDoc) plan() tools.Plan {
	p := d.Plan
	p.Wire = nil
	if d.Wire != "" {
		p.Wire = json.RawMessage(d.Wire)
	}
	return p
}

// previewDoc is a preview with its plan as planDoc.
type previewDoc struct {
	ledger.Preview
	Plan planDoc `json:"plan"`
}

func newPreviewDoc(p ledger.Preview) previewDoc {
	return previewDoc{Preview: p, Plan: newPlanDoc(p.Plan)}
}

func (d previewDoc) preview() ledger.Preview {
	p := d.Preview
	p.Plan = d.Plan.plan()
	return p
}

// hash is SHA-256 over the parts, each preceded by its length.
func hash(parts ...string) [sha256.Size]byte {
	var b []byte
	for _, p := range parts {
		b = binary.BigEndian.AppendUint64(b, uint64(len(p)))
		b = append(b, p...)
	}
	return sha256.Sum256(b)
}

// ref is a 16-byte key for an index over texts that would be too wide for it.
// Where a collision would matter, the statement compares the texts as well.
func ref(parts ...string) []byte {
	sum := hash(parts...)
	return sum[:16]
}

// slotRef is the indexed name of one key of one tenant. It is made from the
// key's digest, because a commit token carries no more.
func slotRef(tenant, keyDigest string) []byte { return ref(tenant, keyDigest) }

// writeRef is an 8-byte key for an index of write ids; the id is compared too.
func writeRef(writeID string) int64 {
	sum := hash(writeID)
	return int64(binary.BigEndian.Uint64(sum[:8])) //nolint:gosec // any bits will do
}

// nanos is a time as a column holds it: nanoseconds since 1970. Years that
// don't fit (before 1678, after 2261) become the nearest that does.
func nanos(t time.Time) int64 {
	switch y := t.Year(); {
	case y < 1678:
		return math.MinInt64
	case y > 2261:
		return math.MaxInt64
	}
	return t.UnixNano()
}

// some is a column that is NULL unless the condition holds.
func some(when bool, v any) any {
	if !when {
		return nil
	}
	return v
}

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
