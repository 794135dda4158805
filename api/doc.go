// Package api is the REST surface: openapi.yaml, served.
//
// What lives here: the router and what stands before every handler (request
// id, host, credential, rate, query, body), one file of handlers for each
// resource, the JSON forms of operations, previews and approvals, the one table
// from a fault's code to an HTTP problem (problem.go), and the reference page.
// api.gen.go holds the types and the routing that are generated from the
// contract.
//
// How it flows: the contract is read once at New. It says for each route who
// may call it, which query parameters it takes and what its body must look
// like, and the middlewares hold every request to that. A body passes the
// strict decoder before generated code sees it; handlers take arguments as that
// parsed value. A handler decodes, calls one service and encodes; an error that
// it returns becomes a problem document in one place.
//
// What does not live here: rules about operations, tokens, keys and people
// (preview, commit, approvals, ledger), the operator's page and signing in
// (web, identity), metrics.
package api

//go:generate ../.ci/generate.sh
