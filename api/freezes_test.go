package api_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"countersign/ledger"
)

func (r *rig) freezes(body string) call { return post("/v1/freezes", "", body).as(r.ann) }
func (r *rig) lift(body string) call    { return post("/v1/freezes/lift", "", body).as(r.ann) }

// A freeze is in force when it is answered, and says what was sent before; the
// way back leads past what is unknown (I14).
func TestFreezes_Flow(t *testing.T) {
	r := newRig(t)
	doubt := r.doubt()
	token := r.preview("ord_1001").str("commit_token")
	require.Equal(t, []any{}, r.want(get("/v1/freezes", "").as(r.ann), 200, "").doc["freezes"])

	f := r.want(r.freezes(`{"scope":{"tool":"send_letter"},"level":"all","reason":"letters come twice"}`), 200, "")
	require.Equal(t, map[string]any{"tool": "send_letter"}, f.doc["scope"])
	require.Equal(t, "ann", f.str("by", "name"))
	require.Equal(t, doubt, asList(f.doc["unknown"])[0].(map[string]any)["id"])
	r.want(r.spend("hold_order", r.clerk, token), 200, "") // another tool

	r.want(r.freezes(`{"scope":{"tenant":true},"level":"new","reason":"a migration"}`), 200, "")
	next := r.preview("ord_1002").str("commit_token") // a preview changes nothing
	r.want(r.spend("hold_order", r.clerk, next), 423, "tool_frozen")
	stricter := r.want(r.freezes(`{"scope":{"tenant":true},"level":"all","reason":"worse"}`), 200, "")
	require.Equal(t, "all", stricter.str("level"))
	kept := r.want(r.freezes(`{"scope":{"tenant":true},"level":"new","reason":"looser"}`), 200, "")
	require.Equal(t, "all", kept.str("level"), "never loosened")
	require.Equal(t, "worse", kept.str("reason"))
	r.want(r.freezes(`{"scope":{"everything":true},"level":"all","reason":"stop"}`), 200, "")
	require.Len(t, r.want(get("/v1/freezes", "").as(r.bob), 200, "").doc["freezes"], 3)

	r.want(r.lift(`{"scope":{"tool":"send_letter"},"reason":"fixed"}`), 409, "unknowns_open")
	rest := r.want(r.lift(`{"scope":{"tool":"send_letter"},"reason":"looked","override":true}`), 200, "")
	require.Len(t, rest.doc["freezes"], 2)
	r.want(r.lift(`{"scope":{"tool":"send_letter"},"reason":"again"}`), 404, "freeze_not_found")
	r.want(post("/v1/operations/"+doubt+"/resolve", "", `{"outcome":"did_not_happen","reason":"looked"}`).as(r.ann), 200, "")
	r.want(r.lift(`{"scope":{"everything":true},"reason":"over"}`), 200, "")
	require.Equal(t, []any{}, r.want(r.lift(`{"scope":{"tenant":true},"reason":"over"}`), 200, "").doc["freezes"])
	r.want(r.spend("hold_order", r.clerk, next), 200, "")

	// Newest first, page by page, and the pages are the whole.
	var told []string
	path := "/v1/freezes/history?limit=2"
	for path != "" {
		page := r.want(get(path, "").as(r.ann), 200, "")
		for _, c := range asList(page.doc["changes"]) {
			change := answer{doc: c.(map[string]any)}
			told = append(told, fmt.Sprint(change.str("what"), change.at("scope"), change.str("level"), change.at("unknown")))
		}
		path = ""
		if next := page.str("next_cursor"); next != "" {
			path = "/v1/freezes/history?limit=2&cursor=" + next
		}
	}
	require.Equal(t, []string{
		"unfreezemap[tenant:true]0", "unfreezemap[everything:true]0", "unfreezemap[tool:send_letter]1",
		"freezemap[everything:true]all0", "freezemap[tenant:true]all0", "freezemap[tenant:true]new0", "freezemap[tool:send_letter]all0",
	}, told)
}

func TestFreezes_Refused(t *testing.T) {
	r := newRig(t)
	before, err := r.ledger.Guard(context.Background(), tenant)
	require.NoError(t, err)
	for _, tool := range []string{"no_such", "get_order"} {
		r.want(r.freezes(`{"scope":{"tool":"`+tool+`"},"level":"all","reason":"r"}`), 404, "tool_not_found")
	}
	for _, scope := range []string{`{}`, `{"tenant":false}`, `{"everything":false}`, `{"tool":""}`, `{"tenant":true,"everything":true}`, `{"tool":"hold_order","tenant":true}`} {
		r.want(r.freezes(`{"scope":`+scope+`,"level":"all","reason":"r"}`), 422, "decision_invalid")
		r.want(r.lift(`{"scope":`+scope+`,"reason":"r"}`), 422, "decision_invalid")
	}
	r.want(r.freezes(`{"scope":{"tenant":true},"level":"some","reason":"r"}`), 422, "decision_invalid")
	for _, reason := range []string{``, ` `, "\u00a0"} {
		r.want(r.freezes(`{"scope":{"tenant":true},"level":"all","reason":"`+reason+`"}`), 422, "decision_invalid")
		r.want(r.lift(`{"scope":{"tenant":true},"reason":"`+reason+`"}`), 422, "decision_invalid")
	}
	after, err := r.ledger.Guard(context.Background(), tenant)
	require.NoError(t, err)
	require.Equal(t, before, after)
}

// A freeze that comes while another is lifted stays, and says so.
func TestFreezes_Meanwhile(t *testing.T) {
	r := newRig(t)
	r.want(r.freezes(`{"scope":{"tool":"hold_order"},"level":"new","reason":"first"}`), 200, "")
	r.store.before(func() {
		_, err := r.ledger.Freeze(context.Background(), ledger.Scope{Tenant: tenant, Tool: "hold_order"}, ledger.FreezeAll, ledger.Gateway("test"), "second")
		require.NoError(t, err)
	})
	r.want(r.lift(`{"scope":{"tool":"hold_order"},"reason":"over"}`), 423, "tool_frozen")
	now := asList(r.want(get("/v1/freezes", "").as(r.ann), 200, "").doc["freezes"])
	require.Len(t, now, 1)
	require.Equal(t, "second", now[0].(map[string]any)["reason"])
}

func TestFreezes_WritesFail(t *testing.T) {
	for _, trouble := range writeTroubles {
		t.Run(trouble.code, func(t *testing.T) {
			r := newRig(t)
			r.want(r.freezes(`{"scope":{"tenant":true},"level":"new","reason":"r"}`), 200, "")
			r.store.set(nil, trouble.err, trouble.lost)
			r.want(r.freezes(`{"scope":{"tool":"hold_order"},"level":"new","reason":"r"}`), trouble.status, trouble.code)
			r.want(r.lift(`{"scope":{"tenant":true},"reason":"r"}`), trouble.status, trouble.code)
			r.store.set(nil, nil, false)
			require.Len(t, r.want(get("/v1/freezes", "").as(r.ann), 200, "").doc["freezes"], 1)
		})
	}
}
