package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// scopeFlags say what a freeze stands against; nothing said is the whole tenant.
type scopeFlags struct {
	Tool       string `json:"tool,omitempty"`
	Tenant     bool   `json:"tenant,omitempty"`
	Everything bool   `json:"everything,omitempty"`
}

func (s *scopeFlags) on(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.Tool, "tool", "", "one tool; without it every tool")
	cmd.Flags().BoolVar(&s.Everything, "everything", false, "every tool of every tenant")
	cmd.MarkFlagsMutuallyExclusive("tool", "everything")
}

// complete says the tenant where neither flag was given.
func (s *scopeFlags) complete() { s.Tenant = s.Tool == "" && !s.Everything }

// String names the scope for people.
func (s scopeFlags) String() string {
	switch {
	case s.Everything:
		return "everything"
	case s.Tool != "":
		return s.Tool
	}
	return "every tool"
}

// asFlag names the operator for whom a command is run.
func asFlag(cmd *cobra.Command, as *string) {
	cmd.Flags().StringVar(as, "as", "", "the operator for whom this is done; the record names them and the command line")
}

// The parts of the API's documents on freezes that are shown.
type (
	freezeDoc struct {
		Scope    scopeFlags     `json:"scope"`
		Level    string         `json:"level"`
		By       nameDoc        `json:"by"`
		Reason   string         `json:"reason"`
		Since    time.Time      `json:"since"`
		Running  []operationDoc `json:"running"`
		Unknown  []operationDoc `json:"unknown"`
		Measures *measuresDoc   `json:"measures"`
	}
	nameDoc struct {
		ID   string `json:"id"`
		Name string `json:"name"`
	}
	measuresDoc struct {
		Before       countDoc `json:"before"`
		Now          countDoc `json:"now"`
		Dispatched   int      `json:"dispatched"`
		Doubted      int      `json:"doubted"`
		Settled      int      `json:"settled"`
		Contradicted int      `json:"contradicted"`
	}
	countDoc struct {
		Running int `json:"running"`
		Unknown int `json:"unknown"`
	}
	freezesDoc struct {
		Freezes []freezeDoc `json:"freezes"`
	}
	changeDoc struct {
		What    string     `json:"what"`
		Scope   scopeFlags `json:"scope"`
		Level   string     `json:"level"`
		By      nameDoc    `json:"by"`
		Reason  string     `json:"reason"`
		At      time.Time  `json:"at"`
		Unknown int        `json:"unknown"`
	}
	historyDoc struct {
		Changes []changeDoc `json:"changes"`
		Next    string      `json:"next_cursor"`
	}
)

func freezeCommand(p *program) *cobra.Command {
	var as string
	var in struct {
		Scope  scopeFlags `json:"scope"`
		Level  string     `json:"level"`
		Reason string     `json:"reason"`
	}
	cmd := &cobra.Command{
		Use:   "freeze [--tool TOOL | --everything] --reason TEXT",
		Short: "Stop a tool, every tool, or everything",
		Long: `Stop what would be sent, on every gateway of this ledger, once the command ends.
Reads and previews go on, and so do clocks. What was sent before can't be stopped;
it is listed.

--level all stops every dispatch, also what is approved, undos and the repeats of
doubts. --level new stops what is opened or sent from now on, and lets undos and
repeats through. A freeze is never loosened by another of its scope.

Then: list what is in doubt (countersign unknown list), ask about it (countersign
unknown ask), settle the rest (countersign unknown resolve), and lift the freeze
(countersign unfreeze). No gateway needs to run.`,
		Example: `  countersign freeze --tool refund_payment --reason "refunds arrive twice"
  countersign freeze --everything --level all --reason "wrong data since 10:30"`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if in.Level != "new" && in.Level != "all" {
				return fmt.Errorf("--level is new or all, not %q", in.Level)
			}
			in.Scope.complete()
			return p.local(cmd.Context(), as, func(_ *admin, c *client) error {
				var f freezeDoc
				body, err := c.ask(cmd.Context(), p, http.MethodPost, "/v1/freezes", in, &f)
				if err != nil {
					return err
				}
				if f.Reason != in.Reason || f.Level != in.Level {
					p.note("It was frozen before, and stands as it was.")
				}
				return p.answer(body, func(w io.Writer) { freezeRows(w, f) })
			})
		},
	}
	in.Scope.on(cmd)
	cmd.Flags().StringVar(&in.Level, "level", "all", "new or all")
	cmd.Flags().StringVar(&in.Reason, "reason", "", "why; people and agents read it")
	asFlag(cmd, &as)
	mustHave(cmd, "reason")
	return cmd
}

func unfreezeCommand(p *program) *cobra.Command {
	var as string
	var in struct {
		Scope    scopeFlags `json:"scope"`
		Reason   string     `json:"reason"`
		Override bool       `json:"override,omitempty"`
	}
	cmd := &cobra.Command{
		Use:   "unfreeze [--tool TOOL | --everything] --reason TEXT",
		Short: "Lift a freeze",
		Long: `Lift the freeze of exactly this scope. It is refused while outcomes in the scope
are unknown, unless --override says that they were looked at; the record of that is
signed. What waited is checked again before it is sent.`,
		Example: `  countersign unfreeze --tool refund_payment --reason "the shop has fixed it"
  countersign unfreeze --tool refund_payment --override --reason "both are known to the shop"`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			in.Scope.complete()
			return p.local(cmd.Context(), as, func(_ *admin, c *client) error {
				var left freezesDoc
				body, err := c.ask(cmd.Context(), p, http.MethodPost, "/v1/freezes/lift", in, &left)
				if err != nil {
					return err
				}
				return p.answer(body, func(w io.Writer) {
					row(w, "lifted", safe(in.Scope.String()))
					row(w, "still frozen", stillFrozen(left))
				})
			})
		},
	}
	in.Scope.on(cmd)
	cmd.Flags().StringVar(&in.Reason, "reason", "", "why; it stands in the history for ever")
	cmd.Flags().BoolVar(&in.Override, "override", false, "lift it although outcomes in the scope are unknown")
	asFlag(cmd, &as)
	mustHave(cmd, "reason")
	return cmd
}

func stillFrozen(left freezesDoc) string {
	var names []string
	for _, f := range left.Freezes {
		names = append(names, safe(f.Scope.String()))
	}
	return orDash(strings.Join(names, ", "))
}

func freezesCommand(p *program) *cobra.Command {
	var history bool
	cmd := &cobra.Command{
		Use:   "freezes",
		Short: "Show what is frozen, or was",
		Long: `Show what is frozen, with what was sent before and has no answer, what is in doubt,
and the figures at the moment of the freeze beside those of now. --history shows who
froze and lifted what, the newest first.`,
		Example: `  countersign freezes
  countersign freezes --history --output json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.local(cmd.Context(), "", func(_ *admin, c *client) error {
				if history {
					return p.freezeHistory(cmd, c)
				}
				var list freezesDoc
				body, err := c.ask(cmd.Context(), p, http.MethodGet, "/v1/freezes", nil, &list)
				if err != nil {
					return err
				}
				return p.answer(body, func(w io.Writer) {
					if len(list.Freezes) == 0 {
						row(w, "nothing is frozen")
					}
					for i, f := range list.Freezes {
						if i > 0 {
							row(w)
						}
						freezeRows(w, f)
					}
				})
			})
		},
	}
	cmd.Flags().BoolVar(&history, "history", false, "who froze and lifted what")
	return cmd
}

// freezeHistory shows all pages as one list.
func (p *program) freezeHistory(cmd *cobra.Command, c *client) error {
	all := historyDoc{Changes: []changeDoc{}}
	for cursor := ""; ; cursor = "&cursor=" + all.Next {
		page := historyDoc{}
		if _, err := c.ask(cmd.Context(), p, http.MethodGet, "/v1/freezes/history?limit=200"+cursor, nil, &page); err != nil {
			return err
		}
		all.Changes, all.Next = append(all.Changes, page.Changes...), page.Next
		if page.Next == "" {
			break
		}
	}
	return p.answer(all.Changes, func(w io.Writer) {
		row(w, "AT", "WHAT", "SCOPE", "LEVEL", "BY", "UNKNOWN", "REASON")
		for _, c := range all.Changes {
			row(w, when(c.At), c.What, safe(c.Scope.String()), orDash(c.Level), safe(c.By.Name), fmt.Sprint(c.Unknown), safe(c.Reason))
		}
	})
}

func freezeRows(w io.Writer, f freezeDoc) {
	row(w, "frozen", fmt.Sprintf("%s, at %q", safe(f.Scope.String()), f.Level))
	row(w, "since", when(f.Since)+", by "+safe(f.By.Name))
	row(w, "reason", safe(f.Reason))
	for _, op := range f.Running {
		row(w, "sent before", op.ID+"  "+safe(op.Headline))
	}
	for _, op := range f.Unknown {
		row(w, "unknown", op.ID+"  "+safe(op.Headline))
	}
	if m := f.Measures; m != nil {
		row(w, "running", fmt.Sprintf("%d when it was frozen, %d now", m.Before.Running, m.Now.Running))
		row(w, "in doubt", fmt.Sprintf("%d when it was frozen, %d now; %d settled and %d new since", m.Before.Unknown, m.Now.Unknown, m.Settled, m.Doubted))
		row(w, "since then", fmt.Sprintf("%d dispatched, %d contradicted", m.Dispatched, m.Contradicted))
	}
}

// errNeedsAs: what a person states or asks for hangs on who they are.
var errNeedsAs = errors.New("--as is needed: name the operator who says so")
