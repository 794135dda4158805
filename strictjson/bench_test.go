package strictjson_test

import (
	"strings"
	"testing"

	"countersign/strictjson"
)

const smallBody = `{"args":{"order":"ord_1042","amount":125.50,"currency":"EUR","reason":"Damaged on arrival, see ticket 9","lines":[{"sku":"A-1","qty":2},{"sku":"B-7","qty":1}]},"run":{"id":"run_01","step":3,"call":1},"idempotency_key":"refund:ord_1042"}`

func bodies() map[string][]byte {
	return map[string][]byte{
		"small":   []byte(smallBody),
		"scripts": []byte(`{"text":"` + strings.Repeat("Grüße, 日本語テキスト and हिन्दी. ", 100) + `"}`),
		"rows":    []byte(`{"rows":[` + strings.Repeat(smallBody+",", 99) + smallBody + `]}`),
	}
}

func BenchmarkParse(b *testing.B) {
	for name, body := range bodies() {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := strictjson.Parse(body, strictjson.DefaultLimits); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkDigest(b *testing.B) {
	for name, body := range bodies() {
		b.Run(name, func(b *testing.B) {
			v, err := strictjson.Parse(body, strictjson.DefaultLimits)
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				strictjson.Digest(v)
			}
		})
	}
}
