package chaos

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"
)

// outside is the outside system. It lives in the parent process, which nobody
// kills; its log is the truth.
type outside struct {
	server *httptest.Server

	mu sync.Mutex
	r  *rand.Rand
	// faults off: it answers as it should.
	faults  bool
	effects []effect
	// byKey is what it remembers under an honoured key.
	byKey map[string]string
	// received counts effectful requests by our reference.
	received map[string]int
}

// effect is one thing that happened.
type effect struct{ Kind, Reference, ID string }

func newOutside(t *testing.T, seed uint64) *outside {
	o := &outside{r: rand.New(rand.NewPCG(seed, 1)), faults: true, byKey: map[string]string{}, received: map[string]int{}}
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
	for _, e := range o.effects {
		if e.Reference == r.URL.Query().Get("reference") {
			items = append(items, map[string]string{"id": e.ID})
		}
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
	o.received[body.Reference]++
	roll, pause := 100, time.Duration(0)
	if o.faults {
		roll, pause = o.r.IntN(100), time.Duration(o.r.IntN(15))*time.Millisecond
	}
	id := o.byKey[key]
	if id == "" && roll >= 5 { // under 5 it refuses before any effect
		id = fmt.Sprintf("eff_%d", len(o.effects)+1)
		o.effects = append(o.effects, effect{Kind: r.PathValue("kind"), Reference: body.Reference, ID: id})
		if key != "" {
			o.byKey[key] = id
		}
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

// log is what happened, by reference.
func (o *outside) log() (effects map[string][]string, received map[string]int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	effects, received = map[string][]string{}, map[string]int{}
	for _, e := range o.effects {
		effects[e.Reference] = append(effects[e.Reference], e.ID)
	}
	for k, n := range o.received {
		received[k] = n
	}
	return effects, received
}
