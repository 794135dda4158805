package identity

import (
	"errors"
	"net/http"
)

// sessionWriter stands before the writer of scs, which has no Flush: a
// ResponseController would reach past it and send the header before the session
// and its cookie are written, and a plain http.Flusher would be missing.
// Deadlines and the rest are found through Unwrap.
type sessionWriter struct {
	http.ResponseWriter
	wrote  bool
	failed bool
}

var errSessionLost = errors.New("identity: the session could not be stored; the answer was replaced")

func (w *sessionWriter) WriteHeader(status int) {
	if w.failed {
		return
	}
	// An informational status is not the answer, but scs would take it for one;
	// it is dropped.
	if status >= 100 && status < 200 && status != http.StatusSwitchingProtocols {
		return
	}
	if !w.wrote {
		w.wrote = true
		w.ResponseWriter.WriteHeader(status)
	}
}

func (w *sessionWriter) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if w.failed {
		return 0, errSessionLost
	}
	return w.ResponseWriter.Write(b)
}

// FlushError is what http.ResponseController calls.
func (w *sessionWriter) FlushError() error {
	w.WriteHeader(http.StatusOK)
	if w.failed {
		return errSessionLost
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Flush is http.Flusher, for handlers that ask for it.
func (w *sessionWriter) Flush() { _ = w.FlushError() }

// Unwrap is for http.ResponseController.
func (w *sessionWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
