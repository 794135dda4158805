package httptool

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"syscall"

	"countersign/tools"
)

// Allowed is one entry of an upstream's allow list: an address or a range, and
// one port or every port.
type Allowed struct {
	Prefix netip.Prefix
	Port   uint16 // 0 means every port
}

// ParseAllowed reads "10.0.0.7", "10.0.0.7:8421", "[::1]:8421" or "10.0.0.0/24".
func ParseAllowed(s string) (Allowed, error) {
	if p, err := netip.ParsePrefix(s); err == nil {
		return Allowed{Prefix: unmapPrefix(p)}, nil
	}
	if ap, err := netip.ParseAddrPort(s); err == nil && ap.Port() != 0 {
		return Allowed{Prefix: single(ap.Addr()), Port: ap.Port()}, nil
	}
	if a, err := netip.ParseAddr(strings.Trim(s, "[]")); err == nil {
		return Allowed{Prefix: single(a)}, nil
	}
	return Allowed{}, fmt.Errorf("%q is neither an address, address:port nor a range such as 10.0.0.0/24", s)
}

// String is the form that ParseAllowed reads.
func (a Allowed) String() string {
	addr := a.Prefix.Addr().String()
	switch {
	case !a.Prefix.IsSingleIP():
		return a.Prefix.String()
	case a.Port == 0:
		return addr
	}
	return netip.AddrPortFrom(a.Prefix.Addr(), a.Port).String()
}

func single(a netip.Addr) netip.Prefix {
	a = a.Unmap().WithZone("")
	return netip.PrefixFrom(a, a.BitLen())
}

// unmapPrefix makes ::ffff:10.0.0.0/104 what is compared with: 10.0.0.0/8.
func unmapPrefix(p netip.Prefix) netip.Prefix {
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		return netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p
}

// permits says whether the entry covers the address.
func (a Allowed) permits(addr netip.Addr, port uint16) bool {
	return a.Prefix.Contains(addr) && (a.Port == 0 || a.Port == port)
}

// control is called with every resolved address before it is connected.
func (c *Client) control(network, address string, _ syscall.RawConn) error {
	if !strings.HasPrefix(network, "tcp") {
		return &errForbidden{"not reached over TCP"}
	}
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return &errForbidden{"not readable: " + strconv.Quote(address)}
	}
	addr := ap.Addr().Unmap().WithZone("")
	kind := tools.ForbiddenAddress(addr)
	if kind == "" {
		return nil
	}
	for _, a := range c.up.Allow {
		if a.permits(addr, ap.Port()) {
			return nil
		}
	}
	return &errForbidden{kind}
}
