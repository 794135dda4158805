package tokens

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

const (
	keyFileVersion = 1
	// maxKeyFile is far more than any number of rotations inside a retention
	// leaves behind.
	maxKeyFile = 1 << 20
)

// keyFile is the JSON form of a key set; bytes are base64url.
type keyFile struct {
	Version int         `json:"version"`
	Keys    []storedKey `json:"keys"`
}

type storedKey struct {
	ID        string    `json:"kid"`
	State     keyState  `json:"state"`
	Public    string    `json:"public_key"`
	Seed      string    `json:"seed,omitempty"` // only while the key signs
	CreatedAt time.Time `json:"created_at"`
	RetiredAt time.Time `json:"retired_at,omitzero"`
}

// readKeyFile reads and checks the file. The mode is that of the opened file, so
// it can't be changed between check and read. No error holds content of the file.
func readKeyFile(path string) (*table, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening the key file: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading the key file: %w", err)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("the key file %s is not a regular file", path)
	case info.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("the key file %s is open to others (mode %04o). Set it to 0600; if anybody else may have read it, revoke its keys",
			path, info.Mode().Perm())
	case info.Size() > maxKeyFile:
		return nil, fmt.Errorf("the key file %s is larger than %d bytes", path, maxKeyFile)
	}
	content, err := io.ReadAll(io.LimitReader(f, maxKeyFile))
	if err != nil {
		return nil, fmt.Errorf("reading the key file: %w", err)
	}
	keys, err := parseKeys(content)
	if err != nil {
		return nil, fmt.Errorf("the key file %s is damaged: %w", path, err)
	}
	return newTable(keys, info), nil
}

func parseKeys(content []byte) ([]*key, error) {
	var file keyFile
	d := json.NewDecoder(bytes.NewReader(content))
	d.DisallowUnknownFields()
	if d.Decode(&file) != nil {
		return nil, errors.New("it is not the JSON of a key set")
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("something follows the key set")
	}
	if file.Version != keyFileVersion {
		return nil, fmt.Errorf("its version is %d, not %d", file.Version, keyFileVersion)
	}
	var keys []*key
	seen := map[string]bool{}
	signing := 0
	for i, stored := range file.Keys {
		k, err := stored.key()
		if err != nil {
			return nil, fmt.Errorf("key %d: %w", i+1, err)
		}
		if seen[k.id] {
			return nil, fmt.Errorf("key %d: it stands there twice", i+1)
		}
		seen[k.id] = true
		if k.state == active {
			signing++
		}
		keys = append(keys, k)
	}
	if signing != 1 {
		return nil, fmt.Errorf("it has %d active keys, not 1", signing)
	}
	return keys, nil
}

// key checks a stored key: its parts belong together, and only an active key has
// a seed and no end.
func (s storedKey) key() (*key, error) {
	public, ok := decode(s.Public)
	if !ok || len(public) != ed25519.PublicKeySize {
		return nil, errors.New("public_key is not 32 bytes in base64url")
	}
	k := newKey(public)
	k.state, k.createdAt, k.retiredAt = s.State, s.CreatedAt, s.RetiredAt
	switch {
	case s.ID != k.id:
		return nil, errors.New("kid is not the thumbprint of public_key")
	case s.CreatedAt.IsZero():
		return nil, errors.New("created_at is missing")
	case s.State != active && s.State != previous && s.State != retired:
		return nil, errors.New("state is none of active, previous, retired")
	case s.State != active && s.Seed != "":
		return nil, errors.New("it holds a seed and does not sign any more")
	case s.State != active && s.RetiredAt.IsZero():
		return nil, errors.New("retired_at is missing")
	case s.State != active:
		return k, nil
	case !s.RetiredAt.IsZero():
		return nil, errors.New("it is active and has a retired_at")
	}
	seed, ok := decode(s.Seed)
	if !ok || len(seed) != ed25519.SeedSize {
		return nil, errors.New("seed is not 32 bytes in base64url")
	}
	k.private = ed25519.NewKeyFromSeed(seed)
	if !k.public.Equal(k.private.Public()) {
		return nil, errors.New("seed and public_key do not belong together")
	}
	return k, nil
}

// writeKeyFile puts the keys in place of the file at path, all or nothing and
// durable: a new file of mode 0600 is written, synced and renamed, then the
// folder is synced. It returns what a later stat of path will find. The lock
// must be held.
func writeKeyFile(path string, keys []*key) (os.FileInfo, error) {
	file := keyFile{Version: keyFileVersion}
	for _, k := range keys {
		s := storedKey{ID: k.id, State: k.state, Public: encode(k.public), CreatedAt: k.createdAt, RetiredAt: k.retiredAt}
		if k.private != nil {
			s.Seed = encode(k.private.Seed())
		}
		file.Keys = append(file.Keys, s)
	}
	content, err := json.MarshalIndent(file, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("writing the key file: %w", err)
	}
	target := resolve(path)
	fresh := target + ".new"
	// What a crash left behind would keep its own mode.
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("writing the key file: %w", err)
	}
	info, err := writeSynced(fresh, append(content, '\n'))
	if err == nil {
		err = os.Rename(fresh, target)
	}
	if err != nil {
		_ = os.Remove(fresh)
		return nil, fmt.Errorf("writing the key file: %w", err)
	}
	if err := syncFolder(filepath.Dir(target)); err != nil {
		return nil, fmt.Errorf("writing the key file: %w", err)
	}
	return info, nil
}

func writeSynced(path string, content []byte) (os.FileInfo, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	info, statErr := f.Stat()
	return info, errors.Join(err, statErr, f.Close())
}

func syncFolder(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// lockKeyFile waits until no other process changes the file. The lock is on a
// file of its own beside it, since the key file is replaced by each change; the
// system drops it when the process ends.
func lockKeyFile(path string) (unlock func(), err error) {
	f, err := os.OpenFile(resolve(path)+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the key file: %w", err)
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("locking the key file: %w", err), f.Close())
	}
	return func() { _ = f.Close() }, nil
}

// fileChanged reports whether path is another file than the one that was read.
// Every change renames a new file into place.
func fileChanged(path string, read os.FileInfo) bool {
	info, err := os.Stat(path)
	return err == nil && (!os.SameFile(info, read) || !info.ModTime().Equal(read.ModTime()) || info.Size() != read.Size())
}

// resolve follows links, so that a change replaces the file and not the link.
func resolve(path string) string {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		return target
	}
	return path
}
