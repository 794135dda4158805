package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"countersign/strictjson"
)

func previewCommand(p *program) *cobra.Command {
	var o previewOptions
	cmd := &cobra.Command{
		Use:   "preview TOOL ARGS.json|- [-o p.json]",
		Short: "Ask what a write would do; it changes nothing",
		Long: `Ask what a write would do. Nothing outside is changed. With -o the answer and its
commit token go into a file of mode 0600, which commit takes.

It is a client of the REST API, as an agent is one. The agent's key comes from
COUNTERSIGN_AGENT_KEY_FILE, COUNTERSIGN_AGENT_KEY or --key-file, the gateway's
address from --url or COUNTERSIGN_URL, else from the configuration that is found
(-c, COUNTERSIGN_CONFIG, countersign.yaml); without one it is
` + defaultURL + `.

When the key's first result stands, that operation is shown instead, and the exit
status is the one that commit would end with.

` + exitTable,
		Example: `  echo '{"order_id": "ord_1001"}' | countersign preview hold_order - -o p.json && countersign commit p.json
  countersign preview refund_payment args.json -o p.json --key-file support-bot.key --run run_7 --step 3 --call call_9`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error { return p.preview(cmd, args[0], args[1], o) },
	}
	f := cmd.Flags()
	f.StringVarP(&o.out, "out", "o", "", "file for the answer and its commit token")
	f.StringVar(&o.client.url, "url", "", "address of the gateway")
	f.StringVar(&o.client.keyFile, "key-file", "", "file that holds the agent's key")
	f.StringVar(&o.IdempotencyKey, "idempotency-key", "", "key of the intent, for tools that take it from the caller")
	f.StringVar(&o.AgainOf, "again-of", "", "operation that took effect and is wanted once more")
	f.StringVar(&o.run.ID, "run", "", "run of the agent that this call belongs to")
	f.StringVar(&o.run.Step, "step", "", "step of the run")
	f.StringVar(&o.run.Call, "call", "", "tool call of the step")
	return cmd
}

// previewOptions are the flags, and the body that they make.
type previewOptions struct {
	client clientFlags
	out    string
	run    runDoc

	Args           json.RawMessage `json:"args"`
	Run            *runDoc         `json:"run,omitempty"`
	IdempotencyKey string          `json:"idempotency_key,omitempty"`
	AgainOf        string          `json:"again_of,omitempty"`
}

type runDoc struct {
	ID   string `json:"id"`
	Step string `json:"step,omitempty"`
	Call string `json:"call,omitempty"`
}

// previewDoc is what commands show of a preview.
type previewDoc struct {
	Token      string    `json:"commit_token"`
	ExpiresAt  time.Time `json:"expires_at"`
	Key        string    `json:"idempotency_key"`
	Generation int       `json:"generation"`
	Headline   string    `json:"headline"`
	Reversible bool      `json:"reversible"`
	Undo       struct {
		Tool string `json:"tool"`
		Text string `json:"text"`
	} `json:"undo"`
	Effects []struct {
		Verb   string         `json:"verb"`
		Target string         `json:"target"`
		Before map[string]any `json:"before"`
		After  map[string]any `json:"after"`
	} `json:"effects"`
	Approval struct {
		Required bool   `json:"required"`
		Rule     string `json:"rule"`
	} `json:"approval"`
	Warnings []struct {
		Code string `json:"code"`
		Text string `json:"text"`
	} `json:"warnings"`
	Operation json.RawMessage `json:"operation"`
	Next      nextDoc         `json:"next"`
}

// previewFile is p.json: all that commit needs.
type previewFile struct {
	URL     string          `json:"url"`
	Tool    string          `json:"tool"`
	Preview json.RawMessage `json:"preview"` // the answer without its token
	Token   string          `json:"token,omitempty"`
}

func (p *program) preview(cmd *cobra.Command, tool, argsFile string, o previewOptions) error {
	if o.out == "json" || o.out == "table" {
		return fmt.Errorf("-o names the file; the form of the answer is --output %s", o.out)
	}
	if o.run != (runDoc{}) {
		if o.run.ID == "" {
			return errors.New("--step and --call belong to a --run")
		}
		o.Run = &o.run
	}
	var err error
	if o.Args, err = p.readArgs(argsFile); err != nil {
		return err
	}
	base, err := p.gatewayURL(o.client.url)
	if err != nil {
		return err
	}
	c, err := p.client(base, o.client.keyFile)
	if err != nil {
		return err
	}
	r, err := c.do(cmd.Context(), http.MethodPost, "/v1/tools/"+escape(tool)+"/preview", o)
	if err != nil {
		return err
	}
	if r.problem != nil {
		return p.showProblem(r)
	}
	return p.keepPreview(r.body, previewFile{URL: c.base, Tool: tool}, o.out)
}

// readArgs reads the arguments as they stand; only their form is looked at.
func (p *program) readArgs(file string) (json.RawMessage, error) {
	var text []byte
	var err error
	if file == "-" {
		text, err = io.ReadAll(io.LimitReader(p.stdin, int64(strictjson.DefaultLimits.Bytes)+1))
	} else {
		text, err = os.ReadFile(file)
	}
	if err != nil {
		return nil, fmt.Errorf("the arguments: %w", err)
	}
	if _, err := strictjson.ParseObject(text, strictjson.DefaultLimits); err != nil {
		return nil, fmt.Errorf("the arguments in %s: %s", file, refusalOf(err).Detail)
	}
	return text, nil
}

// keepPreview shows the answer, and writes the file when one is wanted.
func (p *program) keepPreview(body json.RawMessage, file previewFile, out string) error {
	var doc previewDoc
	if err := json.Unmarshal(body, &doc); err != nil {
		return fmt.Errorf("the gateway's answer is no preview: %w", err)
	}
	shown := body
	if out != "" {
		var err error
		if shown, err = withoutToken(body); err != nil {
			return err
		}
		file.Preview, file.Token = shown, doc.Token
		if err := writePreviewFile(out, file); err != nil {
			return err
		}
	}
	if len(doc.Operation) > 0 {
		return p.showOperation(doc.Operation)
	}
	if err := p.answer(shown, func(w io.Writer) { previewRows(w, doc) }); err != nil {
		return err
	}
	if out == "" {
		p.note("Nothing was kept. Name a file with -o to commit this.")
	} else {
		p.note("Kept in %s; countersign commit %s does it, until %s.", out, out, when(doc.ExpiresAt))
	}
	return nil
}

// withoutToken drops the token from a preview; it stands beside it in the file,
// and nowhere else.
func withoutToken(body json.RawMessage) (json.RawMessage, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(body, &all); err != nil {
		return nil, fmt.Errorf("the gateway's answer is no preview: %w", err)
	}
	delete(all, "commit_token")
	return json.Marshal(all)
}

// writePreviewFile replaces the file whole, readable by its owner only.
func writePreviewFile(path string, file previewFile) error {
	text, err := json.MarshalIndent(file, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

func previewRows(w io.Writer, doc previewDoc) {
	row(w, "would", safe(doc.Headline))
	for _, e := range doc.Effects {
		row(w, "effect", safe(e.Verb+" "+e.Target))
		for _, name := range slices.Sorted(maps.Keys(either(e.Before, e.After))) {
			row(w, "", safe(name)+": "+change(e.Before, e.After, name))
		}
	}
	reversible, undo := "no", "none"
	if doc.Reversible {
		reversible = "yes"
	}
	if doc.Undo.Tool != "" {
		undo = doc.Undo.Tool + ": " + doc.Undo.Text
	}
	row(w, "reversible", reversible)
	row(w, "undo", safe(undo))
	asks := "nobody"
	if doc.Approval.Required {
		asks = safe(doc.Approval.Rule)
	}
	row(w, "asks", asks)
	row(w, "key", fmt.Sprintf("%s, generation %d", safe(doc.Key), doc.Generation))
	for _, warning := range doc.Warnings {
		row(w, "warning", safe(warning.Code+": "+warning.Text))
	}
	row(w, "next", doc.Next.Action+": "+safe(doc.Next.Text))
}

// either gives the map that names the fields: what is created has no before,
// what is deleted no after.
func either(before, after map[string]any) map[string]any {
	if len(after) > 0 {
		return after
	}
	return before
}

// change writes one field as before -> after, or the one side that there is.
func change(before, after map[string]any, name string) string {
	var sides []string
	for _, side := range []map[string]any{before, after} {
		if v, ok := side[name]; ok {
			sides = append(sides, value(v))
		}
	}
	return strings.Join(sides, " -> ")
}
