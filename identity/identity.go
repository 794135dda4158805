// Package identity knows who calls: agents with their keys, operators with
// their groups, passwords, set-up links and sessions.
//
// What lives here: those types, the Service that creates, authenticates and
// revokes them, and Store, the small second interface of the stores.
//
// How it flows: api and web hand a presented secret to the Service and get a
// principal back; the principal, never a request body, says who asks (S17).
// Taking a right away goes through the guard row as well (ledger), so that it
// is in force for what is already waiting.
//
// What does not live here: what a principal may do with an operation
// (approvals, commit), cookies' look and forms (web), HTTP status codes (api).
package identity

import (
	"context"
	"errors"
	"time"
)

// Agent is a program that previews and commits. Its key is shown once and
// stored as a salted hash.
type Agent struct {
	ID     string `json:"id"` // agt_…
	Tenant string `json:"tenant"`
	Name   string `json:"name"`
	// Owner is the operator (or built-in principal) that answers for the agent
	// and therefore can't approve for it.
	Owner string `json:"owner"`
	// Tools the agent may use; "*" alone means all.
	Tools     []string  `json:"tools"`
	KeyID     string    `json:"key_id"` // the public part of the key, for look-up and leak scanners
	KeySalt   []byte    `json:"-"`
	KeyHash   []byte    `json:"-"`
	CreatedAt time.Time `json:"created_at"`
	RevokedAt time.Time `json:"revoked_at,omitzero"`
}

// Operator is a person.
type Operator struct {
	ID        string    `json:"id"` // per_…
	Tenant    string    `json:"tenant"`
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

// SetupLink is a one-time code with which an operator sets a password.
type SetupLink struct {
	CodeHash  []byte
	Tenant    string
	Operator  string
	ExpiresAt time.Time
	UsedAt    time.Time
}

// Store keeps identities. Writes are atomic and durable when they return.
type Store interface {
	// CreateAgent fails with ErrExists when the tenant has a live agent of that
	// name.
	CreateAgent(ctx context.Context, a Agent) error
	// AgentByKey finds an agent, revoked or not, by its key's public part.
	AgentByKey(ctx context.Context, keyID string) (Agent, error)
	Agent(ctx context.Context, tenant, id string) (Agent, error)
	Agents(ctx context.Context, tenant string) ([]Agent, error)
	UpdateAgent(ctx context.Context, a Agent) error

	CreateOperator(ctx context.Context, o Operator) error
	Operator(ctx context.Context, tenant, id string) (Operator, error)
	OperatorByName(ctx context.Context, tenant, name string) (Operator, error)
	Operators(ctx context.Context, tenant string) ([]Operator, error)
	UpdateOperator(ctx context.Context, o Operator) error

	// PutSetupLink stores a link and voids the operator's older ones.
	PutSetupLink(ctx context.Context, l SetupLink) error
	// UseSetupLink marks the link used and sets the operator's password in one
	// write; ErrNotFound when the code is unknown, used, or expired at now.
	UseSetupLink(ctx context.Context, codeHash []byte, now time.Time, password string) (Operator, error)
	// SetupLink reads a link that is neither used nor expired at now.
	SetupLink(ctx context.Context, codeHash []byte, now time.Time) (SetupLink, error)

	// Sessions by hashed token, as scs.CtxStore wants them.
	PutSession(ctx context.Context, tokenHash string, data []byte, expires time.Time) error
	Session(ctx context.Context, tokenHash string, now time.Time) ([]byte, bool, error)
	DeleteSession(ctx context.Context, tokenHash string) error
	SweepSessions(ctx context.Context, now time.Time) error
}

// ErrNotFound answers a read of what is not there.
var ErrNotFound = errors.New("identity: not found")

// ErrExists refuses a second of the same name.
var ErrExists = errors.New("identity: name taken")
