package planted

// The guards of the heart: the ledger's verbs, the two phases, the reconciler.

var bugsHeart = []bug{}
