// Package fault holds the one error type that a caller of Countersign may see.
//
// What lives here: Error, its stable codes, and two accessors. Every refusal
// that reaches an agent, an operator or the command line is an *Error with a
// code from this package; the code is the contract, the detail is for people.
//
// How it flows: any package returns an *Error (or wraps a cause in one);
// callers pass it up untouched; api/problem.go is the only table from code to
// HTTP status, title and next step. An error of any other type is "internal":
// logged once, shown without detail.
//
// What does not live here: HTTP, texts for people beyond the detail, retries.
// The package imports nothing of this module.
package fault

import (
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

// Code is a stable, snake_case name of a refusal. The set of codes is the enum
// ProblemCode in openapi.yaml.
type Code string

// Pointer names one bad place of a request: a JSON Pointer (RFC 6901) into the
// body and what is wrong there.
type Pointer struct {
	Pointer string `json:"pointer"`
	Detail  string `json:"detail"`
}

// Error is a refusal. Nothing was changed when one is returned, unless its
// code says otherwise (OutcomeUnclear).
type Error struct {
	Code Code
	// Detail is one or two plain sentences for the reader: what is wrong and
	// what would be right. Never secrets, never another tenant's data.
	Detail string
	// Pointers are the bad members of the body, when there are any.
	Pointers []Pointer
	// Malformed marks the few codes (too_long) that are a syntax error in one
	// place and a semantic one in another; it makes the status 400.
	Malformed bool
	// RetryAfter is when a repeat may succeed; zero means not stated.
	RetryAfter time.Duration
	// Operation is the id of the operation that is in the way, if any; only set
	// when the caller may see it.
	Operation string
	// Cause is for the log only.
	Cause error
}

// New returns an *Error with a formatted detail.
func New(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Detail: fmt.Sprintf(format, args...)}
}

// Wrap is New with a cause that goes to the log and never to the caller.
func Wrap(cause error, code Code, format string, args ...any) *Error {
	e := New(code, format, args...)
	e.Cause = cause
	return e
}

// Recovered turns a panic into an error, for the log, with where it happened: a step
// of a background loop that breaks off must end neither the loop nor the process.
// It is deferred, with the step's named error.
func Recovered(err *error) {
	if p := recover(); p != nil {
		*err = Wrap(fmt.Errorf("panic: %v\n%s", p, debug.Stack()), Internal, "Something broke off inside the gateway.")
	}
}

// Error implements error: code, detail and cause, for logs.
func (e *Error) Error() string {
	s := string(e.Code) + ": " + e.Detail
	if e.Cause != nil {
		s += ": " + e.Cause.Error()
	}
	return s
}

// Unwrap gives the cause to errors.Is and errors.As.
func (e *Error) Unwrap() error { return e.Cause }

// At returns a copy of e with one more pointer.
func (e *Error) At(pointer, detail string) *Error {
	c := *e
	c.Pointers = append(append([]Pointer(nil), e.Pointers...), Pointer{Pointer: pointer, Detail: detail})
	return &c
}

// Of returns the *Error in err's chain, or an Internal one that wraps err.
// Of(nil) is nil.
func Of(err error) *Error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return Wrap(err, Internal, "Something went wrong inside the gateway.")
}

// Is reports whether err carries the code.
func Is(err error, code Code) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == code
}
