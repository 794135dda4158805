package sqlstore

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"countersign/identity"
	"countersign/ledger"
)

var _ identity.Store = (*DB)(nil)

// identityError gives the errors of identity.Store for those that the shared
// parts of this package make.
func identityError(err error) error {
	switch {
	case errors.Is(err, ledger.ErrNotFound):
		return identity.ErrNotFound
	case errors.Is(err, ledger.ErrDiskFull):
		return fmt.Errorf("%w: %w", identity.ErrDiskFull, err)
	default:
		return err
	}
}

// mustChange turns the number of changed rows into ErrNotFound.
func mustChange(n int64, err error) error {
	if err == nil && n == 0 {
		return identity.ErrNotFound
	}
	return err
}

// mustInsert turns the number of inserted rows into ErrExists.
func mustInsert(n int64, err error) error {
	if err == nil && n == 0 {
		return identity.ErrExists
	}
	return err
}

const agentColumns = `id, tenant, name, owner, tools, key_id, key_salt, key_hash, created_at, revoked_at`

func scanAgent(rows *sql.Rows) (a identity.Agent, err error) {
	var tools string
	var created int64
	var revoked sql.NullInt64
	if err := rows.Scan(&a.ID, &a.Tenant, &a.Name, &a.Owner, &tools, &a.KeyID, &a.KeySalt, &a.KeyHash, &created, &revoked); err != nil {
		return a, err
	}
	a.CreatedAt, a.RevokedAt = instant(created), instantOrZero(revoked)
	return a, json.Unmarshal([]byte(tools), &a.Tools)
}

// CreateAgent implements identity.Store.
func (db *DB) CreateAgent(ctx context.Context, a identity.Agent) error {
	tools, err := json.Marshal(a.Tools)
	if err != nil {
		return fmt.Errorf("sqlstore: an agent's tools: %w", err)
	}
	return identityError(db.write(ctx, func(t *tx) error {
		return mustInsert(t.exec(`INSERT INTO agents (`+agentColumns+`)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT DO NOTHING`,
			a.ID, a.Tenant, a.Name, a.Owner, string(tools), a.KeyID, a.KeySalt, a.KeyHash, a.CreatedAt.UnixNano(), nullable(a.RevokedAt)))
	}))
}

// AgentByKey implements identity.Store.
func (db *DB) AgentByKey(ctx context.Context, keyID string) (identity.Agent, error) {
	a, err := one(db.reader(ctx), scanAgent, `SELECT `+agentColumns+` FROM agents WHERE key_id = $1`, keyID)
	return a, identityError(err)
}

// Agent implements identity.Store.
func (db *DB) Agent(ctx context.Context, tenant, id string) (identity.Agent, error) {
	a, err := one(db.reader(ctx), scanAgent, `SELECT `+agentColumns+` FROM agents WHERE tenant = $1 AND id = $2`, tenant, id)
	return a, identityError(err)
}

// Agents implements identity.Store.
func (db *DB) Agents(ctx context.Context, tenant string) ([]identity.Agent, error) {
	list, err := all(db.reader(ctx), scanAgent, `SELECT `+agentColumns+` FROM agents WHERE tenant = $1 ORDER BY created_at, id`, tenant)
	return list, identityError(err)
}

// RevokeAgent implements identity.Store.
func (db *DB) RevokeAgent(ctx context.Context, tenant, id string, at time.Time) error {
	return identityError(db.writeFirst(ctx, func(t *tx) error {
		return mustChange(t.exec(`UPDATE agents SET revoked_at = COALESCE(revoked_at, $1) WHERE tenant = $2 AND id = $3`, at.UnixNano(), tenant, id))
	}))
}

const operatorColumns = `id, tenant, name, member_of, password, created_at, disabled_at`

func scanOperator(rows *sql.Rows) (o identity.Operator, err error) {
	var groups string
	var created int64
	var disabled sql.NullInt64
	if err := rows.Scan(&o.ID, &o.Tenant, &o.Name, &groups, &o.Password, &created, &disabled); err != nil {
		return o, err
	}
	o.CreatedAt, o.DisabledAt = instant(created), instantOrZero(disabled)
	return o, json.Unmarshal([]byte(groups), &o.Groups)
}

// CreateOperator implements identity.Store.
func (db *DB) CreateOperator(ctx context.Context, o identity.Operator, l identity.SetupLink) error {
	groups, err := json.Marshal(o.Groups)
	if err != nil {
		return fmt.Errorf("sqlstore: an operator's groups: %w", err)
	}
	return identityError(db.write(ctx, func(t *tx) error {
		err := mustInsert(t.exec(`INSERT INTO operators (`+operatorColumns+`)
			VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING`,
			o.ID, o.Tenant, o.Name, string(groups), o.Password, o.CreatedAt.UnixNano(), nullable(o.DisabledAt)))
		if err != nil {
			return err
		}
		return putSetupLink(t, l)
	}))
}

// Operator implements identity.Store.
func (db *DB) Operator(ctx context.Context, tenant, id string) (identity.Operator, error) {
	o, err := one(db.reader(ctx), scanOperator, `SELECT `+operatorColumns+` FROM operators WHERE tenant = $1 AND id = $2`, tenant, id)
	return o, identityError(err)
}

// OperatorByName implements identity.Store.
func (db *DB) OperatorByName(ctx context.Context, tenant, name string) (identity.Operator, error) {
	o, err := one(db.reader(ctx), scanOperator, `SELECT `+operatorColumns+` FROM operators WHERE tenant = $1 AND name = $2`, tenant, name)
	return o, identityError(err)
}

// Operators implements identity.Store.
func (db *DB) Operators(ctx context.Context, tenant string) ([]identity.Operator, error) {
	list, err := all(db.reader(ctx), scanOperator, `SELECT `+operatorColumns+` FROM operators WHERE tenant = $1 ORDER BY created_at, id`, tenant)
	return list, identityError(err)
}

// ReplacePassword implements identity.Store.
func (db *DB) ReplacePassword(ctx context.Context, tenant, id, old, password string) error {
	return identityError(db.write(ctx, func(t *tx) error {
		return mustChange(t.exec(`UPDATE operators SET password = $1
			WHERE tenant = $2 AND id = $3 AND password = $4 AND disabled_at IS NULL`, password, tenant, id, old))
	}))
}

// DisableOperator implements identity.Store.
func (db *DB) DisableOperator(ctx context.Context, tenant, id string, at time.Time) error {
	return identityError(db.writeFirst(ctx, func(t *tx) error {
		err := mustChange(t.exec(`UPDATE operators SET disabled_at = COALESCE(disabled_at, $1) WHERE tenant = $2 AND id = $3`, at.UnixNano(), tenant, id))
		if err != nil {
			return err
		}
		_, err = t.exec(`DELETE FROM setup_links WHERE operator = $1`, id)
		return err
	}))
}

// PutSetupLink implements identity.Store.
func (db *DB) PutSetupLink(ctx context.Context, l identity.SetupLink) error {
	return identityError(db.write(ctx, func(t *tx) error { return putSetupLink(t, l) }))
}

// putSetupLink inserts nothing when there is no operator to insert it for.
func putSetupLink(t *tx, l identity.SetupLink) error {
	return mustChange(t.exec(`INSERT INTO setup_links (operator, tenant, code_hash, expires_at)
		SELECT id, tenant, $1, $2 FROM operators WHERE tenant = $3 AND id = $4 AND disabled_at IS NULL
		ON CONFLICT (operator) DO UPDATE SET code_hash = excluded.code_hash, expires_at = excluded.expires_at`,
		l.CodeHash, l.ExpiresAt.UnixNano(), l.Tenant, l.Operator))
}

// SetupLink implements identity.Store.
func (db *DB) SetupLink(ctx context.Context, codeHash []byte, now time.Time) (identity.SetupLink, error) {
	scan := func(rows *sql.Rows) (l identity.SetupLink, err error) {
		var expires int64
		err = rows.Scan(&l.CodeHash, &l.Tenant, &l.Operator, &expires)
		l.ExpiresAt = instant(expires)
		return l, err
	}
	l, err := one(db.reader(ctx), scan, `SELECT code_hash, tenant, operator, expires_at FROM setup_links
		WHERE code_hash = $1 AND expires_at > $2`, codeHash, now.UnixNano())
	return l, identityError(err)
}

// UseSetupLink implements identity.Store.
func (db *DB) UseSetupLink(ctx context.Context, codeHash []byte, now time.Time, password string) (identity.Operator, error) {
	var o identity.Operator
	err := db.write(ctx, func(t *tx) error {
		id, err := one(t, column[string], `DELETE FROM setup_links WHERE code_hash = $1 AND expires_at > $2 RETURNING operator`, codeHash, now.UnixNano())
		if err != nil {
			return err
		}
		o, err = one(t, scanOperator, `UPDATE operators SET password = $1 WHERE id = $2 AND disabled_at IS NULL
			RETURNING `+operatorColumns, password, id)
		return err
	})
	if err != nil {
		return identity.Operator{}, identityError(err)
	}
	return o, nil
}

// CreateSession implements identity.Store.
func (db *DB) CreateSession(ctx context.Context, s identity.Session) error {
	return identityError(db.write(ctx, func(t *tx) error {
		return mustInsert(t.exec(`INSERT INTO sessions (token_hash, data, idle_until, expires_at)
			VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING`, s.TokenHash, s.Data, s.IdleUntil.UnixNano(), s.ExpiresAt.UnixNano()))
	}))
}

// Session implements identity.Store.
func (db *DB) Session(ctx context.Context, tokenHash string, now time.Time) (identity.Session, error) {
	scan := func(rows *sql.Rows) (s identity.Session, err error) {
		var idle, expires int64
		err = rows.Scan(&s.TokenHash, &s.Data, &idle, &expires)
		s.IdleUntil, s.ExpiresAt = instant(idle), instant(expires)
		return s, err
	}
	s, err := one(db.reader(ctx), scan, `SELECT token_hash, data, idle_until, expires_at FROM sessions
		WHERE token_hash = $1 AND idle_until > $2 AND expires_at > $2`, tokenHash, now.UnixNano())
	return s, identityError(err)
}

// ExtendSession implements identity.Store.
func (db *DB) ExtendSession(ctx context.Context, tokenHash string, idleUntil time.Time) error {
	return identityError(db.write(ctx, func(t *tx) error {
		return mustChange(t.exec(`UPDATE sessions SET idle_until = $1 WHERE token_hash = $2`, idleUntil.UnixNano(), tokenHash))
	}))
}

// DeleteSession implements identity.Store.
func (db *DB) DeleteSession(ctx context.Context, tokenHash string) error {
	return identityError(db.writeFirst(ctx, func(t *tx) error {
		_, err := t.exec(`DELETE FROM sessions WHERE token_hash = $1`, tokenHash)
		return err
	}))
}

// SweepIdentity implements identity.Store.
func (db *DB) SweepIdentity(ctx context.Context, now time.Time) error {
	return identityError(db.write(ctx, func(t *tx) error {
		if _, err := t.exec(`DELETE FROM sessions WHERE idle_until <= $1 OR expires_at <= $1`, now.UnixNano()); err != nil {
			return err
		}
		_, err := t.exec(`DELETE FROM setup_links WHERE expires_at <= $1`, now.UnixNano())
		return err
	}))
}

// instant reads a time as the tables hold it.
func instant(nanos int64) time.Time { return time.Unix(0, nanos).UTC() }

func instantOrZero(nanos sql.NullInt64) time.Time {
	if !nanos.Valid {
		return time.Time{}
	}
	return instant(nanos.Int64)
}

// nullable is the value of a column that is NULL for the zero time.
func nullable(t time.Time) sql.NullInt64 {
	return sql.NullInt64{Int64: t.UnixNano(), Valid: !t.IsZero()}
}
