package main

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The key goes to the gateway that is named, else to the configuration's; the
// default address is only for where there is no configuration.
func TestGatewayURL(t *testing.T) {
	for name, c := range map[string]struct {
		config string // none when empty
		flag   string
		env    map[string]string
		want   string
		says   string
	}{
		"nothing is named":                {want: "http://localhost:8420"},
		"the flag":                        {config: "listen: 127.0.0.1:9001", flag: "http://localhost:1", env: map[string]string{"COUNTERSIGN_URL": "http://localhost:2"}, want: "http://localhost:1"},
		"the variable":                    {config: "listen: 127.0.0.1:9001", env: map[string]string{"COUNTERSIGN_URL": "http://localhost:2"}, want: "http://localhost:2"},
		"what it listens on":              {config: "listen: 127.0.0.1:9001", want: "http://localhost:9001"},
		"its defaults":                    {config: "log: {level: warn}", want: "http://localhost:8420"},
		"overridden by the environment":   {config: "listen: 127.0.0.1:9001", env: map[string]string{"COUNTERSIGN_LISTEN": "127.0.0.1:9002"}, want: "http://localhost:9002"},
		"its public address":              {config: "public_url: https://gate.example/", want: "https://gate.example"},
		"the agents' door":                {config: "{public_url: \"https://gate.example\", listen: \"127.0.0.1:9001\", people_listen: \"127.0.0.1:9002\"}", want: "http://localhost:9001"},
		"a port that is known by nobody":  {config: "listen: 127.0.0.1:0", says: "says port 0, which is whichever is free; name the gateway with --url or COUNTERSIGN_URL"},
		"a broken one":                    {config: "listen: nowhere", says: "name it with --url or COUNTERSIGN_URL instead"},
		"a broken one that is not needed": {config: "listen: nowhere", flag: "http://localhost:1", want: "http://localhost:1"},
	} {
		for _, how := range []string{"here", "flag", "variable"} {
			t.Run(name+"/"+how, func(t *testing.T) {
				t.Chdir(t.TempDir())
				env := map[string]string{}
				for k, v := range c.env {
					env[k] = v
				}
				p := &program{getenv: func(name string) string { return env[name] }}
				if c.config != "" {
					file := "countersign.yaml"
					switch how {
					case "flag":
						file = filepath.Join(t.TempDir(), "gate.yaml")
						p.configPath = file
					case "variable":
						file = filepath.Join(t.TempDir(), "gate.yaml")
						env["COUNTERSIGN_CONFIG"] = file
					}
					require.NoError(t, os.WriteFile(file, []byte(c.config+"\n"), 0o600))
				}
				got, err := p.gatewayURL(c.flag)
				if c.says != "" {
					require.ErrorContains(t, err, c.says)
					return
				}
				require.NoError(t, err)
				require.Equal(t, c.want, got)
			})
		}
	}
}

// A configuration that is named and not there is an error, not the default.
func TestGatewayURL_NamedAndMissing(t *testing.T) {
	p := &program{getenv: noEnv, configPath: filepath.Join(t.TempDir(), "nowhere.yaml")}
	_, err := p.gatewayURL("")
	require.ErrorIs(t, err, os.ErrNotExist)
}

// Plain http is for loopback: people sign in at the public address.
func TestConfig_PublicURL(t *testing.T) {
	for url, good := range map[string]bool{
		"http://localhost:8420": true, "http://gate.localhost": true, "http://127.8.0.1:1": true, "http://[::1]:8420/": true,
		"https://gate.example": true, "https://10.0.0.1:8443": true,
		"http://gate.example": false, "http://10.0.0.1:8420": false, "http://localhost.example": false, "http://notlocalhost": false,
		"http://[::2]:8420": false, "http://0.0.0.0:8420": false, "HTTPS://gate.example": false,
	} {
		c := defaultConfig()
		c.PublicURL = url
		require.Equal(t, good, len(c.check()) == 0, "%s: %v", url, c.check())
	}
}

// A handler in this process that breaks off its answer gives none, as over a
// socket; nothing else that breaks is hidden.
func TestInProcess_BrokenOff(t *testing.T) {
	get := func(cause any) error {
		a := &admin{client: &http.Client{Transport: inProcess{http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("a part"))
			panic(cause)
		})}}}
		return a.stream(t.Context(), "/x", os.Stdout)
	}
	require.ErrorContains(t, get(http.ErrAbortHandler), "unexpected EOF")
	require.PanicsWithValue(t, "wires crossed", func() { _ = get("wires crossed") })
}
