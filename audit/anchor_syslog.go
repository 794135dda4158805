package audit

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

// SyslogAnchor sends records to a collector of system logs (RFC 5424). It can't be
// read from here, so it guards nothing at the start; auditors find in the
// collector's archive what the ledger once was. Over udp nobody acknowledges
// anything.
type SyslogAnchor struct {
	network, address string
	host             string
}

// NewSyslogAnchor takes udp://HOST:PORT, tcp://HOST:PORT or unixgram:///PATH, such
// as unixgram:///dev/log.
func NewSyslogAnchor(target string) (*SyslogAnchor, error) {
	u, err := url.Parse(target)
	if err != nil {
		return nil, errors.New("must be like udp://HOST:PORT, tcp://HOST:PORT or unixgram:///dev/log")
	}
	a := &SyslogAnchor{network: u.Scheme, address: u.Host, host: "-"}
	switch {
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		err = errors.New("takes no user, query or fragment")
	case u.Scheme == "unixgram" && u.Host == "" && len(u.Path) > 1:
		a.address = u.Path
	case (u.Scheme == "udp" || u.Scheme == "tcp") && u.Hostname() != "" && u.Port() != "" && strings.Trim(u.Path, "/") == "":
	default:
		err = errors.New("must be like udp://HOST:PORT, tcp://HOST:PORT or unixgram:///dev/log")
	}
	if name, e := os.Hostname(); e == nil && name != "" && !strings.ContainsAny(name, " \t") {
		a.host = name
	}
	return a, err
}

// Name implements Anchor.
func (a *SyslogAnchor) Name() string { return "syslog " + a.network + " " + a.address }

// Last implements Anchor.
func (a *SyslogAnchor) Last(context.Context) (Record, bool, error) {
	return Record{}, false, ErrWriteOnly
}

// Append implements Anchor. It returns once the record was handed to the network,
// or to the local collector.
func (a *SyslogAnchor) Append(ctx context.Context, r Record) (err error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, a.network, a.address)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return err
		}
	}
	message := a.message(r)
	if a.network == "tcp" {
		message = strconv.Itoa(len(message)) + " " + message // octet counting, RFC 6587
	}
	_, err = conn.Write([]byte(message))
	return err
}

// message is the record as RFC 5424 has it: facility 13 (log audit), severity 5
// (notice). What identifies the checkpoint is structured data, under the
// enterprise number that RFC 5612 keeps for documentation; the record itself is
// the message.
func (a *SyslogAnchor) message(r Record) string {
	c := r.Checkpoint
	what := "checkpoint"
	if r.Recovery != "" {
		what = "recovery"
	}
	return fmt.Sprintf("<%d>1 %s %s countersign %d %s [checkpoint@32473 ledger=%q n=\"%d\" seq=\"%d\" hash=%q] %s",
		13*8+5, c.At.UTC().Truncate(time.Microsecond).Format(time.RFC3339Nano), a.host, os.Getpid(), what, c.Ledger, c.N, c.Seq, c.Hash, mustJSON(r))
}
