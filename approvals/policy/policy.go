// Package policy says when people must say yes, who may, and how many: pure
// functions over a tool's rules, a plan and what people said.
//
// What lives here: Evaluate (rules and predicted effects to a requirement),
// Stricter, Full (is the quorum there?), Eligible (may this person?), Asker (may
// they ask for an undo?), and ShownDigest, the name of exactly what a person
// decides on.
//
// How it flows: preview evaluates and pins a requirement; commit evaluates
// again and keeps the stricter; approvals asks Eligible and Full at each
// decision; the executor asks them once more before the dispatch mark.
//
// What does not live here: reading or writing anything; people are looked up
// through a function that is passed in. Everything that can't
// be evaluated denies (I20).
package policy

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"countersign/ledger"
	"countersign/tools"
)

// Evaluate gives the requirement for a plan: the first rule that matches
// speaks. A rule that fails to evaluate, and a list without a match, deny.
func Evaluate(spec *tools.Spec, plan tools.Plan) ledger.Requirement {
	req := ledger.Requirement{
		Outcome: tools.OutcomeDeny, Rule: "no rule speaks for this action",
		Digest: rulesDigest(spec), Expiry: spec.ApprovalExpiry, MaxAge: spec.ApprovalMaxAge,
	}
	for i, rule := range spec.Approval {
		matches, err := rule.Match(plan.Args, plan.Effects, plan.Agent)
		if err != nil {
			req.Rule = fmt.Sprintf("rule %d can't be evaluated", i+1)
			return req
		}
		if !matches {
			continue
		}
		req.Rule = describe(rule)
		switch {
		case rule.Outcome == tools.OutcomeAuto:
			req.Outcome = tools.OutcomeAuto
		case rule.Outcome == tools.OutcomeApprove && validGroups(rule.Groups):
			req.Outcome = tools.OutcomeApprove
			req.Groups = rule.Groups
		}
		return req
	}
	return req
}

// describe puts a rule in words for the page and the agent.
func describe(r tools.ApprovalRule) string {
	said := "always"
	if r.When != "" {
		said = "when " + r.When
	}
	if r.Name != "" {
		said = r.Name + ": " + said
	}
	switch r.Outcome {
	case tools.OutcomeAuto:
		return said + ", nobody is asked"
	case tools.OutcomeApprove:
		return said + ", " + Groups(r.Groups)
	case tools.OutcomeDeny:
		return r.Reason
	default:
		return said + ", a word that no rule knows"
	}
}

// Groups puts a quorum in words: "2 of finance and 1 of support".
func Groups(groups map[string]int) string {
	names := make([]string, 0, len(groups))
	for g := range groups {
		names = append(names, g)
	}
	sort.Strings(names)
	parts := make([]string, len(names))
	for i, g := range names {
		if g == tools.AnyGroup {
			parts[i] = strconv.Itoa(groups[g]) + " of all approvers"
			continue
		}
		parts[i] = fmt.Sprintf("%d of %s", groups[g], g)
	}
	return strings.Join(parts, " and ")
}

// validGroups refuses an empty approver set and a quorum of nobody (S30).
func validGroups(groups map[string]int) bool {
	for _, n := range groups {
		if n < 1 {
			return false
		}
	}
	return len(groups) > 0
}

// AskDuplicate is the requirement for a call whose arguments were used under
// another key, if its tool wants people to look at such a one (N7).
func AskDuplicate(spec *tools.Spec, req ledger.Requirement, others int) ledger.Requirement {
	if others == 0 || spec.Duplicates != tools.DuplicatesApprove {
		return req
	}
	return AskAnybody(req, "the same arguments were used under another key: 1 of all approvers")
}

// AskAnybody is the requirement for what is only done when a person agrees, of a
// tool whose policy asks nobody.
func AskAnybody(req ledger.Requirement, because string) ledger.Requirement {
	if req.Outcome != tools.OutcomeAuto {
		return req
	}
	req.Outcome = tools.OutcomeApprove
	req.Groups = map[string]int{tools.AnyGroup: 1}
	req.Rule = because
	return req
}

// strictness orders the outcomes; what is not known denies.
func strictness(outcome string) int {
	switch outcome {
	case tools.OutcomeAuto:
		return 0
	case tools.OutcomeApprove:
		return 1
	default:
		return 2
	}
}

// Stricter joins two requirements: the stricter outcome, of two quorums the
// larger in each group, the shorter times.
func Stricter(a, b ledger.Requirement) ledger.Requirement {
	if strictness(a.Outcome) < strictness(b.Outcome) {
		a, b = b, a
	}
	a.Expiry = shorter(a.Expiry, b.Expiry)
	a.MaxAge = shorter(a.MaxAge, b.MaxAge)
	if a.Outcome != tools.OutcomeApprove || b.Outcome != tools.OutcomeApprove {
		return a
	}
	joined := map[string]int{}
	for g, n := range a.Groups {
		joined[g] = n
	}
	for g, n := range b.Groups {
		if n > joined[g] {
			joined[g] = n
			if a.Rule != b.Rule {
				a.Rule = b.Rule
			}
		}
	}
	a.Groups = joined
	return a
}

// AsStrict reports that a demands everything that b demands.
func AsStrict(a, b ledger.Requirement) bool {
	if strictness(a.Outcome) != strictness(b.Outcome) {
		return strictness(a.Outcome) > strictness(b.Outcome)
	}
	for g, n := range b.Groups {
		if a.Groups[g] < n {
			return false
		}
	}
	return true
}

func shorter(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// Person is an operator as the policy sees one.
type Person struct {
	ID       string
	Name     string
	Groups   []string
	Disabled bool
}

// Eligible reports whether the person may decide on the operation, and if not,
// why. The requester and the agent's owner never may (separation of duties).
func Eligible(op ledger.Operation, p Person) (bool, string) {
	if p.Disabled {
		return false, "This account is disabled."
	}
	if why, concerned := Concerned(op, p.ID); concerned {
		return false, why
	}
	for g := range op.Requirement.Groups {
		if g == tools.AnyGroup || slices.Contains(p.Groups, g) {
			return true, ""
		}
	}
	return false, "None of your groups is asked: " + Groups(op.Requirement.Groups) + "."
}

// Full reports whether the yeses of distinct people fill the quorum. Each
// person counts once: for one place in one group, even when a member of
// several. It is a matching of people to places, so that order never decides.
func Full(groups map[string]int, yes []Person) bool {
	if !validGroups(groups) {
		return false
	}
	return Filled(groups, yes) == places(groups)
}

func places(groups map[string]int) int {
	n := 0
	for _, k := range groups {
		n += k
	}
	return n
}

// Filled gives how many places of the quorum the people can fill together.
func Filled(groups map[string]int, yes []Person) int {
	var seats []string // one entry for each place, by group
	for g, n := range groups {
		for range n {
			seats = append(seats, g)
		}
	}
	taken := make([]int, len(seats)) // person+1 in each seat
	distinct := dedupe(yes)
	filled := 0
	for i := range distinct {
		if seatPerson(i, distinct, seats, taken, make([]bool, len(seats))) {
			filled++
		}
	}
	return filled
}

// seatPerson finds person i a seat, moving others to free one (augmenting
// path).
func seatPerson(i int, people []Person, seats []string, taken []int, seen []bool) bool {
	for s, group := range seats {
		if seen[s] || group != tools.AnyGroup && !slices.Contains(people[i].Groups, group) {
			continue
		}
		seen[s] = true
		if taken[s] == 0 || seatPerson(taken[s]-1, people, seats, taken, seen) {
			taken[s] = i + 1
			return true
		}
	}
	return false
}

func dedupe(people []Person) []Person {
	var out []Person
	for _, p := range people {
		if !slices.ContainsFunc(out, func(o Person) bool { return o.ID == p.ID }) {
			out = append(out, p)
		}
	}
	return out
}

// Yeses gives the people whose yes to this round stands: approved, not taken
// back, on the digest of what is there now.
func Yeses(op ledger.Operation, decisions []ledger.Decision, digest string) []ledger.Decision {
	var yes []ledger.Decision
	for _, d := range decisions {
		if d.Round != op.Round {
			continue
		}
		switch d.Verb {
		case ledger.VerbApprove:
			if d.Digest == digest {
				yes = append(yes, d)
			}
		case ledger.VerbWithdraw:
			yes = slices.DeleteFunc(yes, func(y ledger.Decision) bool { return y.Person == d.Person })
		}
	}
	return yes
}

// EligibleYeses gives the people whose yes on exactly this digest counts as of
// now: they still exist, are not disabled, and are in a group that is asked.
func EligibleYeses(ctx context.Context, person func(ctx context.Context, tenant, id string) (Person, error),
	op ledger.Operation, decisions []ledger.Decision, digest string,
) ([]Person, error) {
	var yes []Person
	for _, d := range Yeses(op, decisions, digest) {
		p, err := person(ctx, op.Tenant, d.Person)
		if err != nil {
			return nil, err
		}
		if ok, _ := Eligible(op, p); ok {
			yes = append(yes, p)
		}
	}
	return yes, nil
}

// ShownDigest names exactly what a person decides on and what is dispatched: a
// SHA-256 over a versioned, length-framed list (S33). It is computed from the
// operation and the plan as they will be sent, never copied.
func ShownDigest(op ledger.Operation, plan tools.Plan) string {
	quorum, err := json.Marshal(op.Requirement.Groups) // map keys are sorted
	if err != nil {
		panic(err) // a map of strings to numbers always marshals
	}
	h := sha256.New()
	for _, part := range []string{
		"countersign-shown-1", op.ID, op.Tenant, op.Tool, op.ToolVersion, strconv.Itoa(op.Generation),
		strconv.Itoa(op.Round), op.ArgsDigest, plan.Target, plan.Digest(), strconv.FormatBool(op.Reversible),
		op.Requirement.Digest, op.Requirement.Outcome, string(quorum), op.ExpiresAt.UTC().Format(time.RFC3339Nano),
	} {
		var size [4]byte
		binary.BigEndian.PutUint32(size[:], uint32(len(part)))
		h.Write(size[:])
		h.Write([]byte(part))
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

// rulesDigest names the rules that were read.
func rulesDigest(spec *tools.Spec) string {
	b, err := json.Marshal(struct {
		Version string               `json:"version"`
		Rules   []tools.ApprovalRule `json:"rules"`
	}{spec.Version, spec.Approval})
	if err != nil {
		panic(err) // plain data
	}
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}
