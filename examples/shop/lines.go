package shop

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// lines is an append-only file of JSON lines. A line is on disk when append has
// returned nil. One process owns the file.
type lines struct {
	file *os.File
	size int64
	// broken is set when the end of the file is no longer known; nothing more is
	// written then.
	broken error
}

// openLines opens or creates a file and hands its lines to each, in order. A
// last line that is torn (no newline, or not readable) was never acknowledged:
// it is cut off and counted in cut. A bad line before the last is an error.
func openLines(path string, each func(line []byte) error) (l *lines, cut int64, err error) {
	_, statErr := os.Stat(path)
	file, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, 0, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, file.Close())
		}
	}()
	if errors.Is(statErr, fs.ErrNotExist) {
		if err := syncDir(filepath.Dir(path)); err != nil {
			return nil, 0, err
		}
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, 0, err
	}
	good, number := 0, 0
	for good < len(data) {
		number++
		end := bytes.IndexByte(data[good:], '\n')
		if end < 0 {
			break
		}
		next := good + end + 1
		if err := each(data[good : next-1]); err != nil {
			if next < len(data) {
				return nil, 0, fmt.Errorf("%s line %d: %w", path, number, err)
			}
			break
		}
		good = next
	}
	l = &lines{file: file, size: int64(good)}
	if cut = int64(len(data) - good); cut > 0 {
		if err := l.truncate(); err != nil {
			return nil, 0, err
		}
	}
	return l, cut, nil
}

// append writes v as one line and waits until it is on disk. After an error
// the line is not there, unless the disk failed in a way that can't be known;
// then every later append fails too.
func (l *lines) append(v any) error {
	if l.broken != nil {
		return l.broken
	}
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	line = append(line, '\n')
	if _, err := l.file.Write(line); err != nil {
		if cutErr := l.truncate(); cutErr != nil {
			l.broken = errors.Join(err, cutErr)
		}
		return err
	}
	if err := l.file.Sync(); err != nil {
		// After a failed fsync nobody knows what is on disk.
		l.broken = err
		return err
	}
	l.size += int64(len(line))
	return nil
}

// clear empties the file.
func (l *lines) clear() error {
	l.size = 0
	err := l.truncate()
	l.broken = err
	return err
}

func (l *lines) truncate() error {
	if err := l.file.Truncate(l.size); err != nil {
		return err
	}
	return l.file.Sync()
}

// syncDir makes the name of a new file durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
