// Package identity knows who calls: agents with their keys, operators with
// their groups, passwords, set-up links and sessions.
//
// What lives here: those types, the Service that creates, authenticates and
// revokes them, the Sessions of the operators' page with their cookie, and
// Store, the small second interface of the stores.
//
// How it flows: api and web hand a presented secret to the Service and get a
// principal back; the principal, never a request body, says who asks (S17).
// Taking a right away goes through the guard row as well (ledger), so that it
// is in force for what is already waiting.
//
// What does not live here: what a principal may do with an operation
// (approvals, commit), forms and pages (web), HTTP status codes (api), limits
// of requests other than sign-ins (api).
package identity

import (
	"context"
	"errors"
	"slices"
	"time"
)

// Agent is a program that previews and commits. Its key is shown once and
// stored as a salted hash (S13).
type Agent struct {
	ID     string `json:"id"` // agt_…
	Tenant string `json:"tenant"`
	// Name is unique among the tenant's agents that are not revoked.
	Name string `json:"name"`
	// Owner is the id of the operator that answers for the agent and therefore
	// can't approve for it, or BuiltinOwner.
	Owner string `json:"owner"`
	// Tools the agent may use; "*" alone means all.
	Tools []string `json:"tools"`
	// KeyID is the public part of the key, unique in the whole store.
	KeyID     string    `json:"key_id"`
	KeySalt   []byte    `json:"-"`
	KeyHash   []byte    `json:"-"`
	CreatedAt time.Time `json:"created_at"`
	RevokedAt time.Time `json:"revoked_at,omitzero"`
}

// May reports whether the agent was granted the tool. What was not granted is
// denied (S14).
func (a Agent) May(tool string) bool {
	return slices.Contains(a.Tools, tool) || len(a.Tools) == 1 && a.Tools[0] == AllTools
}

// AllTools, alone in Agent.Tools, grants every tool, also those of tomorrow.
const AllTools = "*"

// Operator is a person.
type Operator struct {
	ID     string `json:"id"` // per_…
	Tenant string `json:"tenant"`
	// Name is unique in the tenant for ever: a disabled operator keeps it, since
	// the record speaks of them.
	Name      string    `json:"name"`
	Groups    []string  `json:"groups"`
	CreatedAt time.Time `json:"created_at"`
	// Password is the encoded argon2id hash; empty until the set-up link was
	// used.
	Password   string    `json:"-"`
	DisabledAt time.Time `json:"disabled_at,omitzero"`
}

// BuiltinOwner is the principal that owns the demo's agent. It is nobody's
// account, so every operator may approve for an agent of its.
const BuiltinOwner = "builtin:demo"

// SetupLink is a one-time code with which an operator sets a password. Only the
// hash of the code is known here.
type SetupLink struct {
	CodeHash  []byte
	Tenant    string
	Operator  string // id
	ExpiresAt time.Time
}

// Session is one login of an operator, found by the hash of the token in the
// cookie.
type Session struct {
	TokenHash string
	Data      []byte
	// IdleUntil moves with use, never beyond ExpiresAt, which stays. The session
	// is over when either is reached.
	IdleUntil time.Time
	ExpiresAt time.Time
}

// Store keeps identities. Writes are atomic and durable when they return, and
// change only what their name says: a slow writer that read before a revocation
// must not be able to undo it. A read finds nothing of another tenant.
//
// Errors are ErrNotFound, ErrExists and ErrDiskFull where said, the context's,
// or others: then a write may have happened or not. Every write may be repeated.
//
// Times are kept to the nanosecond and come back in UTC. store/storetest is this contract as tests.
type Store interface {
	// CreateAgent fails with ErrExists when the tenant has a live agent of that
	// name, or any agent that id or key id.
	CreateAgent(ctx context.Context, a Agent) error
	// AgentByKey finds an agent, revoked or not, by its key's public part.
	AgentByKey(ctx context.Context, keyID string) (Agent, error)
	Agent(ctx context.Context, tenant, id string) (Agent, error)
	// Agents lists all, revoked or not, the oldest first.
	Agents(ctx context.Context, tenant string) ([]Agent, error)
	// RevokeAgent marks the agent revoked. The first time stands.
	RevokeAgent(ctx context.Context, tenant, id string, at time.Time) error

	// CreateOperator stores an operator and their first link in one write. It
	// fails with ErrExists when the tenant has, or had, one of that name.
	CreateOperator(ctx context.Context, o Operator, l SetupLink) error
	Operator(ctx context.Context, tenant, id string) (Operator, error)
	OperatorByName(ctx context.Context, tenant, name string) (Operator, error)
	// Operators lists all, disabled or not, the oldest first.
	Operators(ctx context.Context, tenant string) ([]Operator, error)
	// ReplacePassword sets the password's hash if it is still old, else
	// ErrNotFound.
	ReplacePassword(ctx context.Context, tenant, id, old, password string) error
	// DisableOperator marks the operator disabled and voids their links in one
	// write. The first time stands.
	DisableOperator(ctx context.Context, tenant, id string, at time.Time) error

	// PutSetupLink stores a link and voids the operator's older ones; ErrNotFound
	// when there is no such operator or they are disabled.
	PutSetupLink(ctx context.Context, l SetupLink) error
	// SetupLink reads a link that is neither used, voided nor expired at now.
	SetupLink(ctx context.Context, codeHash []byte, now time.Time) (SetupLink, error)
	// UseSetupLink spends a link that SetupLink would find and sets the
	// operator's password in one write. Of parallel calls one wins, the others
	// get ErrNotFound.
	UseSetupLink(ctx context.Context, codeHash []byte, now time.Time, password string) (Operator, error)

	// CreateSession fails with ErrExists when the token's hash is known.
	CreateSession(ctx context.Context, s Session) error
	// Session reads a session that is not over at now.
	Session(ctx context.Context, tokenHash string, now time.Time) (Session, error)
	// ExtendSession moves IdleUntil of a session that exists; it never brings
	// one back.
	ExtendSession(ctx context.Context, tokenHash string, idleUntil time.Time) error
	// DeleteSession ends a session; one that does not exist is no error.
	DeleteSession(ctx context.Context, tokenHash string) error
	// SweepIdentity deletes sessions and links that are over at now.
	SweepIdentity(ctx context.Context, now time.Time) error
}

// ErrNotFound answers a read, or a change, of what is not there.
var ErrNotFound = errors.New("identity: not found")

// ErrExists refuses a second of the same name.
var ErrExists = errors.New("identity: name taken")

// ErrDiskFull: nothing was written for want of space.
var ErrDiskFull = errors.New("identity: disk full")
