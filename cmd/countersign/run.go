package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func runCommand(p *program) *cobra.Command {
	return group(&cobra.Command{
		Use:   "run",
		Short: "Runs of agents: what each changed in the world",
		Long: `Runs of agents. A run is what an agent names in its previews; its journal is the
list of what it changed in the world. countersign undo run takes one back.`,
	}, runListCommand(p), runShowCommand(p))
}

// The parts of the API's documents on runs that are shown.
type (
	runHeadDoc struct {
		ID         string    `json:"id"`
		Agent      string    `json:"agent_id"`
		Operations int       `json:"operations"`
		Newest     time.Time `json:"newest_at"`
		ClosedAt   time.Time `json:"closed_at"`
		ClosedBy   nameDoc   `json:"closed_by"`
	}
	journalDoc struct {
		Run     runHeadDoc        `json:"run"`
		Entries []journalEntryDoc `json:"entries"`
	}
	journalEntryDoc struct {
		Operation struct {
			operationDoc
			CreatedAt time.Time `json:"created_at"`
		} `json:"operation"`
		Stale  []string       `json:"stale"`
		Undoes []operationDoc `json:"undoes"`
	}
)

func runListCommand(p *program) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the newest runs",
		Long:    "List the 200 runs with the newest operations, with their agents, and which were closed\nby an undo.",
		Example: "  countersign run list --output json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.local(cmd.Context(), "", func(_ *admin, c *client) error {
				var list struct {
					Runs []runHeadDoc `json:"runs"`
				}
				body, err := c.ask(cmd.Context(), p, http.MethodGet, "/v1/runs?limit=200", nil, &list)
				if err != nil {
					return err
				}
				return p.answer(body, func(w io.Writer) {
					row(w, "RUN", "AGENT", "OPERATIONS", "NEWEST", "CLOSED")
					for _, r := range list.Runs {
						row(w, safe(r.ID), safe(r.Agent), fmt.Sprint(r.Operations), when(r.Newest), when(r.ClosedAt))
					}
				})
			})
		},
	}
}

// agentFlag says whose run is meant.
func agentFlag(cmd *cobra.Command, agent *string) {
	cmd.Flags().StringVar(agent, "agent", "", "id of the agent whose run it is; needed only when several have a run of that name")
}

func runShowCommand(p *program) *cobra.Command {
	var agent string
	var verify bool
	cmd := &cobra.Command{
		Use:   "show RUN",
		Short: "Show what a run changed, and what of it still stands",
		Long: `Show what a run did, the oldest first: each operation with its effect, its undoes,
and what speaks against building on its result. --verify asks the outside systems
whether the effects are still there; then a gateway must run.`,
		Example: "  countersign run show run_20261116_a --verify",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			show := func(c *client) error {
				whose, err := p.whoseRun(cmd.Context(), c, args[0], agent)
				if err != nil {
					return err
				}
				query := url.Values{"agent": {whose}}
				if verify {
					query.Set("verify", "true")
				}
				var j journalDoc
				body, err := c.ask(cmd.Context(), p, http.MethodGet, "/v1/runs/"+escape(args[0])+"?"+query.Encode(), nil, &j)
				if err != nil {
					return err
				}
				return p.answer(body, func(w io.Writer) { journalRows(w, j) })
			}
			if verify {
				return p.running(cmd.Context(), "", show)
			}
			return p.local(cmd.Context(), "", func(_ *admin, c *client) error { return show(c) })
		},
	}
	agentFlag(cmd, &agent)
	cmd.Flags().BoolVar(&verify, "verify", false, "ask the outside systems whether the effects are still there")
	return cmd
}

// whoseRun finds the agent of a run. Two agents may use one word for their runs;
// then somebody must say which is meant.
func (p *program) whoseRun(ctx context.Context, c *client, run, agent string) (string, error) {
	if agent != "" {
		return agent, nil
	}
	var whose []string
	query := url.Values{"run": {run}, "limit": {"200"}}
	for {
		var page struct {
			Operations []struct {
				Agent nameDoc `json:"agent"`
			} `json:"operations"`
			Next string `json:"next_cursor"`
		}
		if _, err := c.ask(ctx, p, http.MethodGet, "/v1/operations?"+query.Encode(), nil, &page); err != nil {
			return "", err
		}
		for _, op := range page.Operations {
			if !slices.Contains(whose, op.Agent.ID) {
				whose = append(whose, op.Agent.ID)
			}
		}
		if page.Next == "" {
			break
		}
		query.Set("cursor", page.Next)
	}
	switch len(whose) {
	case 0:
		return "", fmt.Errorf("there is no run %s", safe(run))
	case 1:
		return whose[0], nil
	}
	slices.Sort(whose)
	return "", fmt.Errorf("several agents have a run %s; say --agent: %s", safe(run), strings.Join(whose, ", "))
}

func journalRows(w io.Writer, j journalDoc) {
	head := fmt.Sprintf("%s of agent %s, %d operations", safe(j.Run.ID), safe(j.Run.Agent), j.Run.Operations)
	if !j.Run.ClosedAt.IsZero() {
		head += fmt.Sprintf("; closed %s by %s", when(j.Run.ClosedAt), safe(j.Run.ClosedBy.Name))
	}
	row(w, "run", head)
	for _, e := range j.Entries {
		op := e.Operation
		row(w, when(op.CreatedAt), op.ID, op.State, orDash(safe(op.EffectID)), safe(op.Headline))
		if len(e.Stale) > 0 {
			row(w, "", "look first", strings.Join(e.Stale, ", "))
		}
		for _, u := range e.Undoes {
			row(w, "", "undo", u.ID, u.State, safe(u.Headline))
		}
	}
}
