package preview

import (
	"fmt"
	"regexp"
	"strconv"
	"time"

	"countersign/tools"
)

// Two keys are two intents; nothing can tell whether they mean the same (what
// can't be promised). So it is said when the same arguments come under another
// key, and when a key has the look of one that changes with every try (N7).

// keyHygiene warns of keys that don't look like the name of an intent.
func keyHygiene(t *tools.Tool, r Request, now time.Time) []tools.Warning {
	switch t.KeySource {
	case tools.KeyFromCaller:
		if why := changing(r.IdempotencyKey, now); why != "" {
			return []tools.Warning{{Code: "key_hygiene", Pointer: "/idempotency_key", Text: "The idempotency key looks like " + why +
				". A key stands for one intent and is the same on every retry, also after a crash: make it from the task, or once when the task begins."}}
		}
	case tools.KeyFromRun:
		for _, part := range []struct{ name, text string }{{"step", r.Run.Step}, {"call", r.Run.Call}} {
			if why := changing(part.text, now); why != "" {
				return []tools.Warning{{Code: "key_hygiene", Pointer: "/run/" + part.name, Text: "The " + part.name + " of the run looks like " + why +
					". The key is made from it: number steps and calls, so that a replay after a crash names them alike."}}
			}
		}
	}
	return nil
}

var (
	callID    = regexp.MustCompile(`(?:^|[._:/@+%~=-])(?:call|toolu|tooluse|toolcall|chatcmpl|msg|fc|run_step|step)_[A-Za-z0-9]{8,}`)
	uuidForm  = regexp.MustCompile(`(?i)[0-9a-f]{8}-[0-9a-f]{4}-([0-9a-f])[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}`)
	dateTime  = regexp.MustCompile(`(?:19|20)\d\d-?[01]\d-?[0-3]\d[T_ :.-]?[0-2]\d:?[0-5]\d`)
	digitRuns = regexp.MustCompile(`\d+`)
	hexRuns   = regexp.MustCompile(`(?i)[0-9a-f]{24,}`)
	random    = regexp.MustCompile(`[A-Za-z0-9]{20,}`)
)

// changing says what a key looks like that is made anew on each try; empty when
// it has no such look.
func changing(key string, now time.Time) string {
	if callID.MatchString(key) {
		return "the id of one tool call, which a model makes anew each time it plans"
	}
	if m := uuidForm.FindStringSubmatch(key); m != nil {
		switch m[1] {
		case "1", "2", "6", "7":
			return "a UUID made from the clock"
		case "4":
			return "a random UUID"
		}
		return "" // made from a name: the same each time
	}
	if dateTime.MatchString(key) || hasEpoch(key, now) {
		return "a time of day, or holds one"
	}
	if hexRuns.MatchString(key) {
		return "" // a digest, as likely as not
	}
	for _, part := range random.FindAllString(key, -1) {
		if mixed(part) {
			return "a random text"
		}
	}
	return ""
}

// hasEpoch reports that a run of digits is a time near now, in seconds, milli-,
// micro- or nanoseconds since 1970.
func hasEpoch(key string, now time.Time) bool {
	const near = 2 * 365 * 24 * time.Hour
	for _, digits := range digitRuns.FindAllString(key, -1) {
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil {
			continue
		}
		var at time.Time
		switch len(digits) {
		case 10:
			at = time.Unix(n, 0)
		case 13:
			at = time.UnixMilli(n)
		case 16:
			at = time.UnixMicro(n)
		case 19:
			at = time.Unix(0, n)
		default:
			continue
		}
		if at.Sub(now).Abs() < near {
			return true
		}
	}
	return false
}

// mixed reports that a text changes again and again between upper case, lower
// case and digits, as words never do.
func mixed(s string) bool {
	changes, last := 0, 0
	for _, c := range []byte(s) {
		class := 1
		switch {
		case c >= '0' && c <= '9':
			class = 2
		case c >= 'A' && c <= 'Z':
			class = 3
		}
		if last != 0 && class != last {
			changes++
		}
		last = class
	}
	return 3*changes >= len(s)
}

// duplicateWarning says that the same arguments stand under other keys.
func duplicateWarning(others int) []tools.Warning {
	if others == 0 {
		return nil
	}
	return []tools.Warning{{Code: "possible_duplicate", Text: fmt.Sprintf("The same arguments were used under %s not long ago. Two keys are two intents: is this one really new?", plural(others, "another key", "other keys"))}}
}

func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return fmt.Sprintf("%d %s", n, many)
}
