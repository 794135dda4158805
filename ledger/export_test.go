package ledger

// The pure parts that the search over the table drives.
var (
	Prove     = prove
	Concluded = concluded
)
