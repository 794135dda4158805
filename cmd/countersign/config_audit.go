package main

import (
	"fmt"
	"strings"
	"time"

	"countersign/audit"
)

// checkAudit checks when checkpoints are made and where they go.
func (c Config) checkAudit(k *configCheck) {
	if n := c.Audit.EveryEvents; n < 1 || n > maxLimit {
		k.bad("audit.every_events", "must be from 1 to %d", maxLimit)
	}
	if d := time.Duration(c.Audit.Every); d < time.Second || d > 24*time.Hour {
		k.bad("audit.every", "must be from 1s to 1d: what lies between two checkpoints can be changed unseen")
	}
	for i, a := range c.Audit.Anchors {
		k.anchor(fmt.Sprintf("audit.anchors[%d]", i), a)
	}
}

func (k *configCheck) anchor(key string, a Anchor) {
	given := 0
	for _, place := range []string{a.File, a.Syslog, a.URL} {
		if place != "" {
			given++
		}
	}
	if given != 1 {
		k.bad(key, "give exactly one of file, syslog and url")
		return
	}
	if a.Syslog != "" {
		if _, err := audit.NewSyslogAnchor(a.Syslog); err != nil {
			k.bad(key+".syslog", "%v", err)
		}
	}
	if a.URL != "" {
		if _, err := audit.NewURLAnchor(a.URL, nil); err != nil {
			k.bad(key+".url", "%v", err)
		}
	}
	if a.Bearer == "" {
		return
	}
	scheme, rest, _ := strings.Cut(a.Bearer, ":")
	switch {
	case a.URL == "":
		k.bad(key+".bearer", "goes with url")
	case scheme != "env" && scheme != "file" || rest == "":
		k.bad(key+".bearer", "secrets are never in this file: write env:NAME or file:PATH")
	}
}
