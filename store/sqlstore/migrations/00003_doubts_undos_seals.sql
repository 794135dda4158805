-- Doubts that are asked about, undos, goals, runs, seals.

-- +goose Up
ALTER TABLE operations ADD COLUMN parent TEXT;     -- the operation that an undo takes back
ALTER TABLE operations ADD COLUMN goal BLOB;       -- hash of (tenant, group, value)
ALTER TABLE operations ADD COLUMN doubt_at BIGINT; -- set while unknown and not on the list; a claim moves it
ALTER TABLE operations ADD COLUMN doubt TEXT NOT NULL DEFAULT '';
ALTER TABLE operations ADD COLUMN first_unknown BIGINT;
CREATE INDEX operations_parent ON operations (tenant, parent, n) WHERE parent IS NOT NULL;
CREATE INDEX operations_undo ON operations (tenant, n) WHERE parent IS NOT NULL;
CREATE INDEX operations_goal ON operations (goal, n) WHERE goal IS NOT NULL;
CREATE INDEX operations_doubt ON operations (doubt_at) WHERE doubt_at IS NOT NULL;
CREATE INDEX operations_tally ON operations (tenant, state, doubt, on_list);
CREATE INDEX operations_oldest ON operations (tenant, first_unknown) WHERE first_unknown IS NOT NULL;
UPDATE operations SET doubt = 'entered', doubt_at = CASE WHEN on_list = 0 THEN 0 END,
    first_unknown = unixepoch(json_extract(doc, '$.unknown_since')) * 1000000000
    WHERE state = 'unknown';

-- Of the effects that are proven for one operation the first and the second are
-- counted: place 1 and 2, by the tenant.
ALTER TABLE evidence ADD COLUMN effect TEXT; -- the effect id that it proves
ALTER TABLE evidence ADD COLUMN tenant TEXT;
ALTER TABLE evidence ADD COLUMN place BIGINT;
CREATE INDEX evidence_effect ON evidence (operation, effect) WHERE effect IS NOT NULL;
CREATE INDEX evidence_place ON evidence (tenant, place) WHERE place IS NOT NULL;
DROP TRIGGER evidence_keep;
UPDATE evidence SET tenant = (SELECT o.tenant FROM operations o WHERE o.n = evidence.operation),
    effect = json_extract(doc, '$.effect_id')
    WHERE json_extract(doc, '$.verdict') = 'succeeded' AND json_extract(doc, '$.effect_id') <> '';
UPDATE evidence SET place = 1 WHERE n IN (SELECT min(n) FROM evidence WHERE effect IS NOT NULL GROUP BY operation);
UPDATE evidence SET place = 2 WHERE n IN (SELECT min(e.n) FROM evidence e
    JOIN evidence first ON first.operation = e.operation AND first.place = 1
    WHERE e.effect <> first.effect GROUP BY e.operation);
-- +goose StatementBegin
CREATE TRIGGER evidence_keep BEFORE UPDATE ON evidence
BEGIN SELECT RAISE(ABORT, 'evidence is append-only'); END;
-- +goose StatementEnd

CREATE TABLE runs (
    n      INTEGER PRIMARY KEY,
    tenant TEXT   NOT NULL,
    agent  TEXT   NOT NULL,
    run    TEXT   NOT NULL,
    newest BIGINT NOT NULL, -- row number of the newest operation in it
    doc    TEXT   NOT NULL,
    UNIQUE (tenant, agent, run)
);
CREATE INDEX runs_newest ON runs (tenant, newest);
CREATE INDEX runs_agent ON runs (tenant, agent, newest);
INSERT INTO runs (tenant, agent, run, newest, doc)
    SELECT r.tenant, r.agent, r.run, r.newest, json_object('tenant', r.tenant, 'agent', r.agent, 'id', r.run,
        'operations', r.operations, 'newest', json_extract(o.doc, '$.created_at'))
    FROM (SELECT tenant, agent, run, max(n) AS newest, count(*) AS operations FROM operations
        WHERE run IS NOT NULL GROUP BY tenant, agent, run) r
    JOIN operations o ON o.n = r.newest;

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
