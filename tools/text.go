package tools

import (
	"fmt"
	"strconv"

	"countersign/fault"
	"countersign/strictjson"
)

// Codes of the warnings that text in arguments gives.
const (
	WarnInvisible  = "invisible_text"
	WarnConfusable = "confusable"
)

// checkText looks at every text of the arguments. Where a schema says what a
// text may be (a format, a pattern, an enum), invisible characters are refused
// and look-alikes are flagged; free text keeps its characters, which pages show
// as visible escapes, and is flagged.
func checkText(args map[string]any, root *shape) ([]Warning, error) {
	c := &textCheck{}
	c.value(args, []*shape{root}, "")
	if c.refused != nil {
		return nil, c.refused
	}
	return c.warnings, nil
}

type textCheck struct {
	warnings []Warning
	refused  *fault.Error
}

func (c *textCheck) value(v any, list []*shape, at string) {
	list = inPlace(list, true)
	switch v := v.(type) {
	case map[string]any:
		for _, name := range sortedNames(v) {
			c.name(name, at)
			c.value(v[name], memberShapes(list, name), strictjson.Join(at, name))
		}
	case []any:
		for i, item := range v {
			c.value(item, itemShapes(list, i), strictjson.Join(at, strconv.Itoa(i)))
		}
	case string:
		c.text(v, list, at)
	}
}

// name looks at the name of a member: one that can't be seen is never free text.
func (c *textCheck) name(name, at string) {
	if _, r, found := strictjson.HasInvisible(name); found {
		c.refuse(fault.ForbiddenText, at, "has a member whose name holds the invisible character U+%04X", r)
	}
}

func (c *textCheck) text(s string, list []*shape, at string) {
	constrained, nfc, private, format := false, false, false, ""
	for _, sh := range list {
		constrained = constrained || sh.constrained
		nfc, private = nfc || sh.nfc, private || sh.private
		if sh.format != "" {
			format = sh.format
		}
	}
	_, r, invisible := strictjson.HasInvisible(s)
	switch {
	case invisible && constrained:
		c.refuse(fault.ForbiddenText, at, "holds the invisible character U+%04X", r)
		return
	case invisible:
		c.warn(WarnInvisible, at, fmt.Sprintf("The text holds characters that can't be seen, first U+%04X.", r))
	case nfc && !strictjson.IsNFC(s):
		c.refuse(fault.ForbiddenText, at, "must be in Unicode normal form C")
		return
	}
	if !private && (format == "uri" || format == "hostname") {
		if kind := forbiddenHost(s); kind != "" {
			c.refuse(fault.TargetForbidden, at, "names a %s address", kind)
			return
		}
	}
	if constrained && strictjson.Confusable(s) {
		c.warn(WarnConfusable, at, "The text holds letters that look like others: "+strictjson.ASCIIForm(s))
	}
}

func (c *textCheck) warn(code, at, text string) {
	c.warnings = append(c.warnings, Warning{Code: code, Pointer: at, Text: text})
}

// refuse keeps the first code and collects the pointers of that code.
func (c *textCheck) refuse(code fault.Code, at, format string, args ...any) {
	detail := fmt.Sprintf(format, args...)
	if c.refused == nil {
		c.refused = fault.New(code, "The argument %s %s.", at, detail)
	}
	if c.refused.Code == code {
		c.refused = c.refused.At(at, detail)
	}
}
