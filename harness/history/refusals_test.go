package history_test

import (
	"fmt"
	"strings"

	"countersign/fault"
	"countersign/ledger"
)

// refuses reports that a refusal is true of the key as it stands.
func (k key) refuses(c call, code fault.Code) bool {
	switch code {
	case fault.StoreUnavailable:
		return true // it only says that nothing was changed
	case fault.TokenExpired:
		return k.Generation < c.Generation // what exists is answered, however old the token is
	case fault.ToolFrozen:
		return k.Frozen
	case fault.FreezeNotFound:
		return !k.Frozen
	case fault.IdempotencyKeyReused:
		other := 1 - c.Args
		stands := k.Generation > 0 && k.Args == other
		if c.What == "commit" && c.Generation < k.Generation {
			return stands || k.voidArgs(c.Generation, other)
		}
		return stands && (c.What == "commit" || !k.free())
	case fault.PreviewStale:
		return k.Generation >= c.Generation
	case fault.RejectedBefore:
		return strings.Contains(k.No, ask(c.Agent, c.Args))
	case fault.AlreadyDecided:
		return k.was(c.Operation) || k.is(c.Operation) && k.Said&(1<<c.Person) != 0
	case fault.InvalidState:
		if k.was(c.Operation) {
			return true // it has ended
		}
		if !k.is(c.Operation) {
			return false
		}
		switch c.What {
		case "approve", "reject":
			return k.State != ledger.AwaitingApproval
		case "cancel":
			return k.State != ledger.AwaitingApproval && k.State != ledger.Pending
		case "resolve":
			return k.State != ledger.Unknown
		}
	}
	return false
}

// voidArgs reports that an older generation had those arguments.
func (k key) voidArgs(generation, args int) bool {
	for _, part := range strings.Split(k.Void, ";") {
		if strings.HasPrefix(part, fmt.Sprintf("|%d ", generation)) {
			return strings.HasSuffix(part, fmt.Sprintf(" args %d", args))
		}
	}
	return false
}
