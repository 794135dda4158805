package history_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"countersign/ledger"
)

// token is one that some client holds.
type token struct {
	text       string
	order      int
	generation int
	args       int
	agent      int
}

// known is what clients tell each other about a subject: the order that they are
// at, and what they hold of it and of the ones before.
type known struct {
	mu     sync.Mutex
	order  int
	tokens []token
	ops    []sighting
}

// sighting is one operation that somebody saw.
type sighting struct {
	id    string
	order int
}

// at gives the order that the clients are at.
func (k *known) at() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.order
}

// learn notes an operation; what took effect sends everybody on to the next order.
func (k *known) learn(order int, op seen) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if o := (sighting{op.ID, order}); op.ID != "" && !slices.Contains(k.ops, o) {
		k.ops = append(k.ops, o)
	}
	if op.State.Effective() && order == k.order {
		k.order++
	}
}

// op gives an operation, mostly the newest; none when none is known.
func (k *known) op(rng *rand.Rand) sighting {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch n := len(k.ops); {
	case n == 0:
		return sighting{}
	case rng.IntN(5) > 0:
		return k.ops[n-1]
	default:
		return k.ops[rng.IntN(n)]
	}
}

func (k *known) keep(t token) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.tokens = append(k.tokens, t)
}

func (k *known) token(rng *rand.Rand) (token, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := len(k.tokens)
	if n == 0 {
		return token{}, false
	}
	return k.tokens[max(0, n-1-rng.IntN(4))], true
}

// client makes calls, one after another.
type client struct {
	*world
	*recorder
	n     int
	rng   *rand.Rand
	known []*known
	// calm: it never hangs up.
	calm bool
}

// run makes so many calls.
func (c *client) run(calls int) {
	for range calls {
		switch c.rng.IntN(12) {
		case 0, 1, 2:
			c.holds.letGo()
		case 3:
			c.clock.advance(time.Duration(c.rng.IntN(25)) * time.Second)
		case 4:
			if c.rng.IntN(6) == 0 {
				c.restart(c.rng.IntN(len(c.gateways)))
			}
		}
		i := c.rng.IntN(len(c.subjects))
		c.one(c.subjects[i], c.known[i])
	}
}

// one makes one call about a subject.
func (c *client) one(s *subject, k *known) {
	in := call{Tool: s.tool.Name, Quorum: s.quorum, Keyed: s.keyed}
	g := c.gateway(c.rng.IntN(len(c.gateways)))
	switch n := c.rng.IntN(100); {
	case n < 22:
		c.preview(g, in, k)
	case n < 40:
		if t, ok := k.token(c.rng); ok {
			c.commit(g, in, k, t)
			return
		}
		c.preview(g, in, k)
	case n < 47:
		c.find(g, in, k)
	case n < 58:
		c.about(in, k, func(in call) { c.get(g, in, k) })
	case n < 62:
		c.about(in, k, func(in call) { c.look(s, in) })
	case n < 80:
		if s.quorum == 0 {
			c.preview(g, in, k)
			return
		}
		c.about(in, k, func(in call) { c.decide(g, in) })
	case n < 84:
		c.about(in, k, func(in call) { c.cancel(g, in) })
	case n < 87:
		c.freeze(g, in)
	case n < 94:
		c.unfreeze(g, in)
	default:
		c.about(in, k, func(in call) { c.resolve(g, s, in) })
	}
}

// about calls do with an operation, when one is known.
func (c *client) about(in call, k *known, do func(in call)) {
	op := k.op(c.rng)
	if in.Operation, in.Order = op.id, op.order; op.id != "" {
		do(in)
	}
}

// somebody is a person.
func (c *client) somebody() asker { return c.people[c.rng.IntN(len(c.people))] }

func (c *client) preview(g *gateway, in call, k *known) {
	n := c.rng.IntN(len(c.agents))
	agent := c.agents[n]
	in.What, in.Order, in.Args, in.Agent = "preview", k.at(), c.rng.IntN(8)/7, agent.id // mostly the same arguments
	body := map[string]any{"args": map[string]any{"order_id": fmt.Sprint("o", in.Order), "amount": json.Number(fmt.Sprint(in.Args))}}
	var out struct {
		Generation int       `json:"generation"`
		Token      string    `json:"commit_token"`
		Operation  operation `json:"operation"`
	}
	a := c.do(c.n, in, func() answer {
		r := c.send(g, agent, http.MethodPost, "/v1/tools/"+in.Tool+"/preview", body, &out)
		return c.answered(in, r, func() answer {
			if out.Operation.ID == "" {
				return answer{Generation: out.Generation}
			}
			if out.Token != "" || !out.Operation.Replayed {
				c.odd(in, "an operation that stands, beside a token or as if it were new")
			}
			return answer{Op: out.Operation.seen()}
		})
	})
	k.learn(in.Order, a.Op)
	if a.Generation == 0 {
		return
	}
	t := token{text: out.Token, order: in.Order, generation: a.Generation, args: in.Args, agent: n}
	k.keep(t)
	if c.rng.IntN(3) > 0 {
		c.commit(g, in, k, t)
	}
}

func (c *client) commit(g *gateway, in call, k *known, t token) {
	agent := c.agents[t.agent]
	in.What, in.Order, in.Args, in.Agent, in.Generation = "commit", t.order, t.args, agent.id, t.generation
	a := c.do(c.n, in, func() answer {
		var op operation
		r := c.send(g, agent, http.MethodPost, "/v1/tools/"+in.Tool+"/commit?wait=0", map[string]any{"commit_token": t.text}, &op)
		return c.answered(in, r, func() answer {
			c.settledBy(in, r, op)
			if r.header.Get("Idempotency-Replayed") != fmt.Sprint(op.Replayed) {
				c.odd(in, "the header and the body differ on whether it is a repeat")
			}
			return answer{Op: op.seen(), Fresh: !op.Replayed}
		})
	})
	k.learn(in.Order, a.Op)
}

// settledBy checks that 200 is said of what is final, and 202 of all else.
func (c *client) settledBy(in call, r reply, op operation) {
	if (r.status == http.StatusOK) != op.State.Final() {
		c.odd(in, fmt.Sprintf("%d for an operation that is %s", r.status, op.State))
	}
}

func (c *client) get(g *gateway, in call, k *known) {
	in.What = "get"
	a := c.do(c.n, in, func() answer {
		var op operation
		r := c.send(g, c.somebody(), http.MethodGet, "/v1/operations/"+in.Operation, nil, &op)
		return c.answered(in, r, func() answer {
			c.settledBy(in, r, op)
			return answer{Op: op.seen()}
		})
	})
	k.learn(in.Order, a.Op)
}

// find asks for the newest operation of the key, as one does after a crash.
func (c *client) find(g *gateway, in call, k *known) {
	in.What, in.Order = "find", k.at()
	key := fmt.Sprintf("%s/o%d", in.Tool, in.Order)
	a := c.do(c.n, in, func() answer {
		var page struct {
			Operations []operation `json:"operations"`
		}
		r := c.send(g, c.somebody(), http.MethodGet, "/v1/operations?limit=1&tool="+in.Tool+"&key="+url.QueryEscape(key), nil, &page)
		return c.answered(in, r, func() answer {
			if len(page.Operations) == 0 {
				return answer{}
			}
			return answer{Op: page.Operations[0].seen()}
		})
	})
	k.learn(in.Order, a.Op)
}

// look asks the outside system itself what effects the operation has had.
func (c *client) look(s *subject, in call) {
	in.What = "outside"
	c.do(c.n, in, func() answer { return answer{Effects: strings.Join(s.outside(in.Operation), " ")} })
}

func (c *client) decide(g *gateway, in call) {
	in.What, in.Person = "approve", c.rng.IntN(len(c.people))
	body := map[string]any{}
	if c.rng.IntN(6) == 0 {
		in.What, body["reason"] = "reject", "not now"
	}
	who := c.people[in.Person]
	path := "/v1/approvals/apr_" + strings.TrimPrefix(in.Operation, "op_")
	var card struct {
		Shown     string    `json:"shown_digest"`
		Operation operation `json:"operation"`
	}
	if r := c.send(g, who, http.MethodGet, path, nil, &card); !r.ok || r.status != http.StatusOK {
		return // nothing was shown, so nothing can be decided
	}
	body["decision"], body["shown_digest"] = in.What, card.Shown
	c.do(c.n, in, func() answer {
		card.Operation = operation{}
		r := c.send(g, who, http.MethodPost, path+"/decision", body, &card)
		return c.answered(in, r, func() answer { return answer{Op: card.Operation.seen()} })
	})
}

// move makes a call that moves an operation.
func (c *client) move(g *gateway, in call, who asker, verb string, body any) {
	c.do(c.n, in, func() answer {
		var op operation
		r := c.send(g, who, http.MethodPost, "/v1/operations/"+in.Operation+"/"+verb, body, &op)
		return c.answered(in, r, func() answer { return answer{Op: op.seen()} })
	})
}

func (c *client) cancel(g *gateway, in call) {
	in.What = "cancel"
	c.move(g, in, c.somebody(), "cancel", map[string]any{"reason": "no longer needed"})
}

func (c *client) freeze(g *gateway, in call) {
	in.What = "freeze"
	body := map[string]any{"scope": map[string]any{"tool": in.Tool}, "level": ledger.FreezeAll, "reason": "looks wrong"}
	c.do(c.n, in, func() answer {
		r := c.send(g, c.somebody(), http.MethodPost, "/v1/freezes", body, &struct{}{})
		return c.answered(in, r, func() answer { return answer{} })
	})
}

func (c *client) unfreeze(g *gateway, in call) {
	in.What = "unfreeze"
	body := map[string]any{"scope": map[string]any{"tool": in.Tool}, "reason": "looked at it", "override": c.rng.IntN(2) == 0}
	c.do(c.n, in, func() answer {
		r := c.send(g, c.somebody(), http.MethodPost, "/v1/freezes/lift", body, &struct{}{})
		return c.answered(in, r, func() answer { return answer{} })
	})
}

// resolve lets a person look outside and say what they saw. While the gateway may
// still send the same again, they leave it alone: what they saw could be out of
// date when they say it.
func (c *client) resolve(g *gateway, s *subject, in call) {
	in.What = "resolve"
	who := c.somebody()
	var op operation
	r := c.send(g, who, http.MethodGet, "/v1/operations/"+in.Operation, nil, &op)
	if !r.ok || op.ID == "" || op.State == ledger.Unknown && s.keyed && !op.NeedsPerson {
		return
	}
	body := map[string]any{"outcome": "did_not_happen", "reason": "looked"}
	if effects := s.outside(in.Operation); len(effects) > 0 {
		in.Said = effects[0]
		body["outcome"], body["effect_id"] = "happened", in.Said
	}
	c.move(g, in, who, "resolve", body)
}
