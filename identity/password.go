package identity

import (
	"context"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/crypto/argon2"
	"golang.org/x/sync/semaphore"
	"golang.org/x/text/unicode/norm"

	"countersign/fault"
)

// What argon2id costs: the second recommended option of RFC 9106, section 4
// (t=3, p=4, 64 MiB, 128-bit salt, 256-bit tag), above the least that the OWASP
// Password Storage Cheat Sheet asks for (t=2, p=1, 19 MiB).
const (
	argonTime    = 3
	argonMemory  = 64 * 1024 // KiB
	argonThreads = 4
	argonSalt    = 16
	argonTag     = 32

	// kdfParallel computations take 64 MiB each at the same time; kdfWaiting
	// more may queue, a few seconds' work. One address can't fill that queue
	// alone: see addressBurst.
	kdfParallel = 2
	kdfWaiting  = 64
)

// A password is at least passwordMin characters and at most passwordMax bytes
// in normal form C. There are no rules on its composition (NIST SP 800-63B,
// section 5.1.1.2).
const (
	passwordMin = 10
	passwordMax = 256
)

// newPassword checks a password that a person chose, and gives its normal form.
func newPassword(name, password string) (string, error) {
	normal, ok := normalPassword(password)
	switch {
	case !utf8.ValidString(password):
		return "", unfit("/password", "The password is not valid UTF-8 text.")
	case len(password) > passwordMax || len(normal) > passwordMax:
		return "", unfit("/password", fmt.Sprintf("The password is longer than %d bytes.", passwordMax))
	case !ok:
		return "", unfit("/password", "The password has a control character in it, such as a tab or a line end.")
	case utf8.RuneCountInString(normal) < passwordMin:
		return "", unfit("/password", fmt.Sprintf("The password needs at least %d characters.", passwordMin))
	case strings.EqualFold(normal, name):
		return "", unfit("/password", "The password is the name.")
	case common(normal):
		return "", unfit("/password", "The password is one of those that are tried first. Take another; a few words that don't belong together do well.")
	}
	return normal, nil
}

// normalPassword gives the form in which a password is hashed, so that it does
// not matter how a keyboard composes an accent; ok is false for what can't be
// anybody's password.
func normalPassword(password string) (normal string, ok bool) {
	// The length comes first: normalising costs time.
	if len(password) > passwordMax || !utf8.ValidString(password) {
		return "", false
	}
	normal = norm.NFC.String(password)
	return normal, len(normal) <= passwordMax && !strings.ContainsFunc(normal, unicode.IsControl)
}

// kdf computes argon2id, few at a time.
type kdf struct {
	idKey   func(password, salt []byte, time, memory uint32, threads uint8, keyLen uint32) []byte
	rand    io.Reader
	slots   *semaphore.Weighted
	waiting atomic.Int64
}

func newKDF(idKey func(password, salt []byte, time, memory uint32, threads uint8, keyLen uint32) []byte, rand io.Reader) *kdf {
	return &kdf{idKey: idKey, rand: rand, slots: semaphore.NewWeighted(kdfParallel)}
}

// compute waits for a slot. It refuses at once when too many wait.
func (k *kdf) compute(ctx context.Context, password string, p phc) ([]byte, error) {
	defer k.waiting.Add(-1)
	if k.waiting.Add(1) > kdfWaiting+kdfParallel {
		e := fault.New(fault.RateLimited, "Too many sign-ins at the same time. Try again in a few seconds.")
		e.RetryAfter = 2 * time.Second
		return nil, e
	}
	if err := k.slots.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	defer k.slots.Release(1)
	return k.idKey([]byte(password), p.salt, p.time, p.memory, p.threads, uint32(len(p.tag))), nil
}

// hash makes the stored form of a password.
func (k *kdf) hash(ctx context.Context, password string) (string, error) {
	salt, err := randomBytes(k.rand, argonSalt)
	if err != nil {
		return "", err
	}
	p := current(salt)
	if p.tag, err = k.compute(ctx, password, p); err != nil {
		return "", err
	}
	return p.String(), nil
}

// verify compares a password with a stored form; an empty one matches nothing
// and costs the same. old says that the stored form should be made anew.
func (k *kdf) verify(ctx context.Context, password, stored string) (match, old bool, err error) {
	p := current(make([]byte, argonSalt))
	if stored != "" {
		if p, err = parsePHC(stored); err != nil {
			return false, false, fault.Wrap(err, fault.Internal, "A stored password can't be read.")
		}
	}
	tag, err := k.compute(ctx, password, p)
	if err != nil {
		return false, false, err
	}
	match = subtle.ConstantTimeCompare(tag, p.tag) == 1 && stored != ""
	return match, !p.isCurrent(), nil
}

// phc is one argon2id hash. Its text is the PHC string format:
// $argon2id$v=19$m=65536,t=3,p=4$<salt>$<tag>, base64 without padding.
type phc struct {
	memory, time uint32
	threads      uint8
	salt, tag    []byte
}

// current has the parameters of today and a tag that no password makes.
func current(salt []byte) phc {
	return phc{memory: argonMemory, time: argonTime, threads: argonThreads, salt: salt, tag: make([]byte, argonTag)}
}

func (p phc) isCurrent() bool {
	return p.memory == argonMemory && p.time == argonTime && p.threads == argonThreads && len(p.salt) == argonSalt && len(p.tag) == argonTag
}

func (p phc) String() string {
	b64 := base64.RawStdEncoding.EncodeToString
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, p.memory, p.time, p.threads, b64(p.salt), b64(p.tag))
}

// parsePHC reads what String writes, with whatever parameters. They are bounded,
// so that a damaged row can't take all memory.
func parsePHC(text string) (phc, error) {
	var p phc
	parts := strings.Split(text, "$")
	if len(parts) != 6 {
		return p, errPHC
	}
	if _, err := fmt.Sscanf(parts[3], "m=%d,t=%d,p=%d", &p.memory, &p.time, &p.threads); err != nil {
		return p, errPHC
	}
	var saltErr, tagErr error
	p.salt, saltErr = base64.RawStdEncoding.DecodeString(parts[4])
	p.tag, tagErr = base64.RawStdEncoding.DecodeString(parts[5])
	switch {
	case saltErr != nil, tagErr != nil, p.String() != text:
		return p, errPHC
	case p.memory > 1<<20, p.time == 0, p.time > 64, p.threads == 0, p.memory < 8*uint32(p.threads):
		return p, errPHC
	case len(p.salt) < 8, len(p.salt) > 64, len(p.tag) < 16, len(p.tag) > 64:
		return p, errPHC
	}
	return p, nil
}

var errPHC = errors.New("identity: not an argon2id hash in PHC string format")
