package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"countersign/tokens"
)

const (
	// keyAge is how old a signing key gets before a rotation is advised.
	keyAge = 90 * 24 * time.Hour
	// certificateLeft is how long before its end a certificate is worth a word.
	certificateLeft = 14 * 24 * time.Hour
	// probeTimeout bounds one connection to outside.
	probeTimeout = 10 * time.Second
)

// checkKeys reads the signing keys as the gateway would.
func (d *doctor) checkKeys() {
	path := filepath.Join(d.data, keyFile)
	set, err := tokens.Load(path, tokens.KeyOptions{Retention: time.Duration(d.cfg.Tokens.Retention)})
	if errors.Is(err, fs.ErrNotExist) {
		d.keysMissing(path)
		return
	}
	if info, statErr := os.Stat(path); err != nil && statErr == nil && info.Mode().Perm()&0o077 != 0 {
		d.fail("signing keys", "chmod 600 "+path, "%v", err)
		return
	}
	if err != nil {
		d.fail("signing keys", "Restore the file from a backup. A new one voids all tokens that were given out, and the answers to their repeats.", "%v", err)
		return
	}
	now := d.now()
	for _, k := range set.List(now) {
		if k.State != "active" {
			continue
		}
		age := now.Sub(k.CreatedAt)
		if age > keyAge {
			d.warn("signing keys", "countersign keys rotate", "signing with the same key for %d days", int(age.Hours()/24))
			return
		}
		d.ok("signing keys", "signing since %s; rotate after %s", when(k.CreatedAt), k.CreatedAt.Add(keyAge).UTC().Format(time.DateOnly))
	}
}

// keysMissing tells keys that were lost from those that were not made yet:
// whatever opens a ledger makes them, so where a ledger is, there were keys.
func (d *doctor) keysMissing(path string) {
	_, err := os.Stat(filepath.Join(d.data, ledgerFile))
	switch {
	case d.running != nil:
		d.fail("signing keys", "Restore the file from a backup, if there is one; do not restart before.",
			"%s is gone. The gateway signs with what it has read; its next start makes a new key, and then all tokens that are out are void, and so are the answers to their repeats", path)
	case err == nil:
		d.fail("signing keys", "Restore the file from a backup, if there is one, before serve starts.",
			"%s is gone, and the ledger is there. serve will make a new key: then all tokens that are out are void, and so are the answers to their repeats", path)
	default:
		d.ok("signing keys", "not there yet; init or the first start makes them")
	}
}

// checkSecrets reads every credential that the configuration refers to. Their
// values are looked at and forgotten.
func (d *doctor) checkSecrets() {
	refs, bad := d.cfg.secretRefs(), 0
	for _, s := range refs {
		err := d.secretThere(s.ref)
		switch {
		case err == nil:
			continue
		case d.running != nil && strings.HasPrefix(s.ref, "env:"):
			d.warn("secrets", "Look whether the gateway's process has it.", "%s: %v", s.key, err)
		default:
			d.fail("secrets", "Provide it to the gateway's process, which does not start without.", "%s: %v", s.key, err)
		}
		bad++
	}
	switch {
	case len(refs) == 0:
		d.ok("secrets", "no upstream needs one")
	case bad == 0:
		d.ok("secrets", "%s there", count(len(refs), "credential"))
	}
}

// secretThere reports a reference that leads nowhere. What the environment
// holds is known of this process only: the gateway may have another.
func (d *doctor) secretThere(ref string) error {
	if name, ok := strings.CutPrefix(ref, "env:"); ok {
		if d.getenv(name) == "" {
			return fmt.Errorf("this environment has no %s", name)
		}
		return nil
	}
	path := d.cfg.path(strings.TrimPrefix(ref, "file:"))
	text, err := os.ReadFile(path)
	if err == nil && strings.TrimSpace(string(text)) == "" {
		err = fmt.Errorf("%s is empty", path)
	}
	return err
}

// checkTools reads the manifests as the next start or reload would.
func (d *doctor) checkTools() {
	if err := d.cfg.toolsThere(); err != nil {
		d.fail("tools", "Correct the paths under tools, or put the manifests there.", "they don't load: %v", err)
		return
	}
	loaded, err := d.cfg.loadManifests()
	if err != nil {
		d.fail("tools", "countersign tool validate names each place and what to write instead.", "they don't load: %s", firstLine(err))
		return
	}
	onDisk := map[string]string{}
	var moved []string // upstreams that the gateway has at another address
	for _, l := range loaded {
		spec := l.Manifest.Spec
		if _, ok := d.cfg.Upstreams[spec.Upstream]; !ok {
			d.fail("tools", "Add it to the configuration, or correct the manifest.", "%s names the upstream %s, which is not configured", l.File, spec.Upstream)
			return
		}
		onDisk[spec.Name] = d.cfg.toolVersion(l.Manifest)
		if d.running != nil && d.running.Upstreams != nil && d.running.Upstreams[spec.Upstream] != d.cfg.upstreamURL(spec.Upstream) && !slices.Contains(moved, spec.Upstream) {
			moved = append(moved, spec.Upstream)
		}
	}
	switch {
	case len(loaded) == 0:
		d.warn("tools", "Name manifests under tools; docs/writing-a-tool.md shows how to write one.", "there are none")
	case len(moved) > 0:
		d.warn("tools", "Restart the gateway: serve reads upstreams at its start only.",
			"the gateway does not have %s at the address that the configuration says; an upstream's address is part of the version of its tools", strings.Join(moved, ", "))
	case d.running != nil && !maps.Equal(onDisk, d.running.Tools):
		d.warn("tools", "countersign tool reload", "%s on disk, and what is in force in the gateway is another version", count(len(loaded), "tool"))
	default:
		d.ok("tools", "%s", count(len(loaded), "tool"))
	}
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// checkAnchors looks how the anchors of the audit are, as the running gateway saw them
// last. Without one, the start holds the ledger against them.
func (d *doctor) checkAnchors(anchors []anchorState) {
	for _, a := range anchors {
		if a.Failing.IsZero() {
			d.ok("anchor", "%s has everything up to checkpoint %d", a.Name, a.Anchored)
			continue
		}
		d.fail("anchor", "Bring it back. Until then what is done since can be taken away unseen (docs/audit.md).",
			"%s has failed since %s, behind checkpoint %d: %s", a.Name, when(a.Failing), a.Anchored, a.Error)
	}
}

// checkUpstreams connects to each, within the guard, and hangs up.
func (d *doctor) checkUpstreams(ctx context.Context) {
	if len(d.cfg.Upstreams) == 0 {
		d.warn("upstreams", "Add the systems that tools write to.", "there are none")
		return
	}
	clients, err := openUpstreams(d.cfg, d.quiet(d.cfg))
	if err != nil {
		d.fail("upstreams", "Correct the configuration.", "%v", err)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(clients)) {
		client := clients[name]
		probe, cancel := context.WithTimeout(ctx, probeTimeout)
		err := client.Probe(probe)
		cancel()
		if err != nil {
			d.fail("upstream "+name, "Is it up, is the url right, and is its address under allow if it is a private one?", "%s can't be reached: %v", client.URL(), err)
			continue
		}
		d.ok("upstream "+name, "%s takes connections", client.URL())
		client.Close()
	}
}

// checkCertificate looks at the listener's own certificate.
func (d *doctor) checkCertificate() {
	if d.cfg.TLS.Cert == "" {
		return
	}
	pair, err := tls.LoadX509KeyPair(d.cfg.path(d.cfg.TLS.Cert), d.cfg.path(d.cfg.TLS.Key))
	if err != nil {
		d.fail("certificate", "Correct tls.cert and tls.key.", "%v", err)
		return
	}
	end := pair.Leaf.NotAfter
	switch left := end.Sub(d.now()); {
	case left <= 0:
		d.fail("certificate", "Renew it; no restart is needed.", "it ended %s", when(end))
	case left < certificateLeft:
		d.warn("certificate", "Renew it; no restart is needed.", "it ends %s", when(end))
	default:
		d.ok("certificate", "good until %s", when(end))
	}
}

// checkPublicURL asks the running gateway for a sign of life, the way that
// people and agents come.
func (d *doctor) checkPublicURL(ctx context.Context) {
	if d.running == nil {
		return
	}
	const todo = "Does the name lead here, and does the proxy pass requests on? From inside the network a public name may be out of reach; then look from outside."
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.running.URL+"/healthz", nil)
	if err != nil {
		d.fail("public address", todo, "%v", err)
		return
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		d.warn("public address", todo, "%s does not answer: %v", d.running.URL, errors.Unwrap(err))
		return
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		d.warn("public address", todo, "%s/healthz answers %s", d.running.URL, resp.Status)
		return
	}
	d.ok("public address", "%s answers", d.running.URL)
}

// checkDisk looks whether there is room: a full disk stops every commit.
func (d *doctor) checkDisk() {
	const low, empty = 1 << 30, 100 << 20
	dir := d.data // or what it will be made in
	for _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) && dir != filepath.Dir(dir); _, err = os.Stat(dir) {
		dir = filepath.Dir(dir)
	}
	free, err := freeSpace(dir)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		d.ok("disk", "not measured")
	case err != nil:
		d.warn("disk", "Look at the disk.", "%v", err)
	case free < empty:
		d.fail("disk", "Make room. With a full disk nothing can be previewed or committed.", "%s free", size(free))
	case free < low:
		d.warn("disk", "Make room.", "%s free", size(free))
	default:
		d.ok("disk", "%s free", size(free))
	}
}
