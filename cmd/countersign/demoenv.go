package main

import (
	"bufio"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"countersign/identity"
)

// demoEnv is data/demo.env (0600): what the demo must find again at its next
// start, in the form NAME=value that a shell can read as well.
type demoEnv struct {
	path        string
	ShopPort    int
	ShopKey     string
	ShopReadKey string
	AgentKey    string
}

func (e demoEnv) shopAddr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(e.ShopPort)) }
func (e demoEnv) shopURL() string  { return "http://" + e.shopAddr() }

// lookup gives the demo's secrets by name, and the environment's otherwise.
func (e demoEnv) lookup(getenv func(string) string) func(string) string {
	return func(name string) string {
		switch name {
		case "DEMO_SHOP_KEY":
			return e.ShopKey
		case "DEMO_SHOP_READ_KEY":
			return e.ShopReadKey
		default:
			return getenv(name)
		}
	}
}

// loadDemoEnv reads the file, or makes it: the shop's port is chosen once.
func loadDemoEnv(path string) (demoEnv, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return newDemoEnv(path)
	}
	if err != nil {
		return demoEnv{}, err
	}
	defer f.Close()
	e := demoEnv{path: path}
	for s := bufio.NewScanner(f); s.Scan(); {
		name, value, _ := strings.Cut(s.Text(), "=")
		switch name {
		case "SHOP_PORT":
			e.ShopPort, _ = strconv.Atoi(value) // 0 is refused below
		case "SHOP_KEY":
			e.ShopKey = value
		case "SHOP_READ_KEY":
			e.ShopReadKey = value
		case "AGENT_KEY":
			e.AgentKey = value
		}
	}
	if e.ShopPort < 1 || e.ShopPort > 65535 || e.ShopKey == "" || e.ShopReadKey == "" || e.AgentKey == "" {
		return e, fmt.Errorf("%s is not whole; start over with --reset", path)
	}
	return e, nil
}

func newDemoEnv(path string) (demoEnv, error) {
	ln, _, err := listenFrom(demoShopPort)
	if err != nil {
		return demoEnv{}, err
	}
	defer ln.Close()
	key, err := identity.NewAgentKey(rand.Reader)
	if err != nil {
		return demoEnv{}, err
	}
	e := demoEnv{
		path: path, ShopPort: ln.Addr().(*net.TCPAddr).Port,
		ShopKey: "shop_" + rand.Text(), ShopReadKey: "shop_ro_" + rand.Text(), AgentKey: key,
	}
	text := fmt.Sprintf("# The demo's secrets. Remove with: countersign demo --reset\nSHOP_PORT=%d\nSHOP_KEY=%s\nSHOP_READ_KEY=%s\nAGENT_KEY=%s\n",
		e.ShopPort, e.ShopKey, e.ShopReadKey, e.AgentKey)
	return e, os.WriteFile(path, []byte(text), 0o600)
}
