package tools

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// LoadError is every reason why a set of manifest files does not load.
type LoadError struct{ Errors []error }

// Error draws all reasons, one after the other.
func (e *LoadError) Error() string {
	parts := make([]string, len(e.Errors))
	for i, err := range e.Errors {
		parts[i] = err.Error()
	}
	return strings.Join(parts, "\n\n")
}

// Unwrap gives the reasons to errors.As.
func (e *LoadError) Unwrap() []error { return e.Errors }

// Loaded is a manifest and the file that it came from.
type Loaded struct {
	File     string
	Manifest *Manifest
}

// Load reads manifests from files and folders; of a folder every *.yaml and
// *.yml in it, not deeper. All problems of all files come back in one
// *LoadError, together with what holds across them: two tools of one name, an
// undo that is not there or is given other arguments than it takes.
func Load(paths ...string) ([]Loaded, error) {
	var files []string
	var errs []error
	for _, p := range paths {
		found, err := manifestFiles(p)
		if err != nil {
			errs = append(errs, err)
		}
		files = append(files, found...)
	}
	loaded, more := parseFiles(files, os.ReadFile)
	return finish(loaded, append(errs, more...))
}

// LoadFS is Load for the root of a file system, such as an embedded one.
func LoadFS(fsys fs.FS) ([]Loaded, error) {
	entries, err := fs.ReadDir(fsys, ".")
	if err != nil {
		return nil, &LoadError{[]error{err}}
	}
	var files []string
	for _, e := range entries {
		if !e.IsDir() && isManifestName(e.Name()) {
			files = append(files, e.Name())
		}
	}
	return finish(parseFiles(files, func(name string) ([]byte, error) { return fs.ReadFile(fsys, name) }))
}

func finish(loaded []Loaded, errs []error) ([]Loaded, error) {
	broken := map[string]bool{}
	for _, err := range errs {
		var bad *ManifestError
		if errors.As(err, &bad) {
			broken[bad.Tool] = true
		}
	}
	errs = append(errs, checkTogether(loaded, broken)...)
	if len(errs) > 0 {
		return nil, &LoadError{errs}
	}
	return loaded, nil
}

func manifestFiles(p string) ([]string, error) {
	info, err := os.Stat(p)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{p}, nil
	}
	entries, err := os.ReadDir(p)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, e := range entries {
		if !e.IsDir() && isManifestName(e.Name()) {
			files = append(files, filepath.Join(p, e.Name()))
		}
	}
	return files, nil
}

func isManifestName(name string) bool {
	return !strings.HasPrefix(name, ".") && slices.Contains([]string{".yaml", ".yml"}, path.Ext(name))
}

func parseFiles(files []string, read func(string) ([]byte, error)) (loaded []Loaded, errs []error) {
	for _, file := range files {
		text, err := read(file)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		m, err := ParseManifest(text)
		var bad *ManifestError
		if errors.As(err, &bad) {
			bad.File = file
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		loaded = append(loaded, Loaded{file, m})
	}
	return loaded, errs
}

// checkTogether checks what one manifest says about another. Tools whose undo
// is in a file that did not load are not blamed for it.
func checkTogether(loaded []Loaded, broken map[string]bool) []error {
	var errs []error
	byName := map[string]Loaded{}
	for _, l := range loaded {
		name := l.Manifest.Spec.Name
		if first, twice := byName[name]; twice {
			errs = append(errs, fmt.Errorf("%s: the tool %s is described twice, first in %s", l.File, name, first.File))
			continue
		}
		byName[name] = l
	}
	for _, l := range loaded {
		if undo := l.Manifest.undo; undo != nil && !broken[undo.tool] {
			target, ok := byName[undo.tool]
			if bad := l.Manifest.checkUndo(target.Manifest, ok); bad != nil {
				bad.File = l.File
				errs = append(errs, bad)
			}
		}
	}
	return errs
}

// checkUndo checks the undo against the tool that it names.
func (m *Manifest) checkUndo(target *Manifest, found bool) *ManifestError {
	ps := &problems{lines: m.problems.lines}
	n := m.undoNode
	switch {
	case !found:
		ps.at(n.get("tool").pos, "Add its manifest to the same set of files, or correct the name.", "There is no tool `%s`.", m.undo.tool)
	case target.Spec.Access != Write:
		ps.at(n.get("tool").pos, "Name a write tool.", "`%s` is a read tool: it takes nothing back.", m.undo.tool)
	default:
		m.checkUndoArgs(target, n, ps)
	}
	if len(ps.list) == 0 {
		return nil
	}
	return &ManifestError{Problems: ps.list}
}

// checkUndoArgs compares the names of the arguments, where they are written out.
func (m *Manifest) checkUndoArgs(target *Manifest, n *node, ps *problems) {
	args := n.get("args")
	if args != nil && args.kind != mapNode {
		return
	}
	shape := target.input.shape
	if args != nil && !shape.composed {
		for _, a := range args.members {
			if !slices.Contains(shape.names, a.name) {
				ps.at(a.keyPos, "Here there is "+oneOf(shape.names)+".", "%s", guess(fmt.Sprintf("`%s` does not take `%s`", m.undo.tool, a.name), a.name, shape.names))
			}
		}
	}
	for _, name := range shape.names {
		if shape.required[name] && !shape.properties[name].hasDefault && !args.has(name) {
			ps.at(n.pos, "Add it under `args`.", "`%s` needs the argument `%s`.", m.undo.tool, name)
		}
	}
}
