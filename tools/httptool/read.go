package httptool

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"time"

	"countersign/fault"
	"countersign/tools"
)

// retried are the statuses after which a read is asked again.
var retried = map[int]bool{
	http.StatusTooManyRequests: true, http.StatusBadGateway: true,
	http.StatusServiceUnavailable: true, http.StatusGatewayTimeout: true,
}

// read sends one effect-free request with the read credential, and again after
// a pause when the connection failed or the upstream is busy: up to the limit of
// tries, 1 s, 2 s, 4 s … with full jitter, inside budget. It changes nothing.
// The error is a *fault.Error when no answer was received at all.
func (c *Client) read(ctx context.Context, r tools.Request, try, budget time.Duration) (tools.Reply, tools.Exchange, error) {
	x := tools.Exchange{Target: r.Method + " " + c.URL() + r.Path}
	if !r.EffectFree {
		// The last door: whatever was declared, nothing that may have an effect
		// leaves through a read.
		c.refused.Add(1)
		return tools.Reply{}, x, fault.New(fault.Internal, "A request that is not effect-free was stopped on the way of a read.")
	}
	ctx, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	end := c.up.Now().Add(budget)
	for n := 1; ; n++ {
		reply, wait, err := c.readOnce(ctx, r, try, &x)
		if err == nil && !retried[reply.Status] || n >= c.up.Limits.ReadTries || ctx.Err() != nil || isLasting(err) {
			return reply, x, c.readFault(err)
		}
		pause := time.Duration(c.up.Rand() * float64(time.Second<<(n-1)))
		pause = max(pause, wait)
		if c.up.Now().Add(pause).After(end) {
			return reply, x, c.readFault(err)
		}
		if c.up.Sleep(ctx, pause) != nil {
			return reply, x, c.readFault(err)
		}
	}
}

// readOnce is one try.
func (c *Client) readOnce(ctx context.Context, r tools.Request, timeout time.Duration, x *tools.Exchange) (tools.Reply, time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, r.Method, c.URL()+r.Path, nil)
	if err != nil {
		return tools.Reply{}, 0, err
	}
	if len(r.Body) > 0 {
		req.Body, req.ContentLength = onceBody{bytes.NewReader(r.Body)}, int64(len(r.Body))
	}
	setHeader(req.Header, withOwnHeader(r.Header))
	credential := c.up.ReadAuth
	if credential == nil {
		credential = c.up.Auth
	}
	secrets, err := credential.apply(req.Header)
	if err != nil {
		return tools.Reply{}, 0, err
	}
	*x = tools.Exchange{Target: x.Target, SentAt: c.up.Now()}
	resp, err := c.reads.RoundTrip(req)
	if err != nil {
		x.Error = words(err)
		return tools.Reply{}, 0, err
	}
	reply, _ := c.receive(resp, x, secrets)
	if reply.Incomplete != "" && !retried[reply.Status] {
		return reply, 0, &errIncomplete{reply.Incomplete}
	}
	return reply, retryAfter(resp.Header, c.up.Now()), nil
}

// errIncomplete is an answer that broke off.
type errIncomplete struct{ why string }

func (e *errIncomplete) Error() string { return "the answer is incomplete: " + e.why }

// isLasting are failures that a repeat does not cure.
func isLasting(err error) bool {
	var forbidden *errForbidden
	var credential *errCredential
	return errors.As(err, &forbidden) || errors.As(err, &credential)
}

// credentialPause is how long a caller waits for an operator to set a secret.
const credentialPause = time.Minute

// readFault says what a caller may see of a read that failed.
func (c *Client) readFault(err error) error {
	var incomplete *errIncomplete
	var credential *errCredential
	var forbidden *errForbidden
	switch {
	case err == nil:
		return nil
	case errors.As(err, &incomplete):
		return fault.New(fault.UpstreamUnexpected, "The outside system's answer was not received whole: %s", incomplete.why)
	case errors.As(err, &credential):
		e := fault.Wrap(err, fault.UpstreamUnexpected, "The gateway has no usable credential for the upstream %s; an operator must set it.", c.up.Name)
		e.RetryAfter = credentialPause
		return e
	case errors.As(err, &forbidden):
		return fault.Wrap(err, fault.TargetForbidden, "%s", words(err))
	case isTimeout(err):
		return fault.Wrap(err, fault.UpstreamTimeout, "The outside system did not answer in time.")
	}
	return fault.Wrap(err, fault.UpstreamUnexpected, "The outside system could not be reached: %s", words(err))
}
