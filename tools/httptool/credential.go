package httptool

import (
	"encoding/base64"
	"errors"
	"net/http"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// Secret gives a credential's value when it is needed, so that a file can be
// rotated while the gateway runs. It is called for every request and should be
// cheap.
type Secret func() (string, error)

// Credential says how the gateway identifies itself; exactly one member is set.
type Credential struct {
	Bearer Secret
	Basic  *Basic
	Header *SecretHeader
}

// Basic is a user name and password (RFC 7617).
type Basic struct {
	User     string
	Password Secret
}

// SecretHeader is a header field of its own, such as X-Api-Key.
type SecretHeader struct {
	Name  string
	Value Secret
}

func (c *Credential) check() error {
	if c == nil {
		return nil
	}
	n := 0
	for _, set := range []bool{c.Bearer != nil, c.Basic != nil, c.Header != nil} {
		if set {
			n++
		}
	}
	switch {
	case n != 1:
		return errors.New("a credential has exactly one of bearer, basic and header")
	case c.Basic != nil && (c.Basic.Password == nil || strings.ContainsAny(c.Basic.User, ":\r\n")):
		return errors.New("a basic credential has a user without a colon, and a password")
	case c.Header != nil && (c.Header.Value == nil || !httpguts.ValidHeaderFieldName(c.Header.Name)):
		return errors.New("a header credential has the name of a header, and a value")
	}
	return nil
}

// apply adds the credential to a request and gives the secret texts in it, so
// that they can be taken out of what is stored.
func (c *Credential) apply(h http.Header) (secrets []string, err error) {
	if c == nil {
		return nil, nil
	}
	switch {
	case c.Bearer != nil:
		token, err := secretText(c.Bearer)
		if err != nil {
			return nil, err
		}
		h.Set("Authorization", "Bearer "+token)
		return []string{token}, nil
	case c.Basic != nil:
		password, err := secretText(c.Basic.Password)
		if err != nil {
			return nil, err
		}
		pair := base64.StdEncoding.EncodeToString([]byte(c.Basic.User + ":" + password))
		h.Set("Authorization", "Basic "+pair)
		return []string{password, pair}, nil
	}
	value, err := secretText(c.Header.Value)
	if err != nil {
		return nil, err
	}
	h.Set(c.Header.Name, value)
	return []string{value}, nil
}

// errCredential is a secret that can't be used; it never holds its value.
type errCredential struct{ cause error }

func (e *errCredential) Error() string { return "the credential can't be used: " + e.cause.Error() }

func (e *errCredential) Unwrap() error { return e.cause }

// secretText reads a secret.
func secretText(s Secret) (string, error) {
	text, err := s()
	if err != nil {
		return "", &errCredential{err}
	}
	text = strings.TrimRight(text, "\r\n")
	if text == "" || !httpguts.ValidHeaderFieldValue(text) {
		return "", &errCredential{errors.New("it is empty or holds characters that no header may hold")}
	}
	return text, nil
}
