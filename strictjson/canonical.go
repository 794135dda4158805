package strictjson

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"
)

// CanonicalVersion names the canonical form inside every digest. It changes
// when Canonical would write any value differently.
const CanonicalVersion = "countersign-json-1"

// Canonical writes v in the form of RFC 8785 (JCS): no white space, names
// sorted by UTF-16 code units, numbers as ECMAScript writes them.
//
// v is a value of the model, or has in its places Go's own integers, floats,
// []string, map[string]string or []map[string]any. Numbers that were not
// admitted by Parse are written in the same layout but with every digit, so
// that no two of them look alike; RFC 8785 would round them. A byte that is not
// UTF-8 becomes a lone surrogate escape, which no valid string does.
//
// Canonical panics on what JSON has no form for, such as a NaN, a func or a
// json.Number that is no number. FromNative is the checked way in.
func Canonical(v any) []byte {
	return appendCanonical(nil, v)
}

// Digest is "sha256:" and the lower-case hexadecimal SHA-256 over
// CanonicalVersion, a newline and Canonical(v). It panics where Canonical does.
func Digest(v any) string {
	text := make([]byte, 0, 512)
	text = append(text, CanonicalVersion+"\n"...)
	sum := sha256.Sum256(appendCanonical(text, v))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Equal reports whether a and b are the same JSON value: they have one
// canonical form, and so one digest. 1, 1.0 and 1e0 are equal.
func Equal(a, b any) bool {
	return bytes.Equal(Canonical(a), Canonical(b))
}

func appendCanonical(dst []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(dst, "null"...)
	case bool:
		return strconv.AppendBool(dst, v)
	case string:
		return appendString(dst, v)
	case json.Number:
		return appendNumber(dst, string(v))
	case map[string]any:
		return appendObject(dst, v)
	case []any:
		return appendArray(dst, v)
	case map[string]string:
		return appendObject(dst, v)
	case []string:
		return appendArray(dst, v)
	case []map[string]any:
		return appendArray(dst, v)
	}
	if text, ok := nativeNumber(v); ok {
		return appendNumber(dst, text)
	}
	panic(fmt.Sprintf("strictjson: no canonical form for %T", v))
}

func appendArray[T any](dst []byte, list []T) []byte {
	dst = append(dst, '[')
	for i, v := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendCanonical(dst, v)
	}
	return append(dst, ']')
}

func appendObject[T any](dst []byte, members map[string]T) []byte {
	var few [16]string // most objects have fewer members
	names := few[:0]
	for name := range members {
		names = append(names, name)
	}
	slices.SortFunc(names, compareUTF16)
	dst = append(dst, '{')
	for i, name := range names {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendString(dst, name)
		dst = append(dst, ':')
		dst = appendCanonical(dst, members[name])
	}
	return append(dst, '}')
}

// compareUTF16 orders as if both strings were UTF-16. Bytes of UTF-8 order in
// the same way but for one case: U+10000 and above (lead bytes F0 to F4) are
// surrogate pairs, which come before U+E000 to U+FFFF (lead bytes EE and EF).
func compareUTF16(a, b string) int {
	for i := range min(len(a), len(b)) {
		x, y := a[i], b[i]
		if x == y {
			continue
		}
		if x >= 0xEE && y >= 0xEE && (x >= 0xF0) != (y >= 0xF0) {
			x, y = y, x
		}
		return int(x) - int(y)
	}
	return len(a) - len(b)
}

// appendNumber writes the number of a JSON text.
func appendNumber(dst []byte, text string) []byte {
	var buf [64]byte
	d, ok := decompose(text, buf[:0])
	if !ok {
		panic("strictjson: no canonical form for the number " + Echo(text))
	}
	return appendDecimal(dst, d)
}

// nativeNumber writes Go's own numbers as a JSON text; it is not yet canonical.
// It is false for other types, for NaN and for the infinities.
func nativeNumber(v any) (text string, ok bool) {
	switch v := v.(type) {
	case int:
		return strconv.FormatInt(int64(v), 10), true
	case int8:
		return strconv.FormatInt(int64(v), 10), true
	case int16:
		return strconv.FormatInt(int64(v), 10), true
	case int32:
		return strconv.FormatInt(int64(v), 10), true
	case int64:
		return strconv.FormatInt(v, 10), true
	case uint:
		return strconv.FormatUint(uint64(v), 10), true
	case uint8:
		return strconv.FormatUint(uint64(v), 10), true
	case uint16:
		return strconv.FormatUint(uint64(v), 10), true
	case uint32:
		return strconv.FormatUint(uint64(v), 10), true
	case uint64:
		return strconv.FormatUint(v, 10), true
	case float32:
		return formatFloat(float64(v))
	case float64:
		return formatFloat(v)
	}
	return "", false
}

func formatFloat(f float64) (text string, ok bool) {
	text = strconv.FormatFloat(f, 'e', -1, 64)
	_, bad := scanNumber(text) // "NaN", "+Inf" and "-Inf" are none
	return text, bad == ""
}

// appendString writes a string with the fewest escapes that JSON allows.
func appendString(dst []byte, s string) []byte {
	const hexDigits = "0123456789abcdef"
	dst = append(dst, '"')
	from := 0 // what is before is written
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && size == 1 {
				dst = append(dst, s[from:i]...)
				dst = append(dst, `\udc`...)
				dst = append(dst, hexDigits[c>>4], hexDigits[c&15])
				from = i + 1
			}
			i += size
			continue
		}
		if c >= 0x20 && c != '"' && c != '\\' {
			i++
			continue
		}
		dst = append(dst, s[from:i]...)
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\b':
			dst = append(dst, '\\', 'b')
		case '\t':
			dst = append(dst, '\\', 't')
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\f':
			dst = append(dst, '\\', 'f')
		case '\r':
			dst = append(dst, '\\', 'r')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
		i++
		from = i
	}
	dst = append(dst, s[from:]...)
	return append(dst, '"')
}
