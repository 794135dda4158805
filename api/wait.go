package api

import (
	"context"
	"time"

	"countersign/ledger"
)

// defaultWait is how long a commit waits for its outcome when it does not say.
const defaultWait = 10 * time.Second

// patient lets the connection live through a wait: its read deadline was for a
// request that is read, its write deadline for an answer without delay.
func (s *Server) patient(ctx context.Context, wait time.Duration) {
	control := of(ctx).control
	_ = control.SetReadDeadline(time.Time{})
	_ = control.SetWriteDeadline(s.sockets.Now().Add(wait + writeTimeout))
}

// await gives an operation when it is final, has come to rest, or the time is
// over. What rests already is only left by becoming final, so a caller that
// waits on doubt or on people is not answered at once.
func (s *Server) await(ctx context.Context, op ledger.Operation, wait time.Duration) (ledger.Operation, error) {
	if wait == 0 || op.State.Final() {
		return op, nil
	}
	s.patient(ctx, wait)
	began := op.State
	short, cancel := context.WithCancel(ctx)
	defer cancel()
	if s.cfg.Draining != nil {
		go func() {
			select {
			case <-s.cfg.Draining:
				cancel()
			case <-short.Done():
			}
		}()
	}
	waited, err := s.cfg.Ledger.Await(short, op.Tenant, op.ID, wait, func(now ledger.Operation) bool {
		rests := now.State == ledger.AwaitingApproval || now.State == ledger.Unknown
		return now.State.Final() || rests && now.State != began
	})
	if err != nil && short.Err() != nil {
		return s.cfg.Ledger.Operation(ctx, op.Tenant, op.ID)
	}
	if err != nil {
		return op, err
	}
	// The session may have ended meanwhile.
	return waited, s.stillThere(ctx)
}

// secondsOf reads a wait parameter.
func secondsOf(wait *int, otherwise time.Duration) time.Duration {
	if wait == nil {
		return otherwise
	}
	return time.Duration(*wait) * time.Second
}
