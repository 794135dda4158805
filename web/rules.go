package web

import (
	"regexp"
	"strconv"
	"strings"

	"countersign/tools"
)

// A rule's condition is an expression, with amounts in minor units. Where it has
// this one form, and no other, the amount can be said as people write it.
var (
	amountWhen = regexp.MustCompile(`^effects\.money\("([A-Z]{3})"\) *(>=|<=|==|>|<) *(-?[0-9]+)$`)
	// ruleWhen finds the condition in the sentence that the policy made of a rule:
	// "when …, 2 of finance", perhaps behind the rule's name.
	ruleWhen   = regexp.MustCompile(`^(?:[^:"]*: )?when (effects\.money\("[A-Z]{3}"\) *[<>=]{1,2} *-?[0-9]+), `)
	nobodyRule = regexp.MustCompile(`(?s)^(?:[^:"]*: )?when (.+), nobody is asked$`)
)

var comparisons = map[string]string{
	">": "more than ", ">=": "at least ", "<": "less than ", "<=": "at most ", "==": "exactly ",
}

// amountWords says a condition on an amount in words, "more than 500.00 EUR"; it
// is empty for every other condition.
func amountWords(when string) string {
	m := amountWhen.FindStringSubmatch(strings.TrimSpace(when))
	if m == nil {
		return ""
	}
	minor, err := strconv.ParseInt(m[3], 10, 64)
	if err != nil {
		return ""
	}
	amount, err := tools.FormatMoney(minor, m[1])
	if err != nil {
		return ""
	}
	return comparisons[m[2]] + amount
}

// ruleAmount is amountWords for a rule as the policy put it.
func ruleAmount(rule string) string {
	m := ruleWhen.FindStringSubmatch(rule)
	if m == nil {
		return ""
	}
	return amountWords(m[1])
}

// nobodyWhen is the condition under which a rule asks nobody; empty when the rule
// has none.
func nobodyWhen(rule string) string {
	m := nobodyRule.FindStringSubmatch(rule)
	if m == nil || strings.HasSuffix(m[1], ": always") {
		return ""
	}
	return m[1]
}
