package tools

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"cel.dev/cel-go/common/types"
)

// maxEffects bounds what one call may predict.
const maxEffects = 1000

// effectTemplate is one entry under `effects`.
type effectTemplate struct {
	where         string
	each          *expr
	as            string
	verb          string
	target        *template
	before, after *flatTemplate
	summary       *template
	amount        *template
	currency      *template
	count         *template
	outside       *template
}

// flatTemplate is before or after: values by name, or one expression that gives
// them all.
type flatTemplate struct {
	whole *template
	names []treeMember
}

// buildEffects compiles the predicted effects.
func (b *builder) buildEffects(n *node) {
	if n == nil {
		return
	}
	for _, item := range n.items {
		if item.kind != mapNode {
			continue
		}
		if e := b.buildEffect(item); e != nil {
			b.m.effects = append(b.m.effects, *e)
		}
	}
}

func (b *builder) buildEffect(n *node) *effectTemplate {
	before := len(b.ps.list)
	e := &effectTemplate{where: n.pointer, verb: n.get("verb").text()}
	sc := scopePreview.in("an effect")
	restore := b.buildEach(n, e, sc)
	defer restore()
	if e.as != "" {
		sc = sc.with(e.as)
	}
	e.target = b.template(n.get("target"), sc, inText)
	e.summary = b.template(n.get("summary"), sc, inText)
	e.before = b.flat(n.get("before"), sc)
	e.after = b.flat(n.get("after"), sc)
	b.sameNames(n, e)
	if money := n.get("money"); money != nil && money.kind == mapNode {
		e.amount = b.number(money.get("amount"), sc)
		e.currency = b.template(money.get("currency"), sc, inText)
		if e.currency != nil && e.currency.parts == nil {
			if code, _ := e.currency.constant.(string); !currencyCode.MatchString(code) {
				b.ps.at(money.get("currency").pos, "Write three capital letters, such as EUR.", "%q is not an ISO 4217 currency code.", code)
			}
		}
	}
	e.count = b.number(n.get("count"), sc)
	e.outside = b.number(n.get("outside"), sc)
	if len(b.ps.list) > before {
		return nil
	}
	return e
}

// buildEach compiles `each` and `as`, and declares the element.
func (b *builder) buildEach(n *node, e *effectTemplate, sc scope) (restore func()) {
	restore = func() {}
	each, as := n.get("each"), n.get("as")
	switch {
	case each == nil && as == nil:
		return restore
	case each == nil:
		b.ps.at(n.keyPos("as"), "Add `each` with a list, or take `as` out.", "`as` names the elements of `each`, which is missing.")
		return restore
	case as == nil:
		b.ps.at(n.keyPos("each"), "Add `as: item`.", "`each` needs `as`, the name of an element.")
		return restore
	}
	name := as.text()
	if slices.Contains(allVars, name) {
		b.ps.at(as.pos, "Choose another name, such as item.", "`%s` means something else already.", name)
		return restore
	}
	// The list may be written as the value of a template too.
	text := each.text()
	if inner, ok := strings.CutPrefix(text, "${"); ok && strings.HasSuffix(inner, "}") && exprLength(inner) == len(inner)-1 {
		e.each = b.compile(each, 2, strings.TrimSuffix(inner, "}"), sc, wantList)
	} else {
		e.each = b.bare(each, sc, wantList)
	}
	element := types.DynType
	if e.each != nil && e.each.out.Kind() == types.ListKind {
		element = e.each.out.Parameters()[0]
	}
	e.as = name
	return b.bind(name, element)
}

// number compiles a whole number, literal or as one expression.
func (b *builder) number(n *node, sc scope) *template {
	if text, ok := n.asText(); ok {
		if pieces, _ := splitTemplate(text); len(pieces) != 1 || !pieces[0].isCode {
			b.ps.at(n.pos, "Write a whole number, or one expression in ${…}.", "%q is not a whole number.", text)
			return nil
		}
	}
	return b.template(n, sc, inInt)
}

func (b *builder) flat(n *node, sc scope) *flatTemplate {
	if n == nil {
		return nil
	}
	if n.kind == scalarNode {
		text, _ := n.asText()
		if pieces, _ := splitTemplate(text); len(pieces) != 1 || !pieces[0].isCode {
			b.ps.at(n.pos, "Write `name: value` for each field, or one expression in ${…} that gives an object.", "This is neither a mapping nor an expression.")
			return nil
		}
		if t := b.template(n, sc, inMap); t != nil {
			return &flatTemplate{whole: t}
		}
		return nil
	}
	f := &flatTemplate{}
	for _, m := range n.members {
		if m.node.kind == mapNode {
			b.ps.at(m.node.pos, "Give each inner field a name of its own, such as address_city.", "`%s` is a mapping: before and after are flat.", m.name)
			continue
		}
		if t := b.tree(m.node, sc, inJSON); t != nil {
			f.names = append(f.names, treeMember{m.name, t})
		}
	}
	return f
}

// sameNames checks before against after where both are written out.
func (b *builder) sameNames(n *node, e *effectTemplate) {
	before, after := n.get("before"), n.get("after")
	if before == nil && after == nil {
		b.ps.at(n.pos, "Write `after` for what is created, `before` for what is deleted, both for what is changed.", "The effect does not say what changes.")
		return
	}
	if before == nil || after == nil || before.kind != mapNode || after.kind != mapNode {
		return
	}
	for _, pair := range [][2]*node{{before, after}, {after, before}} {
		for _, m := range pair[0].members {
			if !pair[1].has(m.name) {
				b.ps.at(m.keyPos, "Name the same fields in `before` and `after`; a value that is not there is null.", "`%s` stands on one side only.", m.name)
			}
		}
	}
}

// predict evaluates all effects.
func (m *Manifest) predict(vars map[string]any) ([]Effect, error) {
	var out []Effect
	for i := range m.effects {
		e := &m.effects[i]
		if e.each == nil {
			effect, err := e.evaluate(vars)
			if err != nil {
				return nil, err
			}
			out = append(out, effect)
			continue
		}
		list, err := e.each.eval(vars)
		if err != nil {
			return nil, err
		}
		items, ok := list.([]any)
		if !ok || len(items)+len(out) > maxEffects {
			return nil, &evalError{e.each.where, e.each.text, fmt.Errorf("the value is not a list of at most %d elements", maxEffects)}
		}
		element := types.DynType
		if e.each.out.Kind() == types.ListKind {
			element = e.each.out.Parameters()[0]
		}
		for _, item := range items {
			inner := make(map[string]any, len(vars)+1)
			for name, v := range vars {
				inner[name] = v
			}
			inner[e.as] = m.types.toCEL(item, element)
			effect, err := e.evaluate(inner)
			if err != nil {
				return nil, err
			}
			out = append(out, effect)
		}
	}
	return out, nil
}

func (e *effectTemplate) evaluate(vars map[string]any) (Effect, error) {
	out := Effect{Verb: e.verb, Count: 1}
	var err error
	if out.Target, err = e.target.text(vars); err != nil {
		return Effect{}, err
	}
	out.Summary = strings.ToUpper(e.verb[:1]) + e.verb[1:] + " " + out.Target
	if e.summary != nil {
		if out.Summary, err = e.summary.text(vars); err != nil {
			return Effect{}, err
		}
	}
	if out.Before, err = e.before.evaluate(vars); err != nil {
		return Effect{}, err
	}
	if out.After, err = e.after.evaluate(vars); err != nil {
		return Effect{}, err
	}
	if out.Before != nil && out.After != nil && !slices.Equal(sortedNames(out.Before), sortedNames(out.After)) {
		return Effect{}, &evalError{e.where, "before, after", errors.New("they do not have the same names")}
	}
	if out.Before == nil && out.After == nil {
		return Effect{}, &evalError{e.where, "before, after", errors.New("both are empty")}
	}
	if out.Money, err = e.money(vars); err != nil {
		return Effect{}, err
	}
	if out.Count, err = wholeNumber(e.count, vars, 1); err != nil {
		return Effect{}, err
	}
	out.Outside, err = wholeNumber(e.outside, vars, 0)
	return out, err
}

func (e *effectTemplate) money(vars map[string]any) (*Money, error) {
	if e.amount == nil {
		return nil, nil
	}
	v, err := e.amount.value(vars)
	if err != nil {
		return nil, err
	}
	n, _ := v.(json.Number)
	amount, err := strconv.ParseInt(string(n), 10, 64)
	if err != nil {
		return nil, &evalError{e.amount.where, "amount", errors.New("the amount is not a whole number of minor units")}
	}
	code, err := e.currency.text(vars)
	if err != nil {
		return nil, err
	}
	if !currencyCode.MatchString(code) {
		return nil, &evalError{e.currency.where, "currency", errors.New("the currency is not an ISO 4217 code")}
	}
	return &Money{Amount: amount, Currency: code}, nil
}

// wholeNumber evaluates count or outside, which policy adds up.
func wholeNumber(t *template, vars map[string]any, fallback int) (int, error) {
	if t == nil {
		return fallback, nil
	}
	v, err := t.value(vars)
	if err != nil {
		return 0, err
	}
	num, _ := v.(json.Number)
	n, err := strconv.ParseInt(string(num), 10, 32)
	if err != nil || n < 0 {
		return 0, &evalError{t.where, "number", errors.New("the value is not a whole number of zero or more")}
	}
	return int(n), nil
}

// evaluate gives the flat map; null means that the thing is not there.
func (f *flatTemplate) evaluate(vars map[string]any) (map[string]any, error) {
	if f == nil {
		return nil, nil
	}
	if f.whole == nil {
		out := make(map[string]any, len(f.names))
		for _, m := range f.names {
			v, err := m.tree.value(vars)
			if err != nil {
				return nil, err
			}
			if _, none := v.(absent); none {
				v = nil // the names of both sides stay the same
			}
			out[m.name] = v
		}
		return out, checkFlat(out, f.names[0].name)
	}
	v, err := f.whole.value(vars)
	if err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case map[string]any:
		if len(v) == 0 {
			return nil, &evalError{f.whole.where, "before or after", errors.New("the object is empty")}
		}
		return v, checkFlat(v, f.whole.where)
	case nil, absent:
		return nil, nil
	}
	return nil, &evalError{f.whole.where, "before or after", errors.New("the value is not an object")}
}

// checkFlat refuses objects inside before and after.
func checkFlat(m map[string]any, where string) error {
	for name, v := range m {
		items, isList := v.([]any)
		if !isList {
			items = []any{v}
		}
		for _, item := range items {
			switch item.(type) {
			case map[string]any, []any:
				return &evalError{where, name, errors.New("the value is an object: before and after are flat")}
			}
		}
	}
	return nil
}
