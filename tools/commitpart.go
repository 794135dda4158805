package tools

import (
	"net/http"
	"net/textproto"
	"slices"
	"time"

	"cel.dev/cel-go/common/types"
	"golang.org/x/net/http/httpguts"
)

// commitPart is the one effectful request and what its answers mean.
type commitPart struct {
	request   *requestTemplate
	succeeded success
	rejected  []rejection
}

type success struct {
	status   []int
	when     *expr
	schema   *Schema
	body     *types.Type
	effectID *template
	result   *tree
}

type rejection struct {
	status  []int
	when    *expr
	because *template
}

// question is a lookup, by key or by business reference.
type question struct {
	request *requestTemplate
	answers []int
	schema  *Schema
	body    *types.Type
	found   *expr
	notYet  *expr
	uses    usage
}

// undoPart is the opposite tool.
type undoPart struct {
	tool  string
	args  *tree
	while *expr
	says  string
}

// laterUses is what the commit's expressions read after preview: the request
// itself is rendered at preview.
func (c *commitPart) laterUses() usage {
	u := c.succeeded.effectID.uses
	if c.succeeded.when != nil {
		u = u.add(c.succeeded.when.uses)
	}
	if c.succeeded.result != nil {
		u = u.add(c.succeeded.result.uses)
	}
	for _, r := range c.rejected {
		if r.when != nil {
			u = u.add(r.when.uses)
		}
		if r.because != nil {
			u = u.add(r.because.uses)
		}
	}
	return u
}

func (b *builder) buildCommit() {
	n := b.root.get("commit")
	if n == nil {
		b.ps.at(b.root.keyPos("access"), "Say under `commit` which request has the effect.", "A write tool needs `commit`.")
		return
	}
	if n.kind != mapNode {
		return
	}
	before := len(b.ps.list)
	c := &commitPart{request: b.request(n, commitMethods, scopeCommit)}
	b.buildKeySupport(n, c)
	b.buildSucceeded(n.get("succeeded"), c)
	b.buildRejected(n, c)
	if len(b.ps.list) == before && c.request != nil && c.succeeded.effectID != nil {
		b.m.commit = c
	}
}

// buildKeySupport compiles what the upstream promises about keys.
func (b *builder) buildKeySupport(n *node, c *commitPart) {
	k := n.get("honours_key")
	if k == nil || k.kind != mapNode {
		return
	}
	spec := &b.m.Spec
	spec.HonoursKey = true
	if retention := k.get("retention"); retention != nil {
		spec.KeyRetention = b.durationAt(retention, "retention")
	}
	if c.request == nil {
		return
	}
	header := k.get("header")
	if header == nil {
		if !c.request.uses.keyUpstream {
			b.ps.at(n.keyPos("honours_key"), "Name the header that carries it, such as `header: Idempotency-Key`, or put ${key.upstream} into the body.",
				"The upstream honours a key, but the request does not carry one.")
		}
		return
	}
	name := textproto.CanonicalMIMEHeaderKey(header.text())
	switch {
	case !httpguts.ValidHeaderFieldName(header.text()) || slices.Contains(reservedHeaders, name) || name == "Content-Type":
		b.ps.at(header.pos, "Write a header such as Idempotency-Key.", "%q can't carry the key.", header.text())
	case slices.ContainsFunc(c.request.header, func(f namedTemplate) bool { return f.name == name }):
		b.ps.at(n.get("headers").keyPos(header.text()), "Take it out: the key is put there already.", "The header %s stands twice.", name)
	default:
		c.request.keyHeader = name
	}
}

func (b *builder) buildSucceeded(n *node, c *commitPart) {
	if n == nil || n.kind != mapNode {
		return
	}
	s := &c.succeeded
	s.status = statusList(n.get("status"))
	for _, item := range statusNodes(n) {
		if status, ok := item.integer(); ok && (status < 200 || status > 299) {
			b.ps.at(item.pos, "List statuses from 200 to 299.", "%d can't mean that it succeeded.", status)
		}
	}
	if schema := n.get("schema"); schema != nil {
		s.schema = compileSchema(schema, false, b.ps)
	}
	s.body = b.bodyType(s.schema, "succeeded body")
	defer b.bind("body", s.body)()
	if when := n.get("when"); when != nil {
		s.when = b.bare(when, scopeReply.secret(), wantBool)
	}
	s.effectID = b.template(n.get("effect_id"), scopeReply.in("an effect id"), inID)
	if s.effectID != nil && s.effectID.parts == nil {
		b.ps.at(n.get("effect_id").pos, "Choose the field that holds the outside system's own id, such as ${body.id}.", "The effect id is the same for every effect.")
	}
	b.vars["result"] = b.types.declare(resultType, map[string]*types.Type{})
	if result := n.get("result"); result != nil && result.kind == mapNode {
		s.result = b.tree(result, scopeReply.in("a result"), inJSON)
		if s.result != nil {
			b.vars["result"] = b.resultType(s.result)
		}
	}
}

// statusNodes are the nodes of a status list.
func statusNodes(n *node) []*node {
	if list := n.get("status"); list != nil {
		return list.items
	}
	return nil
}

// resultType gives `result` the names and types of succeeded.result.
func (b *builder) resultType(t *tree) *types.Type {
	fields := map[string]*types.Type{}
	for _, m := range t.members {
		switch {
		case m.tree.kind != scalarNode:
			fields[m.name] = types.DynType
		case m.tree.leaf.alone():
			fields[m.name] = m.tree.leaf.parts[0].expr.out
		case m.tree.leaf.parts != nil:
			fields[m.name] = types.StringType
		default:
			fields[m.name] = types.DynType
		}
	}
	return b.types.declare(resultType, fields)
}

// riskyStatuses usually do not prove that nothing happened: a timeout, a
// conflict with our own earlier request, a limit that counts requests.
var riskyStatuses = []int{http.StatusRequestTimeout, http.StatusConflict, http.StatusTooEarly, http.StatusTooManyRequests}

func (b *builder) buildRejected(n *node, c *commitPart) {
	r := n.get("rejected")
	if r == nil {
		b.ps.warn(n.pos, "List the statuses with which the upstream refuses for certain, such as `rejected: {status: [422], because: \"${body.message}\"}`.",
			"No answer means refused: every answer but success leaves the outcome unknown.")
		return
	}
	items := r.items
	if r.kind == mapNode {
		items = []*node{r}
	}
	for _, item := range items {
		if item.kind != mapNode {
			b.ps.at(item.pos, "For example `{status: [422], because: \"${body.message}\"}`.", "A rejection is a mapping.")
			continue
		}
		b.buildRejection(item, c)
	}
}

func (b *builder) buildRejection(n *node, c *commitPart) {
	if r := n.get("status"); r == nil {
		b.ps.at(n.pos, "For example `status: [422]`.", "`status` is missing in `rejected`.")
		return
	}
	rej := rejection{status: statusList(n.get("status"))}
	for _, m := range n.members {
		if !slices.Contains([]string{"status", "when", "because", "definite", "reason"}, m.name) {
			b.ps.at(m.keyPos, "Here there is `status`, `when`, `because`, `definite` or `reason`.", "The key `%s` is not known here.", m.name)
		}
	}
	if when := n.get("when"); when != nil {
		rej.when = b.bare(when, scopeReply.secret(), wantBool)
	}
	rej.because = b.template(n.get("because"), scopeReply.in("a reason"), inText)
	definite := n.get("definite").truth()
	if definite && n.get("reason").text() == "" {
		b.ps.at(n.keyPos("definite"), "Add `reason:` with what makes it certain, for example where the API documents it.", "`definite: true` needs a reason.")
	}
	for _, item := range statusNodes(n) {
		status, ok := item.integer()
		if !ok {
			continue
		}
		risky := slices.Contains(riskyStatuses, status) || status/100 == 3 || status/100 == 5
		switch {
		case risky && !definite:
			b.ps.at(item.pos, "Take it out, so that the outcome is looked up; or add `definite: true` and a `reason` if the upstream guarantees it.",
				"%d does not prove that nothing happened.", status)
		case status/100 == 2 && rej.when == nil:
			b.ps.at(item.pos, "Add `when` with what the body says, such as body.ok == false.", "%d means success unless the body says otherwise.", status)
		case rej.when == nil && c.succeeded.when == nil && slices.Contains(c.succeeded.status, status):
			b.ps.at(item.pos, "Keep it in one of the two.", "%d can't mean both succeeded and rejected.", status)
		}
	}
	c.rejected = append(c.rejected, rej)
}

// buildQuestion compiles `lookup` or `already_done`.
func (b *builder) buildQuestion(name string) *question {
	n := b.root.get(name)
	if n == nil || n.kind != mapNode {
		return nil
	}
	before := len(b.ps.list)
	q := &question{answers: statusList(n.get("answers"), http.StatusOK)}
	q.request = b.request(n, readMethods, scopeCommit)
	if q.request != nil && q.request.method == http.MethodPost && !q.request.effectFree {
		b.ps.at(n.keyPos("post"), "Add `effect_free: true` if the upstream promises that it changes nothing.", "A lookup must not change anything.")
	}
	if schema := n.get("schema"); schema != nil {
		q.schema = compileSchema(schema, false, b.ps)
	}
	q.body = b.bodyType(q.schema, name+" body")
	defer b.bind("body", q.body)()
	q.found = b.bare(n.get("found"), scopeReply.in("`found`").secret(), wantList)
	if notYet := n.get("not_yet"); notYet != nil {
		q.notYet = b.bare(notYet, scopeReply.in("`not_yet`").secret(), wantBool)
	}
	if len(b.ps.list) > before || q.request == nil || q.found == nil {
		return nil
	}
	q.uses = q.found.uses
	if q.notYet != nil {
		q.uses = q.uses.add(q.notYet.uses)
	}
	if name == "lookup" {
		b.m.Spec.Consistency = Eventual
		if n.get("consistency").text() == string(Strong) {
			b.m.Spec.Consistency = Strong
		}
		b.m.Spec.MaxInFlight = time.Minute
		if m := n.get("max_in_flight"); m != nil {
			b.m.Spec.MaxInFlight = b.durationAt(m, "max_in_flight")
		}
		if !q.usesIntent() {
			b.ps.warn(n.pos, "Ask by ${key.upstream}, or by arguments that no other call shares.", "The lookup asks nothing about this call: it could find another call's effect.")
		}
	}
	return q
}

// usesIntent reports whether the question names this call at all.
func (q *question) usesIntent() bool {
	u := q.request.uses.add(q.uses)
	return slices.ContainsFunc(u.vars, func(name string) bool { return name == "key" || name == "args" || name == "reads" })
}

// minRetention keeps a key retention from being shorter than one exchange.
func (b *builder) minRetention() {
	spec := &b.m.Spec
	if spec.HonoursKey && spec.KeyRetention > 0 && spec.KeyRetention < spec.Timeout+time.Minute {
		at := b.root.get("commit").get("honours_key").get("retention")
		b.ps.at(at.pos, "Write how long the upstream really keeps keys, at least a minute more than the timeout.",
			"A retention of %s is too short to send a request again.", spec.KeyRetention)
	}
}
