package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"

	"countersign/ledger"
)

// maxWait is the longest that the API waits in one request, in seconds.
const maxWait = 60

func commitCommand(p *program) *cobra.Command {
	var keyFile string
	wait := 10 * time.Second
	cmd := &cobra.Command{
		Use:   "commit p.json",
		Short: "Do what was previewed, once",
		Long: `Do what was previewed, once. The file is the one that preview wrote. Repeating it
is safe at any time, and after a lost answer the right thing to do: whatever was
done first is the answer.

It waits for the outcome as long as --wait says, and never for people: what needs
their yes is answered at once, and sent by the gateway when they have given it.
Commit again later to see what became of it.

The key goes to the gateway that the file names. When COUNTERSIGN_URL names
another, the commit is refused.

` + exitTable,
		Example: `  countersign commit p.json --wait 30s
  countersign commit p.json --output json; echo $?`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			file, err := readPreviewFile(args[0])
			if err != nil {
				return err
			}
			if named := p.getenv("COUNTERSIGN_URL"); named != "" && trimURL(named) != file.URL {
				return fmt.Errorf("%s was previewed at %s, and COUNTERSIGN_URL names %s", args[0], file.URL, named)
			}
			if wait < 0 {
				return errors.New("--wait can't be negative")
			}
			c, err := p.client(file.URL, keyFile)
			if err != nil {
				return err
			}
			return p.commit(cmd.Context(), c, file, wait)
		},
	}
	cmd.Flags().StringVar(&keyFile, "key-file", "", "file that holds the agent's key")
	cmd.Flags().DurationVar(&wait, "wait", wait, "how long to wait for the outcome, in whole seconds")
	return cmd
}

// readPreviewFile reads p.json. The agent's key will go where it says, so a file
// that others can write is refused.
func readPreviewFile(path string) (previewFile, error) {
	var file previewFile
	info, err := os.Stat(path)
	if err != nil {
		return file, err
	}
	if info.Mode().Perm()&0o022 != 0 {
		return file, fmt.Errorf("%s can be written by others (mode %04o), and says where the key is sent; preview again", path, info.Mode().Perm())
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return file, err
	}
	if err := json.Unmarshal(text, &file); err != nil || file.URL == "" || file.Tool == "" || len(file.Preview) == 0 {
		return file, fmt.Errorf("%s is not what preview -o writes", path)
	}
	return file, nil
}

func (p *program) commit(ctx context.Context, c *client, file previewFile, wait time.Duration) error {
	if file.Token == "" {
		return p.firstResult(ctx, c, file)
	}
	began := time.Now()
	path := fmt.Sprintf("/v1/tools/%s/commit?wait=%d", escape(file.Tool), seconds(wait))
	r, err := c.do(ctx, http.MethodPost, path, map[string]string{"commit_token": file.Token})
	var notSent unsent
	switch {
	case errors.As(err, &notSent):
		return err
	case err != nil:
		p.note("countersign: %v", err)
		p.note("next: repeat_commit: The commit may have been served. Repeat it; nothing is done twice.")
		return exitError{exitUnknown}
	case r.problem != nil:
		return p.showProblem(r)
	}
	return p.await(ctx, c, r.body, wait-time.Since(began))
}

// await asks on while the operation is being sent and there is time left.
func (p *program) await(ctx context.Context, c *client, body json.RawMessage, left time.Duration) error {
	for {
		var op operationDoc
		if err := json.Unmarshal(body, &op); err != nil {
			return fmt.Errorf("the gateway's answer is no operation: %w", err)
		}
		sending := op.State == string(ledger.Pending) || op.State == string(ledger.Running)
		if !sending || left < time.Second {
			return p.showOperation(body)
		}
		began := time.Now()
		r, err := c.do(ctx, http.MethodGet, fmt.Sprintf("/v1/operations/%s?wait=%d", escape(op.ID), seconds(left)), nil)
		if err != nil || r.problem != nil {
			// What is known stands: the operation exists and is not final.
			return p.showOperation(body)
		}
		body = r.body
		// A gateway that answers at once must not be asked in a tight loop.
		select {
		case <-ctx.Done():
			return p.showOperation(body)
		case <-time.After(time.Second - time.Since(began)):
		}
		left -= time.Since(began)
	}
}

// seconds is a wait as the API takes it.
func seconds(wait time.Duration) int {
	return min(maxWait, int(max(0, wait)/time.Second))
}

// firstResult shows the operation that already answered the preview's key.
func (p *program) firstResult(ctx context.Context, c *client, file previewFile) error {
	var doc struct {
		Operation operationDoc `json:"operation"`
	}
	if err := json.Unmarshal(file.Preview, &doc); err != nil || doc.Operation.ID == "" {
		return errors.New("the file holds neither a token nor a first result; preview again")
	}
	r, err := c.do(ctx, http.MethodGet, "/v1/operations/"+escape(doc.Operation.ID), nil)
	if err != nil {
		return err
	}
	if r.problem != nil {
		return p.showProblem(r)
	}
	return p.showOperation(r.body)
}
