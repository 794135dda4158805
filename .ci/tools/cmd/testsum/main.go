// Command testsum runs the tests of one module and keeps the output short.
//
// What lives here: the run of `go test -json` in a module, the reading of its
// events, and the report: one line for each package as it ends (go test's own),
// failures in full, every skipped test with its reason, and totals last.
//
// How it flows: main runs the module; a report takes the events; the exit code is 1
// when anything failed, when a test was skipped that the list of allowed skips does
// not name, or when no test ran at all.
//
// What does not live here: which modules and flags a run has (.ci/test.sh), and any
// knowledge of what the tests test.
//
//	testsum [-allow FILE] [-sum FILE] [-packages LIST] DIR [go test flags]
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
)

func main() {
	allow := flag.String("allow", "", "file that lists allowed skips: package, test, # reason")
	sum := flag.String("sum", "", "file to which the totals are added")
	packages := flag.String("packages", "./...", "which packages of the module, separated by spaces")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: testsum [-allow FILE] [-sum FILE] [-packages LIST] DIR [go test flags]")
	}
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	os.Exit(run(os.Stdout, job{dir: flag.Arg(0), flags: flag.Args()[1:], packages: strings.Fields(*packages)}, *allow, *sum))
}

// job is what to test: packages of the module in dir.
type job struct {
	dir             string
	flags, packages []string
}

// run tests the module and returns the exit code: 0 all well, 1 not, 2 the run
// itself could not be done.
func run(out io.Writer, j job, allowFile, sumFile string) int {
	allowed, err := readAllowed(allowFile)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testsum:", err)
		return 2
	}
	rep := newReport(out, allowed)
	if err := goTest(j, rep); err != nil {
		fmt.Fprintln(os.Stderr, "testsum:", err)
		return 2
	}
	ok := rep.finish()
	if sumFile != "" {
		if err := rep.totals.addTo(sumFile); err != nil {
			fmt.Fprintln(os.Stderr, "testsum:", err)
			return 2
		}
	}
	if !ok {
		return 1
	}
	return 0
}

// goTest runs the tests and feeds their events to rep. A failing test is no error
// of goTest; rep knows it.
func goTest(j job, rep *report) error {
	cmd := exec.Command("go", slices.Concat([]string{"test", "-json"}, j.flags, j.packages)...)
	cmd.Dir = j.dir
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	if err := rep.read(stdout); err != nil {
		return err
	}
	err = cmd.Wait()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		// The events told it already, or go test stopped before the first one.
		rep.exitedWith(j.dir, exit)
		return nil
	}
	return err
}

// readAllowed reads the list of allowed skips, keyed "package test". Every line
// must carry a reason after a number sign. No file name means none.
func readAllowed(file string) (map[string]string, error) {
	allowed := map[string]string{}
	if file == "" {
		return allowed, nil
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		entry, reason, _ := strings.Cut(lines.Text(), "#")
		fields := strings.Fields(entry)
		if len(fields) == 0 {
			continue
		}
		reason = strings.TrimSpace(reason)
		if len(fields) != 2 || reason == "" {
			return nil, fmt.Errorf("%s:%d: want: package test # reason", file, n)
		}
		allowed[fields[0]+" "+fields[1]] = reason
	}
	return allowed, lines.Err()
}
