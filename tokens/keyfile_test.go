package tokens_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/tokens"
)

func TestLoadOrCreate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token-keys.json")
	_, err := tokens.Load(path, tokens.KeyOptions{})
	require.ErrorIs(t, err, fs.ErrNotExist, "Load makes nothing")
	require.NoFileExists(t, path)

	_, err = tokens.LoadOrCreate(path, start, tokens.KeyOptions{})
	require.NoError(t, err)
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	_, err = tokens.LoadOrCreate(path, start.Add(time.Hour), tokens.KeyOptions{})
	require.NoError(t, err)
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(before), string(after), "a file that is there is kept")
	require.Equal(t, start.Truncate(time.Second), storedKeys(t, path)[0].CreatedAt)

	_, err = tokens.LoadOrCreate(filepath.Join(t.TempDir(), "absent", "token-keys.json"), start, tokens.KeyOptions{})
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// Gateways that start together on an empty folder end up with the same keys.
func TestLoadOrCreate_by_many(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token-keys.json")
	published := make([]string, 8)
	var wg sync.WaitGroup
	for i := range published {
		wg.Go(func() {
			keys, err := tokens.LoadOrCreate(path, start, tokens.KeyOptions{})
			if err != nil {
				t.Error(err)
				return
			}
			published[i] = string(keys.JWKS(start))
		})
	}
	wg.Wait()
	for _, p := range published {
		require.Equal(t, published[0], p)
	}
	require.Contains(t, published[0], storedKeys(t, path)[0].ID)
}

// S9: the file is its owner's alone, after each kind of change.
func TestKeyFile_mode(t *testing.T) {
	w := newWorld(t)
	private := func() {
		t.Helper()
		info, err := os.Stat(w.path)
		require.NoError(t, err)
		require.Equal(t, fs.FileMode(0o600), info.Mode())
	}
	private()
	w.rotate(t)
	private()
	_, err := w.keys.EmergencyRevoke(w.clock.now())
	require.NoError(t, err)
	private()

	for _, mode := range []fs.FileMode{0o604, 0o640, 0o644, 0o620, 0o602, 0o601, 0o610, 0o666, 0o777, 0o660} {
		t.Run(fmt.Sprintf("%04o", mode), func(t *testing.T) {
			require.NoError(t, os.Chmod(w.path, mode))
			before, err := os.ReadFile(w.path)
			require.NoError(t, err)
			says := fmt.Sprintf("the key file %s is open to others (mode %04o). Set it to 0600; if anybody else may have read it, revoke its keys", w.path, mode)
			_, err = tokens.Load(w.path, tokens.KeyOptions{})
			require.EqualError(t, err, says)
			_, err = tokens.LoadOrCreate(w.path, start, tokens.KeyOptions{})
			require.EqualError(t, err, says)
			_, err = w.keys.Reload()
			require.EqualError(t, err, says)
			_, err = w.keys.Rotate(w.clock.now())
			require.EqualError(t, err, says)
			require.Equal(t, tokens.Fresh, w.status(t, w.mint(t)), "the keys in memory stay in force")
			after, err := os.ReadFile(w.path)
			require.NoError(t, err)
			require.Equal(t, string(before), string(after))
		})
	}
	for _, mode := range []fs.FileMode{0o600, 0o400, 0o700} {
		require.NoError(t, os.Chmod(w.path, mode))
		_, err := tokens.Load(w.path, tokens.KeyOptions{})
		require.NoError(t, err)
	}

	require.NoError(t, os.Chmod(w.path, 0o644))
	_, err = w.keys.EmergencyRevoke(w.clock.now())
	require.NoError(t, err, "the way out when the file was open to others")
	private()
}

// RFC 8037, appendix A: the key pair of A.1 and its thumbprint of A.3.
func rfc8037() storedKey {
	return storedKey{
		ID:        "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k",
		State:     "active",
		Public:    "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo",
		Seed:      "nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A",
		CreatedAt: start,
	}
}

func writeKeys(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token-keys.json")
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

func keyFile(t *testing.T, keys ...map[string]any) string {
	t.Helper()
	b, err := json.Marshal(map[string]any{"version": 1, "keys": keys})
	require.NoError(t, err)
	return string(b)
}

func stored(change func(map[string]any)) map[string]any {
	k := rfc8037()
	m := map[string]any{"kid": k.ID, "state": k.State, "public_key": k.Public, "seed": k.Seed, "created_at": k.CreatedAt}
	if change != nil {
		change(m)
	}
	return m
}

func TestLoad_refuses(t *testing.T) {
	retired := func(m map[string]any) {
		m["state"], m["retired_at"] = "retired", start
		delete(m, "seed")
	}
	good := keyFile(t, stored(nil))
	keys, err := tokens.Load(writeKeys(t, good), tokens.KeyOptions{})
	require.NoError(t, err, "else the cases below show nothing")
	require.Contains(t, string(keys.JWKS(start)), rfc8037().ID)

	for name, tc := range map[string]struct{ content, says string }{
		"empty":             {"", "not the JSON of a key set"},
		"not JSON":          {"-----BEGIN PRIVATE KEY-----", "not the JSON of a key set"},
		"cut":               {good[:len(good)-1], "not the JSON of a key set"},
		"two values":        {good + "{}", "something follows"},
		"brace behind":      {good + "}", "something follows"},
		"unknown member":    {keyFile(t, stored(func(m map[string]any) { m["alg"] = "EdDSA" })), "not the JSON of a key set"},
		"version":           {strings.Replace(good, `"version":1`, `"version":2`, 1), "its version is 2, not 1"},
		"no keys":           {keyFile(t), "0 active keys"},
		"only retired":      {keyFile(t, stored(retired)), "0 active keys"},
		"twice":             {keyFile(t, stored(nil), stored(retired)), "key 2: it stands there twice"},
		"kid of another":    {keyFile(t, stored(func(m map[string]any) { m["kid"] = "mine" })), "key 1: kid is not the thumbprint"},
		"public key short":  {keyFile(t, stored(func(m map[string]any) { m["public_key"] = "11qY" })), "public_key is not 32 bytes"},
		"public key padded": {keyFile(t, stored(func(m map[string]any) { m["public_key"] = rfc8037().Public + "=" })), "public_key is not 32 bytes"},
		"seed of another":   {keyFile(t, stored(func(m map[string]any) { m["seed"] = b64(make([]byte, 32)) })), "do not belong together"},
		"seed short":        {keyFile(t, stored(func(m map[string]any) { m["seed"] = b64(make([]byte, 31)) })), "seed is not 32 bytes"},
		"seed missing":      {keyFile(t, stored(func(m map[string]any) { delete(m, "seed") })), "seed is not 32 bytes"},
		"seed kept":         {keyFile(t, stored(func(m map[string]any) { m["state"], m["retired_at"] = "previous", start })), "does not sign any more"},
		"active and ended":  {keyFile(t, stored(func(m map[string]any) { m["retired_at"] = start })), "is active and has a retired_at"},
		"no end":            {keyFile(t, stored(func(m map[string]any) { m["state"] = "retired"; delete(m, "seed") })), "retired_at is missing"},
		"no beginning":      {keyFile(t, stored(func(m map[string]any) { delete(m, "created_at") })), "created_at is missing"},
		"state":             {keyFile(t, stored(func(m map[string]any) { m["state"] = "Active" })), "none of active, previous, retired"},
		"too large":         {good + strings.Repeat(" ", 1<<20), "larger than"},
	} {
		t.Run(name, func(t *testing.T) {
			path := writeKeys(t, tc.content)
			for _, load := range []func() (*tokens.KeySet, error){
				func() (*tokens.KeySet, error) { return tokens.Load(path, tokens.KeyOptions{}) },
				func() (*tokens.KeySet, error) { return tokens.LoadOrCreate(path, start, tokens.KeyOptions{}) },
			} {
				keys, err := load()
				require.ErrorContains(t, err, tc.says)
				require.ErrorContains(t, err, path)
				require.NotContains(t, err.Error(), rfc8037().Seed[:12])
				require.Nil(t, keys)
			}
			after, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, tc.content, string(after), "a damaged file is never replaced")
		})
	}

	t.Run("two active", func(t *testing.T) {
		content, err := os.ReadFile(newWorld(t).path)
		require.NoError(t, err)
		var file struct{ Keys []map[string]any }
		require.NoError(t, json.Unmarshal(content, &file))
		_, err = tokens.Load(writeKeys(t, keyFile(t, stored(nil), file.Keys[0])), tokens.KeyOptions{})
		require.ErrorContains(t, err, "2 active keys")
	})
	t.Run("folder", func(t *testing.T) {
		_, err := tokens.Load(t.TempDir(), tokens.KeyOptions{})
		require.ErrorContains(t, err, "not a regular file")
	})
}

// When the new file can't be written, the old one and the keys in memory stay.
func TestKeySet_Rotate_cannot_write(t *testing.T) {
	w := newWorld(t)
	token := w.mint(t)
	before, err := os.ReadFile(w.path)
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Join(w.path+".new", "in the way"), 0o700))
	for _, change := range []func(time.Time) (string, error){w.keys.Rotate, w.keys.EmergencyRevoke} {
		id, err := change(w.clock.now())
		require.ErrorContains(t, err, "writing the key file")
		require.Empty(t, id)
	}
	after, err := os.ReadFile(w.path)
	require.NoError(t, err)
	require.Equal(t, string(before), string(after))
	require.Equal(t, tokens.Fresh, w.status(t, token))
	require.Equal(t, strings.Split(token, ".")[0], strings.Split(w.mint(t), ".")[0])
}

func TestKeySet_Rotate_no_randomness(t *testing.T) {
	w := newWorld(t)
	keys, err := tokens.Load(w.path, tokens.KeyOptions{Rand: iotest.ErrReader(os.ErrDeadlineExceeded)})
	require.NoError(t, err)
	_, err = keys.Rotate(start)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.Equal(t, []string{"active"}, states(t, w.path))
}

func TestKeySet_file_gone(t *testing.T) {
	w := newWorld(t)
	token := w.mint(t)
	require.NoError(t, os.Remove(w.path))
	_, err := w.keys.Reload()
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = w.keys.Rotate(w.clock.now())
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.Equal(t, tokens.Fresh, w.status(t, token), "the keys in memory stay in force")
	requireRefused(t, w.signer, newWorld(t).mint(t))
	require.NoFileExists(t, w.path)
}

// A crash between write and rename leaves a file behind, perhaps with a mode of
// its own. It never becomes the key file.
func TestKeySet_Rotate_after_a_crash(t *testing.T) {
	w := newWorld(t)
	require.NoError(t, os.WriteFile(w.path+".new", []byte("half"), 0o644))
	w.rotate(t)
	require.NoFileExists(t, w.path+".new")
	info, err := os.Stat(w.path)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o600), info.Mode())
	require.Equal(t, []string{"active", "previous"}, states(t, w.path))
}

// A mounted secret is often a link: the file behind it changes, the link stays.
func TestKeySet_link(t *testing.T) {
	w := newWorld(t)
	link := filepath.Join(t.TempDir(), "link.json")
	require.NoError(t, os.Symlink(w.path, link))
	keys, err := tokens.Load(link, tokens.KeyOptions{})
	require.NoError(t, err)
	_, err = keys.Rotate(w.clock.now())
	require.NoError(t, err)
	info, err := os.Lstat(link)
	require.NoError(t, err)
	require.NotZero(t, info.Mode()&fs.ModeSymlink)
	require.Equal(t, []string{"active", "previous"}, states(t, w.path))
}

// I18: neither printing a key set or a signer nor publishing the keys shows a seed.
func TestKeySet_hides_seeds(t *testing.T) {
	w := newWorld(t)
	seed := storedKeys(t, w.path)[0].Seed
	private := w.private(t)
	shown := fmt.Sprintf("%v %+v %#v %s %v %+v %#v", w.keys, w.keys, w.keys, w.keys.JWKS(start), w.signer, w.signer, w.signer)
	for _, form := range []string{
		seed, fmt.Sprintf("%x", private.Seed()), strings.Trim(fmt.Sprint(private.Seed()), "[]"), strings.Trim(fmt.Sprintf("%#v", private.Seed()), "[]byte{}"),
	} {
		require.NotContains(t, shown, form)
	}
}
