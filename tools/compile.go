package tools

import (
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"io"

	"countersign/strictjson"
)

// CompileEnv is what a manifest needs from outside to become a tool.
type CompileEnv struct {
	// UpstreamURL is the base address of the manifest's upstream.
	UpstreamURL string
	// NewConnector makes the connector that speaks for the bound manifest. Only
	// the caller knows which kind serves the upstream.
	NewConnector func(m *Manifest) (Connector, error)
	// RedactKey keys the digests that stand for sensitive values, so that a short
	// value can't be guessed from its digest. Without one no digest is shown.
	RedactKey []byte
}

// Compile binds a manifest to its upstream. The version of the tool covers
// both: the same manifest at another address is another tool.
func Compile(m *Manifest, env CompileEnv) (*Tool, error) {
	bound := *m
	bound.Spec.UpstreamURL = env.UpstreamURL
	bound.Spec.Version = Version(m.Digest, env.UpstreamURL)
	connector, err := env.NewConnector(&bound)
	if err != nil {
		return nil, fmt.Errorf("tool %s: %w", m.Spec.Name, err)
	}
	t := &Tool{
		Spec:      bound.Spec,
		Connector: connector,
		CheckArgs: bound.input.CheckArgs,
		Redact:    bound.redactor(env.RedactKey),
	}
	if bound.key != nil {
		t.BusinessKey = bound.keyOf
		t.KeyArgs = bound.key.uses.argNames()
	}
	return t, nil
}

// Version is the digest of a parsed manifest and the address it is bound to.
func Version(manifestDigest, upstreamURL string) string {
	return strictjson.Digest(map[string]any{"manifest": manifestDigest, "upstream_url": upstreamURL})
}

// redactor replaces sensitive values by "redacted", with a keyed digest that
// tells equal values from different ones.
func (m *Manifest) redactor(key []byte) func(map[string]any) map[string]any {
	return func(args map[string]any) map[string]any {
		return m.input.redact(args, func(pointer string, v any) string {
			if len(key) == 0 {
				return "redacted"
			}
			mac := hmac.New(sha256.New, key)
			io.WriteString(mac, m.Spec.Name+"\x00"+pointer+"\x00")
			mac.Write(strictjson.Canonical(v))
			return fmt.Sprintf("redacted:%x", mac.Sum(nil)[:16])
		})
	}
}
