package api

import (
	"context"

	"countersign/ledger"
	"countersign/tools"
)

// This file answers what the record has beside an operation itself: its
// transitions, its evidence, its receipt, and what speaks for a duplicate.

func (h handlers) ListOperationEvents(ctx context.Context, r ListOperationEventsRequestObject) (ListOperationEventsResponseObject, error) {
	op, err := h.find(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	events, err := h.cfg.Ledger.Events(ctx, op.Tenant, op.ID)
	out := EventList{Events: make([]Event, len(events))}
	for i, e := range events {
		out.Events[i] = Event{
			Seq: e.Seq, At: e.At.UTC(), Verb: string(e.Verb), From: OperationState(e.From), To: OperationState(e.To), Actor: actorDoc(e.Actor),
			Version: e.Version, Fence: e.Fence, Round: e.Round, Attempt: e.Attempt, EffectID: e.EffectID,
			Evidence: e.Evidence, Digest: e.Digest, Prev: e.Prev, Hash: e.Hash,
		}
		if e.Reason != nil {
			out.Events[i].Reason = OperationReason{Code: e.Reason.Code, Text: e.Reason.Text}
		}
	}
	return ListOperationEvents200JSONResponse(out), err
}

func (h handlers) ListOperationEvidence(ctx context.Context, r ListOperationEvidenceRequestObject) (ListOperationEvidenceResponseObject, error) {
	op, err := h.find(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	evidence, err := h.cfg.Ledger.Evidence(ctx, op.Tenant, op.ID)
	out := EvidenceList{Evidence: make([]Evidence, len(evidence))}
	for i, e := range evidence {
		out.Evidence[i] = Evidence{
			ID: e.ID, Kind: EvidenceKind(e.Kind), Attempt: e.Attempt, Verdict: EvidenceVerdict(e.Verdict), Answer: string(e.Answer),
			EffectID: e.EffectID, Result: e.Result, Because: e.Because, By: actorDoc(e.By), Seen: exchangeDoc(e.Seen), At: e.At.UTC(),
		}
	}
	return ListOperationEvidence200JSONResponse(out), err
}

func (h handlers) GetReceipt(ctx context.Context, r GetReceiptRequestObject) (GetReceiptResponseObject, error) {
	op, err := h.find(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	token, receipt, err := h.cfg.Receipt(ctx, op.Tenant, op.ID)
	return GetReceipt200JSONResponse{Token: token, Receipt: receipt}, err
}

func (h handlers) GetForensics(ctx context.Context, r GetForensicsRequestObject) (GetForensicsResponseObject, error) {
	op, err := h.find(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	op, found, err := h.cfg.Ledger.Forensics(ctx, op.Tenant, op.ID)
	if err != nil {
		return nil, err
	}
	out := ForensicsReport{Operation: h.summary(op, of(ctx).who, nil), Hypotheses: make([]Hypothesis, len(found))}
	for i, f := range found {
		out.Hypotheses[i] = Hypothesis{Name: HypothesisName(f.Name), Verdict: HypothesisVerdict(f.Verdict), Evidence: f.Evidence}
	}
	return GetForensics200JSONResponse(out), nil
}

func actorDoc(a ledger.Actor) Actor { return Actor{Kind: ActorKind(a.Kind), ID: a.ID, Name: a.Name} }

func exchangeDoc(x tools.Exchange) Exchange {
	return Exchange{
		Target: x.Target, SentBytes: x.SentBytes, SentAt: utc(x.SentAt), AnsweredAt: utc(x.AnsweredAt), Status: x.Status, Headers: x.Headers,
		BodyBytes: x.BodyBytes, BodyDigest: x.BodyDigest, Excerpt: x.Excerpt, Error: x.Error,
	}
}
