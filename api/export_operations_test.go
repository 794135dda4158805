package api_test

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"countersign/ledger"
)

// The export is every operation that matches, in either form, also over more
// pages than one.
func TestExport(t *testing.T) {
	r := newRig(t)
	doubt := r.doubt()
	table := func(query string) [][]string {
		a := r.want(get("/v1/operations/export"+query, "").as(r.ann), 200, "")
		require.Equal(t, "text/csv; charset=utf-8", a.Header.Get("Content-Type"))
		require.Equal(t, `attachment; filename="operations.csv"`, a.Header.Get("Content-Disposition"))
		rows, err := csv.NewReader(strings.NewReader(a.text)).ReadAll()
		require.NoError(t, err)
		return rows
	}
	require.Equal(t, "id", table("")[0][0])
	require.Equal(t, doubt, table("?state=unknown&tool=send_letter")[1][0])
	require.Equal(t, doubt, table("?state=unknown&tool=&format=csv")[1][0], "as the page links to it")
	require.Len(t, table("?state=unknown&tool=hold_order"), 1)

	// Lists that give one operation at a time make many pages.
	other := r.refund("c-1", 1)
	r.store.pages(1)
	require.Len(t, table(""), 3)
	a := r.want(get("/v1/operations/export?format=jsonl", "").as(r.ann), 200, "")
	require.Equal(t, "application/jsonl", a.Header.Get("Content-Type"))
	lines := strings.Split(strings.TrimSuffix(a.text, "\n"), "\n")
	require.Len(t, lines, 2)
	for i, id := range []string{doubt, other} { // oldest first
		var op struct{ ID string }
		require.NoError(t, json.Unmarshal([]byte(lines[i]), &op))
		require.Equal(t, id, op.ID)
	}

	// What can't be read to its end is broken off, not cut short.
	r.store.breakList(2, errors.New("gone"))
	req, err := http.NewRequest(http.MethodGet, r.server.URL+"/v1/operations/export?format=jsonl", nil)
	require.NoError(t, err)
	req.AddCookie(r.ann)
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	_, err = io.ReadAll(res.Body)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	r.store.breakList(1, errors.New("gone"))
	r.want(get("/v1/operations/export", "").as(r.ann), 503, "store_unavailable")
}

// A text that a spreadsheet would run stands as text in the table.
func TestExport_NoFormula(t *testing.T) {
	r := newRig(t)
	for _, text := range []string{"=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "＝1", `=HYPERLINK("http://x","y")`} {
		r.store.eachOperation(func(op *ledger.Operation) { op.Reason = &ledger.Reason{Code: "x", Text: text} })
		r.refund("c-"+ledger.NewID("c"), 1)
		a := r.want(get("/v1/operations/export", "").as(r.ann), 200, "")
		rows, err := csv.NewReader(strings.NewReader(a.text)).ReadAll()
		require.NoError(t, err)
		require.Equal(t, "'"+text, rows[1][9])
	}
	r.store.eachOperation(func(op *ledger.Operation) { op.Reason = &ledger.Reason{Text: "a=1, 'b'\r\n\"c\""} })
	rows, err := csv.NewReader(strings.NewReader(r.want(get("/v1/operations/export", "").as(r.ann), 200, "").text)).ReadAll()
	require.NoError(t, err)
	require.Equal(t, "a=1, 'b'\n\"c\"", rows[1][9])
}
