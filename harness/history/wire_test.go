package history_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"time"

	"countersign/fault"
	"countersign/ledger"
)

// problem is a refusal as it comes over the wire.
type problem struct {
	Code   fault.Code `json:"code"`
	Detail string     `json:"detail"`
}

// operation is what a client reads of one.
type operation struct {
	ID          string       `json:"id"`
	Generation  int          `json:"generation"`
	State       ledger.State `json:"state"`
	EffectID    string       `json:"effect_id"`
	Replayed    bool         `json:"replayed"`
	NeedsPerson bool         `json:"needs_person"`
	Agent       struct {
		ID string `json:"id"`
	} `json:"agent"`
}

func (o operation) seen() seen {
	return seen{ID: o.ID, Generation: o.Generation, State: o.State, Effect: o.EffectID}
}

// reply is what came back. Without an answer, ok is false.
type reply struct {
	ok      bool
	status  int
	header  http.Header
	problem problem
}

// send sends a request and reads the answer into out, unless it is a refusal.
// Sometimes the client hangs up.
func (c *client) send(g *gateway, who asker, method, path string, body, out any) reply {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if c.rng.IntN(30) == 0 && !c.calm {
		defer time.AfterFunc(time.Duration(c.rng.IntN(3000))*time.Microsecond, cancel).Stop()
	}
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			panic(err)
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, g.server.URL+path, bytes.NewReader(text))
	if err != nil {
		panic(err)
	}
	if who.key != "" {
		req.Header.Set("Authorization", "Bearer "+who.key)
	} else {
		req.AddCookie(who.cookie)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := c.http.Do(req)
	if err != nil {
		return c.cut(ctx)
	}
	defer res.Body.Close()
	answered, err := io.ReadAll(res.Body)
	if err != nil {
		return c.cut(ctx)
	}
	r := reply{ok: true, status: res.StatusCode, header: res.Header}
	var into any = &r.problem
	if r.status < 300 {
		into = out
	}
	if err := json.Unmarshal(answered, into); err != nil {
		r.problem = problem{Code: "unreadable", Detail: string(answered)}
		r.status = 0
	}
	return r
}

// cut counts why there is no answer.
func (c *client) cut(ctx context.Context) reply {
	if ctx.Err() != nil {
		c.faults.met("clients that hung up")
	} else {
		c.faults.met("connections that broke")
	}
	return reply{}
}

// answered makes an answer of a reply, and calls done for one that is no refusal.
func (c *client) answered(in call, r reply, done func() answer) answer {
	switch {
	case !r.ok:
		return answer{Lost: true}
	case r.status < 200 || r.status > 299:
		return c.refused(in, r.problem)
	}
	return done()
}
