package tooltest

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
)

// FreePort finds a port of the loopback that is free now, below those that systems
// give to connections: one of these could take it while a server that had it starts
// again, and who dials it meanwhile could be connected to itself.
func FreePort() (int, error) {
	for range 200 {
		port := 10240 + rand.IntN(20000) //nolint:gosec // no secret
		ln, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			return port, ln.Close()
		}
	}
	return 0, errors.New("tooltest: no free port")
}
