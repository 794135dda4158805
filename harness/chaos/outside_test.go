package chaos

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// outside is the outside system. It lives in the parent process, which nobody
// kills. Its log, a file that is flushed before each answer, is the truth.
type outside struct {
	server *httptest.Server
	log    *os.File

	mu sync.Mutex
	r  *rand.Rand
	// faults off: it answers as it should.
	faults bool
	made   int
	// unwritten is why the log is not the truth any more.
	unwritten error
	// effects is what lookups find, by our reference; byKey what it remembers under
	// an honoured key.
	effects map[string][]string
	byKey   map[string]string
}

// entry is a line of the log: one effectful request, and the effect that it had,
// if any. One that is answered from an honoured key has none.
type entry struct {
	Kind      string `json:"kind"`
	Reference string `json:"reference"`
	Effect    string `json:"effect,omitempty"`
}

func newOutside(t *testing.T, seed uint64) *outside {
	t.Helper()
	log, err := os.OpenFile(filepath.Join(t.TempDir(), "effects.log"), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	require.NoError(t, err)
	o := &outside{log: log, r: rand.New(rand.NewPCG(seed, 1)), faults: true, effects: map[string][]string{}, byKey: map[string]string{}}
	t.Cleanup(func() { require.NoError(t, log.Close()) }) // behind the server's end
	mux := http.NewServeMux()
	mux.HandleFunc("GET /things/{id}", func(w http.ResponseWriter, r *http.Request) {
		write(w, http.StatusOK, map[string]any{"id": r.PathValue("id"), "state": "open"})
	})
	mux.HandleFunc("GET /effects", o.find)
	mux.HandleFunc("POST /{kind}/{id}", o.act)
	o.server = httptest.NewServer(mux)
	t.Cleanup(o.server.Close)
	return o
}

func write(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // a peer that is gone is the point
}

// find is the lookup.
func (o *outside) find(w http.ResponseWriter, r *http.Request) {
	items := []map[string]string{}
	o.mu.Lock()
	fail := o.faults && o.r.IntN(10) == 0
	for _, id := range o.effects[r.URL.Query().Get("reference")] {
		items = append(items, map[string]string{"id": id})
	}
	o.mu.Unlock()
	if fail {
		write(w, http.StatusInternalServerError, map[string]string{"message": "try later"})
		return
	}
	write(w, http.StatusOK, map[string]any{"items": items})
}

// act does what it is asked, and answers well, badly or not at all.
func (o *outside) act(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Reference string `json:"reference"`
	}
	if json.NewDecoder(r.Body).Decode(&body) != nil {
		write(w, http.StatusBadRequest, map[string]string{"message": "unreadable"})
		return
	}
	key := r.Header.Get("Idempotency-Key")
	o.mu.Lock()
	did := entry{Kind: r.PathValue("kind"), Reference: body.Reference}
	roll, pause := 100, time.Duration(0)
	if o.faults {
		roll, pause = o.r.IntN(100), time.Duration(o.r.IntN(15))*time.Millisecond
	}
	id := o.byKey[key]
	if id == "" && roll >= 5 { // under 5 it refuses before any effect
		o.made++
		id = fmt.Sprintf("eff_%d", o.made)
		did.Effect = id
		o.effects[body.Reference] = append(o.effects[body.Reference], id)
		if key != "" {
			o.byKey[key] = id
		}
	}
	if err := o.write(did); err != nil && o.unwritten == nil {
		o.unwritten = err
	}
	o.mu.Unlock()
	time.Sleep(pause)
	switch {
	case id == "":
		write(w, http.StatusUnprocessableEntity, map[string]string{"message": "not today"})
	case roll >= 5 && roll < 15:
		panic(http.ErrAbortHandler) // the reply is lost
	case roll >= 15 && roll < 20:
		write(w, http.StatusInternalServerError, map[string]string{"message": "done, but badly said"})
	default:
		write(w, http.StatusCreated, map[string]string{"id": id})
	}
}

// heal ends its faults.
func (o *outside) heal() { o.mu.Lock(); defer o.mu.Unlock(); o.faults = false }

// write puts a line into the log and flushes it. The lock is held.
func (o *outside) write(e entry) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	if _, err := o.log.Write(append(line, '\n')); err != nil {
		return err
	}
	return o.log.Sync()
}

// happened reads the log: by reference the effects, and how often it was asked for
// them.
func (o *outside) happened(t *testing.T) (effects map[string][]string, requests map[string]int) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	require.NoError(t, o.unwritten)
	text, err := os.ReadFile(o.log.Name())
	require.NoError(t, err)
	effects, requests = map[string][]string{}, map[string]int{}
	for line := range bytes.Lines(text) {
		var e entry
		require.NoError(t, json.Unmarshal(line, &e))
		requests[e.Reference]++
		if e.Effect != "" {
			effects[e.Reference] = append(effects[e.Reference], e.Effect)
		}
	}
	return effects, requests
}
