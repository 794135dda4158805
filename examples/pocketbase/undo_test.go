package pocketbase_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"countersign/fault"
	"countersign/tools"
)

func TestUndo_Create(t *testing.T) {
	b := newBench(t)
	plan, out := b.do("create_customer", `{"reference":"C-2","name":"Bo","email":"bo@example.com","plan":"team","seats":2}`)
	back, err := b.undo(plan, out.EffectID, out.Result)
	require.NoError(t, err)
	require.Equal(t, "delete", back.Effects[0].Verb)
	require.Equal(t, tools.Succeeded, b.send(back).Verdict)
	require.Empty(t, b.server.customers())
}

func TestUndo_Change(t *testing.T) {
	b := newBench(t)
	ada := b.server.add("C-1", "Ada", "free", 3)
	plan, out := b.do("change_customer", `{"case":"4711","id":"`+ada["id"].(string)+`","seats":5,"plan":"team","name":"Ada L."}`)
	require.NotEqual(t, values(ada), values(b.server.record(ada["id"].(string))))
	back, err := b.undo(plan, out.EffectID, out.Result)
	require.NoError(t, err)
	require.Equal(t, plan.Effects[0].Before, back.Effects[0].After)
	require.Equal(t, plan.Effects[0].After, back.Effects[0].Before)
	require.Equal(t, tools.Succeeded, b.send(back).Verdict)
	require.Equal(t, values(ada), values(b.server.record(ada["id"].(string))))
}

// A deleted customer comes back with its id and values. Its times are new: the
// undo says so.
func TestUndo_Delete(t *testing.T) {
	b := newBench(t)
	ada := b.server.add("C-1", "Ada", "free", 3)
	plan, out := b.do("delete_customer", `{"id":"`+ada["id"].(string)+`"}`)
	require.Empty(t, b.server.customers())
	require.Contains(t, plan.UndoText, "created and updated are new")
	back, err := b.undo(plan, out.EffectID, out.Result)
	require.NoError(t, err)
	require.Equal(t, plan.Effects[0].Before, back.Effects[0].After)
	again := b.send(back)
	require.Equal(t, tools.Succeeded, again.Verdict, again.Because)
	restored := b.server.record(ada["id"].(string))
	require.Equal(t, values(ada), values(restored))
	require.NotEqual(t, ada["created"], restored["created"])
}

// What was found by lookup only has no result; it can be undone all the same.
func TestUndo_AfterLostReply(t *testing.T) {
	eachWrite(t, func(t *testing.T, b *bench, plan tools.Plan, done func() bool) {
		before := b.server.customers()
		b.line.Fail(loseReply)
		require.Equal(t, tools.Unknown, b.send(plan).Verdict)
		require.True(t, done())
		back, err := b.undo(plan, b.lookup(plan).EffectIDs[0], nil)
		require.NoError(t, err)
		require.Equal(t, tools.Succeeded, b.send(back).Verdict)
		after := b.server.customers()
		require.Len(t, after, len(before))
		for i := range before {
			require.Equal(t, before[i]["id"], after[i]["id"])
			require.Equal(t, values(before[i]), values(after[i]))
		}
	})
}

// An undo never runs over what somebody did since.
func TestUndo_RefusesWhatWasChangedSince(t *testing.T) {
	for _, tool := range []string{"create_customer", "change_customer"} {
		t.Run(tool, func(t *testing.T) {
			b := newBench(t)
			plan, out := b.do(tool, writes(b)[tool].args)
			id := out.Result["id"]
			if tool == "change_customer" {
				id = plan.Args["id"]
			}
			b.server.change(id.(string), map[string]any{"email": "new@example.com"})
			_, err := b.undo(plan, out.EffectID, out.Result)
			var refused *fault.Error
			require.True(t, errors.As(err, &refused), "%v", err)
			require.Equal(t, fault.ToolRefused, refused.Code)
			require.Equal(t, "The customer was changed since.", refused.Detail)
		})
	}
}

// A deleted reference that somebody has taken since can't come back.
func TestUndo_DeleteOfAReferenceTakenSince(t *testing.T) {
	b := newBench(t)
	ada := b.server.add("C-1", "Ada", "free", 3)
	plan, out := b.do("delete_customer", `{"id":"`+ada["id"].(string)+`"}`)
	b.server.add("C-1", "Eve", "free", 1)
	_, err := b.undo(plan, out.EffectID, out.Result)
	var refused *fault.Error
	require.True(t, errors.As(err, &refused), "%v", err)
	require.Equal(t, "There is a customer with this reference already.", refused.Detail)
}
