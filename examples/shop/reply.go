package shop

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"unicode/utf8"
)

// message is the body of every refusal.
type message struct {
	Message string `json:"message"`
}

// list is the body of every list.
type list[T any] struct {
	Items []T `json:"items"`
}

// refusal is an error that the caller is told.
type refusal struct {
	status int
	text   string
}

func (e *refusal) Error() string { return e.text }

// refuse returns a *refusal: nothing was done, and why.
func refuse(status int, format string, args ...any) error {
	return &refusal{status, fmt.Sprintf(format, args...)}
}

// unknown is the refusal of an id that does not exist.
func unknown(what, id string) error {
	return refuse(http.StatusNotFound, "There is no %s %q.", what, id)
}

func answerJSON(w http.ResponseWriter, status int, body any) {
	b := encode(body)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	w.WriteHeader(status)
	_, _ = w.Write(b)
}

func answerError(w http.ResponseWriter, err error) {
	var r *refusal
	if !errors.As(err, &r) {
		r = &refusal{http.StatusInternalServerError, "Something went wrong."}
	}
	answerJSON(w, r.status, message{r.text})
}

// encode is JSON as the shop sends it: one line, text as it is.
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		// Every value is one of this package's own plain structs.
		panic("shop: " + err.Error())
	}
	return b.Bytes()
}

func mediaType(r *http.Request) string {
	t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return ""
	}
	return t
}

// decode reads one JSON object into v and refuses unknown members and anything
// that follows it.
func decode(r *http.Request, body []byte, v any) error {
	if mediaType(r) != "application/json" {
		return refuse(http.StatusUnsupportedMediaType, "The body must be application/json.")
	}
	if !utf8.Valid(body) {
		return refuse(http.StatusBadRequest, "The body is not UTF-8.")
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return refuse(http.StatusBadRequest, "The body is not the JSON object that belongs here: %v.", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return refuse(http.StatusBadRequest, "Something follows the JSON object.")
	}
	return nil
}

// decodeOptional is decode for routes whose body may be left out.
func decodeOptional(r *http.Request, v any) error {
	if len(bodyOf(r)) == 0 {
		return nil
	}
	return decode(r, bodyOf(r), v)
}

// text checks a text member: its length in characters, from least to most.
func text(name, value string, least, most int) error {
	if n := utf8.RuneCountInString(value); n < least || n > most {
		return refuse(http.StatusUnprocessableEntity, "%s has %d to %d characters.", name, least, most)
	}
	return nil
}

// limit reads ?limit=, 1 to 100, 50 without one.
func limit(r *http.Request) (int, error) {
	value := r.URL.Query().Get("limit")
	if value == "" {
		return 50, nil
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 || n > 100 {
		return 0, refuse(http.StatusBadRequest, "limit is a whole number from 1 to 100.")
	}
	return n, nil
}
