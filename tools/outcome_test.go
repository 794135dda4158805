package tools_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"countersign/tools"
)

func planned(t testing.TB, m *tools.Manifest) tools.Plan {
	t.Helper()
	plan, _, err := m.Plan(callOf(t, m, shipArgs), shipReplies(t))
	require.NoError(t, err)
	return plan
}

func TestManifest_Judge(t *testing.T) {
	m := parse(t, everything)
	plan := planned(t, m)
	for name, tt := range map[string]struct {
		reply   tools.Reply
		verdict tools.Verdict
		id      string
	}{
		"done":                          {tools.Reply{Status: 200, Body: value(t, `{"state":"shipped","id":88}`)}, tools.Succeeded, "88"},
		"done, other status":            {tools.Reply{Status: 201, Body: value(t, `{"state":"shipped","id":88}`)}, tools.Succeeded, "88"},
		"condition does not hold":       {tools.Reply{Status: 200, Body: value(t, `{"state":"open","id":88}`)}, tools.Unknown, ""},
		"form":                          {tools.Reply{Status: 200, Body: value(t, `{"state":"shipped","id":"88"}`)}, tools.Unknown, ""},
		"no id":                         {tools.Reply{Status: 200, Body: value(t, `{"state":"shipped"}`)}, tools.Unknown, ""},
		"no body":                       {tools.Reply{Status: 200}, tools.Unknown, ""},
		"unreadable":                    {tools.Reply{Status: 200, Unreadable: "it is text/html, not JSON."}, tools.Unknown, ""},
		"incomplete":                    {tools.Reply{Status: 200, Body: value(t, `{"state":"shipped","id":88}`), Incomplete: "it broke off."}, tools.Unknown, ""},
		"rejected":                      {tools.Reply{Status: 422, Body: value(t, `{"message":"No."}`)}, tools.NoEffect, ""},
		"rejected by the body":          {tools.Reply{Status: 200, Body: value(t, `{"state":"refused","id":1}`)}, tools.NoEffect, ""},
		"rejected for certain":          {tools.Reply{Status: 409}, tools.NoEffect, ""},
		"rejection of another form":     {tools.Reply{Status: 422, Body: value(t, `{"error":"No."}`)}, tools.Unknown, ""},
		"rejection that is unreadable":  {tools.Reply{Status: 404, Unreadable: "it is text/html, not JSON."}, tools.Unknown, ""},
		"rejection that is incomplete":  {tools.Reply{Status: 422, Body: value(t, `{"message":"No."}`), Incomplete: "it broke off."}, tools.Unknown, ""},
		"status that is not declared":   {tools.Reply{Status: 202, Body: value(t, `{"state":"shipped","id":88}`)}, tools.Unknown, ""},
		"400, which nothing is said of": {tools.Reply{Status: 400, Body: value(t, `{"message":"No."}`)}, tools.Unknown, ""},
		"redirect":                      {tools.Reply{Status: 307}, tools.Unknown, ""},
		"server error":                  {tools.Reply{Status: 500}, tools.Unknown, ""},
	} {
		t.Run(name, func(t *testing.T) {
			out := m.Judge(plan, tt.reply)
			require.Equal(t, tt.verdict, out.Verdict, "%+v", out)
			require.Equal(t, tt.id, out.EffectID)
			if tt.verdict != tools.Succeeded {
				require.NotEmpty(t, out.Because)
				require.Nil(t, out.Result)
				return
			}
			require.Equal(t, map[string]any{"state": "shipped", "count": number("2")}, out.Result, "reads are those of the preview")
		})
	}
}

// Every status that is declared as nothing is unknown, whatever the body says.
func TestManifest_Judge_everyStatus(t *testing.T) {
	m := parse(t, smallest)
	plan, _, err := m.Plan(callOf(t, m, `{"order_id":"o"}`), map[string]tools.Reply{"order": ok(t, `{"status":"open"}`)})
	require.NoError(t, err)
	for status := 100; status < 1000; status++ {
		out := m.Judge(plan, tools.Reply{Status: status, Body: value(t, `{"id":"x","message":"y"}`)})
		want := tools.Unknown
		if status == 201 {
			want = tools.Succeeded
		}
		require.Equal(t, want, out.Verdict, status)
	}
}

// I8: what is no id proves nothing, however well the rest of the answer looks.
func TestManifest_Judge_effectID(t *testing.T) {
	m := parse(t, smallest)
	plan, _, err := m.Plan(callOf(t, m, `{"order_id":"o"}`), map[string]tools.Reply{"order": ok(t, `{"status":"open"}`)})
	require.NoError(t, err)
	for id, want := range map[string]tools.Verdict{
		`"hold_1"`: tools.Succeeded, `7`: tools.Succeeded,
		`""`: tools.Unknown, `"  "`: tools.Unknown, `"a\nb"`: tools.Unknown, `"a\u200bb"`: tools.Unknown,
		`7.5`: tools.Unknown, `true`: tools.Unknown, `null`: tools.Unknown, `["hold_1"]`: tools.Unknown, `{"id":1}`: tools.Unknown,
		`"` + strings.Repeat("x", 513) + `"`: tools.Unknown,
	} {
		out := m.Judge(plan, tools.Reply{Status: 201, Body: value(t, `{"id":`+id+`}`)})
		require.Equal(t, want, out.Verdict, id)
	}
}

// A status can be both only through conditions; when both hold nothing is proved.
func TestManifest_Judge_both(t *testing.T) {
	m := parse(t, base(t, `rejected: {status: [422], because: "${body.message}"}`, `rejected: {status: [201], when: body.bad == true, because: "Bad."}`))
	plan, _, err := m.Plan(callOf(t, m, `{"case":"c","payment_id":"pay_1","amount":5}`),
		map[string]tools.Reply{"payment": ok(t, `{"refundable":5,"refunded":0,"currency":"EUR"}`)})
	require.NoError(t, err)
	verdict := func(body string) tools.Verdict {
		return m.Judge(plan, tools.Reply{Status: 201, Body: value(t, body)}).Verdict
	}
	require.Equal(t, tools.Succeeded, verdict(`{"id":"re_1","state":"pending","bad":false}`))
	require.Equal(t, tools.NoEffect, verdict(`{"bad":true}`))
	require.Equal(t, tools.Unknown, verdict(`{"id":"re_1","state":"pending","bad":true}`))
	require.Equal(t, tools.Succeeded, verdict(`{"id":"re_1","state":"pending"}`), "a condition that can't be evaluated does not hold")
}

// An upstream's reason is cut, not trusted.
func TestManifest_Judge_longReason(t *testing.T) {
	m := parse(t, everything)
	out := m.Judge(planned(t, m), tools.Reply{Status: 422, Body: map[string]any{"message": strings.Repeat("é", 5000)}})
	require.Equal(t, tools.NoEffect, out.Verdict)
	require.Len(t, []rune(out.Because), 501)
}

func TestManifest_JudgeLookup(t *testing.T) {
	m := parse(t, everything)
	plan := planned(t, m)
	req, err := m.LookupRequest(plan)
	require.NoError(t, err)
	require.Equal(t, "/orders/ord_1/shipments?key=0e6f6a1e-0000-5000-8000-000000000001", req.Path)
	require.True(t, req.EffectFree)
	for name, tt := range map[string]struct {
		reply tools.Reply
		kind  tools.AnswerKind
		ids   []string
	}{
		"none":           {tools.Reply{Status: 200, Body: value(t, `{"items":[]}`)}, tools.Absent, nil},
		"not found":      {tools.Reply{Status: 404, Body: value(t, `{}`)}, tools.Absent, nil},
		"one":            {tools.Reply{Status: 200, Body: value(t, `{"items":[{"id":7}]}`)}, tools.Present, []string{"7"}},
		"one, twice":     {tools.Reply{Status: 200, Body: value(t, `{"items":[{"id":"a"},{"id":"a"}]}`)}, tools.Present, []string{"a"}},
		"two":            {tools.Reply{Status: 200, Body: value(t, `{"items":[{"id":"a"},{"id":"b"}]}`)}, tools.BrokenPromise, []string{"a", "b"}},
		"not yet":        {tools.Reply{Status: 200, Headers: map[string]string{"x-lag": "yes"}, Body: value(t, `{"items":[]}`)}, tools.NotVisibleYet, nil},
		"other status":   {tools.Reply{Status: 500, Body: value(t, `{"items":[]}`)}, tools.LookupFailed, nil},
		"no list":        {tools.Reply{Status: 200, Body: value(t, `{"items":null}`)}, tools.LookupFailed, nil},
		"no items":       {tools.Reply{Status: 200, Body: value(t, `{}`)}, tools.LookupFailed, nil},
		"empty body":     {tools.Reply{Status: 200}, tools.LookupFailed, nil},
		"id of no kind":  {tools.Reply{Status: 200, Body: value(t, `{"items":[{"id":null}]}`)}, tools.LookupFailed, nil},
		"unreadable":     {tools.Reply{Status: 200, Unreadable: "it is text/html, not JSON."}, tools.LookupFailed, nil},
		"404, no JSON":   {tools.Reply{Status: 404, Unreadable: "it is text/html, not JSON."}, tools.LookupFailed, nil},
		"incomplete":     {tools.Reply{Status: 200, Body: value(t, `{"items":[]}`), Incomplete: "it broke off."}, tools.LookupFailed, nil},
		"one of no kind": {tools.Reply{Status: 200, Body: value(t, `{"items":[{"id":"a"},{}]}`)}, tools.LookupFailed, nil},
	} {
		if tt.reply.Headers == nil {
			tt.reply.Headers = map[string]string{}
		}
		got := m.JudgeLookup(plan, tt.reply)
		require.Equal(t, tt.kind, got.Kind, "%s: %+v", name, got)
		if tt.ids != nil {
			require.Equal(t, tt.ids, got.EffectIDs, name)
		}
		if tt.kind != tools.Absent && tt.kind != tools.Present {
			require.NotEmpty(t, got.Because, name)
		}
	}
	require.True(t, m.HasDone())
	require.Equal(t, tools.Present, m.JudgeDone(plan, tools.Reply{Status: 200, Body: value(t, `{"items":[{"id":"a"}]}`)}).Kind)
	require.Equal(t, tools.LookupFailed, m.JudgeDone(plan, tools.Reply{Status: 404, Body: value(t, `{"items":[]}`)}).Kind, "the default answer is 200")

	none := parse(t, smallest)
	require.False(t, none.HasLookup())
	require.False(t, none.HasDone())
	_, err = none.LookupRequest(plan)
	require.Error(t, err)
}

func TestManifest_UndoOf(t *testing.T) {
	m := parse(t, everything)
	plan := planned(t, m)
	result := map[string]any{"state": "shipped", "count": number("2")}
	u, err := m.UndoOf(plan, "88", result)
	require.NoError(t, err)
	require.Equal(t, tools.Undo{
		Tool: "recall_parcels", Possible: true,
		Args: map[string]any{"shipment": "88", "count": number("2"), "first": "parcel/p1"},
	}, u)

	u, err = m.UndoOf(plan, "88", map[string]any{"state": "delivered", "count": number("2")})
	require.NoError(t, err)
	require.False(t, u.Possible)
	require.Contains(t, u.Because, "only while")
	require.Nil(t, u.Args)

	u, err = m.UndoOf(plan, "88", nil)
	require.NoError(t, err, "what can't be evaluated does not hold")
	require.False(t, u.Possible)
	require.NotEmpty(t, u.Because)

	u, err = parse(t, smallest).UndoOf(plan, "88", nil)
	require.NoError(t, err)
	require.False(t, u.Possible)
}

func TestFormatMoney(t *testing.T) {
	for _, tt := range []struct {
		minor int64
		code  string
		want  string
	}{
		{12000, "EUR", "120.00 EUR"},
		{5, "EUR", "0.05 EUR"},
		{0, "EUR", "0.00 EUR"},
		{-12345, "EUR", "-123.45 EUR"},
		{123456789, "USD", "1,234,567.89 USD"},
		{1500, "JPY", "1,500 JPY"},
		{1500, "KWD", "1.500 KWD"},
		{-9223372036854775808, "EUR", "-92,233,720,368,547,758.08 EUR"},
		{1500, "QQQ", "1,500 minor units of QQQ"},
	} {
		got, err := tools.FormatMoney(tt.minor, tt.code)
		require.NoError(t, err)
		require.Equal(t, tt.want, got)
	}
	for _, code := range []string{"", "eur", "EURO", "E1R", "€"} {
		_, err := tools.FormatMoney(1, code)
		require.Error(t, err, code)
	}
}

// The reads that later expressions need travel with the plan, and no others.
func TestManifest_Plan_keepsReads(t *testing.T) {
	for text, want := range map[string]bool{
		everything: true,
		smallest:   false,
		strings.Replace(smallest, `effect_id: "${body.id}"`, `effect_id: "${reads.order.body.id}/${body.id}"`, 1): true,
		smallest + "lookup: {get: \"/x/${reads.order.body.id}\", found: body.items}\n":                            true,
	} {
		m := parse(t, text)
		args, replies := `{"order_id":"ord_1"}`, map[string]tools.Reply{"order": ok(t, `{"status":"open","id":"o"}`)}
		if text == everything {
			args, replies = shipArgs, shipReplies(t)
		}
		plan, _, err := m.Plan(callOf(t, m, args), replies)
		require.NoError(t, err)
		require.Equal(t, want, plan.Reads["order"] != nil, fmt.Sprintf("%.60s", text))
	}
}
