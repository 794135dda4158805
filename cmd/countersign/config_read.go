package main

import (
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// loadConfig reads a file, lets the environment override its plain values, and
// checks the whole. The error tells every problem, where it is and what is
// wanted instead; nothing that may be a secret is quoted in it.
func loadConfig(path string, getenv func(string) string) (Config, error) {
	c := defaultConfig()
	text, err := os.ReadFile(path)
	if err != nil {
		return c, fmt.Errorf("the configuration can't be read: %w", err)
	}
	if c.dir, err = filepath.Abs(filepath.Dir(path)); err != nil {
		return c, err
	}
	r := newConfigReader(path, text)
	r.read(reflect.ValueOf(&c).Elem())
	if r.root {
		r.override(reflect.ValueOf(&c).Elem(), "", getenv)
	}
	// Values are judged once all have been read: what is of a wrong kind was
	// left at its default, and would be said to be missing.
	if len(r.problems) == 0 {
		for _, p := range c.check() {
			r.problems = append(r.problems, placed{p, r.place(p.Key)})
		}
	}
	if err := r.err(); err != nil {
		return c, err
	}
	for i, p := range c.TrustedProxies {
		prefix, _ := parsePrefix(p) // was checked
		c.TrustedProxies[i] = prefix.String()
	}
	return c, nil
}

const maxConfigBytes = 1 << 20

// configReader turns one YAML text into a Config by the yaml tags of its
// fields. It takes only what has one meaning: no anchors, merge keys or tags.
type configReader struct {
	file  string
	text  []byte
	lines []string
	// root: the text is a mapping, or empty.
	root     bool
	problems []placed
	// places tells where each key's value stands.
	places map[string]*token.Position
	// fromEnv tells the variable that a key was taken from.
	fromEnv map[string]string
	// private are the lines of credentials, which no excerpt may show.
	private map[int]bool
}

// placed is a problem with its place; nil when it has none.
type placed struct {
	configProblem
	at *token.Position
}

func newConfigReader(file string, text []byte) *configReader {
	return &configReader{
		file: file, text: text, lines: strings.Split(string(text), "\n"),
		places: map[string]*token.Position{}, fromEnv: map[string]string{}, private: map[int]bool{},
	}
}

func (r *configReader) bad(at *token.Position, key, format string, args ...any) {
	r.problems = append(r.problems, placed{configProblem{key, fmt.Sprintf(format, args...)}, at})
}

func (r *configReader) read(into reflect.Value) {
	switch {
	case len(r.text) > maxConfigBytes:
		r.bad(nil, "", "the file is longer than 1 MiB")
		return
	case !utf8.Valid(r.text):
		r.bad(nil, "", "the file is not UTF-8")
		return
	}
	file, err := parser.ParseBytes(r.text, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		r.notYAML(err)
		return
	}
	var bodies []ast.Node
	for _, doc := range file.Docs {
		if doc.Body != nil && doc.Body.Type() != ast.CommentType && doc.Body.Type() != ast.DirectiveType {
			bodies = append(bodies, doc.Body)
		}
	}
	r.root = true
	if len(bodies) > 1 {
		r.bad(position(bodies[1]), "", "there is more than one document in the file")
	}
	if len(bodies) > 0 && bodies[0].Type() != ast.NullType {
		r.fill(bodies[0], into, "")
	}
}

// notYAML reports what the parser stumbled over. There is no excerpt: nobody
// knows yet which lines are credentials.
func (r *configReader) notYAML(err error) {
	message, at := err.Error(), (*token.Position)(nil)
	var said yaml.Error
	if errors.As(err, &said) {
		message = said.GetMessage()
		if tk := said.GetToken(); tk != nil {
			at = tk.Position
		}
	}
	for n := range r.lines {
		r.private[n+1] = true
	}
	r.bad(at, "", "this is not YAML: %s", message)
}

// position is where a node begins.
func position(n ast.Node) *token.Position {
	switch n := n.(type) {
	case *ast.MappingNode:
		if !n.IsFlowStyle && len(n.Values) > 0 {
			return position(n.Values[0].Key)
		}
	case *ast.MappingValueNode:
		return position(n.Key)
	}
	if tk := n.GetToken(); tk != nil {
		return tk.Position
	}
	return nil
}

// joined gives the text of a plain a:b inside { }. YAML says that it is text,
// since no blank follows the colon; the parser takes it for a mapping.
func joined(n ast.Node) (string, bool) {
	if m, ok := n.(*ast.MappingNode); ok && len(m.Values) == 1 {
		n = m.Values[0]
	}
	pair, ok := n.(*ast.MappingValueNode)
	if !ok {
		return "", false
	}
	key, value := pair.Key.GetToken(), pair.Value.GetToken()
	if key.Position.Line != value.Position.Line || key.Position.Column+utf8.RuneCountInString(key.Value)+1 != value.Position.Column {
		return "", false
	}
	return key.Value + ":" + value.Value, true
}

// fill sets v from a node.
func (r *configReader) fill(n ast.Node, v reflect.Value, key string) {
	switch n.Type() {
	case ast.AnchorType, ast.AliasType, ast.MergeKeyType, ast.TagType:
		r.bad(position(n), key, "anchors, merge keys and tags are not used here: write the value out")
		return
	case ast.NullType:
		return // a key without a value keeps its default
	}
	if t, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		if text, ok := n.(*ast.StringNode); !ok {
			r.bad(position(n), key, "must be a duration like 5m, 24h or 90d")
		} else if err := t.UnmarshalText([]byte(text.Value)); err != nil {
			r.bad(position(n), key, "%v", err)
		}
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		r.fill(n, v.Elem(), key)
	case reflect.Struct, reflect.Map:
		r.fillMapping(n, v, key)
	case reflect.Slice:
		r.fillList(n, v, key)
	case reflect.Int:
		i, err := strconv.Atoi(n.String())
		if n.Type() != ast.IntegerType || err != nil {
			r.bad(position(n), key, "must be a whole number")
			return
		}
		v.SetInt(int64(i))
	case reflect.String:
		switch n := n.(type) {
		case *ast.StringNode:
			v.SetString(n.Value)
		case *ast.LiteralNode:
			v.SetString(n.Value.Value)
		default:
			text, ok := joined(n)
			if !ok {
				r.bad(position(n), key, "must be text; put it in quotes")
			}
			v.SetString(text)
		}
	}
}

func (r *configReader) fillList(n ast.Node, v reflect.Value, key string) {
	list, ok := n.(*ast.SequenceNode)
	if !ok {
		r.bad(position(n), key, "must be a list, like [a, b]")
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(list.Values), len(list.Values)))
	for i, item := range list.Values {
		at := fmt.Sprintf("%s[%d]", key, i)
		r.places[at] = position(item)
		if item.Type() == ast.NullType {
			r.bad(position(item), at, "must not be empty")
			continue
		}
		r.fill(item, v.Index(i), at)
	}
}

// fillMapping fills the fields of a struct, or the entries of a map.
func (r *configReader) fillMapping(n ast.Node, v reflect.Value, key string) {
	var members []*ast.MappingValueNode
	switch n := n.(type) {
	case *ast.MappingNode:
		members = n.Values
	case *ast.MappingValueNode:
		members = []*ast.MappingValueNode{n}
	default:
		r.root = r.root && key != ""
		r.bad(position(n), key, "must be a mapping of keys to values")
		return
	}
	if v.Kind() == reflect.Map && v.IsNil() {
		v.Set(reflect.MakeMap(v.Type()))
	}
	seen := map[string]int{}
	for _, m := range members {
		name, at := m.Key.GetToken().Value, m.Key.GetToken().Position
		path := strings.TrimPrefix(key+"."+name, ".")
		if m.Key.Type() != ast.StringType {
			r.bad(at, path, "a key is plain text")
			continue
		}
		if line, twice := seen[name]; twice {
			r.bad(at, path, "stands twice, first in line %d", line)
			continue
		}
		seen[name] = at.Line
		if name == "auth" || name == "read_auth" || name == "bearer" || m.Value.Type() == ast.StringType && strings.Contains(m.Value.String(), "@") {
			r.keepPrivate(m) // a credential, or a URL that may hold one
		}
		r.places[path] = at
		switch m.Value.Type() {
		case ast.NullType, ast.MappingType, ast.MappingValueType:
		default:
			r.places[path] = position(m.Value)
		}
		if v.Kind() == reflect.Map {
			entry := reflect.New(v.Type().Elem()).Elem()
			r.fill(m.Value, entry, path)
			v.SetMapIndex(reflect.ValueOf(name), entry)
			continue
		}
		field, known := fieldNamed(v, name)
		if !known {
			r.bad(at, path, "is not a key here; there is %s", strings.Join(keysOf(v.Type()), ", "))
			continue
		}
		r.fill(m.Value, field, path)
	}
}

// keepPrivate marks the lines of a credential, however it is written.
func (r *configReader) keepPrivate(n ast.Node) {
	first := n.GetToken().Position.Line
	last := first
	ast.Walk(lastLine{&last}, n)
	for line := first; line <= last; line++ {
		r.private[line] = true
	}
}

// lastLine finds the last line that a node's tokens reach.
type lastLine struct{ last *int }

// Visit implements ast.Visitor.
func (l lastLine) Visit(n ast.Node) ast.Visitor {
	if tk := n.GetToken(); tk != nil && tk.Position != nil {
		*l.last = max(*l.last, tk.Position.Line+strings.Count(strings.TrimRight(tk.Origin, "\n"), "\n"))
	}
	return l
}

// fieldNamed finds the field of a key.
func fieldNamed(v reflect.Value, name string) (reflect.Value, bool) {
	for i := range v.NumField() {
		if tag := v.Type().Field(i).Tag.Get("yaml"); tag != "" && tag == name {
			return v.Field(i), true
		}
	}
	return reflect.Value{}, false
}

// keysOf lists the keys of a struct in the order of its fields.
func keysOf(t reflect.Type) []string {
	var keys []string
	for i := range t.NumField() {
		if tag := t.Field(i).Tag.Get("yaml"); tag != "" {
			keys = append(keys, tag)
		}
	}
	return keys
}

// envName is the variable that overrides a plain value: log.level is
// COUNTERSIGN_LOG_LEVEL.
func envName(key string) string {
	return "COUNTERSIGN_" + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// override sets plain values from the environment. Lists and upstreams stay the
// file's; an empty variable counts as none.
func (r *configReader) override(v reflect.Value, key string, getenv func(string) string) {
	for i := range v.NumField() {
		tag := v.Type().Field(i).Tag.Get("yaml")
		if tag == "" {
			continue
		}
		field, path := v.Field(i), strings.TrimPrefix(key+"."+tag, ".")
		if field.Kind() == reflect.Struct {
			r.override(field, path, getenv)
			continue
		}
		text := getenv(envName(path))
		if text == "" || field.Kind() == reflect.Slice || field.Kind() == reflect.Map {
			continue
		}
		r.fromEnv[path] = envName(path)
		if t, ok := field.Addr().Interface().(encoding.TextUnmarshaler); ok {
			if err := t.UnmarshalText([]byte(text)); err != nil {
				r.bad(nil, path, "%v", err)
			}
		} else if field.Kind() == reflect.Int {
			n, err := strconv.Atoi(text)
			if err != nil {
				r.bad(nil, path, "must be a whole number")
			}
			field.SetInt(int64(n))
		} else {
			field.SetString(text)
		}
	}
}

// place finds where a key stands, or what is around it.
func (r *configReader) place(key string) *token.Position {
	if r.fromEnv[key] != "" {
		return nil
	}
	for key != "" {
		if at := r.places[key]; at != nil {
			return at
		}
		key = key[:max(0, strings.LastIndexAny(key, ".["))]
	}
	return nil
}

// err draws all problems in the order of the text.
func (r *configReader) err() error {
	if len(r.problems) == 0 {
		return nil
	}
	slices.SortStableFunc(r.problems, func(a, b placed) int {
		if a.at == nil || b.at == nil {
			return cmp.Compare(fmt.Sprint(a.at != nil), fmt.Sprint(b.at != nil))
		}
		return cmp.Or(cmp.Compare(a.at.Line, b.at.Line), cmp.Compare(a.at.Column, b.at.Column))
	})
	drawn := make([]string, len(r.problems))
	for i, p := range r.problems {
		drawn[i] = r.draw(p)
	}
	return errors.New(strings.Join(drawn, "\n"))
}

func (r *configReader) draw(p placed) string {
	text := p.Message
	if p.Key != "" {
		text = p.Key + ": " + text
	}
	if name := r.fromEnv[p.Key]; name != "" {
		return fmt.Sprintf("%s (from %s)", text, name)
	}
	if p.at == nil {
		return fmt.Sprintf("%s: %s", r.file, text)
	}
	out := fmt.Sprintf("%s:%d:%d: %s", r.file, p.at.Line, p.at.Column, text)
	if p.at.Line > len(r.lines) || r.private[p.at.Line] {
		return out
	}
	line := strings.TrimRight(r.lines[p.at.Line-1], "\r")
	return fmt.Sprintf("%s\n> %3d | %s\n      | %s^", out, p.at.Line, strings.ReplaceAll(line, "\t", " "), strings.Repeat(" ", max(0, p.at.Column-1)))
}
