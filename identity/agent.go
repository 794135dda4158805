package identity

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"regexp"
	"slices"

	"countersign/fault"
)

// maxGrants bounds the tools of one agent and the groups of one operator.
const maxGrants = 256

var toolRule = regexp.MustCompile(`^[a-z][a-z0-9_]{1,47}$`)

// CreateAgent makes an agent with a new key. The key is returned this once and
// never again. The owner is the id of an operator who is not disabled, or
// BuiltinOwner.
func (s *Service) CreateAgent(ctx context.Context, tenant, name, owner string, tools []string) (Agent, string, error) {
	key, err := NewAgentKey(s.cfg.Rand)
	if err != nil {
		return Agent{}, "", err
	}
	parsed, _ := parseAgentKey(key)
	a, err := s.createAgent(ctx, tenant, name, owner, tools, parsed)
	if err != nil {
		return Agent{}, "", err
	}
	return a, key, nil
}

// AdoptAgent makes an agent with a key that exists already, in a file. Called
// again with the same words it answers with the same agent and changes nothing.
func (s *Service) AdoptAgent(ctx context.Context, tenant, name, owner string, tools []string, key string) (Agent, error) {
	parsed, ok := parseAgentKey(key)
	if !ok {
		return Agent{}, unfit("/key", "This is not an agent's key of the form "+KeyPattern+" with a right checksum.")
	}
	a, err := s.createAgent(ctx, tenant, name, owner, tools, parsed)
	if !fault.Is(err, fault.InvalidState) {
		return a, err
	}
	// Name or key is there already: fine if both are this agent's.
	a, found := s.cfg.Store.AgentByKey(ctx, parsed.id)
	switch {
	case errors.Is(found, ErrNotFound):
		return Agent{}, err // the name is another agent's
	case found != nil:
		return Agent{}, storeFault(found)
	case !s.matches(a, parsed.secret):
		return Agent{}, fault.New(fault.InvalidState, "Another key with the same public part exists. Make a new key.")
	case !a.RevokedAt.IsZero():
		return Agent{}, fault.New(fault.InvalidState, "The agent with this key was revoked. Make a new key.")
	case a.Tenant != tenant || a.Name != name || a.Owner != owner || !slices.Equal(a.Tools, tidy(tools)):
		return Agent{}, fault.New(fault.InvalidState, "An agent with this key exists with another name, owner or other tools. Revoke it, then make a new key.")
	}
	return a, nil
}

func (s *Service) createAgent(ctx context.Context, tenant, name, owner string, tools []string, key agentKey) (Agent, error) {
	if err := checkName("/name", name); err != nil {
		return Agent{}, err
	}
	tools = tidy(tools)
	if err := checkTools(tools); err != nil {
		return Agent{}, err
	}
	if err := s.checkOwner(ctx, tenant, owner); err != nil {
		return Agent{}, err
	}
	salt, err := randomBytes(s.cfg.Rand, saltBytes)
	if err != nil {
		return Agent{}, err
	}
	id, err := s.newID("agt_")
	if err != nil {
		return Agent{}, err
	}
	a := Agent{
		ID: id, Tenant: tenant, Name: name, Owner: owner, Tools: tools,
		KeyID: key.id, KeySalt: salt, KeyHash: s.digest(salt, key.secret),
		CreatedAt: s.now(),
	}
	err = s.cfg.Store.CreateAgent(ctx, a)
	if errors.Is(err, ErrExists) {
		return Agent{}, fault.Wrap(err, fault.InvalidState, "There is an agent %s already. Revoke it first, or take another name.", name)
	}
	return a, storeFault(err)
}

// tidy sorts and drops repeats, so that equal grants are equal lists. None is
// an empty list, not nil.
func tidy(list []string) []string {
	list = append([]string{}, list...)
	slices.Sort(list)
	return slices.Compact(list)
}

func checkTools(tools []string) error {
	switch {
	case len(tools) == 0:
		return unfit("/tools", "Name the tools that the agent may use, or * alone for all.")
	case len(tools) > maxGrants:
		return unfit("/tools", "Too many tools; * alone stands for all.")
	case len(tools) == 1 && tools[0] == AllTools:
		return nil
	}
	for _, t := range tools {
		if !toolRule.MatchString(t) {
			return unfit("/tools", "A tool's name is 2 to 48 lower-case letters, digits and underscores, and begins with a letter; * stands alone.")
		}
	}
	return nil
}

// checkOwner wants a person who can answer for the agent: their approval will
// not count for it (S31), so the id must be right.
func (s *Service) checkOwner(ctx context.Context, tenant, owner string) error {
	if owner == BuiltinOwner {
		return nil
	}
	o, err := s.cfg.Store.Operator(ctx, tenant, owner)
	switch {
	case errors.Is(err, ErrNotFound), err == nil && !o.DisabledAt.IsZero():
		return unfit("/owner", "The owner is the id of an operator who exists and is not disabled.")
	default:
		return storeFault(err)
	}
}

// AuthenticateAgent tells whose key this is (S13). Every refusal has one text,
// and every well-formed key takes one path: a read and a comparison in constant
// time, whether or not the key's public part is known. There is no cache, so
// that a revocation counts from the next call (S18).
func (s *Service) AuthenticateAgent(ctx context.Context, presented string) (Agent, error) {
	key, ok := parseAgentKey(presented)
	if !ok {
		return Agent{}, badKey()
	}
	a, err := s.cfg.Store.AgentByKey(ctx, key.id)
	known := err == nil
	if errors.Is(err, ErrNotFound) {
		a = nobody
	} else if err != nil {
		return Agent{}, storeFault(err)
	}
	if !s.matches(a, key.secret) || !known || !a.RevokedAt.IsZero() {
		return Agent{}, badKey()
	}
	return a, nil
}

// nobody is compared with where there is no agent.
var nobody = Agent{KeySalt: make([]byte, saltBytes), KeyHash: make([]byte, sha256.Size)}

func (s *Service) matches(a Agent, secret string) bool {
	return subtle.ConstantTimeCompare(s.digest(a.KeySalt, secret), a.KeyHash) == 1
}

func badKey() error {
	return fault.New(fault.Unauthenticated, "The agent's key is missing, wrong or revoked.")
}

// Agent reads one agent, revoked or not.
func (s *Service) Agent(ctx context.Context, tenant, id string) (Agent, error) {
	a, err := s.cfg.Store.Agent(ctx, tenant, id)
	return a, storeFault(err)
}

// AgentNamed finds the tenant's live agent of that name.
func (s *Service) AgentNamed(ctx context.Context, tenant, name string) (Agent, error) {
	all, err := s.ListAgents(ctx, tenant)
	if err != nil {
		return Agent{}, err
	}
	for _, a := range all {
		if a.Name == name && a.RevokedAt.IsZero() {
			return a, nil
		}
	}
	return Agent{}, fault.New(fault.NotFound, "There is no agent of that name, or it was revoked.")
}

// ListAgents lists the tenant's agents, revoked or not, the oldest first.
func (s *Service) ListAgents(ctx context.Context, tenant string) ([]Agent, error) {
	all, err := s.cfg.Store.Agents(ctx, tenant)
	return all, storeFault(err)
}

// RevokeAgent takes the agent's rights away: first in the guard row, so that no
// waiting operation of its is dispatched any more, then here, so that its key is
// refused from the next call. After an error, call it again; both steps may be
// repeated, also for an agent that was revoked long ago.
func (s *Service) RevokeAgent(ctx context.Context, tenant, id string) error {
	if _, err := s.Agent(ctx, tenant, id); err != nil {
		return err
	}
	if err := s.cfg.Revoke(ctx, tenant, id); err != nil {
		return err
	}
	return storeFault(s.cfg.Store.RevokeAgent(ctx, tenant, id, s.now()))
}
