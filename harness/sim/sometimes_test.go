package sim_test

// enough is how many schedules must have met everything of sometimes.
const enough = 3000

// sometimes is what the schedules must meet together: a run that never comes to
// one of these shows nothing about it. They are counted where they happen.
var sometimes = []string{
	// An answer lost at each durable write.
	"lost answer of put", "lost answer of open", "lost answer of decide", "lost answer of mark", "lost answer of finish",
	"lost answer of evidence", "lost answer of resolve", "lost answer of retry", "lost answer of undo", "lost answer of end", "lost answer of guard",
	// A delayed first copy that arrives behind its repeat.
	"late open", "late mark", "late finish",
	// A worker that wakes up past its lease: before the mark, between mark and
	// send, after the response.
	"delay past the lease at mark", "delay past the lease at open", "slow past the lease at mark", "slow past the lease at open",
	"late waker sends nothing", "delay past the lease at up.reply",
	// Races of the gateways.
	"store refused Open head_moved", "store refused Open goal_moved", "store refused Open run_closed", "store refused Open too_late",
	"lost race of dispatch", "lost race of finish", "lost race of resolve", "lost race of approve", "lost race of reject",
	// A freeze against a mark, won and lost.
	"frozen", "a guard row won against a mark", "freeze lost against a mark", "frozen by itself",
	// People.
	"decided twice", "decided too late", "decided on what had changed", "refused rejected_before", "verb reopen", "drift", "verb revise",
	// Every way that doubts go.
	"verb lose_lease", "verb release", "verb retry", "verb hand_over", "verb contradict", "the key retention was over",
	"resolve to succeeded by gateway another", "resolve to succeeded by gateway reconciler", "resolve to failed by gateway reconciler",
	"resolve to succeeded by operator another", "resolve to failed by operator another",
	// Undo, and what was there already.
	"verb compensate", "verb compensated", "verb give_up", "run undone", "verb adopt", "verb cancel", "verb expire",
	// The store is away while an outcome is to be written.
	"store down at finish", "refused at finish",
	// Deaths at the marks, and a restart in each state.
	"crash_before at open", "crash_after at open", "crash_before at mark", "crash_after at mark", "crash_before at up.send", "crash_after at up.send",
	"crash_before at up.reply", "crash_before at finish", "crash_after at finish", "crash_after at undo", "crash_after at end",
	"restart in awaiting_approval", "restart in pending", "restart in running", "restart in unknown", "restart in compensating",
	"restart in succeeded", "restart in failed", "restart in compensated", "restart in rejected", "restart in cancelled",
	// Callers who leave, and tokens that are no longer good.
	"hung up", "refused token_expired", "refused token_subject_mismatch", "refused idempotency_key_reused", "refused goal_taken",
}
