package api

import (
	"countersign/fault"
)

// problem says what a code means over HTTP.
type problem struct {
	status int
	title  string
	action NextAction
	// after is when a repeat makes sense, in seconds; 0 is not said.
	after int
	text  string
}

// problems is the one table from a code to its status, its title and the next
// step. The examples in openapi.yaml say the same; a test compares them.
var problems = map[fault.Code]problem{
	fault.MalformedJSON: {
		400, "The body is not JSON", NextActionFixArguments, 0,
		"Send one JSON object, encoded in UTF-8. Nothing was changed.",
	},
	fault.MalformedRequest: {
		400, "The request is not well formed", NextActionFixArguments, 0,
		"Send the request as the contract at /openapi.yaml describes it. Nothing was changed.",
	},
	fault.InvalidText: {
		400, "The text is not valid UTF-8", NextActionFixArguments, 0,
		"Encode all text in UTF-8, without lone surrogates. Nothing was changed.",
	},
	fault.UnknownMember: {
		400, "A member is not known here", NextActionFixArguments, 0,
		"Leave out the member that the pointer names, or correct its spelling. Nothing was changed.",
	},
	fault.DuplicateKey: {
		400, "A member stands twice", NextActionFixArguments, 0,
		"Send each member once. Nothing was changed.",
	},
	fault.TooDeep: {
		400, "The body is nested too deeply", NextActionFixArguments, 0,
		"Send a flatter structure, at most 32 levels. Nothing was changed.",
	},
	fault.TooLong: {
		422, "A value is too long", NextActionFixArguments, 0,
		"Shorten the value that the pointer names. Nothing was changed.",
	},
	fault.HeaderRepeated: {
		400, "A header stands more than once", NextActionFixArguments, 0,
		"Send each of Authorization and Content-Type once. Nothing was changed.",
	},
	fault.ParameterInvalid: {
		400, "A query parameter is not valid", NextActionFixArguments, 0,
		"Correct the query parameter that the detail names, or leave it out. Nothing was changed.",
	},
	fault.IdempotencyKeyInvalid: {
		400, "The idempotency key is not well formed", NextActionFixArguments, 0,
		"Send one key of 1 to 255 ASCII letters, digits and . _ : / @ + % ~ = - that starts with a letter or digit, or none where the tool makes its own. Nothing was changed.",
	},
	fault.Unauthenticated: {
		401, "The credential is missing or not valid", NextActionStop, 0,
		"Send a valid agent key as bearer token, or sign in. Repeating the request without one does not help.",
	},
	fault.TokenInvalid: {
		401, "The commit token is not valid", NextActionPreviewAgain, 0,
		"Preview again and commit with the token of that preview. Do not edit tokens.",
	},
	fault.NotAllowed: {
		403, "This caller may not do that", NextActionStop, 0,
		"This needs a caller of another kind. Do not look for a way around it.",
	},
	fault.ToolNotGranted: {
		403, "The agent has no grant for this tool", NextActionStop, 0,
		"Use a tool that GET /v1/tools lists, or ask the agent's owner for a grant.",
	},
	fault.TokenSubjectMismatch: {
		403, "The commit token belongs to another agent", NextActionPreviewAgain, 0,
		"Preview with your own key and commit with the token of that preview.",
	},
	fault.PolicyDenied: {
		403, "The policy denies this action", NextActionStop, 0,
		"Do not repeat it and do not try another way to the same end. Tell the person you work for.",
	},
	fault.SeparationOfDuties: {
		403, "Who asked can't decide", NextActionStop, 0,
		"Somebody else must decide.",
	},
	fault.CrossOrigin: {
		403, "The request comes from another site", NextActionStop, 0,
		"Send the request from the gateway's own page, or from a program that is no browser.",
	},
	fault.NotFound: {
		404, "There is nothing at this address", NextActionStop, 0,
		"See /openapi.yaml for the routes that exist.",
	},
	fault.ToolNotFound: {
		404, "There is no such tool", NextActionStop, 0,
		"Use a tool that GET /v1/tools lists.",
	},
	fault.OperationNotFound: {
		404, "There is no such operation", NextActionStop, 0,
		"Check the id. GET /v1/operations lists the operations that you may see.",
	},
	fault.RunNotFound: {
		404, "There is no such run", NextActionStop, 0,
		"Check the id. A run is there from the first operation that was opened in it.",
	},
	fault.FreezeNotFound: {
		404, "There is no such freeze", NextActionStop, 0,
		"Look at what is frozen now; it may have been lifted.",
	},
	fault.ApprovalNotFound: {
		404, "There is no such approval", NextActionStop, 0,
		"Check the id. GET /v1/approvals lists what waits for people.",
	},
	fault.MethodNotAllowed: {
		405, "This address does not take this method", NextActionStop, 0,
		"Use a method that the Allow header names.",
	},
	fault.PreviewStale: {
		409, "What the preview was read from has changed", NextActionPreviewAgain, 0,
		"Preview again and look at the new effects before you commit. Nothing was opened and nothing was sent.",
	},
	fault.ToolChanged: {
		409, "The tool was changed or withdrawn", NextActionPreviewAgain, 0,
		"Preview again; the tool may ask for other arguments now. Nothing was opened and nothing was sent.",
	},
	fault.RejectedBefore: {
		409, "A person has already said no to this", NextActionStop, 0,
		"Do not ask for the same again or reach the same end by other means. If the person's reason asks for something else, preview that. A person can re-open the ask.",
	},
	fault.GoalTaken: {
		409, "Another operation already stands for this goal", NextActionStop, 0,
		"Do not reach the same goal by other means: wait for the operation that stands for it, and use its result.",
	},
	fault.RunClosed: {
		409, "The run was closed", NextActionStop, 0,
		"What this run did is being taken back. Do not go on with it; begin a new run if the work is still wanted.",
	},
	fault.RunLive: {
		409, "Something in the run has no answer yet", NextActionPoll, 0,
		"Wait until every operation of the run has its answer, then preview its undo again.",
	},
	fault.UnknownsOpen: {
		409, "Outcomes in this scope are not known", NextActionStop, 0,
		"A person settles the unknown outcomes first, or lifts the freeze over them with a reason.",
	},
	fault.InvalidState: {
		409, "The operation's state does not allow this", NextActionPoll, 0,
		"Look at the operation that is enclosed: its state and its next step.",
	},
	fault.ApprovalChanged: {
		409, "What was shown is no longer what would be done", NextActionFixArguments, 0,
		"Read the approval again and decide on what it shows now. No decision was recorded.",
	},
	fault.AlreadyDecided: {
		409, "This person has already decided", NextActionStop, 0,
		"One person counts once in each round.",
	},
	fault.TokenExpired: {
		410, "The commit token has expired", NextActionPreviewAgain, 0,
		"Preview again and commit within the token's life. Nothing was opened and nothing was sent.",
	},
	fault.ToolFrozen: {
		423, "The tool is frozen", NextActionStop, 0,
		"People have stopped this tool for now. Do not try another way to the same end; ask again when they have lifted the freeze.",
	},
	fault.SchemaViolation: {
		422, "The content does not fit the schema", NextActionFixArguments, 0,
		"Correct what the pointers name. Nothing was changed.",
	},
	fault.ForbiddenText: {
		422, "A text holds characters that are not allowed", NextActionFixArguments, 0,
		"Remove invisible and control characters from the value that the pointer names. Nothing was changed.",
	},
	fault.NumberOutOfRange: {
		422, "A number can't be kept exactly", NextActionFixArguments, 0,
		"Send integers within ±(2^53-1) and at most 17 significant digits, or a string where the schema takes one. Nothing was changed.",
	},
	fault.IdempotencyKeyReused: {
		422, "The idempotency key was used for something else", NextActionFixArguments, 0,
		"One key stands for one intent. If you meant the earlier call, use its first result. Another intent needs another key: from you or the run where the tool takes it from there, else from other values of the arguments that make it.",
	},
	fault.RunCallChanged: {
		422, "Another call stands at that place of the run", NextActionFixArguments, 0,
		"If you are replaying the run, send the call with the arguments that it had, and use its first result. Another intent needs another call of the run.",
	},
	fault.IdempotencyKeyNeeded: {
		422, "An idempotency key is needed", NextActionFixArguments, 0,
		"Send Idempotency-Key: one key for each intent, the same on every retry, never a random one made while retrying.",
	},
	fault.IdempotencyKeyMismatch: {
		422, "The tool makes its own idempotency key", NextActionFixArguments, 0,
		"Leave your key out, or send the one that the tool makes.",
	},
	fault.ArgsMismatch: {
		422, "The arguments are not those of the preview", NextActionPreviewAgain, 0,
		"Commit with the tool and the arguments that were previewed, or preview the new ones.",
	},
	fault.ToolRefused: {
		422, "The tool refuses these arguments", NextActionFixArguments, 0,
		"Read the detail: it says what the tool can't do. Change the arguments or give up; nothing was changed.",
	},
	fault.ToolAccess: {
		422, "The tool is of the other kind", NextActionStop, 0,
		"Call tools that read; preview and commit tools that write. GET /v1/tools says which is which.",
	},
	fault.DecisionInvalid: {
		422, "The decision is not one", NextActionFixArguments, 0,
		"Say exactly what the contract names, with a reason where one is needed. No decision was recorded.",
	},
	fault.TargetForbidden: {
		422, "The argument names a forbidden target", NextActionFixArguments, 0,
		"Name a public host. Addresses inside the network are not reachable through this tool.",
	},
	fault.AgainOfInvalid: {
		422, "The repeat does not name the operation in force", NextActionFixArguments, 0,
		"Name the newest operation under this key, when it took effect; leave again_of out for a first ask.",
	},
	fault.UndoImpossible: {
		422, "It can not be taken back", NextActionStop, 0,
		"Do not try to reach the same end by other means; tell a person why it can not be taken back.",
	},
	fault.RunNeeded: {
		422, "The tool needs to know the run", NextActionFixArguments, 0,
		"Say in run which run, step and call this is.",
	},
	fault.RequestTimeout: {
		408, "The body did not arrive in time", NextActionRepeat, 1,
		"Send the same request again, without pauses. Nothing was changed.",
	},
	fault.BodyTooLarge: {
		413, "The body is too large", NextActionFixArguments, 0,
		"Send at most 256 KiB. Nothing was changed.",
	},
	fault.UnsupportedMediaType: {
		415, "The body must be application/json", NextActionFixArguments, 0,
		"Send Content-Type: application/json and UTF-8.",
	},
	fault.UnsupportedEncoding: {
		415, "The body must not be compressed", NextActionFixArguments, 0,
		"Send the body without Content-Encoding.",
	},
	fault.HostNotAllowed: {
		421, "The gateway does not answer for this host", NextActionStop, 0,
		"Use the address that the gateway was given to you under.",
	},
	fault.RateLimited: {
		429, "Too many requests", NextActionRepeat, 12,
		"Wait, then send the same request again. Nothing was changed.",
	},
	fault.QuotaExhausted: {
		429, "This agent has too much open", NextActionRepeat, 60,
		"Commit open previews or let them expire, or wait until people have decided; then preview again.",
	},
	fault.Internal: {
		500, "Something went wrong inside the gateway", NextActionRepeat, 5,
		"Send the same request again once; that can't take effect twice. If it stays so, tell the operator the request id.",
	},
	fault.UpstreamUnexpected: {
		502, "The outside system gave no usable answer", NextActionRepeat, 10,
		"Nothing was opened and nothing was sent. Send the same request again later.",
	},
	fault.StoreUnavailable: {
		503, "The ledger can't be reached", NextActionRepeat, 5,
		"Send the same request again. Nothing was changed.",
	},
	fault.OutcomeUnclear: {
		503, "The ledger did not confirm the write", NextActionRepeat, 1,
		"Send the same request again: it can't take effect twice, and the answer says what is so.",
	},
	fault.UpstreamTimeout: {
		504, "The outside system did not answer in time", NextActionRepeat, 10,
		"Nothing was opened and nothing was sent. Send the same request again later.",
	},
	fault.DiskFull: {
		507, "The ledger's disk is full", NextActionRepeat, 60,
		"Nothing was written. Send the same request again when the operator has made room.",
	},
}
