package sqlstore

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"math"

	"countersign/ledger"
)

const (
	defaultPage = 50
	maxPage     = 200
)

// List implements ledger.Store. Pages follow the order of birth, so that a page
// never moves under the reader, whatever is opened meanwhile.
func (db *DB) List(ctx context.Context, f ledger.Filter) (ledger.Page, error) {
	if f.Tenant == "" {
		return ledger.Page{}, errors.New("sqlstore: a list needs a tenant")
	}
	switch {
	case f.Limit <= 0:
		f.Limit = defaultPage
	case f.Limit > maxPage:
		f.Limit = maxPage
	}
	after, err := readCursor(f)
	if err != nil {
		return ledger.Page{}, err
	}
	text, args := listing(f, after, f.Limit+1)
	type listed struct {
		row int64
		op  ledger.Operation
	}
	found, err := all(db.readerOnce(ctx), func(rows *sql.Rows) (l listed, err error) {
		var doc string
		if err = rows.Scan(&l.row, &doc); err == nil {
			err = decode(doc, &l.op)
		}
		return l, err
	}, text, args...)
	if err != nil {
		return ledger.Page{}, err
	}
	var page ledger.Page
	if len(found) > f.Limit {
		found = found[:f.Limit]
		page.Next = writeCursor(f, found[f.Limit-1].row)
	}
	for _, l := range found {
		page.Operations = append(page.Operations, l.op)
	}
	return page, nil
}

// cursor is a place in a list. Readers must not look inside.
type cursor struct {
	Version int   `json:"v"`
	Row     int64 `json:"n"`
	Oldest  bool  `json:"o,omitempty"`
}

func writeCursor(f ledger.Filter, row int64) string {
	b, err := json.Marshal(cursor{Version: 1, Row: row, Oldest: f.OldestFirst})
	if err != nil {
		panic(err) // numbers and a bool always marshal
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// readCursor gives the row behind which the page begins.
func readCursor(f ledger.Filter) (int64, error) {
	if f.Cursor == "" {
		if f.OldestFirst {
			return math.MinInt64, nil
		}
		return math.MaxInt64, nil
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(f.Cursor)
	if err != nil {
		return 0, ledger.ErrBadCursor
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	var c cursor
	if err := d.Decode(&c); err != nil || c.Version != 1 || c.Row <= 0 || c.Oldest != f.OldestFirst {
		return 0, ledger.ErrBadCursor
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return 0, ledger.ErrBadCursor
	}
	if writeCursor(f, c.Row) != f.Cursor {
		return 0, ledger.ErrBadCursor // one place has one spelling
	}
	return c.Row, nil
}
