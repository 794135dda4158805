package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"countersign/ledger"
)

func drillCommand(p *program) *cobra.Command {
	d := &drill{program: p}
	cmd := &cobra.Command{
		Use:   "drill",
		Short: "Play a lost reply and its recovery against the demo's shop, and check five kinds of trouble",
		Long: `Play what the gateway is for, with a gateway and Acme shop of its own on free
ports of localhost, in a folder that is removed afterwards:

  T0  an effect happens and its reply is lost
  T1  the outcome is unknown, and the gateway says so
  T2  an old retry policy fires; nothing is sent
  T3  the tool is frozen; evidence; the outside system is asked
  T4  the freeze is lifted and the call replayed: the first result

Then five rows of the fault matrix, each checked against the shop's own log of
what really happened. The exit status is 1 when any check fails.

All data is synthetic and labelled so (evidence_boundary: drill). With --stay the
gateway stays up, so that the links into the page can be followed.`,
		Example: "  countersign drill && echo safe",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return d.run(cmd.Context()) },
	}
	cmd.Flags().BoolVar(&d.stay, "stay", false, "leave the gateway running until Ctrl-C")
	return cmd
}

// drill is one run of it.
type drill struct {
	*program
	stay bool

	stage  *drillStage
	began  time.Time
	checks int
	failed int
	paint  painter
}

func (d *drill) run(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "countersign-drill-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	d.paint = painter(d.terminal)
	d.began = d.now()
	return d.onStage(ctx, dir, func(ctx context.Context) error {
		d.say("%sCountersign drill%s, synthetic data (evidence_boundary: drill).  Page %s", d.paint.bold(), d.paint.plain(), d.stage.base)
		if err := d.story(ctx); err != nil {
			return err
		}
		if err := d.rows(ctx); err != nil {
			return err
		}
		d.verdict()
		if d.stay {
			d.say("The gateway stays up; sign in: %s/setup#%s   Ctrl-C ends it.", d.stage.base, d.stage.signIn)
			<-ctx.Done()
		}
		if d.failed > 0 {
			return exitError{1}
		}
		return nil
	})
}

// story is the timeline T0 to T4 (R158).
func (d *drill) story(ctx context.Context) error {
	s := d.stage
	const order = "ord_1001"
	d.say("\nThe story: hold %s, and the reply is lost\n", order)

	// The shop does what it is asked, cuts the reply, and does not show it yet.
	s.shop.Set(lostReply(storyLag))
	token, err := s.agent.preview(ctx, order)
	if err != nil {
		return err
	}
	op, err := s.agent.commit(ctx, token, time.Second)
	if err != nil {
		return err
	}
	d.at("T0", "the effect happens, the reply is cut", "shop effects %d, requests %d", s.shop.EffectCount(), s.shop.RequestCount())
	d.check(s.shop.EffectCount() == 1, "the shop did it once")

	d.at("T1", "nobody guesses: "+op.State, "%s", s.link(op.ID))
	d.check(op.State == string(ledger.Unknown), "the outcome is unknown, not failed")

	// An agent that takes a lost reply for a failure tries again, in every way it
	// knows.
	for range 3 {
		if op, err = s.agent.commit(ctx, token, 0); err != nil {
			return err
		}
	}
	again, standing, err := s.agent.tryPreview(ctx, order)
	if err != nil {
		return err
	}
	d.at("T2", "the old retry policy fires: 3 commits, 1 new preview", "shop requests %d", s.shop.RequestCount())
	d.check(s.shop.RequestCount() == 1, "nothing was sent again")
	d.check(again == "" && standing.ID == op.ID, "a new preview gets the first operation and no token")

	if err := d.freezeAndReconcile(ctx, op.ID); err != nil {
		return err
	}

	if op, err = s.agent.commit(ctx, token, 0); err != nil {
		return err
	}
	d.at("T4", "the call is replayed: the first result, "+op.EffectID, "shop effects %d", s.shop.EffectCount())
	d.check(op.State == string(ledger.Succeeded) && op.Replayed, "the repeat is answered with the first result")
	d.check(s.shop.EffectCount() == 1 && s.shop.RequestCount() == 1, "one request, one effect")
	return nil
}

// storyLag hides the effect from lookups until the story wants it found.
const storyLag = time.Minute

// freezeAndReconcile is T3: freeze, evidence, reconcile, recover.
func (d *drill) freezeAndReconcile(ctx context.Context, id string) error {
	s := d.stage
	scope := ledger.Scope{Tenant: tenant, Tool: drillTool}
	by := s.operator
	running, err := s.g.ledger.Freeze(ctx, scope, ledger.FreezeAll, by, "drill: an outcome is unknown")
	if err != nil {
		return err
	}
	d.at("T3", "the tool is frozen", "already dispatched: %d   %s/freezes", len(running), s.base)
	_, frozen, err := s.agent.tryCommitOf(ctx, "ord_1008")
	if err != nil {
		return err
	}
	d.check(frozen == http.StatusLocked, "new work is refused, reads and previews go on")
	err = s.g.ledger.Unfreeze(ctx, ledger.Unfreezing{Scope: scope, By: by})
	d.check(err != nil, "it can't be lifted over an unknown outcome without an override")

	s.shop.Set(healthy())
	op, err := s.settled(ctx, id)
	if err != nil {
		return err
	}
	d.at("", "the outside system was asked: "+op.State+", "+op.EffectID, "")
	d.check(op.State == string(ledger.Succeeded) && op.EffectID != "", "the lookup brought it to its end")
	if err := s.g.ledger.Unfreeze(ctx, ledger.Unfreezing{Scope: scope, By: by, Reason: "drill: reconciled"}); err != nil {
		return err
	}
	d.at("", "the freeze is lifted", "")
	return nil
}

// say prints a line; a terminal that is gone is no reason to stop.
func (d *drill) say(format string, args ...any) { _, _ = fmt.Fprintf(d.stdout, format+"\n", args...) }

// at prints a point of the timeline.
func (d *drill) at(mark, what, format string, args ...any) {
	dot, clock := "│", ""
	if mark != "" {
		dot = "●"
		clock = fmt.Sprintf("+%.1fs", d.now().Sub(d.began).Seconds())
	}
	d.say("  %s%-3s%s %s %-7s %-58s %s%s%s", d.paint.bold(), mark, d.paint.plain(), dot, clock, what, d.paint.dim(), fmt.Sprintf(format, args...), d.paint.plain())
}

// see prints where the page shows an operation.
func (d *drill) see(operation string) {
	d.say("      │         %s%s%s", d.paint.dim(), d.stage.link(operation), d.paint.plain())
}

// check notes one thing that must be true.
func (d *drill) check(holds bool, what string) {
	d.checks++
	mark, colour := "✓", d.paint.good()
	if !holds {
		d.failed++
		mark, colour = "✗", d.paint.bad()
	}
	d.say("      │         %s%s%s %s", colour, mark, d.paint.plain(), what)
}

func (d *drill) verdict() {
	d.say("")
	if d.failed > 0 {
		d.say("%s%d of %d checks failed%s (synthetic data)", d.paint.bad(), d.failed, d.checks, d.paint.plain())
		return
	}
	d.say("%sall %d checks passed%s (synthetic data): %d effects, each asked for once", d.paint.good(), d.checks, d.paint.plain(), d.stage.shop.EffectCount())
	if !d.stay {
		d.say("The links lead into the page of a gateway that ends now: countersign drill --stay keeps it.")
	}
}

// painter colours where there is a terminal.
type painter bool

func (p painter) code(c string) string {
	if !p {
		return ""
	}
	return "\x1b[" + c + "m"
}
func (p painter) bold() string  { return p.code("1") }
func (p painter) dim() string   { return p.code("2") }
func (p painter) good() string  { return p.code("32") }
func (p painter) bad() string   { return p.code("31") }
func (p painter) plain() string { return p.code("0") }

// row prints the head of a row of the matrix and plays it.
func (d *drill) row(n int, title string, play func() error) error {
	before := d.failed
	d.say("\n  %srow %d%s  %s", d.paint.bold(), n, d.paint.plain(), title)
	if err := play(); err != nil {
		return fmt.Errorf("row %d: %w", n, err)
	}
	word, colour := "passed", d.paint.good()
	if d.failed > before {
		word, colour = "FAILED", d.paint.bad()
	}
	d.say("      └ %s%s%s", colour, strings.ToUpper(word[:1])+word[1:], d.paint.plain())
	return nil
}
