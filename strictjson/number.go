package strictjson

import (
	"encoding/json"
	"strconv"
	"strings"

	"countersign/fault"
)

// MaxInteger is the largest integer that is admitted, 2^53-1; the smallest is
// its negative. Beyond it a double skips integers (S61, RFC 7493).
const MaxInteger = 1<<53 - 1

const (
	// maxDigits is the number of significant digits that a double may need.
	maxDigits = 17
	// exactDigits is the number of significant digits that a double always
	// keeps.
	exactDigits = 15
	// maxExponent bounds the written exponent. A double ends at 1e308 and
	// 5e-324; what is further out is only work for the next reader.
	maxExponent = 400
)

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// scanNumber measures the number of RFC 8259 at the start of b. When there is
// none it says why, and where.
func scanNumber[T string | []byte](b T) (n int, bad string) {
	digits := func() bool {
		from := n
		for n < len(b) && isDigit(b[n]) {
			n++
		}
		return n > from
	}
	if n < len(b) && b[n] == '-' {
		n++
	}
	from := n
	switch {
	case !digits():
		return n, "a number needs a digit here"
	case b[from] == '0' && n-from > 1:
		return from, "a number has no leading zeros"
	}
	if n < len(b) && b[n] == '.' {
		n++
		if !digits() {
			return n, "a number needs a digit after its point"
		}
	}
	if n < len(b) && (b[n] == 'e' || b[n] == 'E') {
		n++
		if n < len(b) && (b[n] == '+' || b[n] == '-') {
			n++
		}
		if !digits() {
			return n, "a number needs a digit in its exponent"
		}
	}
	return n, ""
}

// decimal is the exact value of a number's text: 0.d1d2d3… times ten to the
// power of point, where digits neither begin nor end with 0. Zero has no digits
// and no sign.
type decimal struct {
	negative bool
	digits   []byte
	point    int
	// written counts the digits from the first that is not 0 to the last, as
	// spelled; in a zero, all of them.
	written int
	// exponent is the number after e, as spelled.
	exponent int
}

// decompose reads a number exactly. It is false when text is no JSON number or
// its exponent is beyond all use. buf is scratch space.
func decompose(text string, buf []byte) (d decimal, ok bool) {
	if n, bad := scanNumber(text); bad != "" || n != len(text) {
		return d, false
	}
	mantissa := text
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		exponent, err := strconv.ParseInt(text[i+1:], 10, 31) // leaves room for point
		if err != nil {
			return d, false
		}
		mantissa, d.exponent = text[:i], int(exponent)
	}
	mantissa, d.negative = strings.CutPrefix(mantissa, "-")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	d.digits = append(append(buf[:0], whole...), fraction...)
	d.point = len(whole) + d.exponent

	d.written = len(d.digits)
	zeros := 0
	for zeros < len(d.digits) && d.digits[zeros] == '0' {
		zeros++
	}
	if zeros == len(d.digits) {
		return decimal{written: d.written, exponent: d.exponent}, true
	}
	d.digits = d.digits[zeros:]
	d.point -= zeros
	d.written -= zeros
	for d.digits[len(d.digits)-1] == '0' {
		d.digits = d.digits[:len(d.digits)-1]
	}
	return d, true
}

// integral reports whether the value has no fraction.
func (d decimal) integral() bool { return d.point >= len(d.digits) }

// integer gives an integral value that fits an int64.
func (d decimal) integer() (int64, bool) {
	if !d.integral() || d.point > 19 {
		return 0, false
	}
	var u uint64
	for i := range d.point {
		u *= 10 // at most 19 digits: below 2^64
		if i < len(d.digits) {
			u += uint64(d.digits[i] - '0')
		}
	}
	switch {
	case d.negative && u <= 1<<63:
		return -int64(u), true
	case !d.negative && u < 1<<63:
		return int64(u), true
	}
	return 0, false
}

// admit applies S61 to a number of the grammar. It returns the number to keep,
// or the reason to refuse it. What it admits is exactly the decimal that
// Canonical writes, so a digest never stands for two numbers. Hence it also
// refuses a decimal that is not how its own double is written, such as
// 0.10000000000000001, which every reader of doubles takes for 0.1.
func admit(text string) (n json.Number, reason string) {
	var buf [64]byte
	d, ok := decompose(text, buf[:0])
	switch {
	case !ok, d.exponent > maxExponent, d.exponent < -maxExponent:
		return "", "has an exponent beyond the range of a double"
	case d.written > maxDigits:
		return "", "has more than 17 significant digits"
	case len(d.digits) == 0:
		if text[0] == '-' {
			return "0", ""
		}
		return json.Number(text), ""
	case d.integral():
		if i, ok := d.integer(); !ok || i > MaxInteger || i < -MaxInteger {
			return "", "is an integer beyond ±(2^53-1)"
		}
	case len(d.digits) > exactDigits || d.point < -300:
		if !d.exact(text) {
			return "", "is not exact as a double"
		}
	}
	return json.Number(text), ""
}

// exact reports whether the shortest decimal of the double nearest to text is
// text's own value.
func (d decimal) exact(text string) bool {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return false
	}
	var buf [64]byte
	back, ok := decompose(strconv.FormatFloat(f, 'e', -1, 64), buf[:0])
	return ok && string(back.digits) == string(d.digits) && back.point == d.point && back.negative == d.negative
}

func outOfRange(text, reason string) *fault.Error {
	return fault.New(fault.NumberOutOfRange, "The number %s %s. Send such a value as a string if the tool allows it.", cut(text), reason)
}

// appendDecimal writes a value as ECMAScript does (RFC 8785, 3.2.2.3).
func appendDecimal(dst []byte, d decimal) []byte {
	const zeros = "000000000000000000000"
	n := len(d.digits)
	if n == 0 {
		return append(dst, '0')
	}
	if d.negative {
		dst = append(dst, '-')
	}
	switch {
	case n <= d.point && d.point <= 21:
		dst = append(dst, d.digits...)
		return append(dst, zeros[:d.point-n]...)
	case 0 < d.point && d.point <= 21:
		dst = append(dst, d.digits[:d.point]...)
		dst = append(dst, '.')
		return append(dst, d.digits[d.point:]...)
	case -6 < d.point && d.point <= 0:
		dst = append(dst, "0."...)
		dst = append(dst, zeros[:-d.point]...)
		return append(dst, d.digits...)
	}
	dst = append(dst, d.digits[0])
	if n > 1 {
		dst = append(dst, '.')
		dst = append(dst, d.digits[1:]...)
	}
	dst = append(dst, 'e')
	if d.point > 0 {
		dst = append(dst, '+')
	}
	return strconv.AppendInt(dst, int64(d.point-1), 10)
}
