package preview_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"countersign/preview"
)

// TestKeyHygiene: what is made anew on each try is told from what names an
// intent (N7, R29, R35).
func TestKeyHygiene(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for key, why := range map[string]string{
		"call_9fKq2mXbV71nPz":                         "tool call",
		"toolu_01A09q90qw90lq917835lq9":               "tool call",
		"refund/call_9fKq2mXbV71nPz":                  "tool call",
		"chatcmpl-x/tooluse_Q2mXbV71nPz":              "tool call",
		"0190b0c4-7b1e-7cc3-98c4-dc0c0c07398f":        "from the clock",
		"c232ab00-9414-11ec-b3c8-9f6bdeced846":        "from the clock",
		"refund-919108f7-52d1-4320-9bac-f847db4148a8": "random UUID",
		"refund/1772366400":                           "time of day", // 2026-03-01T12:00:00Z
		"refund/1772366400123":                        "time of day",
		"refund/1772366400123456789":                  "time of day",
		"refund/2026-03-01T12:00":                     "time of day",
		"refund/20260301120003":                       "time of day",
		"q7Xk2Zp9LmT4vB8nR3sW":                        "random text",
		"intent:q7Xk2Zp9LmT4vB8nR3sWQ1":               "random text",

		"refund/pay_1":                         "",
		"refund/case-2026-117/pay_7k2":         "",
		"refund/2026-03":                       "", // a month is a window, not a moment (R30)
		"invoice/2026-03-01":                   "",
		"order/1234567890":                     "", // ten digits, but no time near now
		"order/4155552671":                     "",
		"letter/adr_12/complaint-of-the-third": "",
		"hold/ord_1001":                        "",
		"cfbff0d1-9375-5685-968c-48ce8b15ae17": "", // made from a name
		"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08": "", // a digest
		"monthlystatementforcustomer":                                      "",
		"1":                                                                "",
		"":                                                                 "",
	} {
		got := preview.Changing(key, now)
		if why == "" {
			require.Empty(t, got, key)
			continue
		}
		require.Contains(t, got, why, key)
	}
}
