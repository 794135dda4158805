package httptool

import (
	"errors"
	"net"
	"sync"
)

// errSealed is a write on a connection after its request was given up.
var errSealed = errors.New("the request was given up before this write")

// gateConn stands between the HTTP code and a connection (above TLS). It proves
// what "not sent" claims: as long as no Write has begun, not one byte of the
// request is on the wire, and once sealed none will be.
type gateConn struct {
	net.Conn

	mu     sync.Mutex
	sealed bool
	began  bool  // a Write has begun since arm
	bytes  int64 // written since arm
	// first is asked once, just before the first byte.
	first func() error
	// refused is what first said, when it refused.
	refused error
}

// arm prepares the gate for one request. first may refuse it at the last moment.
func (c *gateConn) arm(first func() error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.began, c.bytes, c.first, c.refused = false, 0, first, nil
}

// Write implements net.Conn.
func (c *gateConn) Write(p []byte) (int, error) {
	if err := c.pass(len(p)); err != nil {
		return 0, err
	}
	n, err := c.Conn.Write(p)
	if n < len(p) {
		c.mu.Lock()
		c.bytes -= int64(len(p) - n)
		c.mu.Unlock()
	}
	return n, err
}

// pass lets a write of n bytes begin, or refuses it. The mark is made before the
// bytes go: an answer can be there before the write has returned.
func (c *gateConn) pass(n int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sealed {
		return errSealed
	}
	if !c.began && c.first != nil {
		if err := c.first(); err != nil {
			c.sealed, c.refused = true, err
			return err
		}
	}
	c.began = true
	c.bytes += int64(n)
	return nil
}

// seal refuses every later write and says whether one has begun.
func (c *gateConn) seal() (began bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sealed = true
	return c.began
}

// refusal is why the first byte was refused, if it was. net/http may report the
// closing of the connection instead.
func (c *gateConn) refusal() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refused
}

// sent is the number of bytes written since arm.
func (c *gateConn) sent() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bytes
}
