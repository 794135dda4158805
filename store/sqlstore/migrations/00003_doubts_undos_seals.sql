-- Doubts that are asked about, undos, goals, runs, seals.

-- +goose Up
ALTER TABLE operations ADD COLUMN parent TEXT;     -- the operation that an undo takes back
ALTER TABLE operations ADD COLUMN goal BLOB;       -- hash of (tenant, group, value)
ALTER TABLE operations ADD COLUMN doubt_at BIGINT; -- set while unknown and not on the list; a claim moves it
ALTER TABLE operations ADD COLUMN doubt TEXT NOT NULL DEFAULT '';
ALTER TABLE operations ADD COLUMN first_unknown BIGINT;
CREATE INDEX operations_parent ON operations (tenant, parent, n) WHERE parent IS NOT NULL;
CREATE INDEX operations_goal ON operations (goal, n) WHERE goal IS NOT NULL;
CREATE INDEX operations_doubt ON operations (doubt_at) WHERE doubt_at IS NOT NULL;
CREATE INDEX operations_tally ON operations (tenant, state, doubt, on_list);
CREATE INDEX operations_oldest ON operations (tenant, first_unknown) WHERE first_unknown IS NOT NULL;
UPDATE operations SET doubt_at = 0, doubt = 'entered' WHERE state = 'unknown' AND on_list = 0;

ALTER TABLE evidence ADD COLUMN effect TEXT; -- the effect id that it proves
CREATE INDEX evidence_effect ON evidence (operation, effect) WHERE effect IS NOT NULL;

CREATE TABLE runs (
    n          INTEGER PRIMARY KEY,
    tenant     TEXT   NOT NULL,
    agent      TEXT   NOT NULL,
    run        TEXT   NOT NULL,
    newest     BIGINT NOT NULL, -- row number of the newest operation in it
    operations BIGINT NOT NULL,
    closed     BIGINT NOT NULL, -- 0 or 1
    doc        TEXT   NOT NULL,
    UNIQUE (tenant, agent, run)
);
CREATE INDEX runs_newest ON runs (tenant, newest);

CREATE TABLE checkpoints (
    n   INTEGER PRIMARY KEY,
    doc TEXT NOT NULL
);
-- +goose StatementBegin
CREATE TRIGGER checkpoints_keep BEFORE UPDATE ON checkpoints
BEGIN SELECT RAISE(ABORT, 'checkpoints are append-only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER checkpoints_stay BEFORE DELETE ON checkpoints
BEGIN SELECT RAISE(ABORT, 'checkpoints are append-only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER guards_keep BEFORE UPDATE ON guards
BEGIN SELECT RAISE(ABORT, 'guard rows are append-only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER guards_stay BEFORE DELETE ON guards
BEGIN SELECT RAISE(ABORT, 'guard rows are append-only'); END;
-- +goose StatementEnd
