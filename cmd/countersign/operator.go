package main

import (
	"io"
	"net/http"
	"strings"

	"github.com/spf13/cobra"
)

func operatorCommand(p *program) *cobra.Command {
	return group(&cobra.Command{
		Use:   "operator",
		Short: "Operators: the people who approve, and resolve doubts",
		Long: `Operators are the people who approve, reject and resolve doubts, on the
gateway's page. Tools name the groups whose yes they need.`,
	}, operatorCreateCommand(p), operatorListCommand(p), operatorDisableCommand(p), operatorLinkCommand(p))
}

func operatorCreateCommand(p *program) *cobra.Command {
	var in struct {
		Name   string   `json:"name"`
		Groups []string `json:"groups"`
	}
	cmd := &cobra.Command{
		Use:   "create NAME [--group GROUPS]",
		Short: "Make an operator and show their set-up link, once",
		Long: `Make an operator. The link is written to stdout, this once; whoever opens it
first, within 15 minutes, sets the password. Hand it over in private.`,
		Example: "  countersign operator create mara --group support,finance",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			in.Name = args[0]
			if in.Groups == nil {
				in.Groups = []string{}
			}
			return p.showLink(cmd, "/operators", in)
		},
	}
	cmd.Flags().StringSliceVar(&in.Groups, "group", nil, "groups of the operator, with commas between")
	return cmd
}

func operatorLinkCommand(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "link NAME",
		Short: "Make a fresh set-up link, for a first or a forgotten password",
		Long: `Make a fresh set-up link: for somebody who missed the first, or forgot the
password. Links made before are void; sessions end when the password is set.`,
		Example: "  countersign operator link mara",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.showLink(cmd, "/operators/"+escape(args[0])+"/link", nil)
		},
	}
}

// showLink asks for a set-up link and shows it, once.
func (p *program) showLink(cmd *cobra.Command, path string, in any) error {
	var o operatorAnswer
	if err := p.ask(cmd.Context(), http.MethodPost, path, in, &o); err != nil {
		return err
	}
	p.note("The link is good for 15 minutes and for one use, and is not shown again. Whoever opens it becomes %s.\nMade too late? countersign operator link %s", o.Name, o.Name)
	return p.answer(o, func(w io.Writer) { row(w, o.SetupURL) })
}

func operatorListCommand(p *program) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List operators, disabled ones too",
		Long:    "List operators, the oldest first, with their groups, and whether they have set a\npassword.",
		Example: "  countersign operator list --output json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var list []operatorAnswer
			if err := p.ask(cmd.Context(), http.MethodGet, "/operators", nil, &list); err != nil {
				return err
			}
			return p.answer(list, func(w io.Writer) {
				row(w, "NAME", "ID", "GROUPS", "PASSWORD", "CREATED", "DISABLED")
				for _, o := range list {
					password := "not set yet"
					if o.Ready {
						password = "set"
					}
					row(w, o.Name, o.ID, orDash(strings.Join(o.Groups, ",")), password, when(o.CreatedAt), when(o.DisabledAt))
				}
			})
		},
	}
}

func operatorDisableCommand(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "disable NAME",
		Short: "End what an operator may do",
		Long: `End what an operator may do: sessions end at their next request, links are void,
and their yes no longer counts for what has not been sent. The name stays taken,
since the record speaks of them.`,
		Example: "  countersign operator disable mara",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var o operatorAnswer
			if err := p.ask(cmd.Context(), http.MethodPost, "/operators/"+escape(args[0])+"/disable", nil, &o); err != nil {
				return err
			}
			return p.answer(o, func(w io.Writer) { row(w, "disabled", o.Name, o.ID, when(o.DisabledAt)) })
		},
	}
}
