package planted

import "strings"

// bug is one guard taken out of the product.
type bug struct {
	Name string
	// What the guard is for, in the words of the rule that it keeps.
	Rule string
	File string
	// Guard is the text in File, Without what stands there instead; it calls
	// fault.Planted with the name, and with the switch off is the same.
	Guard, Without string
	By             finder
}

// finder is the test that must notice.
type finder struct {
	Package string
	Test    string
	Args    string // separated by spaces
}

func (f finder) args() []string { return strings.Fields(f.Args) }

// bugs are all of them.
var bugs = append(append([]bug(nil), bugsOutside...), bugsHeart...)
