package httptool

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
)

// errLate is the first byte asked for after the dispatch deadline.
var errLate = errors.New("the dispatch deadline had passed before the first byte")

// words says in plain text what went wrong on the way, without host names,
// addresses or anything of the request.
func words(err error) string {
	var forbidden *errForbidden
	var dns *net.DNSError
	var certificate *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	var handshake *errTLS
	switch {
	case errors.Is(err, errLate):
		return "The dispatch deadline had passed before the first byte."
	case errors.As(err, &forbidden):
		return "The upstream's address is " + forbidden.kind + " and is not listed under allow."
	case errors.As(err, &dns):
		return "The name of the upstream could not be resolved."
	case errors.As(err, &certificate), errors.As(err, &authority):
		return "The upstream's certificate is not trusted."
	case errors.As(err, &handshake):
		return "The TLS handshake with the upstream failed."
	case errors.Is(err, syscall.ECONNREFUSED):
		return "The upstream refused the connection."
	case isTimeout(err):
		return "The upstream did not answer in time."
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "The upstream reset the connection."
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), strings.Contains(err.Error(), "server closed idle connection"):
		return "The upstream closed the connection before its answer was complete."
	case strings.Contains(err.Error(), "headers exceeded"):
		return "The header of the upstream's answer is too long."
	case strings.Contains(err.Error(), "malformed"), strings.Contains(err.Error(), "bad "), strings.Contains(err.Error(), "invalid"):
		return "The upstream's answer is not HTTP."
	}
	return "The connection to the upstream failed."
}

func isTimeout(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) ||
		errors.As(err, &timeout) && timeout.Timeout()
}
