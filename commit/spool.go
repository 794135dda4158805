package commit

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"countersign/fault"
	"countersign/ledger"
	"countersign/tools"
)

// Spool keeps outcomes on the local disk while the store is away, so that the end
// of the process does not lose them. One file each, private to the gateway's
// user; it goes when the ledger has what it says. A file is written only when the
// store did not take an outcome at once: a process that dies between the reply
// and that moment leaves an honest doubt.
//
// What it holds is evidence: the outside system's answer as the ledger would
// keep it, without credentials. It is safe for concurrent use, by one process.
type Spool struct {
	dir string
	now func() time.Time

	mu sync.Mutex
	// held are the files whose outcome this process still holds in memory and
	// writes itself.
	held map[string]bool
}

// OpenSpool opens the folder of a spool, made if need be. now stamps the files.
func OpenSpool(dir string, now func() time.Time) (*Spool, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("the spool: %w", err)
	}
	// What was being written when the process died was told to nobody.
	halves, err := filepath.Glob(filepath.Join(dir, "*"+half))
	if err != nil {
		return nil, fmt.Errorf("the spool: %w", err)
	}
	for _, path := range halves {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) { // it may just have been renamed
			return nil, fmt.Errorf("the spool: %w", err)
		}
	}
	return &Spool{dir: dir, now: now, held: map[string]bool{}}, nil
}

// The endings of its files.
const (
	whole   = ".outcome"
	half    = ".part"
	damaged = ".set-aside"
)

// spooled is one outcome: what one attempt of one operation saw.
type spooled struct {
	Format    int           `json:"format"` // 1
	Tenant    string        `json:"tenant"`
	Operation string        `json:"operation"`
	Attempt   int           `json:"attempt"`
	Fence     int64         `json:"fence"`
	Outcome   tools.Outcome `json:"outcome"`
	At        time.Time     `json:"at"`
}

// hold writes what the newest attempt of op saw and keeps the file for this
// process until it is dropped. When it returns without error the file is
// durable.
func (s *Spool) hold(op ledger.Operation, o tools.Outcome) (name string, err error) {
	attempt := op.Attempts[len(op.Attempts)-1]
	text, err := json.Marshal(spooled{
		Format: 1, Tenant: op.Tenant, Operation: op.ID, Attempt: attempt.N, Fence: attempt.Fence, Outcome: o, At: s.now().UTC(),
	})
	if err != nil {
		return "", err
	}
	name = fmt.Sprintf("%s.%d%s", op.ID, attempt.N, whole)
	s.mu.Lock()
	s.held[name] = true
	s.mu.Unlock()
	if err := s.put(name, sealed(text)); err != nil {
		s.release(name)
		return "", err
	}
	return name, nil
}

// put writes a file so that it is there whole or not at all, also after a power
// cut.
func (s *Spool) put(name string, text []byte) (err error) {
	path := filepath.Join(s.dir, name)
	f, err := os.OpenFile(path+half, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(path+half, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(path+half))
	}
	return s.sync()
}

// sync makes the folder's names durable.
func (s *Spool) sync() error {
	d, err := os.Open(s.dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// drop removes a file whose outcome the ledger has. One that stays behind by
// accident is found to be known and removed later.
func (s *Spool) drop(name string) error {
	defer s.release(name)
	if err := os.Remove(filepath.Join(s.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// release leaves a file to whoever replays the spool.
func (s *Spool) release(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.held, name)
}

// waiting are the names of the whole files that nobody here holds, in order.
func (s *Spool) waiting() ([]string, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), whole) && !s.held[e.Name()] {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// setAside puts a file that can't be used where it is not read again. It is never
// deleted: it may be the only witness of an effect.
func (s *Spool) setAside(name string) error {
	path := filepath.Join(s.dir, name)
	return errors.Join(os.Rename(path, path+damaged), s.sync())
}

// errUseless: a file says nothing that the ledger could take. It is set aside.
type errUseless struct{ why string }

func (e *errUseless) Error() string { return e.why }

// read reads one file back.
func (s *Spool) read(name string) (o spooled, err error) {
	text, err := os.ReadFile(filepath.Join(s.dir, name))
	if err != nil {
		return o, err
	}
	text, ok := unsealed(text)
	if !ok {
		return o, &errUseless{"it is damaged"}
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber() // results keep their numbers as they were
	d.DisallowUnknownFields()
	switch err := d.Decode(&o); {
	case err != nil:
		return o, &errUseless{"it is not an outcome: " + err.Error()}
	case o.Format != 1 || o.Tenant == "" || o.Operation == "" || o.Attempt < 1 || o.Outcome.Verdict == "":
		return o, &errUseless{"it is not an outcome of a form that this version knows"}
	}
	return o, nil
}

// sealed puts a digest before the text, so that a file that the disk damaged is
// never taken for evidence.
func sealed(text []byte) []byte {
	sum := sha256.Sum256(text)
	return fmt.Appendf(nil, "%s\n%s\n", hex.EncodeToString(sum[:]), text)
}

func unsealed(file []byte) (text []byte, ok bool) {
	seal, text, _ := bytes.Cut(file, []byte("\n"))
	text = bytes.TrimSuffix(text, []byte("\n"))
	sum := sha256.Sum256(text)
	return text, string(seal) == hex.EncodeToString(sum[:])
}

// Replay tells the ledger what the spool holds from before, each as the evidence
// that it is, and removes what the ledger then has. It says how many it told. An
// error that names the store means that the rest waits for the next time; what
// can't be used is set aside and said in the log.
func (e *Executor) Replay(ctx context.Context) (told int, err error) {
	defer fault.Recovered(&err)
	if e.cfg.Spool == nil {
		return 0, nil
	}
	names, err := e.cfg.Spool.waiting()
	if err != nil {
		return 0, err
	}
	var failed error
	for _, name := range names {
		err := e.replay(ctx, name)
		var useless *errUseless
		switch {
		case err == nil:
			told++
		case errors.As(err, &useless):
			e.cfg.Logger.Error("an outcome in the spool can't be used and was set aside; look at it, it may be the only witness of an effect",
				"file", name+damaged, "because", useless.why)
			failed = errors.Join(failed, e.cfg.Spool.setAside(name))
		case storeAway(err):
			return told, errors.Join(failed, err)
		default: // it must not stop the others
			failed = errors.Join(failed, fmt.Errorf("%s: %w", name, err))
		}
	}
	return told, failed
}

// replay tells the ledger one outcome.
func (e *Executor) replay(ctx context.Context, name string) error {
	o, err := e.cfg.Spool.read(name)
	if err != nil {
		return err
	}
	op, err := e.cfg.Ledger.Operation(ctx, o.Tenant, o.Operation)
	switch {
	case fault.Is(err, fault.OperationNotFound):
		return &errUseless{"the ledger has no such operation"}
	case err != nil:
		return err
	}
	i := slices.IndexFunc(op.Attempts, func(a ledger.Attempt) bool { return a.N == o.Attempt && a.Fence == o.Fence && !a.Presumed })
	if i < 0 {
		return &errUseless{"the ledger knows no such dispatch"}
	}
	known, err := e.known(ctx, o)
	if err != nil {
		return err
	}
	if !known {
		// As the worker held it then: behind the mark of that attempt.
		op.Fence, op.Attempts = o.Fence, op.Attempts[:i+1]
		if _, err := e.cfg.Ledger.Conclude(ctx, op, o.Outcome); err != nil {
			return err
		}
		e.cfg.Logger.Info("an outcome from the spool was told to the ledger",
			"operation", o.Operation, "attempt", o.Attempt, "verdict", o.Outcome.Verdict, "effect_id", o.Outcome.EffectID)
	}
	return e.cfg.Spool.drop(name)
}

// known reports that the ledger has what an attempt saw already: the write whose
// answer was lost had been made.
func (e *Executor) known(ctx context.Context, o spooled) (bool, error) {
	stored, err := e.cfg.Ledger.Evidence(ctx, o.Tenant, o.Operation)
	return slices.ContainsFunc(stored, func(ev ledger.Evidence) bool {
		return ev.Kind == "response" && ev.Attempt == o.Attempt && ev.Verdict == o.Outcome.Verdict && ev.EffectID == o.Outcome.EffectID
	}), err
}

// storeAway reports that the store took nothing, or that it is not known whether
// it did: the same again later.
func storeAway(err error) bool {
	return fault.Is(err, fault.StoreUnavailable) || fault.Is(err, fault.OutcomeUnclear) || fault.Is(err, fault.DiskFull)
}
