package web

import "countersign/tools"

// warningView is a reason to look twice, from a plan.
type warningView struct {
	Text string
	// Forensics is the page that says what speaks for a duplicate, where the warning
	// is of one.
	Forensics string
}

// duplicateWarning is the code of a plan's warning that the same was asked for
// under another key.
const duplicateWarning = "possible_duplicate"

// warningOf draws a warning of a plan. operation is empty where the plan is not one
// of an operation yet.
func warningOf(d drawer, w tools.Warning, operation string) warningView {
	v := warningView{Text: cutTo(d.hide(w.Text), longText)}
	if w.Code == duplicateWarning && operation != "" {
		v.Forensics = "/operations/" + operation + "/forensics"
	}
	return v
}
