package history_test

import (
	"testing"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"countersign/fault"
	"countersign/ledger"
)

// said is one call with its answer.
type said struct {
	c call
	a answer
}

// sequence is a history in which one call follows another, but for lost ones, which
// last to the end.
func sequence(lines []said) []porcupine.Operation {
	var history []porcupine.Operation
	for i, l := range lines {
		op := porcupine.Operation{ClientId: i % 3, Input: l.c, Call: int64(2 * i), Output: l.a, Return: int64(2*i + 1)}
		if l.a.Lost {
			op.Return = int64(2 * len(lines))
		}
		history = append(history, op)
	}
	return history
}

// of is a call on the one key of these histories, by an agent or a person.
func of(what string, change ...func(*call)) call {
	c := call{Tool: "tool", Order: 1, What: what, Agent: "agt_1", Generation: 1, Operation: "op_1"}
	if what == "freeze" || what == "unfreeze" {
		c.Order = 0
	}
	for _, f := range change {
		f(&c)
	}
	return c
}

func quorum(n int) func(*call)       { return func(c *call) { c.Quorum = n } }
func args(n int) func(*call)         { return func(c *call) { c.Args = n } }
func generation(n int) func(*call)   { return func(c *call) { c.Generation = n } }
func person(n int) func(*call)       { return func(c *call) { c.Person = n } }
func keyed(c *call)                  { c.Keyed = true }
func sees(effect string) func(*call) { return func(c *call) { c.Said = effect } }
func refusal(code fault.Code) answer { return answer{Code: code} }
func ticket(generation int) answer   { return answer{Generation: generation} }
func effects(ids string) answer      { return answer{Effects: ids} }
func first(s ledger.State) answer    { return answer{Op: shown(1, s), Fresh: true} }
func shows(s ledger.State) answer    { return answer{Op: shown(1, s)} }
func shown(g int, s ledger.State) seen {
	op := seen{ID: "op_1", Generation: g, State: s}
	if g > 1 {
		op.ID = "op_2"
	}
	if s.Effective() {
		op.Effect = "e1"
	}
	return op
}

// TestModel_Strict: each history may be, and with its last line it may not.
func TestModel_Strict(t *testing.T) {
	lost := answer{Lost: true}
	running := []said{{of("preview"), ticket(1)}, {of("commit"), first(ledger.Running)}}
	succeeded := append(running[:2:2], said{of("get"), shows(ledger.Succeeded)})
	unknown := append(running[:2:2], said{of("get"), shows(ledger.Unknown)})
	awaiting := []said{{of("commit", quorum(2)), first(ledger.AwaitingApproval)}, {of("approve", quorum(2), person(0)), shows(ledger.AwaitingApproval)}}
	asked := []said{{of("commit", quorum(1)), first(ledger.AwaitingApproval)}}
	frozen := append(asked[:1:1], said{of("freeze"), answer{}}, said{of("approve", quorum(1)), shows(ledger.Pending)})
	cancelled := append(asked[:1:1], said{of("cancel"), shows(ledger.Cancelled)})
	rejected := append(asked[:1:1], said{of("reject", quorum(1)), shows(ledger.Rejected)})
	second := append(cancelled[:2:2], said{of("commit", quorum(1), generation(2), args(1)), answer{Op: shown(2, ledger.AwaitingApproval), Fresh: true}})

	for name, h := range map[string]struct {
		may []said
		not said
	}{
		"opened twice":                             {running, said{of("commit"), answer{Op: seen{ID: "op_2", Generation: 1, State: ledger.Running}, Fresh: true}}},
		"the first of two is no repeat":            {running, said{of("commit"), first(ledger.Running)}},
		"a repeat of another operation":            {running, said{of("commit"), answer{Op: seen{ID: "op_2", Generation: 1, State: ledger.Running}}}},
		"a repeat with other arguments":            {running, said{of("commit", args(1)), shows(ledger.Running)}},
		"a repeat of nobody's":                     {nil, said{of("commit"), shows(ledger.Running)}},
		"a token for the next while this one runs": {append(running[:2:2], said{of("preview"), ticket(2)}), said{of("get"), shows(ledger.Running)}},
		"a generation left out":                    {cancelled, said{of("preview"), ticket(3)}},
		"the next opened while this one runs":      {append(running[:2:2], said{of("commit", generation(2)), answer{Op: shown(2, ledger.Running), Fresh: true}}), said{of("get"), shows(ledger.Running)}},
		"opened is not there":                      {running, said{of("find"), answer{}}},
		"opened can't be read":                     {running, said{of("get"), refusal(fault.OperationNotFound)}},
		"same arguments are other ones":            {running, said{of("preview"), refusal(fault.IdempotencyKeyReused)}},
		"two effects":                              {running, said{of("outside"), effects("e1 e2")}},
		"an effect is taken for unsent":            {append(running[:2:2], said{of("outside"), effects("e1")}), said{of("get"), shows(ledger.Pending)}},
		"an effect is taken for none":              {append(running[:2:2], said{of("outside"), effects("e1")}), said{of("get"), shows(ledger.Failed)}},
		"a success that runs again":                {succeeded, said{of("get"), shows(ledger.Running)}},
		"a success that is in doubt":               {succeeded, said{of("get"), shows(ledger.Unknown)}},
		"a success that fails":                     {succeeded, said{of("commit"), shows(ledger.Failed)}},
		"a success with another effect":            {succeeded, said{of("get"), answer{Op: seen{ID: "op_1", Generation: 1, State: ledger.Succeeded, Effect: "e2"}}}},
		"a success without effect id":              {running, said{of("get"), answer{Op: seen{ID: "op_1", Generation: 1, State: ledger.Succeeded}}}},
		"a success without effect":                 {succeeded, said{of("outside"), effects("")}},
		"a success that frees the key":             {succeeded, said{of("preview"), ticket(2)}},
		"an expired token of what exists":          {succeeded, said{of("commit"), refusal(fault.TokenExpired)}},
		"one yes of two":                           {awaiting, said{of("get"), shows(ledger.Pending)}},
		"sent on one yes of two":                   {awaiting, said{of("outside"), effects("e1")}},
		"one person twice":                         {awaiting, said{of("approve", quorum(2), person(0)), shows(ledger.Pending)}},
		"decided before, by nobody":                {awaiting, said{of("approve", quorum(2), person(1)), refusal(fault.AlreadyDecided)}},
		"nobody is asked, but they are":            {awaiting, said{of("approve", quorum(2), person(1)), refusal(fault.InvalidState)}},
		"a decision that is not there":             {append(asked[:1:1], said{of("approve", quorum(1)), shows(ledger.Pending)}), said{of("get"), shows(ledger.AwaitingApproval)}},
		"a refused decision counts":                {append(asked[:1:1], said{of("approve", quorum(1)), refusal(fault.StoreUnavailable)}), said{of("get"), shows(ledger.Pending)}},
		"sent under a freeze":                      {frozen, said{of("get"), shows(ledger.Running)}},
		"opened under a freeze":                    {[]said{{of("freeze"), answer{}}, {of("preview"), ticket(1)}}, said{of("commit"), first(ledger.Running)}},
		"frozen, but it is not":                    {[]said{{of("freeze"), answer{}}, {of("unfreeze"), answer{}}, {of("preview"), ticket(1)}}, said{of("commit"), refusal(fault.ToolFrozen)}},
		"no freeze, but there is one":              {frozen, said{of("unfreeze"), refusal(fault.FreezeNotFound)}},
		"a retry under a freeze":                   {append(unknown[:3:3], said{of("freeze"), answer{}}), said{of("get", keyed), shows(ledger.Running)}},
		"sent again without a key":                 {unknown, said{of("get"), shows(ledger.Running)}},
		"cancelled and sent":                       {cancelled, said{of("get"), shows(ledger.Running)}},
		"cancelled and happened":                   {cancelled, said{of("outside"), effects("e1")}},
		"cancelled while it is in doubt":           {unknown, said{of("cancel"), shows(ledger.Cancelled)}},
		"can't be cancelled, but can":              {asked, said{of("cancel"), refusal(fault.InvalidState)}},
		"rejected and opened again":                {rejected, said{of("commit", quorum(1), generation(2)), answer{Op: shown(2, ledger.AwaitingApproval), Fresh: true}}},
		"rejected before, by nobody":               {cancelled, said{of("preview"), refusal(fault.RejectedBefore)}},
		"the older one is shown as the newest":     {second, said{of("find"), shows(ledger.AwaitingApproval)}},
		"the older one with the newest arguments":  {second, said{of("commit", args(1)), shows(ledger.Cancelled)}},
		"the older one ended otherwise":            {second, said{of("get"), shows(ledger.Failed)}},
		"a statement that ends otherwise":          {unknown, said{of("resolve", sees("e1")), shows(ledger.Failed)}},
		"a statement with another effect":          {unknown, said{of("resolve", sees("e2")), shows(ledger.Succeeded)}},
		"no doubt, but there is one":               {append(unknown[:3:3], said{of("resolve"), refusal(fault.InvalidState)}), said{of("get"), shows(ledger.Unknown)}},
		"a statement on what is known":             {succeeded, said{of("resolve", sees("e1")), shows(ledger.Succeeded)}},
		"a statement that is forgotten":            {append(unknown[:3:3], said{of("resolve"), shows(ledger.Failed)}), said{of("get"), shows(ledger.Unknown)}},
		"lost and opened, and opened by another":   {[]said{{of("commit"), lost}, {of("get"), shows(ledger.Running)}}, said{of("commit"), first(ledger.Running)}},
		"opened although nothing was changed":      {[]said{{of("commit"), refusal(fault.StoreUnavailable)}}, said{of("find"), shows(ledger.Running)}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, porcupine.Ok, porcupine.CheckOperationsTimeout(model(), sequence(h.may), patience), "this may be:\n%s", told(sequence(h.may)))
			all := sequence(append(h.may[:len(h.may):len(h.may)], h.not))
			require.Equal(t, porcupine.Illegal, porcupine.CheckOperationsTimeout(model(), all, patience), "this may not be:\n%s", told(all))
		})
	}
}

// TestModel_Lost: a call without an answer may have happened, may happen later, and
// may not happen at all.
func TestModel_Lost(t *testing.T) {
	lost := answer{Lost: true}
	for name, lines := range map[string][]said{
		"it happened":       {{of("commit"), lost}, {of("commit"), shows(ledger.Running)}},
		"it happens later":  {{of("commit"), lost}, {of("find"), answer{}}, {of("find"), shows(ledger.Running)}},
		"it never happens":  {{of("commit"), lost}, {of("find"), answer{}}, {of("commit"), first(ledger.Running)}},
		"a freeze, perhaps": {{of("freeze"), lost}, {of("commit"), refusal(fault.ToolFrozen)}},
		"a freeze, or not":  {{of("freeze"), lost}, {of("commit"), first(ledger.Running)}},
		"an older one has ended, whatever was opened since": {
			{of("commit", quorum(1)), first(ledger.AwaitingApproval)},
			{of("cancel"), shows(ledger.Cancelled)},
			{of("commit", quorum(1), generation(2), args(1)), lost},
			{of("preview"), refusal(fault.IdempotencyKeyReused)},
			{of("approve", quorum(1)), refusal(fault.InvalidState)},
			{of("outside"), effects("")},
			{of("find"), answer{Op: shown(2, ledger.AwaitingApproval)}},
		},
		"a late no": {{of("commit", quorum(1)), first(ledger.AwaitingApproval)}, {of("reject", quorum(1)), lost}, {of("get"), shows(ledger.AwaitingApproval)}, {of("get"), shows(ledger.Rejected)}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, porcupine.Ok, porcupine.CheckOperationsTimeout(model(), sequence(lines), patience), told(sequence(lines)))
		})
	}
}
