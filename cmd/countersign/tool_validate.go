package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"countersign/tools"
)

func toolValidateCommand(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "validate FILE|FOLDER...",
		Short: "Check manifests, without a gateway",
		Long: `Check manifests: grammar, argument schemas, the type of every expression, the
rules that a tool must keep, and what one tool says about another. A tool that is
named as undo is looked for among the files and in the folders around them.

It needs neither gateway nor configuration. With -c FILE it also checks that the
upstreams which the tools name are there. Exit status 1 when anything is wrong;
what a tool lacks is said and is no mistake.`,
		Example: `  countersign tool validate tools
  countersign tool validate tools/hold_order.yaml -c countersign.yaml`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			var upstreams []string
			if p.configPath != "" {
				cfg, err := p.config()
				if err != nil {
					return err
				}
				upstreams = cfg.upstreamNames()
			}
			files, err := manifestFiles(args)
			if err != nil {
				return err
			}
			checked := validate(files, upstreams, p.configPath)
			wrong := slices.ContainsFunc(checked, func(c checkedFile) bool { return len(c.Problems) > 0 })
			if err := p.showChecked(checked); err != nil {
				return err
			}
			if wrong {
				return exitError{1}
			}
			return nil
		},
	}
}

// checkedFile is one manifest with everything that was found.
type checkedFile struct {
	File     string            `json:"file"`
	Tool     *toolAnswer       `json:"tool,omitempty"`
	Problems []manifestProblem `json:"problems"`
	Warnings []manifestProblem `json:"warnings"`
}

// manifestProblem is one finding; line and column are 0 for the whole file.
type manifestProblem struct {
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
	Message string `json:"message"`
	Instead string `json:"instead,omitempty"`
	Excerpt string `json:"excerpt,omitempty"`
}

func problemsOf(list []tools.Problem) []manifestProblem {
	out := make([]manifestProblem, len(list))
	for i, p := range list {
		out[i] = manifestProblem{p.Line, p.Column, p.Message, p.Instead, p.Excerpt}
	}
	return out
}

// manifestFiles lists the manifests that files and folders stand for.
func manifestFiles(paths []string) ([]string, error) {
	var files []string
	for _, p := range paths {
		info, err := os.Stat(p)
		if err != nil {
			return nil, err
		}
		if !info.IsDir() {
			files = append(files, filepath.Clean(p))
			continue
		}
		entries, err := os.ReadDir(p)
		if err != nil {
			return nil, err
		}
		found := 0
		for _, e := range entries {
			if !e.IsDir() && isManifest(e.Name()) {
				files = append(files, filepath.Join(p, e.Name()))
				found++
			}
		}
		if found == 0 {
			return nil, fmt.Errorf("there is no manifest (*.yaml, *.yml, *.json) in %s", p)
		}
	}
	slices.Sort(files)
	return slices.Compact(files), nil
}

// isManifest is which files of a folder are manifests, as tools.Load has it.
func isManifest(name string) bool {
	return !strings.HasPrefix(name, ".") && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name))
}

// validate checks each file by itself, then against its neighbours and, when
// config names a file, against its upstreams.
func validate(files, upstreams []string, config string) []checkedFile {
	checked := make([]checkedFile, len(files))
	for i, file := range files {
		c := checkedFile{File: file, Problems: []manifestProblem{}, Warnings: []manifestProblem{}}
		text, err := os.ReadFile(file)
		if err != nil {
			c.Problems = append(c.Problems, manifestProblem{Message: err.Error()})
			checked[i] = c
			continue
		}
		m, err := tools.ParseManifest(text)
		var bad *tools.ManifestError
		switch {
		case errors.As(err, &bad):
			c.Problems = problemsOf(bad.Problems)
		case err != nil:
			c.Problems = append(c.Problems, manifestProblem{Message: err.Error()})
		default:
			answer := toolAnswerOf(m.Spec)
			c.Tool, c.Warnings = &answer, problemsOf(m.Remarks)
			if config != "" && !slices.Contains(upstreams, m.Spec.Upstream) {
				c.Problems = append(c.Problems, upstreamProblem(m.Spec.Upstream, upstreams, config))
			}
		}
		checked[i] = c
	}
	addAcross(checked)
	return checked
}

func upstreamProblem(name string, known []string, config string) manifestProblem {
	p := manifestProblem{Message: fmt.Sprintf("There is no upstream %s in %s.", name, config), Instead: "Add it under upstreams there."}
	if len(known) > 0 {
		p.Instead = "Use one of " + strings.Join(known, ", ") + ", or add it under upstreams there."
	}
	return p
}

// addAcross adds what holds only across files. Neighbours that don't load are
// not reported, unless they were asked about.
func addAcross(checked []checkedFile) {
	byFile := map[string]*checkedFile{}
	var named, set []string
	for i := range checked {
		byFile[checked[i].File] = &checked[i]
		named = append(named, checked[i].File)
	}
	for _, file := range named {
		// A folder that can't be listed has no neighbours to offer.
		neighbours, _ := os.ReadDir(filepath.Dir(file))
		for _, e := range neighbours {
			other := filepath.Join(filepath.Dir(file), e.Name())
			if !e.IsDir() && isManifest(e.Name()) && byFile[other] == nil && !slices.Contains(set, other) {
				set = append(set, other)
			}
		}
	}
	// The neighbours come first, so that a second tool of one name is blamed on
	// the file that was asked about.
	set = append(set, named...)
	_, err := tools.Load(set...)
	var all *tools.LoadError
	if !errors.As(err, &all) {
		return
	}
	for _, err := range all.Errors {
		var bad *tools.ManifestError
		if errors.As(err, &bad) {
			// What a file has wrong by itself is known already.
			if c := byFile[bad.File]; c != nil && c.Tool != nil {
				c.Problems = append(c.Problems, problemsOf(bad.Problems)...)
			}
			continue
		}
		for file, c := range byFile {
			if message, ok := strings.CutPrefix(err.Error(), file+": "); ok && c.Tool != nil {
				c.Problems = append(c.Problems, manifestProblem{Message: strings.ToUpper(message[:1]) + message[1:] + "."})
			}
		}
	}
}

// showChecked prints what was found, for an editor to jump to: file:line:column.
func (p *program) showChecked(checked []checkedFile) error {
	if p.json() {
		return p.answer(checked, nil)
	}
	problems := 0
	for _, c := range checked {
		for _, f := range c.Problems {
			fmt.Fprint(p.stdout, drawFinding(c.File, "", f))
		}
		problems += len(c.Problems)
		if len(c.Problems) > 0 || c.Tool == nil {
			continue
		}
		fmt.Fprintf(p.stdout, "%s: ok, %s %s\n", c.File, c.Tool.Access, c.Tool.Name)
		for _, f := range c.Warnings {
			fmt.Fprint(p.stdout, drawFinding(c.File, "warning: ", f))
		}
		for _, lack := range c.Tool.Lacks {
			fmt.Fprintf(p.stdout, "  lacks: %s\n", lack)
		}
	}
	if problems > 0 {
		p.note("%s in %s.", count(problems, "problem"), count(len(checked), "file"))
	}
	return nil
}

func drawFinding(file, kind string, f manifestProblem) string {
	var b strings.Builder
	b.WriteString(file + ":")
	if f.Line > 0 {
		fmt.Fprintf(&b, "%d:%d:", f.Line, f.Column)
	}
	fmt.Fprintf(&b, " %s%s\n%s", kind, f.Message, f.Excerpt)
	if f.Instead != "" {
		fmt.Fprintf(&b, "Instead: %s\n", f.Instead)
	}
	return b.String()
}
