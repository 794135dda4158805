package ledger

// The pure parts that the search over the table drives.
var (
	Prove     = prove
	Concluded = concluded

	FollowUndo = followUndo
	Speaks     = speaks
)

// Fold gives the operation with everything that the evidence proves.
func Fold(op Operation, evidence ...Evidence) Operation { return proofs(evidence).fold(op) }

// Seal computes an event's hash.
func Seal(e Event) string { return e.seal() }
