package history_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// patience bounds the check of one history; it takes milliseconds.
const patience = time.Minute

// smallest gives the shortest illegal history of one key, without the looks that it
// is illegal without; nil when none is illegal. What may have changed something
// stays: without it, much would be illegal that is not.
func smallest(history []porcupine.Operation) []porcupine.Operation {
	m := model()
	illegal := func(part []porcupine.Operation) bool {
		return porcupine.CheckOperationsTimeout(m, part, patience) == porcupine.Illegal
	}
	var least []porcupine.Operation
	for _, part := range partition(history) {
		if !illegal(part) {
			continue
		}
		for i := len(part) - 1; i >= 0; i-- {
			c, a := part[i].Input.(call), part[i].Output.(answer)
			if !observes(c.What) && a.Code == "" {
				continue
			}
			if fewer := slices.Delete(slices.Clone(part), i, i+1); illegal(fewer) {
				part = fewer
			}
		}
		if least == nil || len(part) < len(least) {
			least = part
		}
	}
	return least
}

// told tells a history of one key, a line a call.
func told(part []porcupine.Operation) string {
	part = slices.Clone(part)
	slices.SortStableFunc(part, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	var b strings.Builder
	for _, op := range part {
		fmt.Fprintf(&b, "%5d-%5d client %d: %s\n", op.Call, op.Return, op.ClientId, describe(op.Input.(call), op.Output.(answer)))
	}
	return b.String()
}

// picture leaves a page that shows an illegal key, and says where.
func picture(t *testing.T, seed uint64, part []porcupine.Operation) string {
	_, info := porcupine.CheckOperationsVerbose(model(), part, patience)
	file := filepath.Join(t.ArtifactDir(), fmt.Sprintf("history-%d.html", seed))
	if err := porcupine.VisualizePath(model(), info, file); err != nil {
		return "no picture: " + err.Error()
	}
	return "a picture, kept with -artifacts: " + file
}
