package tools

import (
	"cmp"
	"slices"
	"strings"

	"cel.dev/cel-go/common/types"
)

// buildWriteTool compiles the parts of a write tool in the order of its life.
func (b *builder) buildWriteTool() {
	b.onlyFor(Read, "read")
	b.buildKey()
	b.buildGoal()
	b.m.Spec.Duplicates = cmp.Or(b.root.get("duplicates").text(), DuplicatesWarn)
	preview := b.root.get("preview")
	if preview == nil {
		b.ps.at(b.root.keyPos("access"), "Say under `preview` what would change: at least `effects`.",
			"A write tool needs a preview: nothing is committed that was not shown first.")
	}
	b.buildReads(preview.get("reads"))
	b.m.headline = b.template(b.root.get("headline"), scopePreview.in("a headline"), inText)
	b.buildRefusals(preview.get("refuse"))
	b.buildEffects(preview.get("effects"))
	b.buildBasis(preview)
	b.buildCommit()
	b.m.lookup = b.buildQuestion("lookup")
	b.m.done = b.buildQuestion("already_done")
	b.buildUndo()
	b.buildApproval()
	b.finishSpec()
}

// buildKey compiles where the idempotency key comes from.
func (b *builder) buildKey() {
	n := b.root.get("key")
	spec := &b.m.Spec
	spec.KeySource = KeyTemplate
	if n == nil {
		b.ps.at(b.root.keyPos("access"), "Write what makes two calls the same intent, such as `key: \"refund/${args.payment_id}\"`, or `key: {from: caller}`.",
			"A write tool needs a key: without one a repeat can't be told from a second wish.")
		return
	}
	if n.kind == mapNode {
		switch n.get("from").text() {
		case "caller":
			spec.KeySource = KeyFromCaller
		case "run":
			spec.KeySource = KeyFromRun
		}
		return
	}
	text := n.text()
	if strings.HasPrefix(text, "undo:") {
		b.ps.at(n.pos, "Begin the key with another word.", "Keys that begin with undo: are reserved for undo.")
		return
	}
	pieces, _ := splitTemplate(text)
	for i, p := range pieces {
		if p.isCode && i > 0 && pieces[i-1].isCode {
			b.ps.at(n.at(p.offset-2), "Put a separator between them, such as /.", "Two values of a key must be kept apart, or \"1\" and \"23\" make the key of \"12\" and \"3\".")
			return
		}
		if !p.isCode && strings.ContainsFunc(p.literal, func(r rune) bool { return r < 0x21 || r > 0x7e }) {
			b.ps.at(n.pos, "Use letters, digits and / : . _ - as separators.", "A key is printable ASCII without blanks.")
			return
		}
	}
	b.m.key = b.template(n, scopeKey, inKey)
	if b.m.key != nil && b.m.key.parts == nil {
		b.ps.warn(n.pos, "Use the arguments that make two calls the same intent.", "The key is the same for every call: the tool can take effect only once.")
	}
}

func (b *builder) buildGoal() {
	n := b.root.get("goal")
	if n == nil {
		return
	}
	if value := b.template(n.get("value"), scopeKey.in("a goal"), inKey); value != nil {
		b.m.goal = &goalTemplate{n.get("group").text(), value}
	}
}

// buildReads compiles the reads and gives `reads` its type.
func (b *builder) buildReads(n *node) {
	fields := map[string]*types.Type{}
	if n != nil && n.kind == mapNode {
		for _, m := range n.members {
			b.readNames = append(b.readNames, m.name)
			body := types.DynType
			if r := b.readPart(m.name, m.node); r != nil {
				b.m.reads = append(b.m.reads, *r)
				if r.schema != nil {
					body = b.types.fromShape(r.schema.shape, responseFmt+m.name+" body")
				}
			}
			fields[m.name] = b.types.declare(responseFmt+m.name, map[string]*types.Type{
				"status": types.IntType, "headers": types.NewMapType(types.StringType, types.StringType), "body": body,
			})
		}
	}
	if b.root.has("preview") { // without one everything in it is missing, once
		b.vars["reads"] = b.types.declare(readsType, fields)
	}
}

func (b *builder) buildRefusals(n *node) {
	if n == nil {
		return
	}
	for _, item := range n.items {
		r := refusal{
			when:    b.bare(item.get("when"), scopePreview.in("`refuse`").secret(), wantBool),
			because: b.template(item.get("because"), scopePreview.in("a refusal"), inText),
		}
		if r.when != nil && r.because != nil {
			b.m.refusals = append(b.m.refusals, r)
		}
	}
}

// bare compiles a member that is a CEL expression without ${ }.
func (b *builder) bare(n *node, sc scope, want typeWant) *expr {
	text, ok := n.asText()
	if !ok {
		if n != nil && n.kind == scalarNode && n.value != nil {
			b.ps.at(n.pos, "Write an expression, such as args.amount > 100.", "This is a CEL expression, not %s.", nodeWords(n))
		}
		return nil
	}
	if strings.HasPrefix(text, "${") {
		b.ps.at(n.pos, "Write the expression without ${ and }.", "This member is an expression already.")
		return nil
	}
	return b.compile(n, 0, text, sc, want)
}

// buildBasis compiles the fields that are read again before dispatch.
func (b *builder) buildBasis(preview *node) {
	n := preview.get("basis")
	if n == nil {
		if len(b.m.reads) > 0 {
			b.ps.warn(preview.keyPos("reads"), "List under `basis` the fields that the prediction depends on.",
				"Nothing is read again before dispatch: the prediction is not checked for drift.")
		}
		return
	}
	for _, item := range n.items {
		e := b.bare(item, scopePreview.in("`basis`"), wantAny)
		if e == nil {
			continue
		}
		if !slices.Contains(e.uses.vars, "reads") {
			b.ps.at(item.pos, "Name a field of a read, such as reads.order.body.status.", "`%s` does not come from a read: it can't change.", shortText(e.text))
			continue
		}
		b.m.basis = append(b.m.basis, e)
	}
}

// buildUndo compiles the opposite tool.
func (b *builder) buildUndo() {
	n := b.root.get("undo")
	spec := &b.m.Spec
	if n == nil {
		if spec.Reversible {
			b.ps.at(b.root.keyPos("reversible"), "Name the tool that takes it back, such as `undo: {tool: release_hold, args: {hold_id: \"${effect_id}\"}}`, or write `reversible: false`.",
				"A reversible tool needs `undo`.")
		}
		return
	}
	u := &undoPart{tool: n.get("tool").text(), says: n.get("text").text()}
	if args := n.get("args"); args != nil {
		u.args = b.tree(args, scopeUndo, inJSON)
	} else {
		u.args = &tree{kind: mapNode}
	}
	if while := n.get("while"); while != nil {
		if u.while = b.bare(while, scopeUndo, wantBool); u.while == nil {
			return
		}
	}
	if u.args == nil {
		return
	}
	spec.UndoTool = u.tool
	b.m.undo, b.m.undoNode = u, n
}

// finishSpec writes down what the tool lacks and which reads it keeps.
func (b *builder) finishSpec() {
	spec := &b.m.Spec
	if !spec.HonoursKey {
		spec.Lacks = append(spec.Lacks, "The upstream is not known to honour idempotency keys: a request is sent at most once.")
	}
	if spec.Consistency == NoLookup {
		spec.Lacks = append(spec.Lacks, "Outcomes can't be looked up: when a reply is lost, a person must find out.")
	}
	if spec.UndoTool == "" {
		spec.Lacks = append(spec.Lacks, "There is no undo.")
	}
	b.m.kept = map[string]bool{}
	later := usage{}
	if c := b.m.commit; c != nil {
		later = later.add(c.laterUses())
	}
	for _, q := range []*question{b.m.lookup, b.m.done} {
		if q != nil {
			later = later.add(q.request.uses).add(q.uses)
		}
	}
	for _, r := range b.m.reads {
		if later.allReads || slices.Contains(later.reads, r.name) {
			b.m.kept[r.name] = true
		}
	}
}
