// Package audit proves what the ledger says, to people who don't have to believe
// the machine that it lies on.
//
// What lives here: the Sealer, which signs a checkpoint over everything new; the
// Anchors, places outside the store that hold the newest checkpoint; Compare,
// which keeps a gateway from starting on a ledger that is older than its anchor;
// Export and Verify, which works on an export alone; Recover, for a ledger that
// came out of a backup; and Receipts, signed statements about one operation.
//
// How it flows: each transition has one event, in the same write, and the events
// of an operation form a hash chain (package ledger). The Sealer reads them in
// commit order, checks each, builds a ledger.Checkpoint over their hashes and the
// guard rows, signs it, lets the store keep it, and hands it to the anchors. An
// auditor exports, takes the published keys and an anchor, and verifies on a
// machine of their own.
//
// What does not live here: the chain of an operation and the form of a checkpoint
// (ledger), keys and signatures (tokens), the files and routes through which this
// is asked for (cmd, api).
package audit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"time"

	"countersign/ledger"
	"countersign/tokens"
	"countersign/tools"
)

// The kinds of signed statements. Each is a JWS whose typ is one of these.
const (
	CheckpointType = "countersign-checkpoint+jwt"
	OverrideType   = "countersign-override+jwt"
	RecoveryType   = "countersign-recovery+jwt"
	ExportType     = "countersign-export+jwt"
	ReceiptType    = "countersign-receipt+jwt"
)

// Source is what exports are read from: a store, or a view of it at one moment.
// The methods are those of ledger.Store.
type Source interface {
	Tenants(ctx context.Context) ([]string, error)
	GuardHistory(ctx context.Context, tenant string, after int64, limit int) ([]ledger.Guard, error)
	AllEventsAfter(ctx context.Context, seq int64, limit int) ([]ledger.Event, error)
	Checkpoints(ctx context.Context, n int64, limit int) ([]ledger.Checkpoint, error)
	LastCheckpoint(ctx context.Context) (ledger.Checkpoint, error)
	List(ctx context.Context, f ledger.Filter) (ledger.Page, error)
	Plan(ctx context.Context, tenant, operation string, round int) (tools.Plan, error)
	Decisions(ctx context.Context, tenant, operation string) ([]ledger.Decision, error)
	Evidence(ctx context.Context, tenant, operation string) ([]ledger.Evidence, error)
}

// signCheckpoint fills in hash and signature.
func signCheckpoint(keys *tokens.KeySet, c ledger.Checkpoint) (ledger.Checkpoint, error) {
	c.Signature = ""
	c.Hash = c.Digest()
	signature, err := keys.Sign(CheckpointType, unsigned(c))
	c.Signature = signature
	return c, err
}

// unsigned is what the signature of a checkpoint is made over.
func unsigned(c ledger.Checkpoint) []byte {
	c.Signature = ""
	return mustJSON(c)
}

// checkSignature says whether one of the keys signed exactly this checkpoint:
// nil, tokens.ErrUnknownKey or tokens.ErrBadStatement.
func checkSignature(keys tokens.PublicKeys, c ledger.Checkpoint) error {
	payload, _, err := keys.Verify(CheckpointType, c.Signature)
	if err == nil && string(payload) != string(unsigned(c)) {
		err = tokens.ErrBadStatement
	}
	return err
}

// checkpointNumbered reads one checkpoint; false when there is none of that
// number.
func checkpointNumbered(ctx context.Context, s interface {
	Checkpoints(ctx context.Context, n int64, limit int) ([]ledger.Checkpoint, error)
}, n int64,
) (ledger.Checkpoint, bool, error) {
	if n < 1 {
		return ledger.Checkpoint{}, false, nil
	}
	found, err := s.Checkpoints(ctx, n-1, 1)
	if err != nil || len(found) == 0 || found[0].N != n {
		return ledger.Checkpoint{}, false, err
	}
	return found[0], true, nil
}

func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // structs of strings, numbers and times always marshal
	}
	return b
}

// page is how many rows are read at once.
const page = 500

// within bounds one step of something outside.
func within(ctx context.Context, d time.Duration, step func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return step(ctx)
}

// isRefused tells a write that the store refused for that reason.
func isRefused(err error, why ledger.Why) bool {
	var refused *ledger.Refused
	return errors.As(err, &refused) && refused.Why == why
}

// hexSum is SHA-256 in hexadecimal.
func hexSum(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
