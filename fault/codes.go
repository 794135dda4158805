package fault

// The codes, by what is wrong. A code is never renamed or reused; a new one is
// first written into openapi.yaml.
const (
	// The request could not be read (400).
	MalformedJSON         Code = "malformed_json"
	MalformedRequest      Code = "malformed_request"
	InvalidText           Code = "invalid_text"
	UnknownMember         Code = "unknown_member"
	DuplicateKey          Code = "duplicate_key"
	TooDeep               Code = "too_deep"
	IdempotencyKeyInvalid Code = "idempotency_key_invalid"
	HeaderRepeated        Code = "header_repeated"
	ParameterInvalid      Code = "parameter_invalid"

	// Who asks (401, 403).
	Unauthenticated      Code = "unauthenticated"
	TokenInvalid         Code = "token_invalid"
	NotAllowed           Code = "not_allowed"
	ToolNotGranted       Code = "tool_not_granted"
	TokenSubjectMismatch Code = "token_subject_mismatch"
	PolicyDenied         Code = "policy_denied"
	SeparationOfDuties   Code = "separation_of_duties"
	CrossOrigin          Code = "cross_origin"

	// What is asked for does not exist, or not for this caller (404, 405).
	NotFound          Code = "not_found"
	ToolNotFound      Code = "tool_not_found"
	OperationNotFound Code = "operation_not_found"
	ApprovalNotFound  Code = "approval_not_found"
	RunNotFound       Code = "run_not_found"
	FreezeNotFound    Code = "freeze_not_found"
	MethodNotAllowed  Code = "method_not_allowed"

	// In the way of something live, or no longer true (409, 410, 423).
	PreviewStale    Code = "preview_stale"
	ToolChanged     Code = "tool_changed"
	RejectedBefore  Code = "rejected_before"
	InvalidState    Code = "invalid_state"
	ApprovalChanged Code = "approval_changed"
	AlreadyDecided  Code = "already_decided"
	TokenExpired    Code = "token_expired"
	ToolFrozen      Code = "tool_frozen"
	// A goal that another operation holds, a run that takes nothing more, one
	// that still has something live in it, a freeze over unknown outcomes.
	GoalTaken Code = "goal_taken"
	// RunCallChanged: another call stands at that place of the run.
	RunCallChanged Code = "run_call_changed"
	RunClosed      Code = "run_closed"
	RunLive        Code = "run_live"
	UnknownsOpen   Code = "unknowns_open"

	// The request was read and its content is wrong (422).
	SchemaViolation      Code = "schema_violation"
	ForbiddenText        Code = "forbidden_text"
	TooLong              Code = "too_long"
	NumberOutOfRange     Code = "number_out_of_range"
	IdempotencyKeyReused Code = "idempotency_key_reused"
	IdempotencyKeyNeeded Code = "idempotency_key_needed"
	// The tool makes its own key and the caller sent another.
	IdempotencyKeyMismatch Code = "idempotency_key_mismatch"
	ArgsMismatch           Code = "args_mismatch"
	ToolRefused            Code = "tool_refused"
	ToolAccess             Code = "tool_access"
	DecisionInvalid        Code = "decision_invalid"
	TargetForbidden        Code = "target_forbidden"
	AgainOfInvalid         Code = "again_of_invalid"
	RunNeeded              Code = "run_needed"
	UndoImpossible         Code = "undo_impossible"

	// The transport (408, 413, 415, 421).
	RequestTimeout       Code = "request_timeout"
	BodyTooLarge         Code = "body_too_large"
	UnsupportedMediaType Code = "unsupported_media_type"
	UnsupportedEncoding  Code = "unsupported_encoding"
	HostNotAllowed       Code = "host_not_allowed"

	// Too much (429).
	RateLimited    Code = "rate_limited"
	QuotaExhausted Code = "quota_exhausted"

	// The gateway, its store, or the outside system (5xx).
	Internal           Code = "internal"
	UpstreamUnexpected Code = "upstream_unexpected"
	UpstreamTimeout    Code = "upstream_timeout"
	StoreUnavailable   Code = "store_unavailable"
	OutcomeUnclear     Code = "outcome_unclear"
	DiskFull           Code = "disk_full"
)
