package countersign_test

import (
	"go/ast"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	matrixPage = "docs/fault-matrix.md"
	matrixRows = 50
	// withStores marks what needs a store that is not here yet.
	withStores = "with the stores"
)

var (
	matrixLine = regexp.MustCompile(`(?m)^\| (\d+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$`)
	matrixTest = regexp.MustCompile("`([^`]+)\\.(Test\\w+)`")
	// Names like TestMatrix_Row09_Kill9 and Row19to21, Row29and30.
	rowInName = regexp.MustCompile(`^TestMatrix_Row(\d+)(?:(to|and)(\d+))?_`)
	// Comments like "matrix row 42", "fault matrix rows 2, 3 and 7", "rows 31 to 33".
	rowsInDoc = regexp.MustCompile(`(?i)\bmatrix(?: rows?)?[:\s]+(\d+(?:(?:,| and| to)\s+(?:row )?\d+)*)`)
	rowWord   = regexp.MustCompile(`\d+|to`)
)

// rowsOf are the rows that a test names, in its name or in the comment before it.
func rowsOf(f *ast.FuncDecl) (rows []int) {
	add := func(words []string) {
		for i := 0; i < len(words); i++ {
			n, err := strconv.Atoi(words[i])
			if err != nil { // to
				for last, _ := strconv.Atoi(words[i+1]); len(rows) > 0 && rows[len(rows)-1] < last-1; {
					rows = append(rows, rows[len(rows)-1]+1)
				}
				continue
			}
			rows = append(rows, n)
		}
	}
	if m := rowInName.FindStringSubmatch(f.Name.Name); m != nil {
		add(slices.DeleteFunc([]string{m[1], m[2], m[3]}, func(s string) bool { return s == "" || s == "and" }))
	}
	text := strings.Join(strings.Fields(f.Doc.Text()), " ")
	for _, m := range rowsInDoc.FindAllStringSubmatch(text, -1) {
		add(rowWord.FindAllString(m[1], -1))
	}
	return rows
}

// Every row of the fault matrix has a test that names it and is on the page, or the
// mark of what comes with other stores; and every test that names a row in its own
// name is on the page.
func TestHouse_FaultMatrix(t *testing.T) {
	named := map[string][]int{} // by folder.Test
	for _, f := range goFiles(t) {
		if !f.isTest() {
			continue
		}
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Test") {
				named[path.Dir(f.path)+"."+fn.Name.Name] = rowsOf(fn)
			}
		}
	}
	listed := map[string][]int{}
	var rows []int
	for _, line := range matrixLine.FindAllStringSubmatch(string(read(t, matrixPage)), -1) {
		row, err := strconv.Atoi(line[1])
		require.NoError(t, err)
		rows = append(rows, row)
		names := false
		for _, m := range matrixTest.FindAllStringSubmatch(line[3], -1) {
			test := m[1] + "." + m[2]
			listed[test] = append(listed[test], row)
			says, there := named[test]
			if !there {
				t.Errorf("row %d: there is no test %s", row, test)
			}
			names = names || slices.Contains(says, row)
		}
		if !names && !strings.Contains(line[3], withStores) {
			t.Errorf("row %d: none of its tests names it; say \"matrix row %d\" in the comment of the one that proves it", row, row)
		}
	}
	for row := 1; row <= matrixRows; row++ {
		require.Equal(t, 1, count(rows, row), "row %d stands once on %s", row, matrixPage)
	}
	require.Len(t, rows, matrixRows)
	for test, says := range named {
		if !strings.Contains(test, ".TestMatrix_Row") {
			continue
		}
		for _, row := range says {
			if !slices.Contains(listed[test], row) {
				t.Errorf("%s names row %d and is not on %s", test, row, matrixPage)
			}
		}
	}
}

func count(list []int, n int) (times int) {
	for _, x := range list {
		if x == n {
			times++
		}
	}
	return times
}

// The finder must find.
func TestHouse_FaultMatrixFinder(t *testing.T) {
	for text, want := range map[string][]int{
		"Matrix row 44: a copy.":                        {44},
		"once (I2, fault matrix rows 3 and 7).":         {3, 7},
		"asked again (I12, matrix rows 31 to 33).":      {31, 32, 33},
		"whole (I10, I16; fault matrix 11).":            {11},
		"Rows 35 and 36 of the fault matrix: the peer.": nil,
		"row 9 of a table":                              nil,
	} {
		require.Equal(t, want, rowsOf(&ast.FuncDecl{Name: ast.NewIdent("TestX"), Doc: &ast.CommentGroup{List: []*ast.Comment{{Text: "// " + text}}}}), text)
	}
	for name, want := range map[string][]int{"TestMatrix_Row09_X": {9}, "TestMatrix_Row19to21_X": {19, 20, 21}, "TestMatrix_Row29and30_X": {29, 30}, "TestRow9": nil} {
		require.Equal(t, want, rowsOf(&ast.FuncDecl{Name: ast.NewIdent(name)}), name)
	}
}
