package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// module writes a module with the given files and returns its folder.
func module(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	files["go.mod"] = "module trial\n\ngo 1.26.0\n"
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func test(body string) string {
	return "package p\n\nimport (\n\t\"testing\"\n)\n\n" + body
}

func TestRun(t *testing.T) {
	const pass = "func TestPass(t *testing.T) {}\n"
	for _, c := range []struct {
		name  string
		files map[string]string
		allow string
		code  int
		shows []string
		hides []string
	}{
		{
			name:  "pass",
			files: map[string]string{"p/p_test.go": test("func TestPass(t *testing.T) { t.Log(`chatter`) }\n"), "q/q.go": "package q\n"},
			code:  0,
			shows: []string{"ok  \ttrial/p\t", "no test files: trial/q\n", "1 passed, 0 failed, 0 skipped\n"},
			hides: []string{"chatter"},
		},
		{
			name: "fail in full, the others still run",
			files: map[string]string{
				"p/p_test.go": test("func TestBad(t *testing.T) { t.Run(`inner`, func(t *testing.T) { t.Fatal(`the reason`) }) }\n"),
				"q/q_test.go": strings.Replace(test(pass), "package p", "package q", 1),
			},
			code:  1,
			shows: []string{"FAILED trial/p TestBad/inner\n", "the reason", "FAIL\ttrial/p\t", "ok  \ttrial/q\t", "--- FAIL: trial/p TestBad/inner\n", "1 passed, 2 failed, 0 skipped\n"},
		},
		{
			name:  "build failure",
			files: map[string]string{"p/p_test.go": test("func TestPass(t *testing.T) { undefinedName() }\n"), "q/q_test.go": strings.Replace(test(pass), "package p", "package q", 1)},
			code:  1,
			shows: []string{"undefined: undefinedName", "FAIL\ttrial/p [build failed]\n", "1 passed, 0 failed, 0 skipped\n"},
		},
		{
			name:  "panic",
			files: map[string]string{"p/p_test.go": test(pass + "func TestPanic(t *testing.T) { panic(`boom`) }\n")},
			code:  1,
			shows: []string{"boom", "TestPanic", "1 passed, 1 failed, 0 skipped\n"},
		},
		{
			name:  "exit in the middle",
			files: map[string]string{"p/p_test.go": strings.Replace(test(pass+"func TestExit(t *testing.T) { os.Exit(3) }\n"), "\"testing\"", "\"os\"\n\t\"testing\"", 1)},
			code:  1,
			shows: []string{"UNFINISHED trial/p TestExit\n", "1 passed, 1 failed, 0 skipped\n"},
		},
		{
			name:  "a skip fails the run",
			files: map[string]string{"p/p_test.go": test(pass + "func TestLazy(t *testing.T) { t.Skip(`no browser`) }\n")},
			code:  1,
			shows: []string{"SKIPPED trial/p TestLazy:", "no browser", "1 skipped tests are not in the list", "1 passed, 0 failed, 1 skipped\n"},
		},
		{
			name:  "an allowed skip is shown",
			files: map[string]string{"p/p_test.go": test(pass + "func TestLazy(t *testing.T) { t.Skip(`no browser`) }\n")},
			allow: "# a comment\n\ntrial/p TestLazy # waits for a browser\n",
			code:  0,
			shows: []string{"skipped (allowed: waits for a browser) trial/p TestLazy:", "no browser", "1 passed, 0 failed, 1 skipped\n"},
		},
		{
			name:  "no test at all",
			files: map[string]string{"p/p.go": "package p\n"},
			code:  1,
			shows: []string{"no test ran\n"},
		},
		{
			name:  "go test cannot begin",
			files: map[string]string{"p/p.go": "package p\n\nimport _ \"trial/absent\"\n", "p/p_test.go": test(pass)},
			code:  1,
			shows: []string{"trial/absent", "FAIL"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := module(t, c.files)
			allow := ""
			if c.allow != "" {
				allow = filepath.Join(dir, "allowed")
				if err := os.WriteFile(allow, []byte(c.allow), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			var out strings.Builder
			code := run(&out, job{dir: dir, flags: []string{"-vet=off"}, packages: []string{"./..."}}, allow, "")
			if code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			for _, s := range c.shows {
				if !strings.Contains(out.String(), s) {
					t.Errorf("output lacks %q", s)
				}
			}
			for _, s := range c.hides {
				if strings.Contains(out.String(), s) {
					t.Errorf("output has %q", s)
				}
			}
			if t.Failed() {
				t.Log(out.String())
			}
		})
	}
}

func TestRun_sumsUp(t *testing.T) {
	dir := module(t, map[string]string{"p_test.go": test("func TestPass(t *testing.T) {}\n")})
	sum := filepath.Join(t.TempDir(), "totals")
	for _, want := range []string{"1 passed, 0 failed, 0 skipped\n", "2 passed, 0 failed, 0 skipped\n"} {
		var out strings.Builder
		if code := run(&out, job{dir: dir, flags: []string{"-vet=off"}, packages: []string{"./..."}}, "", sum); code != 0 {
			t.Fatalf("exit code %d\n%s", code, out.String())
		}
		if !strings.HasSuffix(out.String(), "\n1 passed, 0 failed, 0 skipped\n") {
			t.Errorf("the run's own totals are not last:\n%s", out.String())
		}
		if got, err := os.ReadFile(sum); err != nil || string(got) != want {
			t.Errorf("the sum is %q (%v), want %q", got, err, want)
		}
	}
}

func TestReadAllowed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "allowed")
	for _, bad := range []string{"pkg TestX\n", "pkg # why\n", "pkg TestX extra # why\n", "pkg TestX #\n"} {
		if err := os.WriteFile(file, []byte(bad), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := readAllowed(file); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
	if _, err := readAllowed(filepath.Join(t.TempDir(), "absent")); err == nil {
		t.Error("a missing file was taken for an empty list")
	}
}
