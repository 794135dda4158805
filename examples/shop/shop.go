package shop

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// Config is what Open needs. Only Dir is required.
type Config struct {
	// Dir holds the shop's logs; it is created. One process uses it at a time.
	Dir string
	// Key, if set, is the bearer secret that effectful routes of the API demand.
	Key string
	// ReadKey, if set, is a second bearer secret that is good for reads only.
	// The page, its forms and the counts need neither: they are the shop's own
	// control room and belong on loopback.
	ReadKey string
	// Logger gets warnings; nil discards them.
	Logger *slog.Logger
	// Now is the clock; nil is time.Now.
	Now func() time.Time
	// OnEffect is called after an effect is on disk and before its request is
	// answered. It may be called from many goroutines; Effect.Number tells the order.
	OnEffect func(Effect)
}

// Shop is one running Acme shop. Its methods are safe for concurrent use.
type Shop struct {
	cfg     Config
	server  *http.Server
	handler http.Handler
	closed  chan struct{}
	once    sync.Once
	// closeErr is written inside once and read after it.
	closeErr error

	mu       sync.Mutex
	state    state
	effects  []Effect
	changes  []change
	requests []*Request
	reads    int
	switches Switches

	effectLog, changeLog, requestLog *lines

	// revision counts what a watcher may want to see; moved is closed and
	// replaced each time that it rises.
	revision int
	moved    chan struct{}
}

// Open builds the shop from its seed and the logs in cfg.Dir. A torn last line
// of a log is cut off; any other damage is an error and changes nothing.
func Open(cfg Config) (*Shop, error) {
	if cfg.Dir == "" {
		return nil, errors.New("shop: Config.Dir is empty")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("shop: %w", err)
	}
	s := &Shop{cfg: cfg, state: seeded(), closed: make(chan struct{}), moved: make(chan struct{})}
	if err := s.load(); err != nil {
		return nil, errors.Join(fmt.Errorf("shop: %w", err), s.closeLogs())
	}
	s.handler = s.routes()
	s.server = &http.Server{
		Handler:           s.handler,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    32 << 10,
		ErrorLog:          slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelWarn),
	}
	return s, nil
}

// load reads the three logs and replays effects and changes by hand in the
// order in which they happened.
func (s *Shop) load() error {
	var err error
	if s.effectLog, err = s.open("effects.jsonl", func(line []byte) error {
		return numbered(line, &s.effects, func(e Effect) int { return e.Number })
	}); err != nil {
		return err
	}
	if s.changeLog, err = s.open("changes.jsonl", func(line []byte) error {
		var c change
		if err := json.Unmarshal(line, &c); err != nil {
			return err
		}
		s.changes = append(s.changes, c)
		return nil
	}); err != nil {
		return err
	}
	if s.requestLog, err = s.open("requests.jsonl", func(line []byte) error {
		return numbered(line, &s.requests, func(r *Request) int { return r.Number })
	}); err != nil {
		return err
	}
	if n := len(s.changes); n > 0 && s.changes[n-1].After > len(s.effects) {
		return errors.New("effects.jsonl is older than changes.jsonl")
	}
	inOrder(s.effects, s.changes, s.state.apply, func(c change) { s.state.set(c.Rows) })
	return nil
}

func (s *Shop) open(name string, each func([]byte) error) (*lines, error) {
	l, cut, err := openLines(filepath.Join(s.cfg.Dir, name), each)
	if cut > 0 {
		s.cfg.Logger.Warn("shop: cut a torn last line, it was never acknowledged", "file", name, "bytes", cut)
	}
	return l, err
}

// numbered appends a line to rows and refuses it when its number is not its place.
func numbered[T any](line []byte, rows *[]T, number func(T) int) error {
	var row T
	if err := json.Unmarshal(line, &row); err != nil {
		return err
	}
	if want := len(*rows) + 1; number(row) != want {
		return fmt.Errorf("number %d where %d belongs", number(row), want)
	}
	*rows = append(*rows, row)
	return nil
}

// inOrder walks effects and changes by hand in the order in which they happened.
func inOrder(effects []Effect, changes []change, effect func(Effect), byHand func(change)) {
	next := 0
	for done := 0; ; done++ {
		for next < len(changes) && changes[next].After <= done {
			byHand(changes[next])
			next++
		}
		if done == len(effects) {
			return
		}
		effect(effects[done])
	}
}

// Handler serves the API, the page and the switches.
func (s *Shop) Handler() http.Handler { return s.handler }

// Serve answers on ln until Close; it returns nil after Close.
func (s *Shop) Serve(ln net.Listener) error {
	if err := s.server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Close ends all connections and waits, and closes the logs. Requests that are
// held before their effect end without one. A second Close does nothing.
func (s *Shop) Close() error {
	s.once.Do(func() {
		close(s.closed)
		err := s.server.Close()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.closeErr = errors.Join(err, s.closeLogs())
	})
	return s.closeErr
}

func (s *Shop) closeLogs() error {
	var errs []error
	for _, l := range []*lines{s.effectLog, s.changeLog, s.requestLog} {
		if l != nil {
			errs = append(errs, l.file.Close())
		}
	}
	return errors.Join(errs...)
}

// Effects lists what really happened, oldest first.
func (s *Shop) Effects() []Effect {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.effects)
}

// EffectCount is the number of effects.
func (s *Shop) EffectCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.effects)
}

// Requests lists every effectful request that was received, oldest first.
func (s *Shop) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Request, len(s.requests))
	for i, r := range s.requests {
		out[i] = *r
	}
	return out
}

// RequestCount is the number of effectful requests received.
func (s *Shop) RequestCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.requests)
}

// ReadCount is the number of reads of the API since Open or Reset.
func (s *Shop) ReadCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads
}

// Reset makes the shop new: seed rows, empty logs, all switches off.
func (s *Shop) Reset() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range []*lines{s.changeLog, s.effectLog, s.requestLog} {
		if err := l.clear(); err != nil {
			return fmt.Errorf("shop: reset: %w", err)
		}
	}
	s.state, s.effects, s.changes, s.requests, s.reads, s.switches = seeded(), nil, nil, nil, 0, Switches{}
	s.movedLocked()
	return nil
}

// movedLocked wakes everybody who watches the shop.
func (s *Shop) movedLocked() {
	s.revision++
	close(s.moved)
	s.moved = make(chan struct{})
}
