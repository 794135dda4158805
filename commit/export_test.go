package commit

// Sealed is for tests that forge files of the spool.
var Sealed = sealed
