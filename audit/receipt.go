package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"time"

	"countersign/fault"
	"countersign/ledger"
	"countersign/tokens"
	"countersign/tools"
)

// ReceiptFormat names the form of a receipt.
const ReceiptFormat = "countersign-receipt-1"

// Receipt is what the gateway states about one operation that has ended: who asked,
// what was shown, who decided, what was sent, what is proven. Arguments are in it as
// a digest only.
type Receipt struct {
	Format   string    `json:"format"`
	Ledger   string    `json:"ledger"`
	IssuedAt time.Time `json:"issued_at"`

	Operation  string           `json:"operation"`
	Tenant     string           `json:"tenant"`
	State      ledger.State     `json:"state"`
	Final      time.Time        `json:"final_at"`
	Tool       string           `json:"tool"`
	Version    string           `json:"tool_version"`
	Key        string           `json:"idempotency_key"`
	Generation int              `json:"generation"`
	Reason     *ledger.Reason   `json:"reason,omitempty"`
	Asked      ReceiptAsked     `json:"asked"`
	Shown      ReceiptShown     `json:"shown"`
	Decisions  []ReceiptWord    `json:"decisions"`
	Sent       ReceiptSent      `json:"sent"`
	Proven     ReceiptProven    `json:"proven"`
	Chain      ReceiptChain     `json:"chain"`
	Undo       *ReceiptRelation `json:"undo,omitempty"`
	// Boundary is "live", or "drill" for synthetic data.
	Boundary string `json:"evidence_boundary"`
}

// ReceiptAsked is who asked.
type ReceiptAsked struct {
	Agent tools.Agent `json:"agent"`
	// By is the operator or agent who asked in the place of the agent.
	By        *ledger.Actor `json:"by,omitempty"`
	Run       *ledger.Run   `json:"run,omitempty"`
	RequestID string        `json:"request_id"`
	At        time.Time     `json:"at"`
}

// ReceiptShown is what was shown of the plan that was sent, or would have been.
type ReceiptShown struct {
	Round      int            `json:"round"`
	PlanDigest string         `json:"plan_digest"`
	ArgsDigest string         `json:"args_digest"`
	Headline   string         `json:"headline"`
	Reversible bool           `json:"reversible"`
	Effects    []tools.Effect `json:"effects"`
	// Rule is what the policy asked for, PolicyDigest the rules that it read.
	Rule         string `json:"rule"`
	PolicyDigest string `json:"policy_digest"`
}

// ReceiptWord is one decision.
type ReceiptWord struct {
	Round  int         `json:"round"`
	Person string      `json:"person"`
	Name   string      `json:"name"`
	Groups []string    `json:"groups,omitempty"`
	Word   ledger.Verb `json:"word"`
	// ShownDigest is the digest of what that person was shown.
	ShownDigest string    `json:"shown_digest"`
	Reason      string    `json:"reason,omitempty"`
	At          time.Time `json:"at"`
}

// ReceiptSent is what was put on the wire.
type ReceiptSent struct {
	Target      string           `json:"target"`
	UpstreamKey string           `json:"upstream_key"`
	Attempts    []ledger.Attempt `json:"attempts"`
	// Adopted: nothing was sent; it was found already done.
	Adopted bool `json:"adopted,omitempty"`
}

// ReceiptProven is what the end rests on.
type ReceiptProven struct {
	EffectID string            `json:"effect_id,omitempty"`
	Evidence []ReceiptEvidence `json:"evidence"`
}

// ReceiptEvidence is one piece of evidence; Digest is the SHA-256 over all of it as
// the ledger has it.
type ReceiptEvidence struct {
	ID       string           `json:"id"`
	Kind     string           `json:"kind"`
	Attempt  int              `json:"attempt,omitempty"`
	Verdict  tools.Verdict    `json:"verdict"`
	Answer   tools.AnswerKind `json:"answer,omitempty"`
	EffectID string           `json:"effect_id,omitempty"`
	By       ledger.Actor     `json:"by"`
	At       time.Time        `json:"at"`
	Digest   string           `json:"digest"`
}

// ReceiptChain places the operation in the ledger: its newest event, and the
// checkpoint that covers it, if one does yet.
type ReceiptChain struct {
	Events     int64  `json:"events"`
	Seq        int64  `json:"seq"`
	Hash       string `json:"hash"`
	Checkpoint *Mark  `json:"checkpoint,omitempty"`
}

// ReceiptRelation links an operation and its undo.
type ReceiptRelation struct {
	// Of is what this one took back, By what took this one back.
	Of string `json:"of,omitempty"`
	By string `json:"by,omitempty"`
}

// Receipts issues receipts.
type Receipts struct {
	Store  ledger.Store
	Ledger string
	Keys   *tokens.KeySet
	Now    func() time.Time
}

// Issue signs a receipt of a final operation: a JWS whose payload is the receipt. An
// operation that is not final is refused: nothing can be stated about its end.
func (r Receipts) Issue(ctx context.Context, reader ledger.Reader, tenant, id string) (string, Receipt, error) {
	op, err := reader.Operation(ctx, tenant, id)
	if err != nil {
		return "", Receipt{}, err
	}
	if !op.State.Final() {
		return "", Receipt{}, &fault.Error{Code: fault.InvalidState, Operation: op.ID, Detail: "The operation is " + string(op.State) + "; there is a receipt once it has ended."}
	}
	receipt, err := r.of(ctx, reader, op)
	if err != nil {
		return "", Receipt{}, err
	}
	token, err := r.Keys.Sign(ReceiptType, mustJSON(receipt))
	if err != nil {
		return "", Receipt{}, fault.Wrap(err, fault.Internal, "The receipt could not be signed.")
	}
	return token, receipt, nil
}

func (r Receipts) of(ctx context.Context, reader ledger.Reader, op ledger.Operation) (Receipt, error) {
	plan, err := reader.Plan(ctx, op.Tenant, op.ID, op.Round)
	if err != nil {
		return Receipt{}, err
	}
	decisions, err := reader.Decisions(ctx, op.Tenant, op.ID)
	if err != nil {
		return Receipt{}, err
	}
	evidence, err := reader.Evidence(ctx, op.Tenant, op.ID)
	if err != nil {
		return Receipt{}, err
	}
	out := Receipt{
		Format: ReceiptFormat, Ledger: r.Ledger, IssuedAt: r.Now().UTC(),
		Operation: op.ID, Tenant: op.Tenant, State: op.State, Final: op.FinalAt, Tool: op.Tool, Version: op.ToolVersion,
		Key: op.Key, Generation: op.Generation, Reason: op.Reason, Boundary: op.EvidenceBoundary,
		Asked: ReceiptAsked{Agent: op.Agent, By: op.AskedBy, Run: op.Run, RequestID: op.RequestID, At: op.CreatedAt},
		Shown: ReceiptShown{
			Round: op.Round, PlanDigest: op.PlanDigest, ArgsDigest: op.ArgsDigest, Headline: op.Headline, Reversible: op.Reversible,
			Effects: plan.Effects, Rule: op.Requirement.Rule, PolicyDigest: op.Requirement.Digest,
		},
		Decisions: []ReceiptWord{},
		Sent:      ReceiptSent{Target: op.Target, UpstreamKey: op.UpstreamKey, Attempts: op.Attempts, Adopted: op.Adopted},
		Proven:    ReceiptProven{EffectID: op.EffectID, Evidence: []ReceiptEvidence{}},
	}
	for _, d := range decisions {
		out.Decisions = append(out.Decisions, ReceiptWord{d.Round, d.Person, d.Name, d.Groups, d.Verb, d.Digest, d.Reason, d.At})
	}
	for _, e := range evidence {
		out.Proven.Evidence = append(out.Proven.Evidence, ReceiptEvidence{
			ID: e.ID, Kind: e.Kind, Attempt: e.Attempt, Verdict: e.Verdict, Answer: e.Answer, EffectID: e.EffectID, By: e.By, At: e.At,
			Digest: digestOf(e),
		})
	}
	if op.Parent != "" || op.Child != "" {
		out.Undo = &ReceiptRelation{Of: op.Parent, By: op.Child}
	}
	out.Chain, err = r.chain(ctx, reader, op)
	return out, err
}

// chain checks the operation's chain and finds the checkpoint that covers it. A
// receipt over a broken chain is refused.
func (r Receipts) chain(ctx context.Context, reader ledger.Reader, op ledger.Operation) (ReceiptChain, error) {
	events, err := reader.Events(ctx, op.Tenant, op.ID)
	if err != nil {
		return ReceiptChain{}, err
	}
	prev := ""
	for _, e := range events {
		if !e.Intact(prev) {
			return ReceiptChain{}, errBroken(op)
		}
		prev = e.Hash
	}
	// An event may be newer than the row that was read; the state is then another.
	if len(events) == 0 || prev != op.Chain || events[len(events)-1].To != op.State {
		return ReceiptChain{}, errBroken(op)
	}
	last := events[len(events)-1]
	chain := ReceiptChain{Events: last.Version, Seq: last.Seq, Hash: last.Hash}
	newest, err := r.Store.LastCheckpoint(ctx)
	if err != nil {
		return chain, ledger.StoreFault(err)
	}
	if newest.Seq < last.Seq {
		return chain, nil
	}
	before, err := newestWhere(ctx, r.Store, newest.N, func(c ledger.Checkpoint) bool { return c.Seq < last.Seq })
	if err != nil {
		return chain, err
	}
	c, found, err := checkpointNumbered(ctx, r.Store, before.N+1)
	if err != nil || !found {
		return chain, ledger.StoreFault(err)
	}
	mark := markOf(c)
	chain.Checkpoint = &mark
	return chain, nil
}

func errBroken(op ledger.Operation) error {
	return &fault.Error{Code: fault.InvalidState, Operation: op.ID, Detail: "The operation's record just moved, or is not whole; ask again, and if this stays, run countersign audit verify."}
}

// digestOf names one document of the ledger.
func digestOf(v any) string { return "sha256:" + hexSum(mustJSON(v)) }

// VerifyReceipt reads a receipt that one of the keys signed, and gives the id of
// that key.
func VerifyReceipt(keys tokens.PublicKeys, token string) (Receipt, string, error) {
	payload, kid, err := keys.Verify(ReceiptType, token)
	if err != nil {
		return Receipt{}, kid, err
	}
	var r Receipt
	d := json.NewDecoder(bytes.NewReader(payload))
	d.UseNumber()
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil || r.Format != ReceiptFormat {
		return Receipt{}, kid, errors.New("the receipt is signed, and of a form that this program does not know")
	}
	return r, kid, nil
}
