-- The ledger's tables. Every table is append-only or nearly so, keyed by small
-- row numbers in the order of birth; wide random keys stand in indexes as 16
-- or 8 bytes of their hash, beside the full text in the row. Whole records are
-- JSON made in Go (doc); a column beside doc exists only because a statement
-- compares, orders or selects by it. Times are nanoseconds since 1970, UTC.
--
-- In another dialect only this file's row numbers (INTEGER PRIMARY KEY), BLOB
-- and triggers are written differently; the statements in Go are the same.

-- +goose Up
CREATE TABLE settings (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
);

-- Every guard row there ever was; the one in force has the highest epoch.
CREATE TABLE guards (
    tenant   TEXT   NOT NULL,
    epoch    BIGINT NOT NULL,
    write_id TEXT   NOT NULL,
    doc      TEXT   NOT NULL,
    PRIMARY KEY (tenant, epoch)
);

CREATE TABLE previews (
    tenant     TEXT   NOT NULL,
    id         TEXT   NOT NULL,
    agent      TEXT   NOT NULL,
    expires_at BIGINT NOT NULL,
    doc        TEXT   NOT NULL,
    PRIMARY KEY (tenant, id)
);
CREATE INDEX previews_agent ON previews (tenant, agent, expires_at);
CREATE INDEX previews_expiry ON previews (expires_at);

CREATE TABLE manifests (
    version      TEXT PRIMARY KEY,
    text         TEXT NOT NULL,
    upstream     TEXT NOT NULL,
    upstream_url TEXT NOT NULL
);

CREATE TABLE operations (
    n           INTEGER PRIMARY KEY, -- order of birth
    id          TEXT    NOT NULL UNIQUE,
    tenant      TEXT    NOT NULL,
    slot        BLOB    NOT NULL, -- hash of (tenant, key)
    tool        TEXT    NOT NULL,
    key         TEXT    NOT NULL,
    generation  BIGINT  NOT NULL,
    agent       TEXT    NOT NULL,
    run         TEXT,
    args        BLOB    NOT NULL, -- hash of (tenant, args digest)
    version     BIGINT  NOT NULL,
    state       TEXT    NOT NULL,
    on_list     BIGINT  NOT NULL,
    asked       BLOB,   -- hash of (tenant, tool, args digest, agent) while rejected and not reopened
    dispatch_at BIGINT, -- set while pending; a claim moves these three to its end
    lease_at    BIGINT, -- set while running
    expire_at   BIGINT, -- set while a round may expire
    doc         TEXT    NOT NULL,
    UNIQUE (slot, tool, generation)
);
CREATE INDEX operations_tenant ON operations (tenant, n);
CREATE INDEX operations_state ON operations (tenant, state, n);
CREATE INDEX operations_tool ON operations (tenant, tool, n);
CREATE INDEX operations_agent ON operations (tenant, agent, n);
CREATE INDEX operations_args ON operations (args, n);
CREATE INDEX operations_run ON operations (tenant, run, n) WHERE run IS NOT NULL;
CREATE INDEX operations_on_list ON operations (tenant, n) WHERE on_list = 1;
CREATE INDEX operations_asked ON operations (asked, n) WHERE asked IS NOT NULL;
CREATE INDEX operations_dispatch ON operations (dispatch_at) WHERE dispatch_at IS NOT NULL;
CREATE INDEX operations_lease ON operations (lease_at) WHERE lease_at IS NOT NULL;
CREATE INDEX operations_expire ON operations (expire_at) WHERE expire_at IS NOT NULL;

-- The plan of each round.
CREATE TABLE rounds (
    operation BIGINT NOT NULL REFERENCES operations (n),
    round     BIGINT NOT NULL,
    doc       TEXT   NOT NULL,
    PRIMARY KEY (operation, round)
);

CREATE TABLE decisions (
    n         INTEGER PRIMARY KEY,
    operation BIGINT NOT NULL REFERENCES operations (n),
    round     BIGINT NOT NULL,
    person    TEXT   NOT NULL,
    word      TEXT   NOT NULL, -- decide (approve or reject), withdraw
    doc       TEXT   NOT NULL,
    UNIQUE (operation, round, person, word)
);

CREATE TABLE evidence (
    n         INTEGER PRIMARY KEY,
    operation BIGINT NOT NULL REFERENCES operations (n),
    id        TEXT   NOT NULL,
    doc       TEXT   NOT NULL,
    UNIQUE (operation, id)
);

-- One for each transition: the pair (operation, version) makes that so.
CREATE TABLE events (
    seq       INTEGER PRIMARY KEY,
    operation BIGINT NOT NULL REFERENCES operations (n),
    version   BIGINT NOT NULL,
    tenant    TEXT   NOT NULL,
    write_ref BIGINT NOT NULL, -- hash of write_id
    write_id  TEXT   NOT NULL,
    doc       TEXT   NOT NULL,
    UNIQUE (operation, version)
);
CREATE INDEX events_tenant ON events (tenant, seq);
CREATE INDEX events_write ON events (write_ref);

-- What happened is never rewritten (S74).
-- +goose StatementBegin
CREATE TRIGGER events_keep BEFORE UPDATE ON events
BEGIN SELECT RAISE(ABORT, 'events are append-only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER events_stay BEFORE DELETE ON events
BEGIN SELECT RAISE(ABORT, 'events are append-only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER evidence_keep BEFORE UPDATE ON evidence
BEGIN SELECT RAISE(ABORT, 'evidence is append-only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER evidence_stay BEFORE DELETE ON evidence
BEGIN SELECT RAISE(ABORT, 'evidence is append-only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER decisions_keep BEFORE UPDATE ON decisions
BEGIN SELECT RAISE(ABORT, 'decisions are append-only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER decisions_stay BEFORE DELETE ON decisions
BEGIN SELECT RAISE(ABORT, 'decisions are append-only'); END;
-- +goose StatementEnd
