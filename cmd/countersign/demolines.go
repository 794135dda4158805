package main

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"countersign/commit"
	"countersign/ledger"
	"countersign/preview"
)

// print says where everything is, and gives lines that work when pasted.
func (d *demo) print(port int, moved bool, code string, waiting bool) {
	bold, dim, reset := "", "", ""
	if d.terminal {
		bold, dim, reset = "\x1b[1m", "\x1b[2m", "\x1b[0m"
	}
	host := fmt.Sprintf("localhost:%d", port)
	var b strings.Builder
	if moved {
		fmt.Fprintf(&b, "Port %d is taken; the gateway is on %d.\n", d.port, port)
	}
	fmt.Fprintf(&b, "%sCountersign demo%s, not for production.  Data: %s  (start over: bin/countersign demo --reset)\n", bold, reset, d.data)
	fmt.Fprintf(&b, "  Page  http://%s   sign in: http://%s/setup#%s  (once, 15 min)   API docs: http://%s/docs\n", host, host, code, host)
	fmt.Fprintf(&b, "  Shop  http://localhost:%d   what really happened, and switches to break things\n\n", d.env.ShopPort)

	token := `T=$(curl -s ` + host + `/v1/tools/hold_order/preview -H "$A" -H "$J" -d '{"args":{"order_id":"ord_1001"}}' | tee /dev/stderr | sed -n 's/.*"commit_token": *"\([^"]*\)".*/\1/p')`
	spend := `[ -n "$T" ] && curl -s ` + host + `/v1/tools/hold_order/commit -H "$A" -H "$J" -d "{\"commit_token\":\"$T\"}" || echo "already done`
	fmt.Fprintf(&b, "%s1 Preview, nothing changes:%s  A='Authorization: Bearer %s'; J='Content-Type: application/json'; %s\n", bold, reset, d.env.AgentKey, token)
	fmt.Fprintf(&b, "%s2 Commit:%s                    %s: the answer above is the first result\"\n", bold, reset, spend)
	fmt.Fprintf(&b, "%s3 Again, first result:%s       %s\"\n", bold, reset, spend)
	if waiting {
		fmt.Fprintf(&b, "%s4%s A refund of 120.00 EUR waits for you: http://%s/approvals\n", bold, reset, host)
	} else {
		fmt.Fprintf(&b, "%s4%s Nothing waits for you now; what was decided: http://%s/operations\n", bold, reset, host)
	}
	fmt.Fprintf(&b, "%s5%s Cut a reply in the shop, repeat 1 and 2 with ord_1002 (each time another order): \"unknown\"\n", bold, reset)
	fmt.Fprintf(&b, "%s6%s Refunds above 500.00 EUR need two people: bin/countersign operator create NAME --group finance -c %s\n", bold, reset, filepath.Join(d.data, demoConfig))
	fmt.Fprintf(&b, "%sCtrl-C ends it.%s\n", dim, reset)
	// A terminal that is gone is no reason to stop.
	_, _ = io.WriteString(d.out, b.String())
}

// liveLines tells what happens, one line each, with the shop's own count of
// effects beside it.
type liveLines struct {
	out     io.Writer
	now     func() time.Time
	effects func() int
	colour  bool

	mu sync.Mutex
	on bool
}

// start begins to tell; what happened before is of no interest.
func (l *liveLines) start() { l.mu.Lock(); defer l.mu.Unlock(); l.on = true }

func (l *liveLines) say(verb, tool, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.on {
		return
	}
	line := fmt.Sprintf("%s %-8s %-15s %-60s shop effects %d\n", l.now().Local().Format(time.TimeOnly), verb, tool, text, l.effects())
	if l.colour && strings.Contains(text, string(ledger.Unknown)) {
		line = "\x1b[33m" + line + "\x1b[0m"
	}
	_, _ = io.WriteString(l.out, line) // as above
}

func (l *liveLines) preview(r preview.Request, res preview.Result) {
	l.say("preview", r.Tool, effectsText(res.Preview.Plan.Effects))
}

func (l *liveLines) commit(r commit.Request, res commit.Result) {
	text := describeOperation(res.Operation)
	if res.Replayed {
		text = res.Operation.ID + " replayed, nothing sent: " + string(res.Operation.State)
	}
	l.say("commit", r.Tool, text)
}

// event tells what people and time do; what a commit does is told by commit.
func (l *liveLines) event(op ledger.Operation, ev ledger.Event) {
	who := ev.Actor.Name
	switch ev.Verb {
	case ledger.VerbApprove:
		text := op.ID + " approved by " + who
		if op.State == ledger.AwaitingApproval {
			text += ", more are needed"
		}
		l.say("approve", op.Tool, text)
	case ledger.VerbReject:
		l.say("reject", op.Tool, op.ID+" rejected by "+who)
	case ledger.VerbFinish:
		if op.Requirement.Asks() {
			l.say("send", op.Tool, describeOperation(op)+", sent by the gateway")
		}
	case ledger.VerbRevise:
		l.say("revise", op.Tool, op.ID+" asked again: "+ev.Reason.Text)
	case ledger.VerbResolve, ledger.VerbExpire, ledger.VerbCancel, ledger.VerbLoseLease:
		l.say(string(ev.Verb), op.Tool, describeOperation(op))
	}
}
