package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"countersign/ledger"
)

// received is one answer that an agent really got: it defines "acknowledged".
type received struct {
	Operation string
	State     ledger.State
	EffectID  string
}

// crowd are agents that ask, and ask again, and note what they are told.
type crowd struct {
	g      *gateway
	client *http.Client

	mu      sync.Mutex
	answers []received
}

func newCrowd(g *gateway) *crowd {
	transport := &http.Transport{MaxIdleConnsPerHost: 16}
	g.t.Cleanup(transport.CloseIdleConnections)
	return &crowd{g: g, client: &http.Client{Timeout: 10 * time.Second, Transport: transport}}
}

// operationDoc is the part of an answer that counts here.
type operationDoc struct {
	ID       string       `json:"id"`
	State    ledger.State `json:"state"`
	EffectID string       `json:"effect_id"`
}

// post sends one request; an error means that nothing was acknowledged.
func (c *crowd) post(ctx context.Context, path string, body any) (int, json.RawMessage, error) {
	b, err := json.Marshal(body)
	if err != nil {
		return 0, nil, err
	}
	return c.send(ctx, http.MethodPost, path, bytes.NewReader(b))
}

func (c *crowd) send(ctx context.Context, method, path string, body io.Reader) (int, json.RawMessage, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.g.url+path, body)
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Authorization", "Bearer "+c.g.key)
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, text, err
}

// note keeps an answer with an operation in it.
func (c *crowd) note(text json.RawMessage) (operationDoc, bool) {
	var op operationDoc
	if json.Unmarshal(text, &op) != nil || op.ID == "" || op.State == "" {
		return op, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answers = append(c.answers, received{op.ID, op.State, op.EffectID})
	return op, true
}

// pursue brings one intent to an answer, however often the gateway dies.
func (c *crowd) pursue(ctx context.Context, kind, id string) {
	token := ""
	for try := 0; ctx.Err() == nil; try++ {
		if try > 0 {
			select {
			case <-time.After(12 * time.Millisecond):
			case <-ctx.Done():
				return
			}
		}
		if token == "" {
			status, text, err := c.post(ctx, "/v1/tools/touch_"+kind+"/preview", map[string]any{"args": map[string]any{"id": id}})
			if err != nil || status != http.StatusOK {
				continue
			}
			var p struct {
				Token     string          `json:"commit_token"`
				Operation json.RawMessage `json:"operation"`
			}
			if json.Unmarshal(text, &p) != nil {
				continue
			}
			if p.Token == "" {
				c.note(p.Operation) // somebody was first
				return
			}
			token = p.Token
		}
		status, text, err := c.post(ctx, "/v1/tools/touch_"+kind+"/commit?wait=0", map[string]any{"commit_token": token})
		switch {
		case err != nil:
			continue
		case status == http.StatusOK || status == http.StatusAccepted:
			if _, ok := c.note(text); ok {
				return
			}
		case status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests || status >= 500:
			continue
		default:
			token = "" // stale or expired: preview anew
		}
	}
}

// work asks until ctx ends: mostly new things, sometimes what others ask for too.
func (c *crowd) work(ctx context.Context, agents int, seed uint64) {
	var wait sync.WaitGroup
	for a := range agents {
		wait.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(a)+100))
			for n := 0; ctx.Err() == nil; n++ {
				id := fmt.Sprintf("a%dn%d", a, n)
				if r.IntN(4) == 0 {
					id = fmt.Sprintf("shared%d", r.IntN(2000))
				}
				c.pursue(ctx, kinds[r.IntN(len(kinds))], id)
			}
		})
	}
	wait.Wait()
}
