package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"countersign/strictjson"
)

// Answers go to stdout, as a table for people or as JSON for programs. What is
// said beside the answer (a warning, what to do next) goes to stderr.

// checkOutput refuses a form of output that does not exist.
func (p *program) checkOutput() error {
	if p.output != "table" && p.output != "json" {
		return fmt.Errorf("--output is table or json, not %q", p.output)
	}
	return nil
}

// json reports that answers are wanted as JSON.
func (p *program) json() bool { return p.output == "json" }

// answer prints v as JSON, or what table writes. Cells are separated by tabs.
func (p *program) answer(v any, table func(w io.Writer)) error {
	if p.json() {
		enc := json.NewEncoder(p.stdout)
		enc.SetIndent("", "  ")
		enc.SetEscapeHTML(false)
		return enc.Encode(v)
	}
	w := tabwriter.NewWriter(p.stdout, 0, 8, 2, ' ', 0)
	table(w)
	return w.Flush()
}

// mustHave marks flags as required; it fails only for one that does not exist.
func mustHave(cmd *cobra.Command, flags ...string) {
	for _, name := range flags {
		if err := cmd.MarkFlagRequired(name); err != nil {
			panic(err)
		}
	}
}

// note says something beside the answer.
func (p *program) note(format string, args ...any) {
	fmt.Fprintf(p.stderr, format+"\n", args...)
}

// row writes the cells of one line.
func row(w io.Writer, cells ...string) { fmt.Fprintln(w, strings.Join(cells, "\t")) }

// when writes a time for people: UTC, to the second; nothing for none.
func when(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02 15:04:05Z")
}

// orDash is text, or a dash where there is none.
func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// safe makes text of others fit for one line of a terminal: nothing in it can
// move the cursor, break the table or hide.
func safe(text string) string {
	return strictjson.Visible(strings.NewReplacer("\n", " ", "\r", " ", "\t", " ").Replace(text))
}
