// Package sqlstore keeps the ledger in SQL: today in one SQLite file.
//
// What lives here: DB, which implements ledger.Store; the writer that groups
// writes into one transaction; the pool of read connections; the migrations;
// the checks at the start (one process for a file, no network file system, WAL
// and synchronous=FULL really in force).
//
// How it flows: a write is a function over a tx. It waits in a bounded queue;
// the one writer goroutine takes whatever waits, runs each function in a
// SAVEPOINT of its own inside one BEGIN IMMEDIATE, commits, and answers all of
// them only after that COMMIT. One flush to the disk thus pays for many writes,
// and nobody waits for company: a write that comes alone is committed alone.
//
//   - A function that returns an error refuses: its savepoint is rolled back,
//     and its neighbours in the group go on.
//   - A statement that fails unexpectedly may have ended the transaction, and a
//     later statement would then commit by itself. So the first such error
//     closes the tx to further statements, the whole group is rolled back, and
//     each member is run again alone.
//   - A COMMIT that fails leaves open whether it happened: everybody in the
//     group gets *ledger.Ambiguous.
//   - The writer runs on its own context. A caller who leaves kills nothing;
//     what was queued runs to its end.
//
// Reads use connections that refuse to write. They see every answered write,
// since an answer follows its COMMIT. The SQL is one text for SQLite and
// PostgreSQL: $1 placeholders, TEXT and BIGINT, no now(), JSON made in Go.
//
// What does not live here: any rule. What a write means is decided in ledger;
// this package compares what it is told to compare.
package sqlstore
