package httptool

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"time"

	"countersign/tools"
)

// onceBody is a request body that the transport can't rewind: it is no type that
// net/http knows, and no GetBody is set.
type onceBody struct{ io.Reader }

func (onceBody) Close() error { return nil }

// Dispatch implements tools.Connector: it sends the plan's wire once and says
// what was seen. ctx gives values only: neither an agent that hangs up nor a
// stop of the gateway cancels it; the timeout bounds it.
func (c *connector) Dispatch(ctx context.Context, plan tools.Plan, d tools.Dispatch) tools.Outcome {
	out := tools.Outcome{Verdict: tools.NotSent}
	out.Seen.Target = plan.Target
	notSent := func(because string) tools.Outcome {
		out.Because, out.Seen.Error = because, because
		return out
	}
	w, body, err := readWire(plan.Wire)
	switch {
	case err != nil:
		return notSent("The plan's request can't be read.")
	case !strings.HasPrefix(w.URL, c.client.URL()+"/"):
		return notSent("The plan's request is for another address than the upstream's.")
	}
	timeout := d.Timeout
	if timeout <= 0 {
		timeout = c.m.Spec.Timeout
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	s := &sending{client: c.client, started: c.client.up.Now(), deadline: d.Deadline}
	s.end, _ = ctx.Deadline()
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, s.trace()), w.Method, w.URL, nil)
	if err != nil {
		return notSent("The plan's request is not one that can be sent.")
	}
	if len(body) > 0 {
		req.Body, req.ContentLength, req.GetBody = onceBody{bytes.NewReader(body)}, int64(len(body)), nil
	}
	setHeader(req.Header, w.Header)
	secrets, err := c.client.up.Auth.apply(req.Header)
	if err != nil {
		return notSent("The credential for the upstream can't be read.")
	}
	resp, err := c.transport(req).RoundTrip(req)
	if err != nil {
		return s.failed(out, err)
	}
	s.seen(&out.Seen)
	reply, whole := c.client.receive(resp, &out.Seen, secrets)
	if !whole {
		s.conn.seal()
		s.conn.Close()
	}
	judged := c.m.Judge(plan, reply)
	judged.Seen = out.Seen
	judged.Because = withoutSecrets(judged.Because, secrets)
	return judged
}

// transport gives a connection of its own to every request that must not be
// sent twice. Only where the upstream honours keys is a connection used again,
// and only with a body, which can't be rewound: without one net/http would
// repeat a request that carries an Idempotency-Key on a connection that died.
func (c *connector) transport(req *http.Request) *http.Transport {
	if c.m.Spec.HonoursKey && req.Body != nil {
		return c.client.keyed
	}
	return c.client.fresh
}

// sending is one dispatch on its way.
type sending struct {
	client   *Client
	started  time.Time
	deadline time.Time
	end      time.Time // of the whole exchange, on the machine's clock
	conn     *gateConn
	first    time.Time
}

// trace gets hold of the connection before anything is written to it.
func (s *sending) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		conn, ok := info.Conn.(*gateConn)
		if !ok {
			return
		}
		if s.conn != nil {
			// A second connection for one request would be a second sending.
			conn.seal()
			return
		}
		s.conn = conn
		conn.arm(s.beforeFirstByte)
	}}
}

// beforeFirstByte is the last look at the clocks: a late waker must not send.
// The wall clock sees a machine that slept, the monotonic one a clock that was
// set back.
func (s *sending) beforeFirstByte() error {
	now := s.client.up.Now()
	if !s.deadline.IsZero() {
		wallLate := now.Round(0).After(s.deadline.Round(0))
		budget := s.deadline.Round(0).Sub(s.started.Round(0))
		if wallLate || now.Sub(s.started) > budget {
			return errLate
		}
	}
	s.first = now
	// The context bounds the exchange; the connection is bounded beside it, for
	// a write that hangs.
	return s.conn.SetDeadline(s.end)
}

// failed classifies an exchange without an answer. Only a gate through which
// nothing went proves that nothing was sent.
func (s *sending) failed(out tools.Outcome, err error) tools.Outcome {
	out.Because, out.Seen.Error = words(err), words(err)
	if s.conn == nil {
		return out // no connection, no byte
	}
	began := s.conn.seal()
	s.conn.Close()
	if !began {
		switch refusal := s.conn.refusal(); {
		case refusal != nil:
			out.Because, out.Seen.Error = words(refusal), words(refusal)
		case errors.Is(err, errSealed):
			out.Because = "The connection was closed before anything was written."
		}
		return out
	}
	out.Verdict = tools.Unknown
	s.seen(&out.Seen)
	return out
}

// seen writes down what went out. The gate's lock orders the read of first after
// its write.
func (s *sending) seen(x *tools.Exchange) {
	x.SentBytes = s.conn.sent()
	x.SentAt = s.first
}
