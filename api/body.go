package api

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"strings"
	"time"

	"countersign/fault"
	"countersign/strictjson"
)

// readBody is the one door for bodies (S60): size, type, the strict decoder, the
// contract's schema. What goes on is the parsed value in the exchange; generated
// decoding gets that value's canonical form and never the client's bytes (S63).
func (s *Server) readBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := of(r.Context())
		if x.route.body == nil {
			if r.ContentLength != 0 {
				w.Header().Set("Connection", "close")
				s.refuse(w, r, fault.New(fault.MalformedRequest, "A %s carries no body here.", r.Method))
				return
			}
			next.ServeHTTP(w, r)
			return
		}
		var body map[string]any
		var err error
		if x.route.body.optional && r.ContentLength == 0 {
			body = map[string]any{}
		} else {
			body, err = s.parseBody(w, r)
		}
		if err == nil {
			err = x.route.body.check(body)
		}
		if err != nil {
			s.refuse(w, r, s.advise(x.who, toolInPath(r), err))
			return
		}
		x.body = body
		r.Body = io.NopCloser(bytes.NewReader(strictjson.Canonical(body)))
		next.ServeHTTP(w, r)
	})
}

func (s *Server) parseBody(w http.ResponseWriter, r *http.Request) (map[string]any, error) {
	// Encoding first: what is compressed is not read, whatever it says to be (S65).
	if coding := r.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return nil, fault.New(fault.UnsupportedEncoding, "A body can't be sent with Content-Encoding %s.", strictjson.Echo(coding))
	}
	if !plainJSON(r.Header.Get("Content-Type")) {
		return nil, fault.New(fault.UnsupportedMediaType, "Send the body with Content-Type: application/json, in UTF-8.")
	}
	data, err := s.readAll(w, r)
	if err != nil {
		return nil, err
	}
	return strictjson.ParseObject(data, strictjson.DefaultLimits)
}

// plainJSON takes application/json, with no parameter but charset=utf-8.
func plainJSON(contentType string) bool {
	media, params, err := mime.ParseMediaType(contentType)
	if err != nil || media != "application/json" {
		return false
	}
	for name, value := range params {
		if name != "charset" || !strings.EqualFold(value, "utf-8") {
			return false
		}
	}
	return true
}

// readAll reads the body within its limits of size and time.
func (s *Server) readAll(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	limit := int64(strictjson.DefaultLimits.Bytes)
	tooLarge := fault.New(fault.BodyTooLarge, "The body is larger than %d bytes.", limit)
	if r.ContentLength > limit {
		// Not one byte of it is read, so the connection can't be used again.
		w.Header().Set("Connection", "close")
		return nil, tooLarge
	}
	control := of(r.Context()).control
	_ = control.SetReadDeadline(s.sockets.Now().Add(s.cfg.BodyTimeout))
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if err != nil {
		w.Header().Set("Connection", "close")
	}
	var tooMuch *http.MaxBytesError
	var timeout net.Error
	switch {
	case err == nil:
		// Nothing is left to read. A deadline that passes now would look as if the
		// caller had hung up.
		_ = control.SetReadDeadline(time.Time{})
		return data, nil
	case errors.As(err, &tooMuch):
		return nil, tooLarge
	case errors.As(err, &timeout) && timeout.Timeout():
		return nil, fault.Wrap(err, fault.RequestTimeout, "The body did not arrive within %s.", s.cfg.BodyTimeout)
	default:
		return nil, fault.Wrap(err, fault.MalformedRequest, "The body could not be read to the end that the request announced.")
	}
}

// argsOf gives the args of the request as they were parsed; nil when absent.
func argsOf(ctx context.Context) map[string]any {
	args, _ := of(ctx).body["args"].(map[string]any)
	return args
}

// underArgs moves the pointers of a refusal from the arguments, where the tool
// found them, to the body that the caller sent.
func underArgs(err error) error {
	var e *fault.Error
	if !errors.As(err, &e) || len(e.Pointers) == 0 || e.Code == fault.RunNeeded {
		return err
	}
	moved := *e
	moved.Pointers = nil
	for _, p := range e.Pointers {
		moved.Pointers = append(moved.Pointers, fault.Pointer{Pointer: "/args" + p.Pointer, Detail: p.Detail})
	}
	return &moved
}
