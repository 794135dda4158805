package identity_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"countersign/identity"
)

// S13, S25, S27: no byte of any file of the store holds a secret as it was
// presented, neither while the gateway runs nor after.
func TestSecretsAreNotStored(t *testing.T) {
	p := newPage(t, false)
	agent, key := p.program("bot")
	id, secret, ok := identity.ParseAgentKey(key)
	require.True(t, ok)
	given, err := identity.NewAgentKey(newRandom())
	require.NoError(t, err)
	_, err = p.AdoptAgent(t.Context(), tenant, "demo", identity.BuiltinOwner, []string{"*"}, given)
	require.NoError(t, err)
	_, givenSecret, _ := identity.ParseAgentKey(given)
	waiting, unused, err := p.CreateOperator(t.Context(), tenant, "bea", nil)
	require.NoError(t, err)
	_, used, err := p.CreateOperator(t.Context(), tenant, "ada", nil)
	require.NoError(t, err)
	_, err = p.CompleteSetup(t.Context(), used, password)
	require.NoError(t, err)
	require.Equal(t, "welcome ada", p.post("/sign-in", "name=ada"))
	token := p.cookie()
	_, err = p.AuthenticateAgent(t.Context(), key)
	require.NoError(t, err)

	search := func() {
		stored := p.files()
		for _, there := range []string{id, agent.ID, waiting.ID, "$argon2id$v=19$m=65536,t=3,p=4$"} {
			require.True(t, bytes.Contains(stored, []byte(there)), "the search finds what is stored: %s", there)
		}
		for what, gone := range map[string]string{
			"key": key, "secret of the key": secret, "secret of the adopted key": givenSecret,
			"code": unused, "used code": used, "password": password, "session token": token,
		} {
			require.False(t, bytes.Contains(stored, []byte(gone)), what)
		}
	}
	search()
	require.NoError(t, p.db.Close())
	search()
}

// files is every byte of the store: the database, its log, its lock.
func (w *world) files() []byte {
	w.t.Helper()
	names, err := filepath.Glob(filepath.Join(w.dir, "*"))
	require.NoError(w.t, err)
	require.NotEmpty(w.t, names)
	var all []byte
	for _, name := range names {
		b, err := os.ReadFile(name)
		require.NoError(w.t, err)
		all = append(all, b...)
	}
	return all
}
