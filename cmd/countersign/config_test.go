package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v5"
	"github.com/stretchr/testify/require"

	"countersign/reconcile"
	"go.yaml.in/yaml/v3"
)

var update = flag.Bool("update", false, "write the golden files anew")

func noEnv(string) string { return "" }

// Broken configurations, each with everything that is said of it: place, what is
// wanted instead, and never a secret.
func TestConfig_Broken(t *testing.T) {
	files, err := filepath.Glob("testdata/config/*.yaml")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 12)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			_, err := loadConfig(file, noEnv)
			require.Error(t, err)
			said := strings.ReplaceAll(err.Error(), filepath.ToSlash(file), filepath.Base(file)) + "\n"
			for _, value := range []string{"sk_live", "hunter2", "top-secret", "pw@"} {
				require.NotContains(t, said, value, "what stands where a secret belongs is not repeated")
			}
			golden := strings.TrimSuffix(file, ".yaml") + ".golden"
			if *update {
				require.NoError(t, os.WriteFile(golden, []byte(said), 0o600))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			require.Equal(t, string(want), said)
		})
	}
}

// What is right loads, and the published schema agrees.
func TestConfig_Good(t *testing.T) {
	schema := compiledSchema(t)
	for _, file := range goodConfigs(t) {
		t.Run(filepath.Base(filepath.Dir(file))+"/"+filepath.Base(file), func(t *testing.T) {
			_, err := loadConfig(file, noEnv)
			require.NoError(t, err)
			require.NoError(t, schema.Validate(generic(t, file)))
		})
	}
}

// goodConfigs are those of testdata, the starter, and every example of the
// repository.
func goodConfigs(t *testing.T) []string {
	files, err := filepath.Glob("testdata/config-good/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	examples, err := filepath.Glob("../../examples/*/countersign.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, examples)
	return append(append(files, "starter/countersign.yaml"), examples...)
}

// What a JSON Schema can say, the published one says: it refuses the broken
// configurations, save those that only the program can judge.
func TestConfig_SchemaRefusesTheBroken(t *testing.T) {
	beyond := []string{
		"twice", "not_yaml", "tabs", "anchors", "two_documents", "flow_braces", // no one YAML value
		"open_listener", "ttl_fraction", // one key against another; arithmetic
	}
	schema := compiledSchema(t)
	files, err := filepath.Glob("testdata/config/*.yaml")
	require.NoError(t, err)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		if slices.Contains(beyond, name) {
			continue
		}
		require.Error(t, schema.Validate(generic(t, file)), name)
	}
}

func compiledSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	c := jsonschema.NewCompiler()
	c.Draft = jsonschema.Draft2020
	require.NoError(t, c.AddResource("config.json", bytes.NewReader(configSchema)))
	s, err := c.Compile("config.json")
	require.NoError(t, err)
	return s
}

// generic reads a YAML file as the JSON value that an editor checks, with a
// second library's opinion of what the YAML says.
func generic(t *testing.T, file string) any {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	return genericText(t, text)
}

func genericText(t *testing.T, text []byte) any {
	t.Helper()
	var v any
	if len(bytes.TrimSpace(text)) > 0 {
		require.NoError(t, yaml.Unmarshal(text, &v))
	}
	b, err := json.Marshal(v)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &v))
	return v
}

// The struct, the schema and the page name the same keys, defaults and
// variables.
func TestConfig_StructSchemaAndPageAgree(t *testing.T) {
	fields := map[string]reflect.Value{}
	defaults := defaultConfig()
	configKeys(reflect.ValueOf(defaults), "", fields)
	require.Contains(t, fields, "upstreams.NAME.auth.basic.password")

	var schema map[string]any
	require.NoError(t, json.Unmarshal(configSchema, &schema))
	inSchema := map[string]map[string]any{}
	schemaKeys(t, schema, schema, "", inSchema)

	page := pageRows(t)
	for key, field := range fields {
		entry := inSchema[key]
		require.NotNil(t, entry, "config.schema.json lacks %s", key)
		require.NotEmpty(t, entry["description"], key)
		if leaf(field) && !strings.HasPrefix(key, "upstreams.") {
			require.NotEmpty(t, entry["examples"], key)
		}
		if strings.Contains(key, ".read_auth.") || !leaf(field) && key != "upstreams" && !strings.HasSuffix(key, "auth") {
			continue // told with auth, and by their members
		}
		row, ok := page[key]
		require.True(t, ok, "docs/config.md lacks %s", key)
		delete(page, key)
		if strings.HasPrefix(key, "upstreams") {
			continue
		}
		name := envName(key)
		if field.Kind() == reflect.Slice || field.Kind() == reflect.Map {
			name = ""
		}
		require.Equal(t, name, row.env, "the variable of %s", key)
		require.NotContains(t, []string{"COUNTERSIGN_CONFIG", "COUNTERSIGN_URL", "COUNTERSIGN_AGENT_KEY", "COUNTERSIGN_AGENT_KEY_FILE"}, name)
		if field.IsZero() {
			require.Empty(t, entry["default"], key)
			continue
		}
		want := fmt.Sprint(entry["default"])
		if d, ok := field.Interface().(Duration); ok {
			var inFile Duration
			require.NoError(t, inFile.UnmarshalText([]byte(want)))
			require.Equal(t, d, inFile, key)
		} else {
			require.Equal(t, fmt.Sprint(field.Interface()), want, key)
		}
		require.Equal(t, want, row.fallback, "the default of %s on the page", key)
	}
	require.Empty(t, page, "docs/config.md names keys that don't exist")
	for key := range inSchema {
		require.Contains(t, fields, key, "config.schema.json names a key that does not exist")
	}
}

// leaf tells a key with a value from one that only holds others.
func leaf(v reflect.Value) bool {
	return v.Kind() != reflect.Struct && v.Kind() != reflect.Map && v.Kind() != reflect.Pointer
}

// configKeys lists the keys of the struct with their default values.
func configKeys(v reflect.Value, key string, into map[string]reflect.Value) {
	t := v.Type()
	for i := range t.NumField() {
		tag := t.Field(i).Tag.Get("yaml")
		if tag == "" {
			continue
		}
		path := strings.TrimPrefix(key+"."+tag, ".")
		field := v.Field(i)
		into[path] = field
		inner := field.Type()
		if inner.Kind() == reflect.Map {
			inner, path = inner.Elem(), path+".NAME"
		}
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		if inner.Kind() != reflect.Struct {
			continue
		}
		if field.Kind() != reflect.Struct {
			field = reflect.Zero(inner)
		}
		configKeys(field, path, into)
	}
}

// schemaKeys lists the keys of the schema, following $ref.
func schemaKeys(t *testing.T, root, at map[string]any, key string, into map[string]map[string]any) {
	t.Helper()
	if ref, ok := at["$ref"].(string); ok {
		target, ok := root["$defs"].(map[string]any)[strings.TrimPrefix(ref, "#/$defs/")].(map[string]any)
		require.True(t, ok, ref)
		schemaKeys(t, root, target, key, into)
	}
	properties, _ := at["properties"].(map[string]any)
	if len(properties) > 0 {
		require.Equal(t, false, at["additionalProperties"], "%s is closed", key)
	}
	for name, p := range properties {
		path := strings.TrimPrefix(key+"."+name, ".")
		entry := p.(map[string]any)
		into[path] = entry
		schemaKeys(t, root, entry, path, into)
		if each, ok := entry["additionalProperties"].(map[string]any); ok {
			schemaKeys(t, root, each, path+".NAME", into)
		}
	}
}

type pageRow struct{ fallback, env string }

var (
	rowOfPage = regexp.MustCompile("(?m)^\\| `([a-z_.A-Z]+)` \\|([^|\n]*)\\|([^|\n]*)\\|([^|\n]*)\\|(?:([^|\n]*)\\|)?$")
	quoted    = regexp.MustCompile("`([^`]*)`")
)

// pageRows reads the tables of docs/config.md.
func pageRows(t *testing.T) map[string]pageRow {
	t.Helper()
	rows := map[string]pageRow{}
	for _, m := range rowOfPage.FindAllStringSubmatch(configPage(t), -1) {
		if strings.HasPrefix(m[1], "COUNTERSIGN_") {
			continue // the command line's own
		}
		require.NotContains(t, rows, m[1], "told twice")
		require.NotEmpty(t, strings.TrimSpace(m[2]), m[1])
		if m[1] != "upstreams" {
			require.Regexp(t, quoted, m[4], "%s has no example", m[1])
		}
		row := pageRow{}
		if q := quoted.FindStringSubmatch(m[3]); q != nil {
			row.fallback = q[1]
		}
		if q := quoted.FindStringSubmatch(m[5]); q != nil {
			row.env = q[1]
		}
		rows[m[1]] = row
	}
	require.NotEmpty(t, rows)
	return rows
}

func configPage(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/config.md")
	require.NoError(t, err)
	return string(text)
}

// The examples of the page are right.
func TestConfig_ExamplesOfThePage(t *testing.T) {
	schema := compiledSchema(t)
	blocks := yamlBlocks(configPage(t))
	require.GreaterOrEqual(t, len(blocks), 4)
	for _, text := range blocks {
		file := filepath.Join(t.TempDir(), "countersign.yaml")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		_, err := loadConfig(file, noEnv)
		require.NoError(t, err, text)
		require.NoError(t, schema.Validate(genericText(t, []byte(text))), text)
	}
}

var fencedYAML = regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$")

// yamlBlocks are the YAML examples of a page, in order.
func yamlBlocks(page string) []string {
	var blocks []string
	for _, m := range fencedYAML.FindAllStringSubmatch(page, -1) {
		blocks = append(blocks, m[1])
	}
	return blocks
}

// The environment overrides single values, is judged like the file, and is named
// when it is wrong.
func TestConfig_Environment(t *testing.T) {
	const file = "testdata/config-good/everything.yaml"
	env := map[string]string{
		"COUNTERSIGN_LISTEN": "127.0.0.1:9999", "COUNTERSIGN_LOG_LEVEL": "debug", "COUNTERSIGN_TOKENS_TTL": "2m",
		"COUNTERSIGN_LIMITS_PARALLEL": "7", "COUNTERSIGN_DATA": "",
	}
	c, err := loadConfig(file, func(name string) string { return env[name] })
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1:9999", c.Listen)
	require.Equal(t, "debug", c.Log.Level)
	require.Equal(t, Duration(2*time.Minute), c.Tokens.TTL)
	require.Equal(t, 7, c.Limits.Parallel)
	require.Equal(t, "/var/lib/countersign", c.Data, "an empty variable counts as none")
	require.Equal(t, "json", c.Log.Format)

	for _, wrong := range []struct{ name, value, says string }{
		{"COUNTERSIGN_TOKENS_TTL", "soon", "tokens.ttl: must be a duration like 5m, 24h or 90d (from COUNTERSIGN_TOKENS_TTL)"},
		{"COUNTERSIGN_LIMITS_PARALLEL", "x", "limits.parallel: must be a whole number (from COUNTERSIGN_LIMITS_PARALLEL)"},
		{"COUNTERSIGN_LOG_LEVEL", "loud", "log.level: must be debug, info, warn or error (from COUNTERSIGN_LOG_LEVEL)"},
		{"COUNTERSIGN_LISTEN", "9999", "listen: must be host:port, like 127.0.0.1:8420 (from COUNTERSIGN_LISTEN)"},
	} {
		_, err := loadConfig(file, func(name string) string {
			if name == wrong.name {
				return wrong.value
			}
			return ""
		})
		require.EqualError(t, err, wrong.says)
	}
}

// Values as the rest of the program takes them.
func TestConfig_Values(t *testing.T) {
	c, err := loadConfig("testdata/config-good/everything.yaml", noEnv)
	require.NoError(t, err)
	require.Equal(t, []string{"10.0.0.7/32", "10.1.0.0/16", "2001:db8::1/128"}, c.TrustedProxies, "all as CIDRs")
	require.Equal(t, "https://countersign.example", c.publicURL())
	require.True(t, filepath.IsAbs(c.path("tools")))
	require.Equal(t, []string{"shop", "shop_2-b"}, c.upstreamNames())
	require.Equal(t, reconcile.Settings{
		MaxPause: time.Minute, Budget: 4 * time.Hour, Repeats: 5, Retries: -1, RetentionMargin: 30 * time.Minute,
	}, c.Reconcile.settings(), "no retries are less than the default of one")

	empty, err := loadConfig("testdata/config-good/empty.yaml", noEnv)
	require.NoError(t, err)
	nulls, err := loadConfig("testdata/config-good/null_sections.yaml", noEnv)
	require.NoError(t, err)
	require.Equal(t, empty, nulls, "a key without a value keeps its default")
	require.Equal(t, "http://localhost:8420", empty.publicURL())

	_, err = loadConfig("testdata/config-good/nowhere.yaml", noEnv)
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestDuration(t *testing.T) {
	for text, want := range map[string]string{"5m": "5m0s", "1h30m": "1h30m0s", "90d": "2160h0m0s", "1d12h": "36h0m0s", "250ms": "250ms"} {
		var d Duration
		require.NoError(t, d.UnmarshalText([]byte(text)))
		require.Equal(t, want, time.Duration(d).String())
	}
	for _, text := range []string{"", "5", "m", "5 m", "-5m", "1.5h", "5m ", "5w", "999999999d", "1ns", "５m"} {
		var d Duration
		require.Error(t, d.UnmarshalText([]byte(text)), text)
	}
}
