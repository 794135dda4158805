package httptool

import (
	"context"
	"net"
)

// Probe connects to the upstream within the guard, with the TLS handshake where
// there is one, and hangs up: no request is sent. Its error says in words what
// did not work.
func (c *Client) Probe(ctx context.Context) error {
	port := c.base.Port()
	dial := c.dial
	switch {
	case c.base.Scheme == "https":
		dial = c.dialTLS
		if port == "" {
			port = "443"
		}
	case port == "":
		port = "80"
	}
	conn, err := dial(ctx, "tcp", net.JoinHostPort(c.base.Hostname(), port))
	if err != nil {
		return err
	}
	return conn.Close()
}
