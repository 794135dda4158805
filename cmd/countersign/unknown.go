package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/spf13/cobra"
)

func unknownCommand(p *program) *cobra.Command {
	return group(&cobra.Command{
		Use:   "unknown",
		Short: "Outcomes that are not known: list, export, ask, settle",
		Long: `Outcomes that are not known: the request was sent, and nothing proves what became
of it. The gateway asks the outside system by itself and never sends in silence what
may have happened; what it can't find out is for people (docs/unknown-outcomes.md).`,
	}, unknownListCommand(p), unknownExportCommand(p), unknownAskCommand(p), unknownResolveCommand(p))
}

// doubtDoc is what is shown of an unknown operation.
type doubtDoc struct {
	operationDoc
	Agent        nameDoc   `json:"agent"`
	FirstUnknown time.Time `json:"first_unknown_at"`
	AskAt        time.Time `json:"ask_at"`
	NeedsPerson  bool      `json:"needs_person"`
}

// nextMove says who moves a doubt next.
func (d doubtDoc) nextMove() string {
	switch {
	case d.NeedsPerson:
		return "a person"
	case d.AskAt.IsZero():
		return "the gateway"
	}
	return "the gateway, " + when(d.AskAt)
}

func unknownListCommand(p *program) *cobra.Command {
	var tool string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List what is unknown",
		Long: `List what is unknown, the newest first: since when it is in doubt, and whether the
gateway asks on or a person must find out.`,
		Example: "  countersign unknown list --tool refund_payment",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.local(cmd.Context(), "", func(_ *admin, c *client) error {
				var raw []json.RawMessage
				query := url.Values{"state": {"unknown"}, "limit": {"200"}}
				if tool != "" {
					query.Set("tool", tool)
				}
				for {
					var page struct {
						Operations []json.RawMessage `json:"operations"`
						Next       string            `json:"next_cursor"`
					}
					if _, err := c.ask(cmd.Context(), p, http.MethodGet, "/v1/operations?"+query.Encode(), nil, &page); err != nil {
						return err
					}
					raw = append(raw, page.Operations...)
					if page.Next == "" {
						return p.showDoubts(raw)
					}
					query.Set("cursor", page.Next)
				}
			})
		},
	}
	cmd.Flags().StringVar(&tool, "tool", "", "only of this tool")
	return cmd
}

func (p *program) showDoubts(raw []json.RawMessage) error {
	doubts := make([]doubtDoc, len(raw))
	for i, text := range raw {
		if err := json.Unmarshal(text, &doubts[i]); err != nil {
			return fmt.Errorf("the gateway's answer can't be read: %w", err)
		}
	}
	if raw == nil {
		raw = []json.RawMessage{}
	}
	return p.answer(raw, func(w io.Writer) {
		row(w, "OPERATION", "TOOL", "IN DOUBT SINCE", "NEXT", "AGENT", "WHAT")
		for _, d := range doubts {
			row(w, d.ID, d.Tool, when(d.FirstUnknown), d.nextMove(), safe(d.Agent.Name), safe(d.Headline))
		}
	})
}

func unknownExportCommand(p *program) *cobra.Command {
	var format, tool, out string
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write what is unknown to a file",
		Long: `Write what is unknown to a file, the oldest first, for those who compare it with
the outside system: csv is a table in which no cell is a formula, jsonl is one JSON
object a line. A file that is there is not replaced. Without -o it goes to stdout.`,
		Example: "  countersign unknown export --format csv -o unknown.csv",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if format != "csv" && format != "jsonl" {
				return fmt.Errorf("--format is csv or jsonl, not %q", format)
			}
			query := url.Values{"state": {"unknown"}, "format": {format}, "tool": {tool}}
			return p.local(cmd.Context(), "", func(a *admin, _ *client) error {
				if out == "" || out == "-" {
					return a.stream(cmd.Context(), "/v1/operations/export?"+query.Encode(), p.stdout)
				}
				f, err := os.OpenFile(out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
				if err != nil {
					return err
				}
				err = a.stream(cmd.Context(), "/v1/operations/export?"+query.Encode(), f)
				if err = errors.Join(err, f.Close()); err != nil {
					// A part must not be taken for the whole.
					return errors.Join(err, os.Remove(out))
				}
				p.note("It is in %s.", out)
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&format, "format", "csv", "csv or jsonl")
	cmd.Flags().StringVar(&tool, "tool", "", "only of this tool")
	cmd.Flags().StringVarP(&out, "out", "o", "", "file to write, readable by its owner only")
	return cmd
}

func unknownAskCommand(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "ask OPERATION",
		Short: "Ask the outside system again, now",
		Long: `Ask the outside system now whether the effect is there. One that is found settles
the operation; every other answer is kept as evidence and moves nothing. Nothing is
sent again. A gateway must run.

It may be asked likewise about one that was sent and ended without effect: an effect
that is found reopens it and freezes the tool.

The exit status is that of countersign commit: 0 when it happened, 5 when it is
still unknown, 6 when it is still without effect.`,
		Example: "  countersign unknown ask op_06f3k2m8q1v7x9z4c5b6n7m8q9",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.running(cmd.Context(), "", func(c *client) error {
				return p.settled(cmd, c, args[0], "/ask", struct{}{})
			})
		},
	}
}

func unknownResolveCommand(p *program) *cobra.Command {
	var as string
	var absent bool
	var in struct {
		Outcome  string `json:"outcome"`
		EffectID string `json:"effect_id,omitempty"`
		Reason   string `json:"reason"`
		Late     bool   `json:"contradict,omitempty"`
	}
	cmd := &cobra.Command{
		Use:   "resolve OPERATION (--happened EFFECT | --did-not-happen) --reason TEXT --as NAME",
		Short: "State what became of an operation",
		Long: `State what a person found out. It is kept as evidence, with their name and reason.
--happened names the outside system's own id of the effect. After --did-not-happen
the same may be asked for again: be certain.
With --contradict it is said of an operation that was sent and has ended, when its
effect, or another one, was found after all. What had no effect is reopened and has
it; its tool is frozen.`,
		Example: `  countersign unknown resolve op_06f3k2m8q1v7x9z4c5b6n7m8q9 --happened letter_12 \
    --reason "the print shop lists it" --as mara
  countersign unknown resolve op_06f3k2m8q1v7x9z4c5b6n7m8q9 --happened letter_12 \
    --contradict --reason "the customer has it" --as mara`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if as == "" {
				return errNeedsAs
			}
			in.Outcome = "happened"
			if absent {
				in.Outcome = "did_not_happen"
			}
			return p.local(cmd.Context(), as, func(_ *admin, c *client) error {
				return p.settled(cmd, c, args[0], "/resolve", in)
			})
		},
	}
	cmd.Flags().StringVar(&in.EffectID, "happened", "", "it happened: the outside system's own id of the effect")
	cmd.Flags().BoolVar(&absent, "did-not-happen", false, "it certainly did not happen")
	cmd.Flags().BoolVar(&in.Late, "contradict", false, "the operation has ended, and the effect was found after all; freezes the tool")
	cmd.MarkFlagsMutuallyExclusive("happened", "did-not-happen")
	cmd.MarkFlagsMutuallyExclusive("contradict", "did-not-happen")
	cmd.MarkFlagsOneRequired("happened", "did-not-happen")
	cmd.Flags().StringVar(&in.Reason, "reason", "", "how you know")
	asFlag(cmd, &as)
	mustHave(cmd, "reason")
	return cmd
}

// settled posts something about an operation and shows how it stands then.
func (p *program) settled(cmd *cobra.Command, c *client, id, below string, in any) error {
	body, err := c.ask(cmd.Context(), p, http.MethodPost, "/v1/operations/"+escape(id)+below, in, &operationDoc{})
	if err != nil {
		return err
	}
	return p.showOperation(body)
}
