package web_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"countersign/tools"
	"countersign/tools/tooltest"
	"countersign/web"
)

// Who is of another tenant does not see that an operation is there, on no page and
// by no form, nor whose doubts, undos and freezes there are.
func TestTenants_SeeTheirOwn(t *testing.T) {
	courier := lost("book_courier", tooltest.LoseRequest(), tooltest.WithLookup(tools.Eventual))
	r := newRig(t, courier)
	r.endReconciling()
	op := r.unknown("book_courier", args("order_id", "ord_1"))
	r.pages.Close()
	r.server.Close()
	r.serve(func(c *web.Config) { c.Tenant = "elsewhere" })
	_, code, err := r.identity.CreateOperator(context.Background(), "elsewhere", "eve", []string{"support"})
	require.NoError(t, err)
	_, err = r.identity.CompleteSetup(context.Background(), code, password)
	require.NoError(t, err)
	eve := r.browser()
	require.Equal(t, http.StatusSeeOther, eve.post("/sign-in", "name", "eve", "password", password).Status)
	for _, page := range []string{"", "/audit", "/receipt", "/forensics"} {
		require.Equal(t, http.StatusNotFound, eve.get(at(op.ID)+page).Status, page)
	}
	for _, form := range []string{"/ask", "/resolve", "/undo"} {
		require.Equal(t, http.StatusNotFound, eve.post(at(op.ID)+form, "happened", "no", "reason", "Because.").Status, form)
	}
	require.Equal(t, http.StatusNotFound, eve.post(at(op.ID)+"/contradict", "effect_id", "e_1", "reason", "Because.").Status)
	for _, list := range []string{"/unknown", "/undos", "/operations", "/freezes"} {
		got := eve.get(list)
		require.Equal(t, http.StatusOK, got.Status, list)
		require.NotContains(t, got.Body, op.ID, list)
		require.NotContains(t, got.Body, "ord_1", list)
	}
	require.Empty(t, eve.get("/unknown?done=ask&about="+op.ID).notice(t))
	require.Zero(t, tooltest.FakeOf(courier).Lookups())
}
