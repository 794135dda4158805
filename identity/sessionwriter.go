package identity

import (
	"errors"
	"net/http"
)

// The writer of scs stores the session and sets the cookie when the answer
// begins. It stands between two of ours.

// upperWriter is what handlers see. The writer of scs has no Flush: a
// ResponseController would reach past it and send the header before the session
// is stored, and a plain http.Flusher would be missing. Deadlines and the rest
// are found through Unwrap.
type upperWriter struct {
	http.ResponseWriter
	req   *request
	wrote bool
}

var errSessionLost = errors.New("identity: the session could not be stored; the answer was replaced")

func (w *upperWriter) WriteHeader(status int) {
	// An informational status is not the answer, but scs would take it for one;
	// it is dropped.
	if w.wrote || status < 200 && status != http.StatusSwitchingProtocols {
		return
	}
	w.wrote = true
	w.ResponseWriter.WriteHeader(status)
}

func (w *upperWriter) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if w.req.failed {
		return 0, errSessionLost
	}
	return w.ResponseWriter.Write(b)
}

// FlushError is what http.ResponseController calls.
func (w *upperWriter) FlushError() error {
	w.WriteHeader(http.StatusOK)
	if w.req.failed {
		return errSessionLost
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Flush is http.Flusher, for handlers that ask for it.
func (w *upperWriter) Flush() { _ = w.FlushError() }

// Unwrap is for http.ResponseController.
func (w *upperWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// lowerWriter drops the header that scs writes although its error was answered.
type lowerWriter struct {
	http.ResponseWriter
	req *request
}

func (w *lowerWriter) WriteHeader(status int) {
	if !w.req.failed {
		w.ResponseWriter.WriteHeader(status)
	}
}

// Unwrap is for http.ResponseController.
func (w *lowerWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
