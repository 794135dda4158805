package tools

import (
	"strconv"
	"strings"
	"time"

	"cel.dev/cel-go/common/types"

	"countersign/strictjson"
)

// Manifest is one parsed and type-checked manifest. It knows everything about
// its tool but where the upstream is; Compile binds it to one. It is immutable
// and safe for concurrent use.
type Manifest struct {
	// Spec is what the tool declares. Version and UpstreamURL are empty here.
	Spec Spec
	// Digest stands for the parsed manifest: comments and the order of keys
	// don't count.
	Digest string
	// Remarks are warnings with their places, as `tool validate` draws them.
	Remarks []Problem

	input    *Schema
	types    *typeProvider
	varTypes map[string]*types.Type
	headline *template
	key      *template
	goal     *goalTemplate
	read     *readPart
	reads    []readPart
	refusals []refusal
	effects  []effectTemplate
	basis    []*expr
	commit   *commitPart
	lookup   *question
	done     *question
	undo     *undoPart
	// kept are the names of the reads that expressions use after preview.
	kept map[string]bool
	// undoNode is where the undo stands, for checks across tools.
	undoNode *node
	problems *problems
}

type goalTemplate struct {
	group string
	value *template
}

// readPart is a read of the upstream with what is an answer.
type readPart struct {
	name    string
	request *requestTemplate
	status  []int
	schema  *Schema
	body    *types.Type
	result  *tree
}

type refusal struct {
	when    *expr
	because *template
}

const (
	defaultTimeout        = 10 * time.Second
	maxTimeout            = 5 * time.Minute
	defaultExpiry         = time.Hour
	defaultIrreversibleAt = 10 * time.Minute
)

// ParseManifest reads one manifest (YAML or JSON) and checks everything that
// can be checked without the upstream: grammar, argument schema, the type of
// every expression, and the rules that a tool must keep. The error is a
// *ManifestError with every problem that was found.
func ParseManifest(src []byte) (*Manifest, error) {
	ps := newProblems(src)
	doc := parseDocument(src, ps)
	if doc == nil || doc.root == nil || doc.holes {
		err := ps.err()
		if doc != nil {
			err.Tool = doc.root.get("tool").text()
		}
		return nil, err
	}
	checkGrammar(doc, ps)
	c, err := newExprCompiler(ps)
	if err != nil {
		return nil, err
	}
	b := &builder{exprCompiler: c, root: doc.root, m: &Manifest{problems: ps}}
	b.m.Digest = strictjson.Digest(doc.root.generic())
	b.build()
	if err := ps.err(); err != nil {
		err.Tool = b.m.Spec.Name
		return nil, err
	}
	b.m.types, b.m.varTypes = b.types, b.vars
	b.m.Spec.Manifest = append([]byte(nil), src...)
	b.m.Remarks = ps.warnings
	for _, w := range ps.warnings {
		b.m.Spec.Warnings = append(b.m.Spec.Warnings, w.Message)
	}
	return b.m, nil
}

// builder compiles the parts of one manifest in the order in which they give
// each other their types.
type builder struct {
	*exprCompiler
	root *node
	m    *Manifest
}

func (b *builder) build() {
	spec := &b.m.Spec
	spec.Name = b.root.get("tool").text()
	spec.Description = b.root.get("description").text()
	spec.Access = Access(b.root.get("access").text())
	spec.Upstream = b.root.get("upstream").text()
	spec.Reversible = b.root.get("reversible").truth()
	spec.NeedsRun = b.root.get("needs_run").truth()
	spec.Consistency = NoLookup
	if strings.HasSuffix(spec.Name, "_preview") || strings.HasSuffix(spec.Name, "_commit") {
		b.ps.at(b.root.get("tool").pos, "Name the tool after what it does, such as refund_payment.",
			"The name of a tool can't end in _preview or _commit: those are made from it.")
	}
	b.buildInput()
	spec.Timeout = b.duration("timeout", defaultTimeout)
	if spec.Timeout > maxTimeout {
		b.ps.at(b.root.get("timeout").pos, "Write 5m or less.", "A timeout is at most 5m.")
	}
	if spec.Access == Read {
		b.buildReadTool()
		return
	}
	if spec.Access != Write {
		return // said by the grammar
	}
	b.buildWriteTool()
}

// buildInput compiles the schema of the arguments and gives args its type.
func (b *builder) buildInput() {
	n := b.root.get("input")
	if n == nil || n.kind != mapNode {
		return
	}
	if t := n.get("type"); t != nil && t.text() != "object" {
		b.ps.at(t.pos, "Leave `type` out.", "The arguments are always an object.")
		return
	}
	if !n.has("type") {
		n.members = append([]member{{"type", n.pos, &node{pos: n.pos, value: "object", pointer: n.pointer + "/type", doc: n.doc}}}, n.members...)
	}
	if !n.has("properties") {
		n.members = append(n.members, member{"properties", n.pos, &node{kind: mapNode, pos: n.pos, pointer: n.pointer + "/properties", doc: n.doc}})
	}
	s := compileSchema(n, true, b.ps)
	if s == nil {
		return
	}
	b.input, b.m.input = s, s
	b.m.Spec.InputSchema = s.Text
	b.m.Spec.Sensitive = s.sensitive
	b.vars["args"] = b.types.fromShape(s.shape, argsType)
	if b.vars["args"].Kind() != types.StructKind {
		b.vars["args"] = b.types.declare(argsType, map[string]*types.Type{})
	}
}

// onlyFor reports members that belong to the other kind of tool.
func (b *builder) onlyFor(access Access, names ...string) {
	for _, name := range names {
		if b.root.has(name) {
			b.ps.at(b.root.keyPos(name), "Take it out, or write `access: "+string(access)+"`.", "`%s` belongs to tools with `access: %s`.", name, access)
		}
	}
}

func (b *builder) buildReadTool() {
	b.onlyFor(Write, "preview", "commit", "key", "lookup", "already_done", "undo", "approval", "approval_expires", "approval_max_age", "reversible", "goal", "duplicates")
	b.m.headline = b.template(b.root.get("headline"), scopeReads.in("the headline of a read tool").shown(), inText)
	n := b.root.get("read")
	if n == nil {
		b.ps.at(b.root.keyPos("access"), "Write `read: {get: /orders}`.", "A read tool needs `read`.")
		return
	}
	read := b.readPart("", n)
	if read == nil {
		return
	}
	read.body = b.bodyType(read.schema, "result body")
	defer b.bind("body", read.body)()
	if result := n.get("result"); result != nil {
		read.result = b.tree(result, scopeResult, inJSON)
	}
	b.m.read = read
}

// readPart compiles one read.
func (b *builder) readPart(name string, n *node) *readPart {
	if n.kind != mapNode {
		return nil
	}
	r := &readPart{name: name, status: statusList(n.get("status"), 200)}
	if s := n.get("schema"); s != nil {
		r.schema = compileSchema(s, false, b.ps)
	}
	r.request = b.request(n, readMethods, scopeReads)
	if r.request == nil {
		return nil
	}
	if r.request.method == "POST" && !r.request.effectFree {
		b.ps.at(n.keyPos("post"), "Add `effect_free: true` if the upstream promises that it changes nothing; else this belongs under `commit`.",
			"A read must not change anything.")
	}
	return r
}

// bodyType is the type of a body: of its schema, or dyn.
func (b *builder) bodyType(s *Schema, name string) *types.Type {
	if s == nil {
		return types.DynType
	}
	return b.types.fromShape(s.shape, name)
}

// statusList reads a list of statuses.
func statusList(n *node, fallback ...int) []int {
	if n == nil {
		return fallback
	}
	var out []int
	for _, item := range n.items {
		if status, ok := item.integer(); ok {
			out = append(out, status)
		}
	}
	return out
}

// duration reads a duration of the manifest's root.
func (b *builder) duration(name string, fallback time.Duration) time.Duration {
	n := b.root.get(name)
	if n == nil {
		return fallback
	}
	return b.durationAt(n, name)
}

func (b *builder) durationAt(n *node, name string) time.Duration {
	d, ok := parseDuration(n.text())
	if !ok || d <= 0 {
		b.ps.at(n.pos, "Write a duration above zero, such as 10s, 5m, 24h or 30d.", "`%s` can't be %s.", name, strictjson.Echo(n.text()))
	}
	return d
}

// parseDuration reads Go's durations and days.
func parseDuration(text string) (time.Duration, bool) {
	var sum time.Duration
	for text != "" {
		i := strings.IndexFunc(text, func(r rune) bool { return r < '0' || r > '9' })
		if i <= 0 {
			return 0, false
		}
		n, err := strconv.ParseInt(text[:i], 10, 32)
		if err != nil {
			return 0, false
		}
		rest := text[i:]
		j := strings.IndexFunc(rest, func(r rune) bool { return r >= '0' && r <= '9' })
		if j < 0 {
			j = len(rest)
		}
		unit, ok := map[string]time.Duration{
			"ms": time.Millisecond, "s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour,
		}[rest[:j]]
		if !ok {
			return 0, false
		}
		sum += time.Duration(n) * unit
		text = rest[j:]
	}
	return sum, sum > 0
}
