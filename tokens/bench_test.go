package tokens_test

import (
	"strings"
	"testing"

	"countersign/tokens"
)

// BenchmarkMintVerify is what one preview and its commit cost. Without the
// memory of own tokens, Verify checks the signature that Mint has just made.
func BenchmarkMintVerify(b *testing.B) {
	for name, size := range map[string]int{"cached": 0, "uncached": -1} {
		b.Run(name, func(b *testing.B) {
			w := newWorldWith(b, tokens.Config{CacheSize: size})
			b.ReportAllocs()
			for b.Loop() {
				token, _, err := w.signer.Mint(binding())
				if err != nil {
					b.Fatal(err)
				}
				if _, _, err := w.signer.Verify(token); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkVerify is the second half alone.
func BenchmarkVerify(b *testing.B) {
	w := newWorld(b)
	token := w.mint(b)
	for name, signer := range map[string]*tokens.Signer{"cached": w.signer, "uncached": w.other(b).signer} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := signer.Verify(token); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkVerify_refused shows S8: whatever is wrong, a refusal takes about the
// same time.
func BenchmarkVerify_refused(b *testing.B) {
	w := newWorld(b)
	token := w.mint(b)
	parts := strings.Split(token, ".")
	for name, bad := range map[string]string{
		"empty":          "",
		"too long":       strings.Repeat("A", 1<<16),
		"character":      token + "=",
		"parts":          parts[0] + "." + parts[1],
		"unknown header": with(parts, 0, parts[0][1:]),
		"base64":         token[:len(token)-1] + "B",
		"signature":      with(parts, 1, b64([]byte(`{"iss":"x"`+strings.Repeat(" ", len(parts[1])*3/4-10)))),
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, _, err := w.signer.Verify(bad); err == nil {
					b.Fatal("believed")
				}
			}
		})
	}
}
