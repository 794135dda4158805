package tokens

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// DefaultRetention is how long a key that no longer opens operations still
// verifies tokens for replay.
const DefaultRetention = 90 * 24 * time.Hour

// keyState is how far a key has come. It only moves down this list.
type keyState string

const (
	// active: signs. There is exactly one.
	active keyState = "active"
	// previous: signs no more; its tokens open operations until MaxTTL after it
	// stopped, when the last of them has expired.
	previous keyState = "previous"
	// retired: its tokens open nothing and verify for replay.
	retired keyState = "retired"
)

// key is one key pair. Keys are never changed once they are in a table.
type key struct {
	id        string // RFC 7638 thumbprint of the public key
	header    string // the encoded protected header of every token it signs
	state     keyState
	public    ed25519.PublicKey
	private   ed25519.PrivateKey // only while active
	createdAt time.Time
	retiredAt time.Time // when it stopped signing; zero while active
}

// newKey makes the key of a public key that signs nothing yet.
func newKey(public ed25519.PublicKey) *key {
	id := thumbprint(public)
	return &key{id: id, header: protectedHeader(id), public: public}
}

// protectedHeader is the constant first part of a token. Its typ is our own, so
// that no other kind of token can be taken for a commit token (S4).
func protectedHeader(kid string) string { return statementHeader(kid, commitType) }

// commitType is the typ of commit tokens, which no statement may have.
const commitType = "countersign-commit+jwt"

// thumbprint is the key id: RFC 7638 over the OKP members of RFC 8037.
func thumbprint(public ed25519.PublicKey) string {
	sum := sha256.Sum256([]byte(`{"crv":"Ed25519","kty":"OKP","x":"` + encode(public) + `"}`))
	return encode(sum[:])
}

// opens reports whether tokens of the key may open operations at now.
func (k *key) opens(now time.Time) bool {
	return k.state == active || k.state == previous && now.Before(k.retiredAt.Add(MaxTTL))
}

// verifies reports whether tokens of the key are believed at all at now.
func (k *key) verifies(now time.Time, retention time.Duration) bool {
	return k.state == active || now.Before(k.retiredAt.Add(retention))
}

// step is the key as it stands after a rotation at now: without its seed.
func (k *key) step(now time.Time) *key {
	next := *k
	next.private = nil
	switch {
	case k.state == active:
		next.state, next.retiredAt = previous, stamp(now)
	case !k.opens(now):
		next.state = retired
	}
	return &next
}

// table is one immutable view of the key file.
type table struct {
	keys     []*key // newest first
	byHeader map[string]*key
	active   *key
	file     os.FileInfo // of the file that it was read from or written to
}

func newTable(keys []*key, file os.FileInfo) *table {
	t := &table{keys: keys, byHeader: make(map[string]*key, len(keys)), file: file}
	for _, k := range keys {
		t.byHeader[k.header] = k
		if k.state == active {
			t.active = k
		}
	}
	return t
}

// KeyOptions are the settings of a key set that have a usable zero value.
type KeyOptions struct {
	// Retention is how long a key verifies for replay after it stopped signing,
	// at least MaxTTL; zero means DefaultRetention.
	Retention time.Duration
	// Rand gives the seeds of new keys; nil means crypto/rand.
	Rand io.Reader
}

// KeySet holds the signing keys of a deployment and the file that they are kept
// in. It is safe for concurrent use, and several processes may share one file:
// changes are made one at a time under a file lock, on what the file says then.
//
// A process that did not make a change learns of it by Reload, or when it meets
// a token of a key that it does not know. Until then it signs with the key that
// it has, whose tokens open operations for MaxTTL after the rotation: so Reload
// is due on SIGHUP and well within MaxTTL on a timer.
type KeySet struct {
	path      string
	retention time.Duration
	random    io.Reader

	change sync.Mutex // held by whoever replaces the table
	table  atomic.Pointer[table]
}

// Load reads the key file at path. It refuses a file that anybody but its owner
// can read or write, and one that does not hold exactly one active key.
func Load(path string, o KeyOptions) (*KeySet, error) {
	k, err := newKeySet(path, o)
	if err != nil {
		return nil, err
	}
	if _, err := k.Reload(); err != nil {
		return nil, err
	}
	return k, nil
}

// LoadOrCreate is Load, and makes a file with a first key, created at now, when
// there is none. Its folder must exist. A file that is there is never replaced.
func LoadOrCreate(path string, now time.Time, o KeyOptions) (*KeySet, error) {
	k, err := Load(path, o)
	if !errors.Is(err, fs.ErrNotExist) {
		return k, err
	}
	k, err = newKeySet(path, o)
	if err != nil {
		return nil, err
	}
	err = k.locked(func() error {
		// Another process may have been first.
		t, err := readKeyFile(k.path)
		switch {
		case err == nil:
			k.table.Store(t)
		case errors.Is(err, fs.ErrNotExist):
			_, err = k.replace(nil, now)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return k, nil
}

func newKeySet(path string, o KeyOptions) (*KeySet, error) {
	k := &KeySet{path: path, retention: o.Retention, random: o.Rand}
	if k.retention == 0 {
		k.retention = DefaultRetention
	}
	if k.random == nil {
		k.random = rand.Reader
	}
	if k.retention < MaxTTL {
		return nil, fmt.Errorf("the retention of commit token keys is at least %s, not %s", MaxTTL, k.retention)
	}
	return k, nil
}

// Rotate makes a new active key and returns its id. The old one becomes
// previous; its seed is gone from the file. Keys whose tokens have all expired
// become retired, and those whose retention is over are dropped. When Rotate
// fails, this set goes on as before. The file is then unchanged too, unless only
// the last sync failed; the next Reload tells.
func (k *KeySet) Rotate(now time.Time) (string, error) {
	var id string
	err := k.locked(func() error {
		t, err := readKeyFile(k.path)
		if err != nil {
			return err
		}
		var kept []*key
		for _, old := range t.keys {
			if old.verifies(now, k.retention) {
				kept = append(kept, old.step(now))
			}
		}
		id, err = k.replace(kept, now)
		return err
	})
	return id, err
}

// EmergencyRevoke drops all keys and makes a new one, whose id it returns: no
// token signed before verifies here, not even for replay. It does not read the
// old file, which may be the very thing that leaked. Other processes drop the
// old keys at their next Reload, so the caller also raises the ledger
// generation, which voids the old tokens everywhere at once.
func (k *KeySet) EmergencyRevoke(now time.Time) (string, error) {
	var id string
	err := k.locked(func() error {
		var err error
		id, err = k.replace(nil, now)
		return err
	})
	return id, err
}

// Reload reads the file again and reports whether the keys are others than
// before. On an error the keys that were good stay in force.
func (k *KeySet) Reload() (changed bool, err error) {
	k.change.Lock()
	defer k.change.Unlock()
	t, err := readKeyFile(k.path)
	if err != nil {
		return false, err
	}
	old := k.table.Swap(t)
	return old == nil || !sameKeys(old.keys, t.keys), nil
}

// JWKS is the published form of all keys that verify at now: a JWK set (RFC
// 7517) of OKP keys (RFC 8037), newest first. The bytes change only when the
// keys do, so their digest serves as an ETag.
func (k *KeySet) JWKS(now time.Time) []byte {
	type jwk struct {
		Type      string `json:"kty"`
		Curve     string `json:"crv"`
		X         string `json:"x"`
		ID        string `json:"kid"`
		Use       string `json:"use"`
		Algorithm string `json:"alg"`
	}
	set := struct {
		Keys []jwk `json:"keys"`
	}{Keys: []jwk{}}
	for _, key := range k.table.Load().keys {
		if key.verifies(now, k.retention) {
			set.Keys = append(set.Keys, jwk{
				Type: "OKP", Curve: "Ed25519", X: encode(key.public), ID: key.id, Use: "sig", Algorithm: "EdDSA",
			})
		}
	}
	// Marshal can't fail on structs of strings.
	b, _ := json.Marshal(set)
	return b
}

// signing is the key that signs now.
func (k *KeySet) signing() *key { return k.table.Load().active }

// verifying is the key that header belongs to, or nil when no such key verifies
// at now. For a header that it does not know it looks whether another process
// has changed the file: a token of a fresh key must not be refused because it
// came here before the next Reload. Without such a change that is one stat.
func (k *KeySet) verifying(header string, now time.Time) *key {
	t := k.table.Load()
	found := t.byHeader[header]
	if found == nil && fileChanged(k.path, t.file) {
		// A file that can't be read is reported by the next Reload; here the token
		// is simply not known.
		if _, err := k.Reload(); err != nil {
			return nil
		}
		found = k.table.Load().byHeader[header]
	}
	if found == nil || !found.verifies(now, k.retention) {
		return nil
	}
	return found
}

// locked runs f as the only one to change the set, in this process and others.
func (k *KeySet) locked(f func() error) error {
	k.change.Lock()
	defer k.change.Unlock()
	unlock, err := lockKeyFile(k.path)
	if err != nil {
		return err
	}
	defer unlock()
	return f()
}

// replace makes a new active key, puts it before the kept ones, writes the file
// and only then uses it: a key never signs before it is durable.
func (k *KeySet) replace(kept []*key, now time.Time) (string, error) {
	seed := make([]byte, ed25519.SeedSize)
	if _, err := io.ReadFull(k.random, seed); err != nil {
		return "", fmt.Errorf("reading randomness for a key: %w", err)
	}
	private := ed25519.NewKeyFromSeed(seed)
	fresh := newKey(private.Public().(ed25519.PublicKey))
	fresh.state, fresh.private, fresh.createdAt = active, private, stamp(now)
	keys := append([]*key{fresh}, kept...)
	file, err := writeKeyFile(k.path, keys)
	if err != nil {
		return "", err
	}
	k.table.Store(newTable(keys, file))
	return fresh.id, nil
}

// stamp is how times stand in the file: UTC, whole seconds.
func stamp(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }

func sameKeys(a, b []*key) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].id != b[i].id || a[i].state != b[i].state || !a[i].retiredAt.Equal(b[i].retiredAt) {
			return false
		}
	}
	return true
}
