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
//	testsum [-allow FILE] [-sum FILE] DIR [go test flags]
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

func main() {
	allow := flag.String("allow", "", "file that lists allowed skips: package, test, # reason")
	sum := flag.String("sum", "", "file to which the totals are added")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: testsum [-allow FILE] [-sum FILE] DIR [go test flags]")
	}
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	os.Exit(run(os.Stdout, flag.Arg(0), flag.Args()[1:], *allow, *sum))
}

// run tests the module and returns the exit code: 0 all well, 1 not, 2 the run
// itself could not be done.
func run(out io.Writer, dir string, flags []string, allowFile, sumFile string) int {
	allowed, err := readAllowed(allowFile)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testsum:", err)
		return 2
	}
	rep := newReport(out, allowed)
	if err := goTest(dir, flags, rep); err != nil {
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

// goTest runs the tests of the module in dir and feeds their events to rep. A
// failing test is no error of goTest; rep knows it.
func goTest(dir string, flags []string, rep *report) error {
	cmd := exec.Command("go", append(append([]string{"test", "-json"}, flags...), "./...")...)
	cmd.Dir = dir
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
		rep.exitedWith(dir, exit)
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
