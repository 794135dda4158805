package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"

	"countersign/ledger"
	"countersign/tools"
	"countersign/tools/httptool"
)

// This file and its wire_ neighbours belong to wire.go: upstreams and the tools
// that write to them.

// openUpstreams makes a client for each upstream of the configuration. It
// dials nothing.
func openUpstreams(cfg Config, env environment) (map[string]*httptool.Client, error) {
	clients := map[string]*httptool.Client{}
	for name, u := range cfg.Upstreams {
		up := httptool.Upstream{Name: name, URL: u.URL, Now: env.now}
		up.Auth = credential(cfg, env, u.Auth)
		up.ReadAuth = credential(cfg, env, u.ReadAuth)
		for _, a := range u.Allow {
			allowed, err := httptool.ParseAllowed(a)
			if err != nil {
				return nil, fmt.Errorf("upstreams.%s.allow: %w", name, err)
			}
			up.Allow = append(up.Allow, allowed)
		}
		if u.CA != "" {
			pem, err := os.ReadFile(cfg.path(u.CA))
			if err != nil {
				return nil, fmt.Errorf("upstreams.%s.ca: %w", name, err)
			}
			up.RootCAs = x509.NewCertPool()
			if !up.RootCAs.AppendCertsFromPEM(pem) {
				return nil, fmt.Errorf("upstreams.%s.ca: %s holds no certificate", name, u.CA)
			}
		}
		client, err := httptool.Open(up)
		if err != nil {
			return nil, err
		}
		clients[name] = client
	}
	return clients, nil
}

// credential resolves a credential's reference each time that it is used, so
// that a file may be rotated.
func credential(cfg Config, env environment, a *Auth) *httptool.Credential {
	switch {
	case a == nil:
		return nil
	case a.Bearer != "":
		return &httptool.Credential{Bearer: secret(cfg, env, a.Bearer)}
	case a.Basic != nil:
		return &httptool.Credential{Basic: &httptool.Basic{User: a.Basic.User, Password: secret(cfg, env, a.Basic.Password)}}
	default:
		return &httptool.Credential{Header: &httptool.SecretHeader{Name: a.Header.Name, Value: secret(cfg, env, a.Header.Value)}}
	}
}

// secret reads env:NAME or file:PATH. One that is empty is none: a request
// without its credential must not be sent.
func secret(cfg Config, env environment, ref string) httptool.Secret {
	return func() (string, error) {
		if name, ok := strings.CutPrefix(ref, "env:"); ok {
			v := env.getenv(name)
			if v == "" {
				return "", fmt.Errorf("the environment has no %s", name)
			}
			return v, nil
		}
		path := cfg.path(strings.TrimPrefix(ref, "file:"))
		b, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		v := strings.TrimSpace(string(b))
		if v == "" {
			return "", fmt.Errorf("%s is empty", path)
		}
		return v, nil
	}
}

// requireSecrets resolves every credential once and forgets it, so that a
// gateway does not start and then fail at each call. All that is missing is told
// at once.
func requireSecrets(cfg Config, env environment) error {
	var missing []error
	for _, s := range cfg.secretRefs() {
		if _, err := secret(cfg, env, s.ref)(); err != nil {
			missing = append(missing, fmt.Errorf("%s: %w", s.key, err))
		}
	}
	return errors.Join(missing...)
}

// compileAll reads all manifests and compiles them. Its error lists every
// problem of every file.
func (g *gateway) compileAll() ([]*tools.Tool, error) {
	loaded, err := g.manifests()
	if err != nil {
		return nil, err
	}
	var list []*tools.Tool
	var errs []error
	for _, l := range loaded {
		t, err := g.compile(l.Manifest)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", l.File, err))
			continue
		}
		list = append(list, t)
	}
	return list, errors.Join(errs...)
}

func (g *gateway) manifests() ([]tools.Loaded, error) {
	if g.env.manifests != nil {
		return tools.LoadFS(g.env.manifests)
	}
	return g.cfg.loadManifests()
}

// compile binds a manifest to its upstream.
func (g *gateway) compile(m *tools.Manifest) (*tools.Tool, error) {
	client, ok := g.upstreams[m.Spec.Upstream]
	if !ok {
		return nil, fmt.Errorf("the tool %s names the upstream %s, which the configuration does not have", m.Spec.Name, m.Spec.Upstream)
	}
	return tools.Compile(m, tools.CompileEnv{UpstreamURL: client.URL(), NewConnector: g.measured(client), RedactKey: g.redactKey})
}

// olderVersion compiles a version that is not in force any more from the
// manifest that its operations were opened with. It is bound to the address that
// it was opened with, or to nothing.
func (g *gateway) olderVersion(ctx context.Context, version string) (*tools.Tool, error) {
	kept, err := g.ledger.Manifest(ctx, version)
	if errors.Is(err, ledger.ErrNotFound) {
		return nil, fmt.Errorf("the version %s was never used", version)
	}
	if err != nil {
		return nil, err
	}
	client, ok := g.upstreams[kept.Upstream]
	if !ok || client.URL() != kept.UpstreamURL {
		return nil, fmt.Errorf("%w: %s at %s", tools.ErrUpstreamGone, kept.Upstream, kept.UpstreamURL)
	}
	m, err := tools.ParseManifest(kept.Text)
	if err != nil {
		return nil, fmt.Errorf("a kept manifest can't be read by this version of the program: %w", err)
	}
	t, err := g.compile(m)
	if err != nil {
		return nil, err
	}
	if t.Version != version {
		return nil, fmt.Errorf("a kept manifest is not the version %s that it stands for", version)
	}
	return t, nil
}
