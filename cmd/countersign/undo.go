package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"
)

// undoOptions are those of both undos.
type undoOptions struct {
	as  string
	yes bool
}

func (o *undoOptions) on(cmd *cobra.Command) {
	asFlag(cmd, &o.as)
	cmd.Flags().BoolVar(&o.yes, "yes", false, "do what is shown; without it nothing is changed")
}

func undoCommand(p *program) *cobra.Command {
	var o undoOptions
	wait := 10 * time.Second
	cmd := &cobra.Command{
		Use:   "undo OPERATION --as NAME [--yes]",
		Short: "Take an effect back, or a whole run's",
		Long: `Show how the effect of an operation would be taken back, by the call that its tool
declares as its opposite, and with --yes do it. The undo is an operation of its own:
the policy may ask people for it, and whoever asks for it can't approve it. A
gateway must run.

` + exitTable,
		Example: `  countersign undo op_06f3k2m8q1v7x9z4c5b6n7m8q9 --as mara
  countersign undo op_06f3k2m8q1v7x9z4c5b6n7m8q9 --as mara --yes`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case o.as == "":
				return errNeedsAs
			case wait < 0:
				return errors.New("--wait can't be negative")
			}
			return p.running(cmd.Context(), o.as, func(c *client) error { return p.undo(cmd, c, args[0], o.yes, wait) })
		},
	}
	o.on(cmd)
	cmd.Flags().DurationVar(&wait, "wait", wait, "how long to wait for the outcome, in whole seconds")
	cmd.AddCommand(undoRunCommand(p))
	return cmd
}

func (p *program) undo(cmd *cobra.Command, c *client, id string, yes bool, wait time.Duration) error {
	at := "/v1/operations/" + escape(id) + "/undo"
	var doc previewDoc
	body, err := c.ask(cmd.Context(), p, http.MethodPost, at+"/preview", struct{}{}, &doc)
	if err != nil {
		return err
	}
	shown, err := withoutToken(body)
	switch {
	case err != nil:
		return err
	case len(doc.Operation) > 0:
		return p.showOperation(doc.Operation)
	case !yes:
		err := p.answer(shown, func(w io.Writer) { previewRows(w, doc) })
		p.note("Nothing was changed. Say --yes to do it.")
		return err
	case !p.json():
		if err := p.answer(shown, func(w io.Writer) { previewRows(w, doc) }); err != nil {
			return err
		}
	}
	began := time.Now()
	path := fmt.Sprintf("%s/commit?wait=%d", at, seconds(wait))
	if body, err = c.ask(cmd.Context(), p, http.MethodPost, path, map[string]string{"commit_token": doc.Token}, &operationDoc{}); err != nil {
		return err
	}
	return p.await(cmd.Context(), c, body, wait-time.Since(began))
}

// The parts of the API's documents on the undo of a run that are shown.
type (
	runPlanDoc struct {
		Run   runHeadDoc `json:"run"`
		Items []struct {
			Operation operationDoc `json:"operation"`
			Possible  bool         `json:"possible"`
			Because   string       `json:"because"`
			Undo      *previewDoc  `json:"undo"`
		} `json:"items"`
		Stopped string  `json:"stopped"`
		Token   string  `json:"commit_token"`
		Next    nextDoc `json:"next"`
	}
	runUndoDoc struct {
		Run        runHeadDoc     `json:"run"`
		Operations []operationDoc `json:"operations"`
		Next       nextDoc        `json:"next"`
	}
)

func undoRunCommand(p *program) *cobra.Command {
	var o undoOptions
	var agent string
	cmd := &cobra.Command{
		Use:   "run RUN --as NAME [--yes]",
		Short: "Take back everything that a run changed",
		Long: `Show how everything that a run changed would be taken back, the newest effect first,
and with --yes do it: the run is closed, and each undo is sent when the one before it
has succeeded. Effects that can't be taken back are shown with the reason. It is
refused while something in the run has no answer. A gateway must run; it goes on
after the command has ended (countersign run show).

Exit status 0 when it was shown or begun, 1 when not.`,
		Example: "  countersign undo run run_20261116_a --as mara --yes",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.as == "" {
				return errNeedsAs
			}
			return p.running(cmd.Context(), o.as, func(c *client) error {
				whose, err := p.whoseRun(cmd.Context(), c, args[0], agent)
				if err != nil {
					return err
				}
				return p.undoRun(cmd, c, args[0], whose, o.yes)
			})
		},
	}
	o.on(cmd)
	agentFlag(cmd, &agent)
	return cmd
}

func (p *program) undoRun(cmd *cobra.Command, c *client, run, agent string, yes bool) error {
	at := func(below string) string {
		return "/v1/runs/" + escape(run) + "/undo/" + below + "?" + url.Values{"agent": {agent}}.Encode()
	}
	var plan runPlanDoc
	body, err := c.ask(cmd.Context(), p, http.MethodPost, at("preview"), struct{}{}, &plan)
	if err != nil {
		return err
	}
	shown, err := withoutToken(body)
	if err != nil {
		return err
	}
	if !yes || plan.Token == "" || !p.json() {
		if err := p.answer(shown, func(w io.Writer) { runPlanRows(w, plan) }); err != nil {
			return err
		}
	}
	switch {
	case plan.Token == "":
		return exitError{exitFailure}
	case !yes:
		p.note("Nothing was changed. Say --yes to do it.")
		return nil
	}
	var did runUndoDoc
	if body, err = c.ask(cmd.Context(), p, http.MethodPost, at("commit"), map[string]string{"commit_token": plan.Token}, &did); err != nil {
		return err
	}
	return p.answer(body, func(w io.Writer) {
		row(w, "closed", fmt.Sprintf("%s, by %s", when(did.Run.ClosedAt), safe(did.Run.ClosedBy.Name)))
		for _, op := range did.Operations {
			row(w, "undo", op.ID, op.State, safe(op.Headline))
		}
		row(w, "next", did.Next.Action+": "+safe(did.Next.Text))
	})
}

func runPlanRows(w io.Writer, plan runPlanDoc) {
	row(w, "run", fmt.Sprintf("%s of agent %s", safe(plan.Run.ID), safe(plan.Run.Agent)))
	for _, item := range plan.Items {
		how := "NOT: " + safe(item.Because)
		if item.Possible && item.Undo != nil {
			how = safe(item.Undo.Headline)
			if item.Undo.Approval.Required {
				how += " (asks " + safe(item.Undo.Approval.Rule) + ")"
			}
		}
		row(w, item.Operation.ID, safe(item.Operation.Headline), how)
	}
	if plan.Stopped != "" {
		row(w, "stops", safe(plan.Stopped))
	}
	row(w, "next", plan.Next.Action+": "+safe(plan.Next.Text))
}
