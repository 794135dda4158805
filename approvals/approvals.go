// Package approvals is where people decide: what waits, what exactly is asked,
// and the one code path that takes a decision (S21).
//
// What lives here: Service with the queue, the card of one operation, and the
// decisions of people: approve, reject, reopen, resolve.
//
// How it flows: a card shows the stored plan and the digest of exactly what is
// shown; a decision names that digest, and is taken only from a person who may,
// once a round. A full quorum moves the operation to pending in the decision's
// own write; the executor sends it, not the agent.
//
// What does not live here: who must say yes (policy), sessions (identity),
// pages (web) and JSON (api), sending (commit).
package approvals

import (
	"context"
	"errors"
	"slices"
	"strings"
	"unicode/utf8"

	"countersign/approvals/policy"
	"countersign/fault"
	"countersign/identity"
	"countersign/ledger"
	"countersign/tools"
)

// Config is what a Service is made of.
type Config struct {
	Ledger *ledger.Ledger
	// Person gives an operator as of now.
	Person func(ctx context.Context, tenant, id string) (policy.Person, error)
}

// Service takes decisions. It is safe for concurrent use.
type Service struct{ cfg Config }

// New returns a Service.
func New(cfg Config) *Service { return &Service{cfg: cfg} }

// PersonOf is an operator as the policy sees one.
func PersonOf(o identity.Operator) policy.Person {
	return policy.Person{ID: o.ID, Name: o.Name, Groups: o.Groups, Disabled: !o.DisabledAt.IsZero()}
}

// Directory gives people as of now from the identity store; an unknown one is
// nobody who may decide.
func Directory(store identity.Store) func(ctx context.Context, tenant, id string) (policy.Person, error) {
	return func(ctx context.Context, tenant, id string) (policy.Person, error) {
		o, err := store.Operator(ctx, tenant, id)
		if errors.Is(err, identity.ErrNotFound) {
			return policy.Person{ID: id, Disabled: true}, nil
		}
		return PersonOf(o), err
	}
}

// Queue lists what waits for people, oldest first.
func (s *Service) Queue(ctx context.Context, tenant, cursor string, limit int) (ledger.Page, error) {
	return s.cfg.Ledger.List(ctx, ledger.Filter{
		Tenant: tenant, States: []ledger.State{ledger.AwaitingApproval}, OldestFirst: true, Cursor: cursor, Limit: limit,
	})
}

// Card is everything a person needs to decide on one operation.
type Card struct {
	Operation ledger.Operation
	Plan      tools.Plan
	// ShownDigest names what this card shows; a decision returns it.
	ShownDigest string
	Decisions   []ledger.Decision
	// Standing are the yeses that count now, and Missing how many more people
	// are needed.
	Standing []policy.Person
	Missing  int
	// May reports whether the viewer may decide; WhyNot says why not.
	May    bool
	WhyNot string
	// Decided is the viewer's own word in this round, if any.
	Decided *ledger.Decision
	// Duplicates are other operations with the same tool and arguments under
	// other keys that are live or took effect.
	Duplicates []ledger.Operation
	// Verbs are what the state table allows now.
	Verbs []ledger.Verb
}

// Card reads one operation for a viewer.
func (s *Service) Card(ctx context.Context, viewer policy.Person, tenant, id string) (Card, error) {
	op, err := s.cfg.Ledger.Operation(ctx, tenant, id)
	if err != nil {
		return Card{}, err
	}
	c := Card{Operation: op, Verbs: ledger.AllowedVerbs(op)}
	if c.Plan, err = s.cfg.Ledger.Plan(ctx, tenant, id, op.Round); err != nil {
		return Card{}, err
	}
	c.ShownDigest = policy.ShownDigest(op, c.Plan)
	if c.Decisions, err = s.cfg.Ledger.Decisions(ctx, tenant, id); err != nil {
		return Card{}, err
	}
	if c.Standing, err = s.standing(ctx, op, c.Decisions, c.ShownDigest); err != nil {
		return Card{}, err
	}
	if op.Requirement.Asks() {
		for _, n := range op.Requirement.Groups {
			c.Missing += n
		}
		c.Missing -= policy.Filled(op.Requirement.Groups, c.Standing)
	}
	c.Decided = ownWord(op, c.Decisions, viewer.ID)
	c.May, c.WhyNot = policy.Eligible(op, viewer)
	if c.Decided != nil {
		c.May, c.WhyNot = false, "You have already decided on this."
	}
	if op.State != ledger.AwaitingApproval {
		c.May, c.WhyNot = false, ""
	}
	c.Duplicates, err = s.duplicates(ctx, op)
	return c, err
}

// ownWord gives a person's word in the operation's round.
func ownWord(op ledger.Operation, decisions []ledger.Decision, person string) *ledger.Decision {
	i := slices.IndexFunc(decisions, func(d ledger.Decision) bool { return d.Round == op.Round && d.Person == person })
	if i < 0 {
		return nil
	}
	return &decisions[i]
}

// standing gives the yeses that count as of now.
func (s *Service) standing(ctx context.Context, op ledger.Operation, decisions []ledger.Decision, digest string) ([]policy.Person, error) {
	return policy.EligibleYeses(ctx, s.cfg.Person, op, decisions, digest)
}

// duplicates finds identical asks under other keys.
func (s *Service) duplicates(ctx context.Context, op ledger.Operation) ([]ledger.Operation, error) {
	page, err := s.cfg.Ledger.List(ctx, ledger.Filter{Tenant: op.Tenant, Tool: op.Tool, Args: op.ArgsDigest, States: ledger.PossibleEffect(), Limit: 20})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(page.Operations, func(o ledger.Operation) bool {
		return o.ID == op.ID || o.Key == op.Key
	}), nil
}

// Decision is what a person says.
type Decision struct {
	// Word is exactly "approve" or "reject"; nothing else decides (S32).
	Word string
	// ShownDigest is the digest of the card that the person saw.
	ShownDigest string
	// Reason is required to reject; it reaches the agent.
	Reason string
}

// The longest reason and effect id in bytes.
const (
	maxReason   = 2000
	maxEffectID = 255
)

// checkText refuses what the record could not give back as it was said; a form
// of the page is the one body that no strict decoder has read (S62).
func checkText(pointer, s string, most int) error {
	switch {
	case len(s) > most:
		return fault.New(fault.TooLong, "The text at %s has at most %d bytes.", pointer, most).At(pointer, "too long")
	case !utf8.ValidString(s) || strings.ContainsRune(s, 0):
		return fault.New(fault.ForbiddenText, "The text at %s must be UTF-8 without U+0000.", pointer).At(pointer, "not text")
	}
	return nil
}

// maxTries bounds how often a decision looks again after a lost race.
const maxTries = 16

// Decide takes one decision by a signed-in person.
func (s *Service) Decide(ctx context.Context, who identity.Operator, id string, d Decision) (ledger.Operation, error) {
	switch {
	case d.Word != "approve" && d.Word != "reject":
		return ledger.Operation{}, fault.New(fault.DecisionInvalid, "A decision is exactly approve or reject.").At("/decision", "not approve or reject")
	case d.Word == "reject" && d.Reason == "":
		return ledger.Operation{}, fault.New(fault.DecisionInvalid, "A rejection needs a reason; the agent reads it.").At("/reason", "missing")
	}
	if err := checkText("/reason", d.Reason, maxReason); err != nil {
		return ledger.Operation{}, err
	}
	for range maxTries {
		op, err := s.tryDecide(ctx, PersonOf(who), who.Tenant, id, d)
		var lost *ledger.Lost
		if !errors.As(err, &lost) {
			return op, err
		}
	}
	return ledger.Operation{}, fault.New(fault.StoreUnavailable, "Others decided at the same moment again and again; look at the operation and decide once more.")
}

// tryDecide evaluates the operation as it stands and writes one decision
// against exactly that.
func (s *Service) tryDecide(ctx context.Context, p policy.Person, tenant, id string, d Decision) (ledger.Operation, error) {
	card, err := s.Card(ctx, p, tenant, id)
	if err != nil {
		return ledger.Operation{}, err
	}
	op := card.Operation
	if err := s.mayDecide(ctx, card, p, d); err != nil {
		return op, err
	}
	said := ledger.Decision{
		Operation: op.ID, Round: op.Round, Person: p.ID, Name: p.Name, Groups: p.Groups,
		Digest: d.ShownDigest, Reason: d.Reason, At: s.cfg.Ledger.Now(),
	}
	if d.Word == "reject" {
		said.Verb = ledger.VerbReject
		return s.cfg.Ledger.Reject(ctx, op, said)
	}
	said.Verb = ledger.VerbApprove
	return s.cfg.Ledger.Approve(ctx, op, said, policy.Full(op.Requirement.Groups, append(card.Standing, p)))
}

// mayDecide refuses what stands against a decision, most telling first.
func (s *Service) mayDecide(ctx context.Context, card Card, p policy.Person, d Decision) error {
	op := card.Operation
	refuse := func(code fault.Code, text string) error {
		e := fault.New(code, "%s", text)
		e.Operation = op.ID
		return e
	}
	_, concerned := policy.Concerned(op, p.ID)
	switch {
	case card.Decided != nil:
		return refuse(fault.AlreadyDecided, "You have already decided on this.")
	case op.State != ledger.AwaitingApproval:
		return refuse(fault.InvalidState, "Nobody is asked any more; the operation is "+string(op.State)+".")
	case p.Disabled:
		return refuse(fault.NotAllowed, card.WhyNot)
	case concerned:
		return refuse(fault.SeparationOfDuties, card.WhyNot)
	case !card.May:
		return refuse(fault.NotAllowed, card.WhyNot)
	case op.Overdue(s.cfg.Ledger.Now()):
		_, err := s.cfg.Ledger.ExpireOverdue(ctx, op.Tenant, op.ID)
		if errors.Is(err, ledger.ErrMoved) {
			return &ledger.Lost{Current: op} // its time was renewed: look again
		}
		if err != nil {
			return err
		}
		return refuse(fault.InvalidState, "The time to decide is over; the operation has expired.")
	case d.ShownDigest != card.ShownDigest:
		return refuse(fault.ApprovalChanged, "What is asked has changed since it was shown to you; look again.")
	}
	return nil
}

// Reopen lets a rejected ask be asked again.
func (s *Service) Reopen(ctx context.Context, who identity.Operator, id, reason string) (ledger.Operation, error) {
	if reason == "" {
		return ledger.Operation{}, fault.New(fault.DecisionInvalid, "Say why it may be asked again.").At("/reason", "missing")
	}
	if err := checkText("/reason", reason, maxReason); err != nil {
		return ledger.Operation{}, err
	}
	if err := s.notOwner(ctx, who, id, "let it be asked again"); err != nil {
		return ledger.Operation{}, err
	}
	return s.cfg.Ledger.Reopen(ctx, who.Tenant, id, actor(who), reason)
}

// Resolve ends an unknown operation by a person's statement.
func (s *Service) Resolve(ctx context.Context, who identity.Operator, id string, st ledger.Statement) (ledger.Operation, error) {
	if err := checkText("/reason", st.Reason, maxReason); err != nil {
		return ledger.Operation{}, err
	}
	if err := checkText("/effect_id", st.EffectID, maxEffectID); err != nil {
		return ledger.Operation{}, err
	}
	return s.cfg.Ledger.Resolve(ctx, who.Tenant, id, actor(who), st)
}

// Contradict takes an operator's late finding: an effect of an operation that had
// ended without it.
func (s *Service) Contradict(ctx context.Context, who identity.Operator, id string, st ledger.Statement) (ledger.Operation, error) {
	if err := checkText("/reason", st.Reason, maxReason); err != nil {
		return ledger.Operation{}, err
	}
	if err := checkText("/effect_id", st.EffectID, maxEffectID); err != nil {
		return ledger.Operation{}, err
	}
	return s.cfg.Ledger.Contradict(ctx, who.Tenant, id, actor(who), st)
}

// Cancel takes back an operation that was not dispatched.
func (s *Service) Cancel(ctx context.Context, who identity.Operator, id, reason string) (ledger.Operation, error) {
	if err := checkText("/reason", reason, maxReason); err != nil {
		return ledger.Operation{}, err
	}
	return s.cfg.Ledger.Cancel(ctx, who.Tenant, id, actor(who), reason)
}

// notOwner keeps the agent's owner, and who asked, from undoing another person's
// no.
func (s *Service) notOwner(ctx context.Context, who identity.Operator, id, what string) error {
	op, err := s.cfg.Ledger.Operation(ctx, who.Tenant, id)
	if err != nil {
		return err
	}
	if _, concerned := policy.Concerned(op, who.ID); concerned {
		e := fault.New(fault.SeparationOfDuties, "This was asked by you or by an agent of yours; somebody else must %s.", what)
		e.Operation = op.ID
		return e
	}
	return nil
}

func actor(o identity.Operator) ledger.Actor {
	return ledger.Actor{Kind: "operator", ID: o.ID, Name: o.Name}
}
