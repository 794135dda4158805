package audit

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// FileAnchor keeps records in a file that only grows, one JSON object a line. It
// should lie on another disk than the ledger, or be carried off by something
// else; best it is append-only for the gateway's user.
type FileAnchor struct {
	path string
	mu   sync.Mutex
}

// NewFileAnchor names the file. It is made at the first Append (0600); its folder
// must exist.
func NewFileAnchor(path string) *FileAnchor { return &FileAnchor{path: path} }

// Name implements Anchor.
func (a *FileAnchor) Name() string { return "file " + a.path }

// maxRecord bounds one line of an anchor file.
const maxRecord = 4 << 20

// Append implements Anchor.
func (a *FileAnchor) Append(ctx context.Context, r Record) (err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	last, there, err := a.last()
	switch {
	case err != nil:
		return err
	case there && sameRecord(last, r):
		return nil
	case there:
		if err := follows(last, r); err != nil {
			return err
		}
	}
	_, statErr := os.Stat(a.path)
	f, err := os.OpenFile(a.path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	text := append(mustJSON(r), '\n')
	if torn, err := endsTorn(f); err != nil {
		return err
	} else if torn {
		text = append([]byte{'\n'}, text...) // what a crash left stays, as a line of its own
	}
	if _, err := f.Write(text); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if errors.Is(statErr, fs.ErrNotExist) {
		return syncFolder(filepath.Dir(a.path))
	}
	return nil
}

// endsTorn reports that the last line has no end.
func endsTorn(f *os.File) (bool, error) {
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return false, err
	}
	end := make([]byte, 1)
	_, err = f.ReadAt(end, info.Size()-1)
	return end[0] != '\n', err
}

func syncFolder(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Last implements Anchor. A last line without an end was never acknowledged and
// does not count: its checkpoint is in the ledger all the same, and is appended
// again.
func (a *FileAnchor) Last(context.Context) (Record, bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.last()
}

func (a *FileAnchor) last() (Record, bool, error) {
	f, err := os.Open(a.path)
	if errors.Is(err, fs.ErrNotExist) {
		// A folder that is not there is a disk that is not mounted.
		if _, err := os.Stat(filepath.Dir(a.path)); err != nil {
			return Record{}, false, err
		}
		return Record{}, false, nil
	}
	if err != nil {
		return Record{}, false, err
	}
	defer f.Close() //nolint:errcheck // only read
	line, err := lastLine(f)
	if err != nil || line == nil {
		return Record{}, false, err
	}
	r, err := readRecord(line)
	return r, err == nil, err
}

// lastLine reads the last line that has an end, from the end of the file; nil
// when there is none.
func lastLine(f *os.File) ([]byte, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	for size := int64(64 << 10); ; size *= 4 {
		from := max(0, info.Size()-size)
		tail := make([]byte, info.Size()-from)
		if _, err := f.ReadAt(tail, from); err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		if end := bytes.LastIndexByte(tail, '\n'); end >= 0 {
			begin := bytes.LastIndexByte(tail[:end], '\n')
			if begin >= 0 || from == 0 {
				return tail[begin+1 : end], nil
			}
		}
		if from == 0 {
			return nil, nil
		}
		if size > maxRecord {
			return nil, errors.New("its last line is too long to be a record")
		}
	}
}

// readRecord reads one line of an anchor.
func readRecord(line []byte) (Record, error) {
	var r Record
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil || r.Checkpoint.N < 1 || d.More() {
		return r, errors.New("it holds something that is not a record of an anchor")
	}
	return r, nil
}

// ReadAnchor reads all records of an anchor file, oldest first: JSON objects, one
// a line. A broken line is passed over where another follows (it was torn by a
// crash, and its record written again); what is missing shows in the numbers.
func ReadAnchor(r io.Reader) ([]Record, error) {
	var all []Record
	var broken error
	in := bufio.NewReader(r)
	for n := 1; ; n++ {
		line, err := in.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		whole := err == nil
		if len(line) > maxRecord {
			return nil, fmt.Errorf("line %d of the anchor is too long", n)
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			record, err := readRecord(line)
			switch {
			case err == nil:
				all, broken = append(all, record), nil
			case whole:
				broken = fmt.Errorf("line %d of the anchor: %w", n, err)
			}
		}
		if !whole {
			return all, broken
		}
	}
}
