package api

import "countersign/fault"

// ProblemRow is one row of the table of problems, for the test that compares it
// with the contract.
type ProblemRow struct {
	Status       int
	Title        string
	Action, Text string
	After        int
}

// ProblemRows gives the whole table.
func ProblemRows() map[fault.Code]ProblemRow {
	rows := map[fault.Code]ProblemRow{}
	for code, p := range problems {
		rows[code] = ProblemRow{p.status, p.title, string(p.action), p.text, p.after}
	}
	return rows
}
