package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"countersign/audit"
	"countersign/ledger"
)

func recoverCommand(p *program) *cobra.Command {
	var restored bool
	var reason string
	cmd := &cobra.Command{
		Use:   "recover --restored",
		Short: "Make a ledger that came out of a backup safe to start",
		Long: `Make a ledger that came out of a backup safe to start, with the gateway stopped.
What was done after the backup is missing in it, and would be done again. So:

  - everything is frozen at "all";
  - all signing keys are replaced and the ledger generation is raised: no token that
    is out there opens anything;
  - what waited, was pending or ran becomes unknown, on the people's list; its key
    stays taken. What had ended stays as it is;
  - a checkpoint covers that, and the anchors get it with a signed statement, so that
    the next start accepts the ledger and every audit tells of the restore;
  - where the ledger's time is ahead of this machine's clock, it begins anew, and what
    was unknown already waits for people too: nothing that hangs on a time goes on.

If it breaks off, run it again.`,
		Example: "  countersign recover --restored --reason \"disk of the old machine died\"",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !restored {
				return errors.New("say --restored: the ledger came out of a backup, and everything open in it is put in doubt")
			}
			return p.recover(cmd, reason)
		},
	}
	cmd.Flags().BoolVar(&restored, "restored", false, "the ledger was restored from a backup")
	cmd.Flags().StringVar(&reason, "reason", "", "why; it stands in the history for ever")
	return cmd
}

// recovered is what the command tells.
type recovered struct {
	audit.Recovering
	Doubted []string          `json:"doubted"`
	Anchors map[string]string `json:"anchors_before"`
}

func (p *program) recover(cmd *cobra.Command, reason string) error {
	cfg, err := p.config()
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	running, err := dialAdmin(ctx, cfg)
	if err != nil {
		return err
	}
	if running != nil {
		running.close()
		return errors.New("a gateway runs on this ledger; stop it first")
	}
	env := p.quiet(cfg)
	env.anchors = unchecked
	cfg.Upstreams = nil // nothing is sent
	g, err := openGateway(ctx, cfg, env)
	if err != nil {
		return errors.New(plain(err))
	}
	defer g.close()
	did, err := audit.Recover(ctx, audit.RecoverConfig{
		Ledger: g.ledger, Store: g.db, Keys: g.keys, Sealer: g.sealer, Tenants: cfg.Tenants, Reason: reason,
	})
	if err == nil {
		err = g.beginTimeAnew(ctx, p.now())
	}
	if did.Head.N > 0 {
		out := recovered{Recovering: did, Doubted: []string{}, Anchors: map[string]string{}}
		for _, op := range did.Doubted {
			out.Doubted = append(out.Doubted, op.ID)
		}
		for _, f := range did.Found {
			out.Anchors[f.Anchor] = string(f.Standing)
		}
		if err := p.answer(out, func(w io.Writer) { recoveredRows(w, did) }); err != nil {
			return err
		}
		p.note("%s", afterRecovery)
	}
	return err
}

func recoveredRows(w io.Writer, did audit.Recovering) {
	for _, f := range did.Found {
		row(w, "found", f.String())
	}
	if did.Resumed {
		row(w, "resumed", "an earlier recovery had broken off; it was brought to its end")
	}
	row(w, "kept", fmt.Sprintf("checkpoint %d, up to event %d", did.Kept.N, did.Kept.Seq))
	for _, op := range did.Doubted {
		row(w, "in doubt", op.ID+"  "+safe(op.Headline))
	}
	row(w, "unknown now", fmt.Sprint(did.Unknown))
	row(w, "frozen", fmt.Sprintf("everything, at %q", ledger.FreezeAll))
	row(w, "checkpoint", fmt.Sprintf("%d, up to event %d, signed with a new key", did.Head.N, did.Head.Seq))
}

// afterRecovery is what people must do now.
const afterRecovery = `
What to do next:
  1. Find out what happened after the backup: compare the outside systems with the
     ledger, from the time of the checkpoint that was kept. What was opened after it
     is missing here, and an agent that asks again would do it again.
  2. Agents and operators that were revoked or disabled after the backup are back:
     countersign agent list, countersign operator list; revoke them again.
  3. countersign serve. Settle what is unknown on the page, with what you found.
  4. Lift the freeze, with a reason; over what is still unknown it is an override,
     and is signed.`
