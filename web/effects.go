package web

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"countersign/strictjson"
	"countersign/tools"
)

// effectView is one predicted change, field by field.
type effectView struct {
	Verb, Target, Summary string
	Money                 string
	Count, Outside        int
	// Created and Deleted things have only one side.
	Created, Deleted bool
	Fields           []fieldView
}

// fieldView is one field before and after.
type fieldView struct {
	Name          string
	Before, After *value
	Changed       bool
}

// effects draws what is predicted.
func (d drawer) effects(list []tools.Effect) []effectView {
	out := make([]effectView, 0, len(list))
	for _, e := range list {
		v := effectView{
			Verb: e.Verb, Target: d.hide(e.Target), Summary: d.hide(e.Summary), Count: max(1, e.Count), Outside: e.Outside,
			Created: e.Before == nil && e.After != nil, Deleted: e.After == nil && e.Before != nil,
		}
		if strings.EqualFold(v.Summary, v.Verb+" "+v.Target) {
			v.Summary = "" // it says nothing more
		}
		if e.Money != nil {
			v.Money = amountText(*e.Money)
		}
		names := slices.Sorted(maps.Keys(e.After))
		for name := range e.Before {
			if _, both := e.After[name]; !both {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		for _, name := range names {
			f := d.field(e, name)
			// What is new or goes away as a whole has nothing to tell apart.
			f.Changed = f.Changed && !v.Created && !v.Deleted
			v.Fields = append(v.Fields, f)
		}
		// What changes comes first: the eye stops there.
		slices.SortStableFunc(v.Fields, func(a, b fieldView) int {
			switch {
			case a.Changed == b.Changed:
				return 0
			case a.Changed:
				return -1
			default:
				return 1
			}
		})
		out = append(out, v)
	}
	return out
}

func (d drawer) field(e tools.Effect, name string) fieldView {
	before, had := e.Before[name]
	after, has := e.After[name]
	f := fieldView{Name: name, Changed: had != has || !strictjson.Equal(before, after)}
	money := amountField(e, before, after)
	side := func(v any) *value {
		out := d.value(v)
		if n, ok := whole(v); ok && money {
			out.Notes = []string{"= " + amountText(tools.Money{Amount: n, Currency: e.Money.Currency})}
		}
		return &out
	}
	if had {
		f.Before = side(before)
	}
	if has {
		f.After = side(after)
	}
	return f
}

// amountField reports that a field counts the effect's money: it changes by
// exactly that amount.
func amountField(e tools.Effect, before, after any) bool {
	if e.Money == nil || e.Money.Amount == 0 {
		return false
	}
	b, okB := whole(before)
	a, okA := whole(after)
	return okB && okA && (a-b == e.Money.Amount || b-a == e.Money.Amount)
}

// whole gives an integral number.
func whole(v any) (int64, bool) {
	switch v.(type) {
	case nil, string, bool, map[string]any, []any:
		return 0, false
	}
	n, err := strconv.ParseInt(compact(v), 10, 64)
	return n, err == nil
}

// totals sums effects up: amounts by currency, objects and recipients outside.
type totals struct {
	Money   []string
	Objects int
	Outside int
}

func totalsOf(list []tools.Effect) totals {
	var t totals
	sums := map[string]int64{}
	for _, e := range list {
		t.Objects += max(1, e.Count)
		t.Outside += e.Outside
		if e.Money == nil {
			continue
		}
		before := sums[e.Money.Currency]
		sum := before + e.Money.Amount
		if (sum > before) != (e.Money.Amount > 0) && e.Money.Amount != 0 {
			// Too large to add up: say each, never a wrong sum.
			return totals{Money: eachAmount(list), Objects: t.Objects, Outside: t.Outside}
		}
		sums[e.Money.Currency] = sum
	}
	for _, currency := range slices.Sorted(maps.Keys(sums)) {
		t.Money = append(t.Money, amountText(tools.Money{Amount: sums[currency], Currency: currency}))
	}
	return t
}

func eachAmount(list []tools.Effect) []string {
	var out []string
	for _, e := range list {
		if e.Money != nil {
			out = append(out, amountText(*e.Money))
		}
	}
	return out
}

// Amount is all money in one line, empty when there is none.
func (t totals) Amount() string { return strings.Join(t.Money, " + ") }
