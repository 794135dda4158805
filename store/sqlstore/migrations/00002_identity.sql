-- Who calls. Secrets are here only as hashes. Small tables with plain columns;
-- lists are JSON. Times as in 00001; NULL means not yet.

-- +goose Up
CREATE TABLE agents (
    id         TEXT   PRIMARY KEY,
    tenant     TEXT   NOT NULL,
    name       TEXT   NOT NULL,
    owner      TEXT   NOT NULL,
    tools      TEXT   NOT NULL,
    key_id     TEXT   NOT NULL UNIQUE,
    key_salt   BLOB   NOT NULL,
    key_hash   BLOB   NOT NULL,
    created_at BIGINT NOT NULL,
    revoked_at BIGINT
);
-- The name of a revoked agent is free again.
CREATE UNIQUE INDEX agents_name ON agents (tenant, name) WHERE revoked_at IS NULL;
CREATE INDEX agents_tenant ON agents (tenant, created_at, id);

CREATE TABLE operators (
    id          TEXT   PRIMARY KEY,
    tenant      TEXT   NOT NULL,
    name        TEXT   NOT NULL,
    member_of   TEXT   NOT NULL, -- groups
    password    TEXT   NOT NULL, -- PHC string, empty before the first set-up
    created_at  BIGINT NOT NULL,
    disabled_at BIGINT,
    UNIQUE (tenant, name)
);

-- One link for each operator: a new one takes the place of the old, and a used
-- one is deleted.
CREATE TABLE setup_links (
    operator   TEXT   PRIMARY KEY REFERENCES operators (id),
    tenant     TEXT   NOT NULL,
    code_hash  BLOB   NOT NULL UNIQUE,
    expires_at BIGINT NOT NULL
);

CREATE TABLE sessions (
    token_hash TEXT   PRIMARY KEY,
    data       BLOB   NOT NULL,
    idle_until BIGINT NOT NULL,
    expires_at BIGINT NOT NULL
);
CREATE INDEX sessions_idle ON sessions (idle_until);
