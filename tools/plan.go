package tools

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
)

// PlanEncoding is the version of the Plan's JSON form, part of its digest.
const PlanEncoding = 1

// Digest names the plan: everything that was predicted, read and will be sent.
// The JSON form is deterministic (struct order, sorted names, exact numbers)
// and survives being stored, so that the digest can be computed again from what
// was read back.
func (p Plan) Digest() string {
	b, err := json.Marshal(p)
	if err != nil {
		panic(err) // a plan holds values that came from JSON
	}
	sum := sha256.Sum256(append([]byte("countersign-plan-1\n"), b...))
	return "sha256:" + hex.EncodeToString(sum[:])
}
