package planted

// The proof of what the ledger says.
var bugsAudit = []bug{
	{
		Name: "receipt_of_what_has_not_ended", Rule: "a receipt is of what has ended", By: room("audit", "^TestReceipt_OnlyOfWhatHasEnded$"),
		edit: edit{"audit/receipt.go", `if !op.State.Final() {`, ``},
	},
	{
		Name: "receipt_over_altered_events", Rule: "a receipt is not over a broken chain", By: room("audit", "^TestReceipt_NotOverABrokenChain$"),
		edit: edit{"audit/receipt.go", `if !e.Intact(prev) {`, ``},
	},
	{
		Name: "receipt_of_an_unknown_form", Rule: "a receipt of another form is not read", By: room("audit", "^TestReceipt_AfterRotation$"),
		edit: edit{"audit/receipt.go", `if err := d.Decode(&r); err != nil || r.Format != ReceiptFormat {`, `if err := d.Decode(&r); err != nil || r.Format != ReceiptFormat && !fault.Planted("receipt_of_an_unknown_form") {`},
	},
	{
		Name: "sealed_over_an_altered_checkpoint", Rule: "nothing is sealed on top of an altered checkpoint", By: room("audit", "^TestSealer_SealsNothingAltered$"),
		edit: edit{"audit/seal.go", `if last.N > 0 && last.Digest() != last.Hash {`, ``},
	},
	{
		Name: "sealed_over_altered_events", Rule: "what was altered is not vouched for", By: room("audit", "^TestSealer_SealsNothingAltered$"),
		edit: edit{"audit/seal.go", `if e.Seq != seq || !e.Intact(e.Prev) ||`, `if e.Seq != seq || !e.Intact(e.Prev) && !fault.Planted("sealed_over_altered_events") ||`},
	},
	{
		Name: "sealed_over_a_gap", Rule: "events are sealed without gaps", By: room("audit", "^TestSealer_SealsNothingAltered$"),
		edit: edit{"audit/seal.go", `if e.Seq != seq ||`, `if e.Seq != seq && !fault.Planted("sealed_over_a_gap") ||`},
	},
	{
		Name: "sealed_over_an_altered_guard_row", Rule: "an altered guard row is not vouched for", By: room("audit", "^TestSealer_SealsNothingAltered$"),
		edit: edit{"audit/seal.go", `if g.Hash != "" && !g.Intact(g.Prev) {`, ``},
	},
	{
		Name: "sealer_gives_up_a_race", Rule: "of two gateways that seal one gives way", By: room("audit", "^TestSealer_AnotherWasFirst$"),
		edit: edit{"audit/seal.go", `case isRefused(err, ledger.CheckpointMoved) && races < maxRaces:`, ``},
	},
	{
		Name: "anchored_over_a_rollback", Rule: "an anchor that proves a rollback is not written over", By: room("audit", "^TestMatrix_Row44_RestoredBackup$"),
		edit: edit{"audit/seal.go", `case c.Standing == Foreign || c.Standing.RolledBack():`, ``},
	},
	{
		Name: "anchor_takes_another_chain", Rule: "an anchor takes only what follows its newest record", By: room("audit", "^TestFileAnchor$"),
		edit: edit{"audit/anchor.go", `if a.Ledger != b.Ledger || next.Recovery == "" && (b.N != a.N+1 || b.Prev != a.Hash) {`, ``},
	},
	{
		Name: "anchor_of_another_ledger", Rule: "an anchor of another ledger vouches for nothing", By: room("audit", "^TestRefusal$"),
		edit: edit{"audit/anchor.go", `case anchored.Ledger != ledgerID:`, ``},
	},
	{
		Name: "older_than_its_anchor", Rule: "row 44: a store that is older than its anchor does not start", By: room("audit", "^TestMatrix_Row44_RestoredBackup$"),
		edit: edit{"audit/anchor.go", `case anchored.N > newest.N:`, ``},
	},
	{
		Name: "another_checkpoint_than_the_anchors", Rule: "row 44: a ledger that was rewritten does not start", By: room("audit", "^TestMatrix_Row44_RestoredBackup$"),
		edit: edit{"audit/anchor.go", `if !found || ours.Hash != anchored.Hash {`, ``},
	},
	{
		Name: "damaged_anchor_is_believed", Rule: "an anchor's record is what its hash says", By: room("audit", "^TestRefusal$"),
		edit: edit{"audit/anchor.go", `if c.Err == nil && there && anchored.Digest() != anchored.Hash {`, ``},
	},
	{
		Name: "unreadable_anchor_is_passed", Rule: "I20: an anchor that can't be read stops the start", By: room("audit", "^TestRefusal$"),
		edit: edit{"audit/anchor.go", `c.Standing == Unreadable && !waiveUnreadable:`, `c.Standing == Unreadable && !waiveUnreadable && !fault.Planted("unreadable_anchor_is_passed"):`},
	},
	{
		Name: "rollback_is_no_refusal", Rule: "row 44: a rolled back ledger does not start", By: room("audit", "^TestRefusal$"),
		edit: edit{"audit/anchor.go", `case c.Standing.RolledBack() || c.Standing == Foreign, c.Standing == Unreadable`, `case (c.Standing.RolledBack() || c.Standing == Foreign) && !fault.Planted("rollback_is_no_refusal"), c.Standing == Unreadable`},
	},
	{
		Name: "torn_record_is_glued", Rule: "a torn line of an anchor spoils no other", By: room("audit", "^TestFileAnchor_TornLine$"),
		edit: edit{"audit/anchor_file.go", `} else if torn {`, `} else if torn && !fault.Planted("torn_record_is_glued") {`},
	},
	{
		Name: "checkpoint_signature_of_anything", Rule: "a checkpoint's signature is over that checkpoint", By: room("audit", "^TestMatrix_Row45_AuditRowsChanged$"),
		edit: edit{"audit/audit.go", `if err == nil && string(payload) != string(unsigned(c)) {`, ``},
	},
	{
		Name: "altered_event_is_believed", Rule: "row 45: an altered event is found", By: room("audit", "^TestMatrix_Row45_AuditRowsChanged$"),
		edit: edit{"audit/verify_chain.go", `if !whole {`, ``},
	},
	{
		Name: "forbidden_move_is_believed", Rule: "row 45: a move that the table does not allow is found", By: room("audit", "^TestMatrix_Row45_ForbiddenMove$"),
		edit: edit{"audit/verify_chain.go", `case whole && !allowed(e, h.attempts):`, ``},
	},
	{
		Name: "missing_version_is_believed", Rule: "row 45: a missing event of an operation is found", By: room("audit", "^TestMatrix_Row45_AuditRowsChanged$"),
		edit: edit{"audit/verify_chain.go", `case e.Version > h.version+1:`, ``},
	},
	{
		Name: "doubled_version_is_believed", Rule: "row 45: two events of one version are found", By: room("audit", "^TestMatrix_Row45_TwoEventsOfOneVersion$"),
		edit: edit{"audit/verify_chain.go", `if !v.filled(e.Operation, e.Version) {`, ``},
	},
	{
		Name: "altered_checkpoint_is_believed", Rule: "row 45: an altered checkpoint is found", By: room("audit", "^TestMatrix_Row45_AuditRowsChanged$"),
		edit: edit{"audit/verify_chain.go", `case c.Digest() != c.Hash || c.Ledger != v.header.Ledger:`, ``},
	},
	{
		Name: "missing_checkpoint_is_believed", Rule: "row 45: a missing checkpoint is found", By: room("audit", "^TestMatrix_Row45_AuditRowsChanged$"),
		edit: edit{"audit/verify_chain.go", `case c.N > s.last.N+1:`, ``},
	},
	{
		Name: "tail_cut_is_believed", Rule: "row 45: a tail that was cut off is found", By: room("audit", "^TestMatrix_Row45_AuditRowsChanged$"),
		edit: edit{"audit/verify_chain.go", `case c.Seq > v.chain.seq:`, ``},
	},
	{
		Name: "events_not_held_against_checkpoints", Rule: "row 45: whole events that were written later are found", By: room("audit", "^TestMatrix_Row45_AuditRowsChanged$"),
		edit: edit{"audit/verify_chain.go", `case ledger.EventsDigest(s.hashes) == c.Events || s.explained:`, `case ledger.EventsDigest(s.hashes) == c.Events || s.explained || fault.Planted("events_not_held_against_checkpoints"):`},
	},
	{
		Name: "lost_guard_row_is_believed", Rule: "row 45: a guard row that was cut off is found", By: room("audit", "^TestMatrix_Row45_AuditRowsChanged$"),
		edit: edit{"audit/verify_chain.go", `case !there:`, "case !there && fault.Planted(\"lost_guard_row_is_believed\"):\n\t\tcase !there:"},
	},
	{
		Name: "forged_checkpoint_is_believed", Rule: "a checkpoint is signed by a published key", By: room("audit", "^TestMatrix_Row45_AuditRowsChanged$"),
		edit: edit{"audit/verify_chain.go", "default:\n\t\tv.bad(BadSignature, fmt.Sprintf(\"checkpoint %d\", c.N)", "default:\n\t\tif fault.Planted(\"forged_checkpoint_is_believed\") {\n\t\t\tbreak\n\t\t}\n\t\tv.bad(BadSignature, fmt.Sprintf(\"checkpoint %d\", c.N)"},
	},
	{
		Name: "checkpoint_of_an_unknown_key", Rule: "a checkpoint of a key that nobody published is found", By: room("audit", "^TestVerify_KeysOfSomebodyElse$"),
		edit: edit{"audit/verify_chain.go", `for _, c := range s.unverified {`, "for _, c := range s.unverified {\n\t\tif fault.Planted(\"checkpoint_of_an_unknown_key\") {\n\t\t\tbreak\n\t\t}"},
	},
	{
		Name: "row_of_another_version_is_believed", Rule: "row 45: a row that is not that of its last event is found", By: room("audit", "^TestMatrix_Row45_AuditRowsChanged$"),
		edit: edit{"audit/verify_rows.go", `case op.Version < h.version:`, "case op.Version < h.version && fault.Planted(\"row_of_another_version_is_believed\"):\n\tcase op.Version < h.version:"},
	},
	{
		Name: "row_of_another_state_is_believed", Rule: "row 45: a row that was changed is found", By: room("audit", "^TestMatrix_Row45_AuditRowsChanged$"),
		edit: edit{"audit/verify_rows.go", `case op.State != h.state:`, ``},
	},
	{
		Name: "row_of_another_effect_is_believed", Rule: "row 45: an effect id that was changed is found", By: room("audit", "^TestMatrix_Row45_AuditRowsChanged$"),
		edit: edit{"audit/verify_rows.go", `case op.EffectID != h.effect:`, ``},
	},
	{
		Name: "decision_of_nobody_is_believed", Rule: "row 45: a decision that no event tells of is found", By: room("audit", "^TestMatrix_Row45_AuditRowsChanged$"),
		edit: edit{"audit/verify_rows.go", `case !there && v.chain.whole:`, "case !there && v.chain.whole && fault.Planted(\"decision_of_nobody_is_believed\"):\n\tcase !there && v.chain.whole:"},
	},
	{
		Name: "lost_decision_is_believed", Rule: "row 45: a missing decision is found", By: room("audit", "^TestMatrix_Row45_AuditRowsChanged$"),
		edit: edit{"audit/verify_rows.go", "default:\n\t\t\tv.badAt(v.rows.line, Missing, entry, \"A decision", "default:\n\t\t\tif fault.Planted(\"lost_decision_is_believed\") {\n\t\t\t\tbreak\n\t\t\t}\n\t\t\tv.badAt(v.rows.line, Missing, entry, \"A decision"},
	},
	{
		Name: "lost_evidence_is_believed", Rule: "row 45: missing evidence is found", By: room("audit", "^TestMatrix_Row45_AuditRowsChanged$"),
		edit: edit{"audit/verify_rows.go", `if !h.evidence[id].there {`, ``},
	},
	{
		Name: "altered_evidence_is_believed", Rule: "row 45: evidence that was changed is found", By: room("audit", "^TestMatrix_Row45_AuditRowsChanged$"),
		edit: edit{"audit/verify_rows.go", `case t.digest != "" && t.digest != e.Digest():`, ``},
	},
	{
		Name: "altered_guard_row_is_believed", Rule: "row 45: an altered guard row is found", By: room("audit", "^TestMatrix_Row45_AuditRowsChanged$"),
		edit: edit{"audit/verify.go", `case !unchained && !g.Intact(g.Prev):`, ``},
	},
	{
		Name: "missing_guard_row_is_believed", Rule: "row 45: a missing guard row is found", By: room("audit", "^TestMatrix_Row45_AuditRowsChanged$"),
		edit: edit{"audit/verify.go", `case g.Epoch > before.Epoch+1:`, ``},
	},
	{
		Name: "line_spelt_otherwise_is_believed", Rule: "row 45: nothing hides in the spelling of a line", By: room("audit", "^TestMatrix_Row45_ExportChanged$"),
		edit: edit{"audit/verify.go", `if err != nil || !bytes.Equal(again, text) {`, `if err != nil || !bytes.Equal(again, text) && !fault.Planted("line_spelt_otherwise_is_believed") {`},
	},
	{
		Name: "export_without_an_end_is_believed", Rule: "row 45: an export that breaks off is found", By: room("audit", "^TestMatrix_Row45_ExportChanged$"),
		edit: edit{"audit/verify.go", `if !v.footer {`, ``},
	},
	{
		Name: "file_digest_not_compared", Rule: "row 45: a change that no chain covers is found", By: room("audit", "^TestMatrix_Row45_ExportChanged$"),
		edit: edit{"audit/verify.go", `if f.Digest != hex.EncodeToString(v.sum.Sum(nil)) && !lost && len(v.report.Findings) == 0 {`, ``},
	},
	{
		Name: "old_export_is_believed", Rule: "row 44: an export that is older than the anchor is found", By: room("audit", "^TestMatrix_Row44_RestoredBackup$"),
		edit: edit{"audit/verify_anchor.go", `case c.N > v.seals.last.N:`, "case c.N > v.seals.last.N && fault.Planted(\"old_export_is_believed\"):\n\t\tcase c.N > v.seals.last.N:"},
	},
	{
		Name: "export_beside_the_anchor_is_believed", Rule: "row 44: an export that the anchor contradicts is found", By: room("audit", "^TestMatrix_Row45_Rewritten$"),
		edit: edit{"audit/verify_anchor.go", `case there && hash != c.Hash:`, ``},
	},
	{
		Name: "recovery_of_nobody_is_believed", Rule: "a restore is excused by a signed statement", By: room("audit", "^TestMatrix_Row44_RestoredBackup$"),
		edit: edit{"audit/verify_anchor.go", `if err != nil || told.Ledger != v.header.Ledger {`, ``},
	},
	{
		Name: "recovery_freezes_nothing", Rule: "a restored ledger begins frozen", By: room("audit", "^TestMatrix_Row44_RestoredBackup$"),
		edit: edit{"audit/recover.go", `if _, err := c.Ledger.Freeze(ctx, scope, ledger.FreezeAll, by, "The ledger was restored from a backup."); err != nil {`, "if fault.Planted(\"recovery_freezes_nothing\") {\n\t\t\tbreak\n\t\t}\n\t\tif _, err := c.Ledger.Freeze(ctx, scope, ledger.FreezeAll, by, \"The ledger was restored from a backup.\"); err != nil {"},
	},
	{
		Name: "recovery_keeps_the_keys", Rule: "tokens of before a restore are void", By: room("audit", "^TestMatrix_Row44_RestoredBackup$"),
		edit: edit{"audit/recover.go", `if _, err := c.Keys.EmergencyRevoke(c.Ledger.Now()); err != nil {`, "if fault.Planted(\"recovery_keeps_the_keys\") {\n\t\treturn c.Keys.Sign(RecoveryType, mustJSON(did.Recovery))\n\t}\n\tif _, err := c.Keys.EmergencyRevoke(c.Ledger.Now()); err != nil {"},
	},
	{
		Name: "recovery_raises_no_generation", Rule: "tokens of before a restore are void in every process", By: room("audit", "^TestMatrix_Row44_RestoredBackup$"),
		edit: edit{"audit/recover.go", `func(g *ledger.Guard) { g.Generation++ }`, "func(g *ledger.Guard) {\n\t\t\tif !fault.Planted(\"recovery_raises_no_generation\") {\n\t\t\t\tg.Generation++\n\t\t\t}\n\t\t}"},
	},
	{
		Name: "recovery_leaves_what_waited", Rule: "what waited or ran before a restore is in doubt", By: room("audit", "^TestMatrix_Row44_RestoredBackup$"),
		edit: edit{"audit/recover.go", `op, err := c.Ledger.Restore(ctx, tenant, op.ID)`, "if fault.Planted(\"recovery_leaves_what_waited\") {\n\t\t\t\treturn nil\n\t\t\t}\n\t\t\top, err := c.Ledger.Restore(ctx, tenant, op.ID)"},
	},
	{
		Name: "recovery_counts_twice", Rule: "a recovery that broke off raises the generation once", By: room("audit", "^TestRecover_BreaksOffAndIsResumed$"),
		edit: edit{"audit/recover.go", `if row.Change.Signature == statement {`, ``},
	},
}
