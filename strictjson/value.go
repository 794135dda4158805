package strictjson

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Clone copies the objects and arrays of v, all the way down. What else v holds
// can't be changed and is shared.
func Clone(v any) any {
	switch v := v.(type) {
	case map[string]any:
		c := maps.Clone(v)
		for name, member := range c {
			c[name] = Clone(member)
		}
		return c
	case []any:
		c := slices.Clone(v)
		for i, element := range c {
			c[i] = Clone(element)
		}
		return c
	}
	return v
}

// Get follows a JSON Pointer (RFC 6901) into v. It is false when there is
// nothing at that place, or the pointer is not well formed.
func Get(v any, pointer string) (any, bool) {
	if pointer == "" {
		return v, true
	}
	rest, ok := strings.CutPrefix(pointer, "/")
	if !ok {
		return nil, false
	}
	for token := range strings.SplitSeq(rest, "/") {
		token, ok := unescapeToken(token)
		if !ok {
			return nil, false
		}
		switch at := v.(type) {
		case map[string]any:
			if v, ok = at[token]; !ok {
				return nil, false
			}
		case []any:
			i, ok := arrayIndex(token)
			if !ok || i >= len(at) {
				return nil, false
			}
			v = at[i]
		default:
			return nil, false
		}
	}
	return v, true
}

// Join makes a JSON Pointer one step longer: a member name, or the number of an
// array element.
func Join(pointer, token string) string {
	return string(appendToken([]byte(pointer+"/"), token))
}

func appendToken(dst []byte, token string) []byte {
	for i := range len(token) {
		switch token[i] {
		case '~':
			dst = append(dst, "~0"...)
		case '/':
			dst = append(dst, "~1"...)
		default:
			dst = append(dst, token[i])
		}
	}
	return dst
}

func unescapeToken(token string) (string, bool) {
	if !strings.Contains(token, "~") {
		return token, true
	}
	var b strings.Builder
	for i := 0; i < len(token); i++ {
		if token[i] != '~' {
			b.WriteByte(token[i])
			continue
		}
		i++
		switch {
		case i < len(token) && token[i] == '0':
			b.WriteByte('~')
		case i < len(token) && token[i] == '1':
			b.WriteByte('/')
		default:
			return "", false
		}
	}
	return b.String(), true
}

// arrayIndex reads an index without sign and leading zeros.
func arrayIndex(token string) (int, bool) {
	i, err := strconv.Atoi(token)
	if err != nil || i < 0 || strconv.Itoa(i) != token {
		return 0, false
	}
	return i, true
}
