package tools

import (
	"errors"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"countersign/fault"
	"countersign/strictjson"
)

// Request is one rendered request to an upstream: everything that goes on the
// wire but the host and the credentials.
type Request struct {
	Method string
	// Path is the escaped path with its query, to be put behind the upstream's
	// base URL.
	Path string
	// Header are the manifest's own fields in order, Content-Type included.
	Header []HeaderField
	Body   []byte
	// EffectFree is set for GET and HEAD, and for what the manifest declares
	// effect-free. A read-only transport refuses everything else.
	EffectFree bool
}

// HeaderField is one header field of a request.
type HeaderField struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// requestTemplate is a compiled request of a manifest.
type requestTemplate struct {
	method     string
	effectFree bool
	path       *template
	query      []namedTemplate
	header     []namedTemplate
	codec      string // "", json, form, text
	body       *tree
	text       *template
	// keyHeader carries the upstream key, for a commit that declares one.
	keyHeader string
	uses      usage
}

type namedTemplate struct {
	name  string
	value *template
	list  *tree // a list of values, for query and form
}

// The members of a request that say how it is made.
var (
	readMethods   = []string{"get", "head", "post"}
	commitMethods = []string{"post", "put", "patch", "delete"}
	codecs        = []string{"json", "form", "text"}
)

// reservedHeaders are fields that the transport or the config sets. Letting a
// manifest set them would move the request or its credentials (S53, S58).
var reservedHeaders = []string{
	"Host", "Content-Length", "Transfer-Encoding", "Connection", "Keep-Alive", "Upgrade", "Te", "Trailer",
	"Proxy-Authorization", "Proxy-Connection", "Authorization", "Cookie", "Expect", "Accept-Encoding", "User-Agent",
}

// request compiles the request that the mapping n describes. methods are the
// ones allowed here. It gives nil when n is nil or after it reported a problem.
func (c *exprCompiler) request(n *node, methods []string, sc scope) *requestTemplate {
	if n == nil || n.kind != mapNode {
		return nil
	}
	before := len(c.ps.list)
	r := &requestTemplate{}
	path := c.method(n, methods, r)
	if path != nil {
		r.path = c.path(path, sc.in("a path").shown())
	}
	r.query = c.named(n.get("query"), sc.in("a query").shown(), inQuery)
	c.headers(n, r, sc)
	c.body(n, r, sc)
	c.effectFree(n, r)
	if len(c.ps.list) > before || r.path == nil {
		return nil
	}
	r.uses = r.path.uses
	for _, list := range [][]namedTemplate{r.query, r.header} {
		for _, f := range list {
			r.uses = r.uses.add(f.uses())
		}
	}
	if r.body != nil {
		r.uses = r.uses.add(r.body.uses)
	}
	if r.text != nil {
		r.uses = r.uses.add(r.text.uses)
	}
	return r
}

func (f namedTemplate) uses() usage {
	if f.list != nil {
		return f.list.uses
	}
	return f.value.uses
}

// method finds the one method of the request and gives the node of its path.
func (c *exprCompiler) method(n *node, methods []string, r *requestTemplate) *node {
	var found []string
	for _, m := range methods {
		if n.has(m) {
			found = append(found, m)
		}
	}
	switch {
	case len(found) == 0:
		c.ps.at(n.pos, "Write "+oneOf(methods)+" with a path, such as `"+methods[0]+": /orders`.", "The request has no method.")
		return nil
	case len(found) > 1:
		c.ps.at(n.keyPos(found[1]), "Keep one of them.", "The request has two methods, `%s` and `%s`.", found[0], found[1])
		return nil
	}
	r.method = strings.ToUpper(found[0])
	return n.get(found[0])
}

// path compiles a path and refuses whatever could leave the upstream's base.
func (c *exprCompiler) path(n *node, sc scope) *template {
	text := n.text()
	pieces, _ := splitTemplate(text)
	offset := 0
	bad := func(instead, format string, args ...any) *template {
		c.ps.at(n.at(offset), instead, format, args...)
		return nil
	}
	if !strings.HasPrefix(text, "/") {
		return bad("Begin with /, such as /orders/${args.order_id}; the host stands in the config.", "A path begins with /.")
	}
	for _, p := range pieces {
		if p.isCode {
			continue
		}
		if i := strings.IndexAny(p.literal, "?#\\ "); i >= 0 {
			return bad("Put the query under `query:`.", "A path can't hold %q.", p.literal[i:i+1])
		}
		if strings.Contains(p.literal, "//") {
			return bad("Write one /.", "A path can't hold `//`.")
		}
		for _, r := range p.literal {
			if r < 0x21 || r > 0x7e {
				return bad("Write it percent-encoded.", "A path is printable ASCII.")
			}
		}
	}
	for _, segment := range strings.Split(text, "/") {
		if segment == "." || segment == ".." {
			return bad("Write the whole path.", "A path can't hold `%s`.", segment)
		}
	}
	return c.template(n, sc, inPath)
}

// named compiles a mapping from literal names to values.
func (c *exprCompiler) named(n *node, sc scope, in templateIn) []namedTemplate {
	if n == nil || n.kind != mapNode {
		return nil
	}
	var out []namedTemplate
	for _, m := range n.members {
		f := namedTemplate{name: m.name}
		switch m.node.kind {
		case scalarNode:
			f.value = c.template(m.node, sc, in)
		case listNode:
			f.list = c.tree(m.node, sc, inText)
		default:
			c.ps.at(m.node.pos, "Write each value under its own name, such as `filter[state]: open`.", "A value here is text, a number, true, false or a list of them.")
		}
		if f.value != nil || f.list != nil {
			out = append(out, f)
		}
	}
	return out
}

func (c *exprCompiler) headers(n *node, r *requestTemplate, sc scope) {
	headers := n.get("headers")
	if headers == nil || headers.kind != mapNode {
		return
	}
	seen := map[string]bool{}
	for _, m := range headers.members {
		name := textproto.CanonicalMIMEHeaderKey(m.name)
		switch {
		case !httpguts.ValidHeaderFieldName(m.name):
			c.ps.at(m.keyPos, "Use letters, digits and hyphens.", "%q is not the name of a header.", m.name)
			continue
		case slices.Contains(reservedHeaders, name) || strings.HasPrefix(name, "Sec-"):
			c.ps.at(m.keyPos, "Leave it out: credentials stand in the config under `upstreams`, the rest is set by the gateway.", "The header %s can't be set by a manifest.", name)
			continue
		case seen[name]:
			c.ps.at(m.keyPos, "Keep one of the two.", "The header %s stands twice.", name)
			continue
		}
		seen[name] = true
		value := c.template(m.node, sc, inText)
		if value == nil {
			if m.node.kind != scalarNode {
				c.ps.at(m.node.pos, "Write text.", "The value of a header is text.")
			}
			continue
		}
		if text, ok := value.constant.(string); ok && badHeaderValue(text) {
			c.ps.at(m.node.pos, "Use printable ASCII.", "The value of the header %s holds characters that no header may hold.", name)
		}
		r.header = append(r.header, namedTemplate{name: name, value: value})
	}
}

// body compiles the one body of the request, by its codec.
func (c *exprCompiler) body(n *node, r *requestTemplate, sc scope) {
	for _, codec := range codecs {
		body := n.get(codec)
		if body == nil {
			continue
		}
		if r.codec != "" {
			c.ps.at(n.keyPos(codec), "Keep one of them.", "The request has two bodies, `%s` and `%s`.", r.codec, codec)
			return
		}
		r.codec = codec
		switch codec {
		case "json":
			r.body = c.tree(body, sc.in("a body"), inJSON)
		case "form":
			if body.kind != mapNode {
				c.ps.at(body.pos, "Write `name: value` for each field.", "A form is a mapping of names to values.")
				return
			}
			r.body = &tree{kind: mapNode}
			for _, f := range c.named(body, sc.in("a body"), inQuery) {
				sub := f.list
				if sub == nil {
					sub = &tree{leaf: f.value, uses: f.value.uses}
				}
				r.body.members = append(r.body.members, treeMember{f.name, sub})
				r.body.uses = r.body.uses.add(sub.uses)
			}
		case "text":
			r.text = c.template(body, sc.in("a body"), inText)
		}
	}
	if r.codec != "" && (r.method == http.MethodGet || r.method == http.MethodHead) {
		c.ps.at(n.keyPos(r.codec), "Put the values under `query:`.", "A %s request has no body.", r.method)
	}
	if i := slices.IndexFunc(r.header, func(f namedTemplate) bool { return f.name == "Content-Type" }); i >= 0 {
		kind, _ := r.header[i].value.constant.(string)
		if r.codec != "json" || kind != "application/json" && !strings.HasSuffix(kind, "+json") {
			c.ps.at(n.get("headers").keyPos("Content-Type"), "Leave it out; with `json:` it may be a type that ends in +json.", "The Content-Type comes from the codec.")
		}
	}
}

func (c *exprCompiler) effectFree(n *node, r *requestTemplate) {
	r.effectFree = r.method == http.MethodGet || r.method == http.MethodHead
	if flag := n.get("effect_free"); flag != nil {
		if r.effectFree {
			c.ps.at(n.keyPos("effect_free"), "Leave it out.", "`effect_free` says nothing new about %s.", r.method)
		}
		r.effectFree = flag.truth()
	}
}

// render evaluates the request. upstreamKey goes into the declared header.
func (r *requestTemplate) render(vars map[string]any, upstreamKey string) (Request, error) {
	out := Request{Method: r.method, EffectFree: r.effectFree}
	path, err := r.path.text(vars)
	if err != nil {
		return Request{}, err
	}
	if err := checkPath(path); err != nil {
		return Request{}, err
	}
	query, err := renderPairs(r.query, vars)
	if err != nil {
		return Request{}, err
	}
	out.Path = path
	if query != "" {
		out.Path += "?" + query
	}
	for _, f := range r.header {
		value, err := f.value.text(vars)
		if err != nil {
			return Request{}, err
		}
		out.Header = append(out.Header, HeaderField{f.name, value})
	}
	if r.keyHeader != "" {
		out.Header = append(out.Header, HeaderField{r.keyHeader, upstreamKey})
	}
	if err := r.renderBody(vars, &out); err != nil {
		return Request{}, err
	}
	for _, f := range out.Header {
		if badHeaderValue(f.Value) {
			return Request{}, fault.New(fault.ForbiddenText, "A value can't stand in the header %s: only printable ASCII can.", f.Name)
		}
	}
	return out, nil
}

// checkPath refuses a rendered path that a value made to mean another place.
func checkPath(path string) error {
	for _, segment := range strings.Split(strings.TrimSuffix(path[1:], "/"), "/") {
		plain, err := url.PathUnescape(segment)
		if err != nil || plain == "." || plain == ".." || plain == "" && path != "/" {
			return fault.New(fault.SchemaViolation, "A value that is empty, \".\" or \"..\" can't stand in the path of a request.")
		}
	}
	return nil
}

// badHeaderValue reports CR, LF, NUL, other control characters, non-ASCII and
// blanks at the ends (S58).
func badHeaderValue(v string) bool {
	for i := range len(v) {
		if v[i] < 0x20 || v[i] > 0x7e {
			return true
		}
	}
	return v != strings.TrimSpace(v)
}

func (r *requestTemplate) renderBody(vars map[string]any, out *Request) error {
	kind := ""
	switch r.codec {
	case "":
		return nil
	case "json":
		v, err := r.body.value(vars)
		if err != nil {
			return err
		}
		if _, none := v.(absent); none {
			return fault.New(fault.SchemaViolation, "The body of the request would be empty.")
		}
		kind, out.Body = "application/json", strictjson.Canonical(v)
	case "form":
		var fields []namedTemplate
		for _, m := range r.body.members {
			f := namedTemplate{name: m.name}
			if m.tree.kind == listNode {
				f.list = m.tree
			} else {
				f.value = m.tree.leaf
			}
			fields = append(fields, f)
		}
		text, err := renderPairs(fields, vars)
		if err != nil {
			return err
		}
		kind, out.Body = "application/x-www-form-urlencoded", []byte(text)
	case "text":
		text, err := r.renderText(vars)
		if err != nil {
			return err
		}
		kind, out.Body = "text/plain; charset=utf-8", []byte(text)
	}
	if !slices.ContainsFunc(out.Header, func(f HeaderField) bool { return f.Name == "Content-Type" }) {
		out.Header = append([]HeaderField{{"Content-Type", kind}}, out.Header...)
	}
	return nil
}

// renderText refuses control characters in values: in a plain text they could
// end a line that the manifest's author wrote.
func (r *requestTemplate) renderText(vars map[string]any) (string, error) {
	if r.text.parts == nil {
		return textOf(r.text.constant)
	}
	var b strings.Builder
	for _, p := range r.text.parts {
		if p.expr == nil {
			b.WriteString(p.literal)
			continue
		}
		v, err := p.expr.eval(vars)
		if err != nil {
			return "", err
		}
		s, err := textOf(v)
		if err != nil {
			return "", &evalError{p.expr.where, p.expr.text, err}
		}
		if strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 || r == 0x7f || 0x80 <= r && r < 0xa0 }) {
			return "", fault.New(fault.ForbiddenText, "A value can't stand in a text body: it holds control characters.")
		}
		b.WriteString(s)
	}
	return b.String(), nil
}

// renderPairs writes name=value pairs in the manifest's order. Null and absent
// values are left out, lists are repeated.
func renderPairs(fields []namedTemplate, vars map[string]any) (string, error) {
	var pairs []string
	for _, f := range fields {
		var v any
		var err error
		if f.list != nil {
			v, err = f.list.value(vars)
		} else {
			v, err = f.value.value(vars)
		}
		if err != nil {
			return "", err
		}
		values := []any{v}
		if list, ok := v.([]any); ok {
			values = list
		}
		for _, v := range values {
			if _, none := v.(absent); none || v == nil {
				continue
			}
			text, err := textOf(v)
			if err != nil {
				return "", &evalError{"query or form", f.name, errors.New("the value is neither text nor a list of texts")}
			}
			pairs = append(pairs, url.QueryEscape(f.name)+"="+url.QueryEscape(text))
		}
	}
	return strings.Join(pairs, "&"), nil
}
