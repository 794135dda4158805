// Command countersign is the gateway and its command line in one program.
//
// What lives here: the subcommands, the configuration file, and wire.go with its
// wire_ neighbours, the only place that names a concrete store or connector.
//
// How it flows: main reads the environment once and hands it to run, which a
// test can call as well; serve and demo open a gateway and listen; commands
// that read or change the ledger go through the admin door of the running
// gateway, or open the ledger themselves; preview and commit are clients of the
// REST API like any agent.
//
// What does not live here: anything that decides about an operation.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/lmittmann/tint"
	"github.com/spf13/cobra"

	"countersign"
)

func main() {
	p := &program{getenv: os.Getenv, stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, now: time.Now, terminal: isTerminal(os.Stdout)}
	// The first signal asks to stop, the second ends the program at once.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(p.run(ctx, os.Args[1:]))
}

// program is the command line with everything that it sees of the outside.
type program struct {
	getenv   func(string) string
	stdin    io.Reader
	stdout   io.Writer
	stderr   io.Writer
	now      func() time.Time
	terminal bool

	configPath string
	output     string
}

// exitError carries an exit status that is not a plain failure.
type exitError struct{ status int }

func (e exitError) Error() string { return fmt.Sprintf("exit status %d", e.status) }

// run runs one command and gives its exit status.
func (p *program) run(ctx context.Context, args []string) int {
	root := p.command()
	root.SetArgs(args)
	root.SetIn(p.stdin)
	root.SetOut(p.stdout)
	root.SetErr(p.stderr)
	err := root.ExecuteContext(ctx)
	var exit exitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.status
	default:
		fmt.Fprintln(p.stderr, "countersign:", err)
		return 1
	}
}

// command builds the tree of commands.
func (p *program) command() *cobra.Command {
	root := &cobra.Command{
		Use:   "countersign",
		Short: "The gateway that makes it safe to let AI agents change things",
		Long: `Countersign stands between AI agents and the systems that they change.

Every write is previewed first, then committed once; what can't be taken back
waits for people; and when nobody knows whether something happened, it says so.`,
		SilenceUsage:      true,
		SilenceErrors:     true,
		PersistentPreRunE: func(*cobra.Command, []string) error { return p.checkOutput() },
	}
	root.PersistentFlags().StringVarP(&p.configPath, "config", "c", "", "configuration file (default $COUNTERSIGN_CONFIG, else countersign.yaml)")
	root.PersistentFlags().StringVar(&p.output, "output", "table", "how answers are printed: table or json")
	complete := cobra.FixedCompletions([]cobra.Completion{"table", "json"}, cobra.ShellCompDirectiveNoFileComp)
	if err := root.RegisterFlagCompletionFunc("output", complete); err != nil {
		panic(err) // the flag stands in the line above
	}
	root.AddCommand(
		serveCommand(p), demoCommand(p), drillCommand(p), initCommand(p),
		agentCommand(p), operatorCommand(p), toolCommand(p), keysCommand(p),
		auditCommand(p), receiptCommand(p), backupCommand(p), recoverCommand(p),
		previewCommand(p), commitCommand(p),
		freezeCommand(p), unfreezeCommand(p), freezesCommand(p), unknownCommand(p), runCommand(p), undoCommand(p),
		doctorCommand(p), migrateCommand(p), schemaCommand(p), versionCommand(p), manCommand(p),
	)
	return root
}

// group is a command that only holds others; an unknown one of them is refused.
func group(cmd *cobra.Command, subs ...*cobra.Command) *cobra.Command {
	cmd.Args = cobra.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.AddCommand(subs...)
	return cmd
}

// version is the program's version.
func version() string { return countersign.Version }

// config loads the configuration file that the flags name.
func (p *program) config() (Config, error) {
	path := p.configFile()
	if path == "" {
		return Config{}, errors.New("there is no countersign.yaml here; make one with `countersign init`, or name one with -c FILE")
	}
	return loadConfig(path, p.getenv)
}

// configFile is the file that is named, or the one that lies here; empty when
// there is neither.
func (p *program) configFile() string {
	if named := cmp.Or(p.configPath, p.getenv("COUNTERSIGN_CONFIG")); named != "" {
		return named
	}
	const here = "countersign.yaml"
	if _, err := os.Stat(here); errors.Is(err, os.ErrNotExist) {
		return ""
	}
	return here
}

// environment is what the gateway sees of the outside.
func (p *program) environment(cfg Config) environment {
	return environment{getenv: p.getenv, now: p.now, log: p.logger(cfg), boundary: "live"}
}

// logger writes for people on a terminal and JSON elsewhere, unless told.
func (p *program) logger(cfg Config) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(cfg.Log.Level)); err != nil {
		level = slog.LevelInfo // the configuration was checked before
	}
	if cfg.Log.Format == "text" || cfg.Log.Format == "auto" && p.terminal {
		return slog.New(tint.NewTextHandler(p.stderr, &tint.Options{Level: level, TimeFormat: time.TimeOnly, NoColor: !p.terminal}))
	}
	return slog.New(slog.NewJSONHandler(p.stderr, &slog.HandlerOptions{Level: level}))
}

// isTerminal reports whether a file is a terminal, where colours help.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}
