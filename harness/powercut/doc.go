// Package powercut cuts the power of the disk under the ledger. A process that is
// killed leaves its writes with the kernel, so a kill can't see a missing flush
// (reliability, trap 8); this disk forgets what was not flushed.
//
// What lives here: Disk, a disk in memory that knows for each file, and for the
// directory, what is safe and what is only written; Disk.Register, which shows it
// to SQLite as a VFS; and the tests that run the real store, with the real
// settings and the real writer, on it.
//
// How it flows: a test arms a cut (CutAt), opens sqlstore on the disk's name and
// lets several callers write. At the armed write, truncate, flush, creation or
// deletion the power goes: every call fails from then on, and of each file's
// unflushed changes, in sectors, the seed says what survives: nothing, everything,
// those up to a moment, or some of them in any order, with anything in what a file
// grew by. Boot gives the power back
// and shows what survived. Then everything that the store had acknowledged must be
// there, and everything that is there must be whole (I10, I16). The same test with
// each kind of flush taken away must find losses, or it would prove nothing.
//
// What does not live here: processes that die (harness/chaos), faults of the
// store as the ledger sees it (harness/sim), real disks, and renaming, which SQLite
// never does: the program's own files (keys, spool, backup) are not on this disk.
package powercut
