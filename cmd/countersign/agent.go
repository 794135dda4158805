package main

import (
	"io"
	"net/http"
	"strings"

	"github.com/spf13/cobra"
)

func agentCommand(p *program) *cobra.Command {
	return group(&cobra.Command{
		Use:   "agent",
		Short: "Agents: the programs that preview and commit",
		Long: `Agents are the programs that preview and commit. Each has a key of its own, an
owner who answers for it, and the tools that it was granted.`,
	}, agentCreateCommand(p), agentListCommand(p), agentRevokeCommand(p))
}

func agentCreateCommand(p *program) *cobra.Command {
	var in struct {
		Name  string   `json:"name"`
		Owner string   `json:"owner"`
		Tools []string `json:"tools"`
	}
	cmd := &cobra.Command{
		Use:   "create NAME --owner OPERATOR --tools TOOLS",
		Short: "Make an agent and show its key, once",
		Long: `Make an agent. Its key is written to stdout, this once: only a hash of it is
kept. The owner is an operator who answers for the agent, and whose yes does not
count when people are asked about what it does; so there must be another one.

What was not granted is denied. '*' alone grants every tool, also those that are
added later.`,
		Example: `  countersign agent create support-bot --owner mara --tools get_order,hold_order
  (umask 077; countersign agent create support-bot --owner mara --tools '*' > support-bot.key)`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			in.Name = args[0]
			var made agentAnswer
			if err := p.ask(cmd.Context(), http.MethodPost, "/agents", in, &made); err != nil {
				return err
			}
			p.note("The key of %s is shown this once; only its hash is kept. Whoever has it can act as the agent.\nKeep it in a file of mode 0600, and name that in COUNTERSIGN_AGENT_KEY_FILE.", made.Name)
			if made.NobodyApproves {
				p.note("warning: %s is the only operator and owns %s: nobody can approve what it asks. Make another: countersign operator create NAME --group GROUP", made.OwnerName, made.Name)
			}
			return p.answer(made, func(w io.Writer) { row(w, made.Key) })
		},
	}
	cmd.Flags().StringVar(&in.Owner, "owner", "", "operator who answers for the agent")
	cmd.Flags().StringSliceVar(&in.Tools, "tools", nil, "tools that it may use, with commas between, or '*' for all")
	mustHave(cmd, "owner", "tools")
	return cmd
}

func agentListCommand(p *program) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List agents, revoked ones too",
		Long:    "List agents, the oldest first, with the owner who answers for each and the tools\nthat it was granted. Keys are not kept, so they can't be listed.",
		Example: "  countersign agent list --output json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var list []agentAnswer
			if err := p.ask(cmd.Context(), http.MethodGet, "/agents", nil, &list); err != nil {
				return err
			}
			return p.answer(list, func(w io.Writer) {
				row(w, "NAME", "ID", "OWNER", "TOOLS", "CREATED", "REVOKED")
				for _, a := range list {
					row(w, a.Name, a.ID, a.OwnerName, strings.Join(a.Tools, ","), when(a.CreatedAt), when(a.RevokedAt))
				}
			})
		},
	}
}

func agentRevokeCommand(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "revoke NAME",
		Short: "Take an agent's rights away, from its next call on",
		Long: `Take an agent's rights away. Once this has returned, its key is refused and
nothing that waits for it is sent. What was sent already goes on to its end. The
name is free for another agent then; the record keeps this one.`,
		Example: "  countersign agent revoke support-bot",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var a agentAnswer
			if err := p.ask(cmd.Context(), http.MethodPost, "/agents/"+escape(args[0])+"/revoke", nil, &a); err != nil {
				return err
			}
			return p.answer(a, func(w io.Writer) { row(w, "revoked", a.Name, a.ID, when(a.RevokedAt)) })
		},
	}
}
