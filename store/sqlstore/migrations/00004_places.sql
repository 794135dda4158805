-- Places in runs: at each (run, step, call) of an agent stands one intent.
-- Operations of older ledgers are at none.

-- +goose Up
ALTER TABLE operations ADD COLUMN place BLOB; -- hash of (tenant, agent, run, step, call)
CREATE INDEX operations_place ON operations (place, n) WHERE place IS NOT NULL;
