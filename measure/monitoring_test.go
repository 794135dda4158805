package measure_test

import (
	"context"
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/VictoriaMetrics/metricsql"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"countersign/fault"
	"countersign/ledger"
	"countersign/tools"
	"countersign/tools/tooltest"
)

const monitoring = "../examples/monitoring/"

// exported are all series that a gateway exports once each kind of thing has
// happened: by name, with the labels and the values that each was seen with.
func exported(t *testing.T) map[string]map[string][]string {
	t.Helper()
	ctx := context.Background()
	r := newRig(t, tooltest.FakeTool("hold"), tooltest.FakeTool("pay", tooltest.WithApproval(tooltest.Approve("finance", 1))))
	r.fakes["hold"].Script(tooltest.Succeed(), tooltest.LoseReply(), tooltest.LoseReply())
	r.do(ctx, "hold", "o1")
	r.found(r.do(ctx, "hold", "o2"), tools.Succeeded, "eff_b")
	stays := r.do(ctx, "hold", "o3")
	r.commit(ctx, "hold", r.token("hold", "o4", nil))
	r.decide(r.do(ctx, "pay", "p1"), "reject", "no")
	r.do(ctx, "pay", "p2")
	r.metrics.Answered("commitTool", 422, fault.ArgsMismatch, time.Second)
	plan, err := r.ledger.Plan(ctx, tenant, stays.ID, 1)
	require.NoError(t, err)
	tool, _ := r.registry.Get("hold")
	tool.Lookup(ctx, plan)
	again := r.token("hold", "o5", nil)
	r.commit(ctx, "hold", again)
	r.commit(ctx, "hold", again)
	require.NoError(t, r.db.Seal(ctx, checkpoint(r)))
	_, err = r.ledger.Freeze(ctx, ledger.Scope{Tenant: tenant}, ledger.FreezeAll, ledger.Gateway("test"), "test")
	require.NoError(t, err)

	families, err := r.metrics.Gather()
	require.NoError(t, err)
	out := map[string]map[string][]string{}
	add := func(name string, labels map[string]string) {
		if out[name] == nil {
			out[name] = map[string][]string{}
		}
		for label, value := range labels {
			if !slices.Contains(out[name][label], value) {
				out[name][label] = append(out[name][label], value)
			}
		}
	}
	for _, f := range families {
		for _, m := range f.Metric {
			labels := map[string]string{}
			for _, l := range m.Label {
				labels[l.GetName()] = l.GetValue()
			}
			if m.Histogram == nil {
				add(f.GetName(), labels)
				continue
			}
			add(f.GetName()+"_sum", labels)
			add(f.GetName()+"_count", labels)
			labels["le"] = "+Inf"
			add(f.GetName()+"_bucket", labels)
		}
	}
	return out
}

// ruleFile is a rule file of Prometheus.
type ruleFile struct {
	Groups []struct {
		Name  string
		Rules []rule
	}
}

type rule struct {
	Record, Alert, Expr, For string
	Labels, Annotations      map[string]string
}

func alerts(t *testing.T) (rules []rule) {
	t.Helper()
	file, err := os.Open(monitoring + "alerts.yaml")
	require.NoError(t, err)
	defer file.Close()
	var parsed ruleFile
	dec := yaml.NewDecoder(file)
	dec.KnownFields(true)
	require.NoError(t, dec.Decode(&parsed))
	for _, g := range parsed.Groups {
		require.NotEmpty(t, g.Name)
		rules = append(rules, g.Rules...)
	}
	require.NotEmpty(t, rules)
	return rules
}

// dashboard is what is checked of one of Grafana's.
type dashboard struct {
	Title, UID string
	Templating struct {
		List []struct{ Name, Definition string }
	}
	Panels []struct {
		ID      int
		Type    string
		Title   string
		GridPos struct{ X, Y, W, H int }
		Targets []struct{ Expr string }
	}
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	text, err := os.ReadFile(monitoring + "dashboard.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &d))
	return d
}

// selectors are the series that a query asks for.
func selectors(t *testing.T, query string) (found []*metricsql.MetricExpr) {
	t.Helper()
	parsed, err := metricsql.Parse(query)
	require.NoError(t, err, query)
	metricsql.VisitAll(parsed, func(e metricsql.Expr) {
		if m, ok := e.(*metricsql.MetricExpr); ok {
			found = append(found, m)
		}
	})
	return found
}

// check holds a query against what is exported, and records what it named.
func check(t *testing.T, series map[string]map[string][]string, recorded []string, query string, named map[string]bool) {
	t.Helper()
	for _, s := range selectors(t, query) {
		require.Len(t, s.LabelFilterss, 1, query)
		name, filters := "", s.LabelFilterss[0]
		for _, f := range filters {
			if f.Label == "__name__" {
				name = f.Value
			}
		}
		if strings.HasPrefix(name, "countersign:") {
			require.Contains(t, recorded, name, query)
			continue
		}
		labels, ok := series[name]
		require.True(t, ok, "%s is exported by nobody: %s", name, query)
		named[name] = true
		for _, f := range filters {
			if f.Label == "__name__" {
				continue
			}
			values, ok := labels[f.Label]
			require.True(t, ok, "%s has no label %s: %s", name, f.Label, query)
			matches := func(v string) bool { return v == f.Value }
			if f.IsRegexp {
				matches = regexp.MustCompile("^(?:" + f.Value + ")$").MatchString
			}
			require.True(t, slices.ContainsFunc(values, func(v string) bool { return matches(v) != f.IsNegative }),
				"no %s has %s like that, but %v: %s", name, f.Label, values, query)
		}
		for _, by := range groupings(t, query) {
			if by != "instance" && by != "severity" {
				require.True(t, slices.ContainsFunc(selectors(t, query), func(m *metricsql.MetricExpr) bool {
					_, ok := series[m.LabelFilterss[0][0].Value][by]
					return ok
				}), "%s groups by %s, which nothing in it has", query, by)
			}
		}
	}
}

// groupings are the labels that a query groups by.
func groupings(t *testing.T, query string) (labels []string) {
	t.Helper()
	parsed, err := metricsql.Parse(query)
	require.NoError(t, err)
	metricsql.VisitAll(parsed, func(e metricsql.Expr) {
		if a, ok := e.(*metricsql.AggrFuncExpr); ok {
			labels = append(labels, a.Modifier.Args...)
		}
	})
	return labels
}

// The alert rules parse, ask for what is exported, and hide no threshold: each is
// a variable that stands unset at the top (R145), and each variable is used.
func TestMonitoring_Alerts(t *testing.T) {
	series := exported(t)
	var recorded, thresholds, fired []string
	used := map[string]bool{}
	named := map[string]bool{}
	for _, r := range alerts(t) {
		if r.Record == "" {
			continue
		}
		recorded = append(recorded, r.Record)
		require.Equal(t, "countersign:threshold", r.Record)
		require.Equal(t, "vector(NaN)", r.Expr, "a preset threshold: %v", r.Labels)
		thresholds = append(thresholds, r.Labels["of"])
	}
	threshold := regexp.MustCompile(`countersign:threshold\{of="([a-z_]+)"\}`)
	constant := regexp.MustCompile(`[<>=] *([0-9.]+)`)
	for _, r := range alerts(t) {
		if r.Alert == "" {
			continue
		}
		fired = append(fired, r.Alert)
		check(t, series, recorded, r.Expr, named)
		require.NotEmpty(t, r.Annotations["summary"], r.Alert)
		require.Contains(t, []string{"warning", "critical"}, r.Labels["severity"], r.Alert)
		for _, m := range threshold.FindAllStringSubmatch(r.Expr, -1) {
			require.Contains(t, thresholds, m[1], r.Alert)
			used[m[1]] = true
		}
		for _, m := range constant.FindAllStringSubmatch(r.Expr, -1) {
			require.Contains(t, []string{"0", "1"}, m[1], "%s has a number of its own; make it a threshold", r.Alert)
		}
	}
	require.Len(t, used, len(thresholds), "a threshold that no alert reads: %v", thresholds)
	for _, must := range []string{
		"CountersignUnknownOperations", "CountersignUnknownOld", "CountersignLookupFailures", "CountersignToolFrozen", // R146, R147
		"CountersignDuplicateEffect", "CountersignUndoFailed", "CountersignCheckpointOld", "CountersignApprovalsWaiting", "CountersignThresholdUnset",
	} {
		require.Contains(t, fired, must)
	}
}

// The dashboard parses, its panels lie side by side, and every query asks for
// what is exported. Together with the rules it leaves out no series of ours.
func TestMonitoring_Dashboard(t *testing.T) {
	series := exported(t)
	d := readDashboard(t)
	require.Equal(t, "countersign", d.UID)
	named := map[string]bool{}
	ids := map[int]bool{}
	variables := strings.NewReplacer("$__rate_interval", "5m", "$tenant", ".*")
	taken := map[[2]int]string{}
	for _, p := range d.Panels {
		require.False(t, ids[p.ID], "two panels have the id %d", p.ID)
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				require.Empty(t, taken[[2]int{x, y}], "%s covers another panel", p.Title)
				require.Less(t, x, 24)
				taken[[2]int{x, y}] = p.Title
			}
		}
		require.True(t, p.Type == "row" || len(p.Targets) > 0, p.Title)
		for _, target := range p.Targets {
			query := variables.Replace(target.Expr)
			require.NotContains(t, query, "$", p.Title)
			check(t, series, nil, query, named)
		}
	}
	for _, v := range d.Templating.List {
		if v.Definition != "" {
			require.Equal(t, "label_values(countersign_operations, tenant)", v.Definition)
		}
	}
	for _, r := range alerts(t) {
		if r.Alert != "" {
			check(t, series, []string{"countersign:threshold"}, r.Expr, named)
		}
	}
	for name := range series {
		base := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_sum"), "_count"), "_bucket")
		if strings.HasPrefix(name, "countersign_") {
			require.True(t, named[name] || named[base+"_bucket"], "%s is on no panel and in no rule", name)
		}
	}
}

var documented = regexp.MustCompile("(?m)^\\| `(countersign_[a-z_]+)`")

// docs/measures.md tells every series, and none that there isn't.
func TestMonitoring_Docs(t *testing.T) {
	page, err := os.ReadFile("../docs/measures.md")
	require.NoError(t, err)
	var told, real []string
	for _, m := range documented.FindAllStringSubmatch(string(page), -1) {
		told = append(told, m[1])
	}
	for name := range exported(t) {
		if !strings.HasPrefix(name, "countersign_") || strings.HasSuffix(name, "_sum") || strings.HasSuffix(name, "_count") {
			continue
		}
		real = append(real, strings.TrimSuffix(name, "_bucket"))
	}
	slices.Sort(told)
	slices.Sort(real)
	require.Equal(t, slices.Compact(real), told)
}
