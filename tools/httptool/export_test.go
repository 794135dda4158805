package httptool

import (
	"context"
	"time"

	"countersign/tools"
)

// Dials says what the dial guard thinks of a resolved address.
func (c *Client) Dials(address string) error { return c.control("tcp", address, nil) }

// ReadRaw sends a request on the way of a read.
func (c *Client) ReadRaw(ctx context.Context, r tools.Request) (tools.Reply, tools.Exchange, error) {
	return c.read(ctx, r, time.Second, time.Minute)
}
