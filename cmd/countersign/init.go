package main

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"countersign/tokens"
)

// starter is what `init` writes: a configuration and the smallest useful tool.
//
//go:embed starter
var starter embed.FS

// starterFiles are the files of the starter, by their place in the new folder.
var starterFiles = []string{"countersign.yaml", "tools/close_ticket.yaml"}

func initCommand(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "init [FOLDER]",
		Short: "Write a starter configuration, a first tool, and keys",
		Long: `Write what a gateway needs into a folder: a commented countersign.yaml, a first
tool in tools/, and a private data folder with fresh signing keys. Nothing that is
there already is overwritten; then nothing is written at all.`,
		Example: "  countersign init && countersign serve -c countersign.yaml",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			dir := "."
			if len(args) == 1 {
				dir = args[0]
			}
			return p.init(dir)
		},
	}
}

func (p *program) init(dir string) error {
	data := filepath.Join(dir, "data")
	if err := refuseToOverwrite(dir, data); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(dir, "tools"), 0o755); err != nil {
		return err
	}
	var made struct {
		Written []string `json:"written"`
	}
	for _, name := range starterFiles {
		text, err := starter.ReadFile("starter/" + name)
		if err != nil {
			return err
		}
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := writeNew(path, text, 0o644); err != nil {
			return err
		}
		made.Written = append(made.Written, path)
	}
	keys, err := p.makeData(data)
	if err != nil {
		return err
	}
	made.Written = append(made.Written, keys)
	return p.answer(made, func(w io.Writer) {
		row(w, "Wrote "+strings.Join(made.Written, ", ")+".")
		io.WriteString(w, nextSteps(dir))
	})
}

// makeData makes the private folder and the keys in it.
func (p *program) makeData(data string) (keys string, err error) {
	if err := os.MkdirAll(data, 0o700); err != nil {
		return "", err
	}
	if err := os.Chmod(data, 0o700); err != nil { // it may have been there, empty
		return "", err
	}
	// Whoever keeps the folder around it in version control keeps no secrets there.
	if err := writeNew(filepath.Join(data, ".gitignore"), []byte("*\n"), 0o600); err != nil {
		return "", err
	}
	keys = filepath.Join(data, keyFile)
	_, err = tokens.LoadOrCreate(keys, p.now(), tokens.KeyOptions{})
	return keys, err
}

// refuseToOverwrite looks before anything is written.
func refuseToOverwrite(dir, data string) error {
	for _, name := range starterFiles {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if _, err := os.Lstat(path); err == nil {
			return fmt.Errorf("%s is there already; nothing was written. Name another folder, or move it away", path)
		}
	}
	entries, err := os.ReadDir(data)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case len(entries) > 0:
		return fmt.Errorf("%s is there already and not empty; nothing was written. Name another folder, or move it away", data)
	}
	return nil
}

// writeNew writes a file that must not be there yet.
func writeNew(path string, text []byte, mode os.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}

func nextSteps(dir string) string {
	config, folder := filepath.Join(dir, "countersign.yaml"), filepath.Join(dir, "tools")
	return fmt.Sprintf(`
Next:
  1. Say where your system is, under upstreams in %[1]s, and what may be
     done there, in %[2]s. Check it:
       countersign tool validate %[2]s -c %[1]s
  2. Start the gateway:
       countersign serve -c %[1]s
  3. Make two operators, yourself and a colleague; each opens the link that is
     printed. Whoever owns the agent can't approve for it:
       countersign operator create me --group support -c %[1]s
       countersign operator create colleague --group support -c %[1]s
  4. Make an agent; its key is shown once:
       countersign agent create my-agent --owner me --tools close_ticket -c %[1]s
  5. Is everything as it should be?
       countersign doctor -c %[1]s
`, config, folder)
}
