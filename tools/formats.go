package tools

import (
	"net/mail"
	"net/netip"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"countersign/strictjson"
)

// ownFormats replace the library's where ours are stricter or, for names in
// other scripts, wider: a look-alike letter in a host is flagged to people, not
// called a broken host.
var ownFormats = map[string]func(any) bool{
	"uri":      textFormat(isWebAddress),
	"email":    textFormat(isMailAddress),
	"hostname": textFormat(isHostName),
}

func textFormat(is func(string) bool) func(any) bool {
	return func(v any) bool {
		s, ok := v.(string)
		return !ok || is(s)
	}
}

// isWebAddress takes absolute http and https addresses in their plain form
// only: no user name, no backslash, no blanks or control characters, and
// nothing between the host and its path that could be read as another host.
func isWebAddress(s string) bool {
	if strings.ContainsFunc(s, func(r rune) bool { return r == '\\' || unicode.IsSpace(r) || unicode.IsControl(r) }) {
		return false
	}
	scheme, rest, ok := strings.Cut(s, "://")
	if !ok || !strings.EqualFold(scheme, "http") && !strings.EqualFold(scheme, "https") {
		return false
	}
	u, err := url.Parse(s)
	if err != nil || u.User != nil || u.Hostname() == "" || u.Opaque != "" {
		return false
	}
	// http://evil#@good/ and http://evil?@good/ : the host must end the address
	// or be followed by its path.
	if end := strings.IndexAny(rest, "/?#"); end >= 0 && rest[end] != '/' {
		return false
	}
	if addr, err := netip.ParseAddr(strings.Trim(u.Host, "[]")); err == nil {
		return addr.Zone() == ""
	}
	return strings.HasPrefix(u.Host, "[") || isHostName(strings.TrimSuffix(u.Hostname(), "."))
}

// isMailAddress takes one bare address: no display name, no comment, no list,
// no address of a machine.
func isMailAddress(s string) bool {
	if len(s) > 254 || strings.ContainsAny(s, "\"(),:;<>[]\\") {
		return false
	}
	local, domain, ok := strings.Cut(s, "@")
	if !ok || local == "" || len(local) > 64 || !isHostName(domain) {
		return false
	}
	a, err := mail.ParseAddress(s)
	return err == nil && a.Address == s && a.Name == ""
}

// isHostName takes RFC 1123 names whose labels may hold letters of any script;
// length counts in the ASCII form.
func isHostName(s string) bool {
	if len(strictjson.ASCIIForm(s)) > 253 {
		return false
	}
	for _, label := range strings.Split(s, ".") {
		n := utf8.RuneCountInString(label)
		if n < 1 || n > 63 || strings.HasPrefix(label, "-") || strings.HasSuffix(label, "-") {
			return false
		}
		for _, r := range label {
			ascii := r < utf8.RuneSelf && (r == '-' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z')
			if !ascii && (r < utf8.RuneSelf || !unicode.In(r, unicode.L, unicode.M, unicode.N)) {
				return false
			}
		}
	}
	return true
}
