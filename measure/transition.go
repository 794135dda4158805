package measure

import "countersign/ledger"

// OnEvent counts a transition, for ledger.Config.OnEvent.
func (m *Metrics) OnEvent(op ledger.Operation, ev ledger.Event) {
	tool := m.tool(op.Tool)
	from := string(ev.From)
	if from == "" {
		from = "none"
	}
	m.transitions.WithLabelValues(tool, string(ev.Verb), from, string(ev.To)).Inc()
	switch ev.Verb {
	case ledger.VerbApprove:
		if ev.To == ledger.Pending {
			m.waited(tool, "approved", op, ev)
		}
	case ledger.VerbReject:
		m.waited(tool, "rejected", op, ev)
	case ledger.VerbGiveUp:
		m.undoFailures.WithLabelValues(tool).Inc()
	}
	if ev.To.Final() && !ev.From.Final() && !op.FirstUnknownAt.IsZero() {
		m.settledAge.WithLabelValues(tool, string(op.Doubt)).Observe(ev.At.Sub(op.FirstUnknownAt).Seconds())
	}
}

// waited observes how long people took, from the opening on: a second round is
// part of one wait.
func (m *Metrics) waited(tool, outcome string, op ledger.Operation, ev ledger.Event) {
	m.approvalWait.WithLabelValues(tool, outcome).Observe(ev.At.Sub(op.CreatedAt).Seconds())
}
