package countersign_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// The rules of the house, checked on the sources themselves. Each test names every
// place that breaks its rule; the fix belongs there, and only seldom here.

// A room is a package, or a folder of packages, and the rooms it may import.
// docs/architecture.md tells the same in words: imports run down only.
var (
	leaves   = []string{"fault", "strictjson"}
	plans    = append([]string{"tools"}, leaves...)
	records  = append([]string{"ledger", "tokens", "identity"}, plans...)
	services = append([]string{"approvals/policy"}, records...)
	surfaces = append([]string{".", "preview", "commit", "approvals", "reconcile", "notify", "audit"}, services...)

	rooms = map[string][]string{
		".":                {},
		"fault":            {},
		"strictjson":       {"fault"},
		"tools":            leaves,
		"tools/*":          plans, // connectors, and the suite for them
		"tokens":           plans,
		"ledger":           plans,
		"identity":         plans,
		"store/*":          append([]string{"ledger", "identity"}, plans...),
		"approvals/policy": records,
		"audit":            records,
		"measure":          append([]string{"ledger"}, plans...),
		"preview":          services,
		"commit":           services,
		"approvals":        services,
		"notify":           services,
		"reconcile":        append([]string{"commit"}, services...),
		"api":              surfaces,
		"mcp":              surfaces,
		"web":              surfaces,
		"examples":         leaves,
		"cmd":              nil, // the only one that knows them all
		"harness":          nil, // tests of the whole; nobody imports it
		"bench":            nil,
	}
	knowsAll = []string{"cmd", "harness", "bench"}
)

// roomOf tells the room of a package by its folder. Each connector and each store
// is a room of its own; elsewhere a folder belongs to the nearest room above it.
func roomOf(dir string) (name string, may []string, ok bool) {
	for d := dir; ; d = path.Dir(d) {
		if may, ok = rooms[d]; ok {
			// Only the root folder itself is the root's room.
			return d, may, d != "." || dir == "."
		}
		if may, ok = rooms[path.Dir(d)+"/*"]; ok {
			return d, may, true
		}
	}
}

func TestHouse_ImportsRunDown(t *testing.T) {
	for _, p := range packages(t) {
		from, may, ok := roomOf(p.dir)
		if !ok {
			t.Errorf("%s is in no room: give it one in the table above and in docs/architecture.md", p.dir)
			continue
		}
		if slices.Contains(knowsAll, from) {
			continue
		}
		for _, imported := range p.imports {
			to, _, _ := roomOf(imported)
			if to != from && !slices.Contains(may, to) {
				t.Errorf("%s imports %s: room %s may import %v only", p.dir, imported, from, may)
			}
		}
	}
}

// The table itself: what the words of the design forbid, it must not let in.
func TestHouse_ImportTable(t *testing.T) {
	allows := func(from, to string) bool {
		fromRoom, may, _ := roomOf(from)
		toRoom, _, _ := roomOf(to)
		return fromRoom == toRoom || slices.Contains(may, toRoom)
	}
	for _, beside := range [][2]string{
		{"api", "mcp"},
		{"api", "web"},
		{"mcp", "web"},
		{"preview", "commit"},
		{"preview", "approvals"},
		{"commit", "approvals"},
		{"notify", "reconcile"},
		{"ledger", "identity"},
		{"ledger", "tokens"},
		{"commit", "tools/httptool"},
		{"web", "store/sqlstore"},
		{"store/sqlstore", "store/redisstore"},
		{"tools/httptool", "tools/sqltool"},
	} {
		require.False(t, allows(beside[0], beside[1]), "%v", beside)
		require.False(t, allows(beside[1], beside[0]), "%v", beside)
	}
	for _, down := range [][2]string{
		{"api", "commit"},
		{"web", "approvals"},
		{"reconcile", "commit"},
		{"approvals", "approvals/policy"},
		{"approvals/policy", "ledger"},
		{"store/sqlstore", "ledger"},
		{"ledger", "tools"},
		{"tools/httptool", "tools"},
		{"tools", "fault"},
		{"api", "."},
	} {
		require.True(t, allows(down[0], down[1]), "%v", down)
		require.False(t, allows(down[1], down[0]), "%v upwards", down)
	}
	_, _, ok := roomOf("somewhere/new")
	require.False(t, ok, "a folder that the table does not know has a room")
}

var docParts = []string{"What lives here", "How it flows", "What does not live here"}

func TestHouse_PackageDocs(t *testing.T) {
	for _, p := range packages(t) {
		if p.doc == "" {
			t.Errorf("%s has no package comment", p.dir)
			continue
		}
		if first := "Package " + p.name + " "; p.name != "main" && !strings.HasPrefix(p.doc, first) {
			t.Errorf("%s: the package comment must begin with %q", p.dir, first)
		}
		for _, part := range docParts {
			if !strings.Contains(p.doc, part) {
				t.Errorf("%s: the package comment lacks its part %q", p.dir, part)
			}
		}
	}
}

func TestHouse_PackageNames(t *testing.T) {
	for _, f := range goFiles(t) {
		switch strings.TrimSuffix(f.ast.Name.Name, "_test") {
		case "util", "utils", "common", "helper", "helpers", "model", "models", "misc", "types":
			t.Errorf("%s: package %s says nothing about what it holds", f.path, f.ast.Name.Name)
		}
	}
}

func TestHouse_FileSizes(t *testing.T) {
	for _, f := range goFiles(t) {
		limit := 500
		if f.isTest() {
			limit = 700
		}
		if lines := strings.Count(f.text, "\n"); lines > limit && !f.isGenerated() {
			t.Errorf("%s has %d lines, more than %d: a file tells one noun or one verb", f.path, lines, limit)
		}
	}
}

// readsClock lists the files outside cmd that may read the wall clock, and why.
var readsClock = map[string]string{}

// Time is an injected field named Now; only cmd sets it to time.Now. Examples,
// benchmarks and tests are free.
func TestHouse_Clock(t *testing.T) {
	for _, f := range goFiles(t) {
		if f.isTest() || readsClock[f.path] != "" || f.under("cmd", "examples", "bench", ".ci") || f.isSuite() {
			continue
		}
		for _, pos := range clockReads(f.ast) {
			t.Errorf("%s:%d reads the clock: take the time from an injected Now", f.path, f.fset.Position(pos).Line)
		}
	}
	for file := range readsClock {
		require.FileExists(t, file, "readsClock names a file that is gone")
	}
}

// clockReads finds time.Now, time.Since and time.Until, called or passed on, but not
// time.Now as the default of something named Now.
func clockReads(file *ast.File) (found []token.Pos) {
	isNow := func(e ast.Expr) bool {
		switch e := e.(type) {
		case *ast.Ident:
			return e.Name == "Now" || e.Name == "now"
		case *ast.SelectorExpr:
			return e.Sel.Name == "Now" || e.Sel.Name == "now"
		}
		return false
	}
	defaults := map[ast.Expr]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.KeyValueExpr:
			defaults[n.Value] = isNow(n.Key)
		case *ast.AssignStmt:
			for i, right := range n.Rhs {
				defaults[right] = len(n.Lhs) == len(n.Rhs) && isNow(n.Lhs[i])
			}
		case *ast.SelectorExpr:
			pkg, _ := n.X.(*ast.Ident)
			if pkg == nil || pkg.Name != "time" || defaults[n] {
				return true
			}
			switch n.Sel.Name {
			case "Now", "Since", "Until":
				found = append(found, n.Pos())
			}
		}
		return true
	})
	return found
}

// A test that is there runs. The one way out is `if testing.Short()`, which only
// `make quick` takes.
func TestHouse_NoSkips(t *testing.T) {
	for _, f := range goFiles(t) {
		if !f.isTest() && !f.isSuite() {
			continue
		}
		for _, pos := range skips(f.ast) {
			t.Errorf("%s:%d skips a test: make it run, or guard it by a plain testing.Short()", f.path, f.fset.Position(pos).Line)
		}
	}
}

func skips(file *ast.File) (found []token.Pos) {
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.IfStmt:
			return !isCall(n.Cond, "testing", "Short")
		case *ast.FuncLit:
			return !drawsRapid(n.Type)
		case *ast.FuncDecl:
			return !drawsRapid(n.Type)
		case *ast.CallExpr:
			for _, on := range []string{"t", "b", "f", "tb", "tt"} {
				if isCall(n, on, "Skip") || isCall(n, on, "Skipf") || isCall(n, on, "SkipNow") {
					found = append(found, n.Pos())
				}
			}
		}
		return true
	})
	return found
}

// drawsRapid tells a property of package rapid: its Skip throws one draw away and
// goes on to the next.
func drawsRapid(f *ast.FuncType) bool {
	for _, param := range f.Params.List {
		star, _ := param.Type.(*ast.StarExpr)
		if star == nil {
			continue
		}
		sel, _ := star.X.(*ast.SelectorExpr)
		if sel == nil || sel.Sel.Name != "T" {
			continue
		}
		if pkg, _ := sel.X.(*ast.Ident); pkg != nil && pkg.Name == "rapid" {
			return true
		}
	}
	return false
}

func isCall(e ast.Expr, on, method string) bool {
	call, _ := e.(*ast.CallExpr)
	if call == nil {
		return false
	}
	sel, _ := call.Fun.(*ast.SelectorExpr)
	if sel == nil || sel.Sel.Name != method {
		return false
	}
	x, _ := sel.X.(*ast.Ident)
	return x != nil && x.Name == on
}

// The finders must find: what they are run on in earnest has nothing to find.
func TestHouse_Finders(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "x.go", `package x
func a() { _ = time.Now(); f(time.Now); c := C{Now: time.Now, At: time.Now()}; c.Now = time.Now; c.At = time.Since(c.At) }
func b(t *testing.T) { if testing.Short() { t.Skip() }; if x { t.Skipf("x") }; t.SkipNow(); d.Skip() }
func c(t *testing.T) { rapid.Check(t, func(t *rapid.T) { t.Skip() }) }
`, 0)
	require.NoError(t, err)
	require.Len(t, clockReads(file), 4)
	require.Len(t, skips(file), 2)
}

var sumRow = regexp.MustCompile("(?m)^\\| `([^`]+)` \\|.*\\| `([0-9a-f]{64})` \\|$")

func TestHouse_VendoredSums(t *testing.T) {
	const vendor = "web/static/vendor"
	files := map[string]string{}
	entries, err := filepath.Glob(vendor + "/*")
	require.NoError(t, err)
	for _, name := range entries {
		if path.Base(name) != "README.md" {
			files[path.Base(name)] = sumOf(t, name)
		}
	}
	require.NotEmpty(t, files)
	for _, doc := range []string{vendor + "/README.md", "NOTICES.md"} {
		told := map[string]string{}
		for _, row := range sumRow.FindAllStringSubmatch(string(read(t, doc)), -1) {
			told[row[1]] = row[2]
		}
		require.Equal(t, files, told, "%s and the files in %s differ", doc, vendor)
	}
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	return b
}

func sumOf(t *testing.T, file string) string {
	t.Helper()
	sum := sha256.Sum256(read(t, file))
	return hex.EncodeToString(sum[:])
}

// goFile is one parsed Go file of the repository, of any of its modules.
type goFile struct {
	path string // from the root, with slashes
	text string
	fset *token.FileSet
	ast  *ast.File
}

func (f goFile) isTest() bool { return strings.HasSuffix(f.path, "_test.go") }

func (f goFile) isGenerated() bool { return strings.HasSuffix(f.path, ".gen.go") }

// isSuite tells the packages that exist for tests: storetest, tooltest and their like.
func (f goFile) isSuite() bool { return strings.HasSuffix(path.Dir(f.path), "test") }

func (f goFile) under(tops ...string) bool {
	top, _, _ := strings.Cut(f.path, "/")
	return slices.Contains(tops, top)
}

var parseOnce = sync.OnceValues(func() ([]goFile, error) {
	var files []goFile
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			switch base := d.Name(); {
			case name == "." || name == ".ci":
				return nil
			case strings.HasPrefix(base, "."), name == ".ci/tmp", name == "bin", name == "data", base == "node_modules", base == "testdata":
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		f := goFile{path: filepath.ToSlash(name), fset: token.NewFileSet()}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		f.text = string(text)
		if f.ast, err = parser.ParseFile(f.fset, name, f.text, parser.ParseComments); err != nil {
			return err
		}
		files = append(files, f)
		return nil
	})
	return files, err
})

func goFiles(t *testing.T) []goFile {
	t.Helper()
	files, err := parseOnce()
	require.NoError(t, err)
	require.NotEmpty(t, files)
	return files
}

// pkg is a package of the root module that has code beside tests.
type pkg struct {
	dir     string // from the root, with slashes; "." is the root
	name    string
	doc     string
	imports []string // folders of this module only
}

var listOnce = sync.OnceValues(func() ([]byte, error) {
	return exec.Command("go", "list", "-json=ImportPath,Name,GoFiles,Imports", "./...").Output()
})

func packages(t *testing.T) []pkg {
	t.Helper()
	out, err := listOnce()
	if exit, ok := err.(*exec.ExitError); ok {
		t.Fatalf("go list: %s", exit.Stderr)
	}
	require.NoError(t, err)
	docs := map[string]string{}
	for _, f := range goFiles(t) {
		if doc := f.ast.Doc.Text(); doc != "" && !f.isTest() && !f.isGenerated() {
			docs[path.Dir(f.path)] += doc
		}
	}
	var found []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); dec.More(); {
		var listed struct {
			ImportPath, Name string
			GoFiles, Imports []string
		}
		require.NoError(t, dec.Decode(&listed))
		if len(listed.GoFiles) == 0 {
			continue
		}
		p := pkg{dir: folderOf(listed.ImportPath), name: listed.Name}
		p.doc = docs[p.dir]
		for _, i := range listed.Imports {
			if dir := folderOf(i); dir != "" {
				p.imports = append(p.imports, dir)
			}
		}
		found = append(found, p)
	}
	require.NotEmpty(t, found)
	return found
}

// folderOf turns an import path of this module into its folder; others give "".
func folderOf(importPath string) string {
	if importPath == "countersign" {
		return "."
	}
	dir, ours := strings.CutPrefix(importPath, "countersign/")
	if !ours {
		return ""
	}
	return dir
}
