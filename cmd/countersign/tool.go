package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"countersign/tools"
)

func toolCommand(p *program) *cobra.Command {
	return group(&cobra.Command{
		Use:   "tool",
		Short: "Tools: check manifests, list them, put changed ones in force",
		Long: `A tool is one YAML file, its manifest: what it takes, what it would change, how
it is done, looked up and undone. docs/writing-a-tool.md shows how to write one.`,
	}, toolValidateCommand(p), toolListCommand(p), toolReloadCommand(p))
}

// toolAnswer is one tool, as `tool list` and `tool validate` show it.
type toolAnswer struct {
	Name       string   `json:"name"`
	Access     string   `json:"access"`
	Version    string   `json:"version,omitempty"` // once it is bound to an upstream
	Upstream   string   `json:"upstream"`
	Reversible bool     `json:"reversible"`
	Undo       string   `json:"undo_tool,omitempty"`
	HonoursKey bool     `json:"honours_key"`
	Lookup     string   `json:"lookup,omitempty"`
	Lacks      []string `json:"lacks,omitempty"`
	Warnings   []string `json:"warnings,omitempty"`
}

func toolAnswerOf(s tools.Spec) toolAnswer {
	return toolAnswer{
		Name: s.Name, Access: string(s.Access), Version: s.Version, Upstream: s.Upstream,
		Reversible: s.Reversible, Undo: s.UndoTool, HonoursKey: s.HonoursKey, Lookup: string(s.Consistency),
		Lacks: s.Lacks, Warnings: s.Warnings,
	}
}

// abilities says in a few words what stands behind a write tool's promises.
func (t toolAnswer) abilities() (keys, lookup, undo string) {
	if t.Access == string(tools.Read) {
		return "-", "-", "-"
	}
	keys = "no"
	if t.HonoursKey {
		keys = "yes"
	}
	return keys, t.Lookup, orDash(t.Undo)
}

func toolListCommand(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the tools that are in force",
		Long: `List the tools that are in force in the running gateway. With none running, list
what its next start would put in force.`,
		Example: "  countersign tool list --output json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := p.config()
			if err != nil {
				return err
			}
			list, err := p.listTools(cmd, cfg)
			if err != nil {
				return err
			}
			return p.answer(list, func(w io.Writer) { toolRows(w, list) })
		},
	}
}

func (p *program) listTools(cmd *cobra.Command, cfg Config) ([]toolAnswer, error) {
	list := []toolAnswer{}
	running, err := dialAdmin(cmd.Context(), cfg)
	if err != nil {
		return nil, err
	}
	if running != nil {
		defer running.close()
		return list, running.call(cmd.Context(), http.MethodGet, "/tools", nil, &list)
	}
	p.note("No gateway runs; these are the tools that its next start puts in force.")
	loaded, err := cfg.loadManifests()
	if err != nil {
		return nil, err
	}
	for _, l := range loaded {
		t := toolAnswerOf(l.Manifest.Spec)
		t.Version = cfg.toolVersion(l.Manifest)
		list = append(list, t)
	}
	return list, nil
}

// loadManifests reads the manifests of the configuration.
func (c Config) loadManifests() ([]tools.Loaded, error) {
	if err := c.toolsThere(); err != nil {
		return nil, err
	}
	return tools.Load(c.toolPaths()...)
}

// toolsThere reports the entries of tools that lead nowhere, by the names that
// the configuration gives them.
func (c Config) toolsThere() error {
	var missing []error
	for _, p := range c.Tools {
		if _, err := os.Stat(c.path(p)); !errors.Is(err, fs.ErrNotExist) {
			continue // there, or what is wrong with it is told where it is read
		}
		if filepath.IsAbs(p) {
			missing = append(missing, fmt.Errorf("tools: %s is not there", p))
		} else {
			missing = append(missing, fmt.Errorf("tools: %s is not there; it is looked for beside the configuration file, in %s", p, c.dir))
		}
	}
	return errors.Join(missing...)
}

// toolVersion is the version that a manifest has at its configured upstream.
func (c Config) toolVersion(m *tools.Manifest) string {
	return tools.Version(m.Digest, c.upstreamURL(m.Spec.Upstream))
}

// upstreamURL is an upstream's address as versions hold it.
func (c Config) upstreamURL(name string) string {
	return strings.TrimSuffix(c.Upstreams[name].URL, "/")
}

func toolRows(w io.Writer, list []toolAnswer) {
	row(w, "NAME", "ACCESS", "UPSTREAM", "REVERSIBLE", "KEYS", "LOOKUP", "UNDO", "VERSION")
	for _, t := range list {
		keys, lookup, undo := t.abilities()
		row(w, t.Name, t.Access, t.Upstream, strconv.FormatBool(t.Reversible), keys, lookup, undo, short(t.Version))
	}
}

// short is the beginning of a digest, enough to tell two apart by eye.
func short(digest string) string {
	const prefix, digits = len("sha256:"), 12
	if len(digest) > prefix+digits {
		return digest[prefix : prefix+digits]
	}
	return orDash(digest)
}

func toolReloadCommand(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "reload",
		Short: "Put changed manifests in force in the running gateway",
		Long: `Read the manifests again and put them in force, all together, or none of them
when one is wrong. Operations that were opened before finish on the version that
they were opened with; previews of a changed tool are refused at commit and made
again. SIGHUP does the same.`,
		Example: "  countersign tool validate tools && countersign tool reload",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := p.config()
			if err != nil {
				return err
			}
			running, err := dialAdmin(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			if running == nil {
				return errors.New("no gateway runs on " + cfg.path(cfg.Data) + "; its next start reads the manifests anyway")
			}
			defer running.close()
			var list []toolAnswer
			if err := running.call(cmd.Context(), http.MethodPost, "/tools/reload", nil, &list); err != nil {
				return err
			}
			p.note("%s in force.", count(len(list), "tool"))
			return p.answer(list, func(w io.Writer) { toolRows(w, list) })
		},
	}
}

// count says how many, in words that fit one as well.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
