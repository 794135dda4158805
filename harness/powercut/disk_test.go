package powercut

import (
	"bytes"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// image gives a file's bytes; nil when there is none.
func image(t *testing.T, d *Disk, name string) []byte {
	t.Helper()
	f, err := d.open(name, false, false)
	if err != nil {
		require.ErrorIs(t, err, ErrNoFile)
		return nil
	}
	return f.now
}

// create makes a file whose name and first bytes are safe.
func create(t *testing.T, d *Disk, name string, b []byte) *handle {
	t.Helper()
	f, err := d.open(name, true, true)
	require.NoError(t, err)
	h := &handle{disk: d, file: f, boot: d.boot(), syncsDirectory: true}
	require.NoError(t, h.write(b, 0))
	require.NoError(t, h.sync())
	return h
}

// page is a page of one letter.
func page(letter byte) []byte { return bytes.Repeat([]byte{letter}, 8*sector) }

func TestDisk_Cut(t *testing.T) {
	seen := map[string]bool{}
	for seed := range uint64(400) {
		d := NewDisk(seed)
		h := create(t, d, "f", page('a'))
		require.NoError(t, h.write(page('b'), 0))
		require.NoError(t, h.write(page('c'), 0))
		require.NoError(t, h.truncate(16*sector))
		_, err := d.open("new", true, false)
		require.NoError(t, err)
		d.Cut()
		require.True(t, d.Off())
		require.ErrorIs(t, h.sync(), ErrOff, "nothing works without power")
		require.ErrorIs(t, h.write(page('d'), 0), ErrOff)
		_, err = h.read(make([]byte, 1), 0)
		require.ErrorIs(t, err, ErrOff)
		d.Boot()
		require.ErrorIs(t, h.sync(), ErrOff, "what was open is dead")

		b := image(t, d, "f")
		letters := map[byte]bool{}
		for i := range 8 {
			s := b[i*sector : (i+1)*sector]
			require.Equal(t, bytes.Repeat(s[:1], sector), s, "a sector is written whole or not at all")
			letters[s[0]] = true
		}
		grown, born := len(b) == 16*sector, image(t, d, "new") != nil || namesHave(d, "new")
		switch d.Survived() {
		case Nothing:
			require.Equal(t, page('a'), b)
			require.False(t, born)
		case Everything:
			require.Equal(t, page('c'), b[:8*sector])
			require.True(t, grown && born)
		case Prefix:
			require.False(t, grown && letters['b'], "the truncation came last")
			require.False(t, letters['a'] && letters['c'], "c came after all of b")
		}
		seen[fmt.Sprint(d.Survived())] = true
		seen[fmt.Sprint("torn ", len(letters) > 1)] = true
		seen[fmt.Sprint("reordered ", letters['a'] && letters['c'])] = true
		seen[fmt.Sprint("late truncation ", grown && letters['a'])] = true
		seen[fmt.Sprint("new name ", born, " with old bytes ", letters['a'])] = true
	}
	for _, what := range []string{
		"nothing", "everything", "prefix", "scattered", "torn true", "reordered true", "late truncation true", "new name true with old bytes true",
		"new name false with old bytes false",
	} {
		require.True(t, seen[what], "400 cuts never left it so: %s", what)
	}
}

func namesHave(d *Disk, name string) bool {
	_, ok, err := d.size(name)
	return ok && err == nil
}

// What was flushed survives every cut, whatever is written around it.
func TestDisk_Sync(t *testing.T) {
	for seed := range uint64(100) {
		d := NewDisk(seed)
		h := create(t, d, "f", page('a'))
		require.NoError(t, h.write(page('b'), 8*sector))
		require.NoError(t, h.sync())
		require.NoError(t, h.write(page('c'), 16*sector))
		d.Cut()
		d.Boot()
		b := image(t, d, "f")
		require.Equal(t, append(page('a'), page('b')...), b[:16*sector])
	}
}

// A flush of a file does not make its name safe; one of the directory does.
func TestDisk_Directory(t *testing.T) {
	lost, back := 0, 0
	for seed := range uint64(100) {
		d := NewDisk(seed)
		old := create(t, d, "old", page('a'))
		f, err := d.open("f", true, false)
		require.NoError(t, err)
		h := &handle{disk: d, file: f}
		require.NoError(t, h.write(page('b'), 0))
		require.NoError(t, h.sync())
		require.NoError(t, d.remove("old", false))
		_, err = old.read(make([]byte, 1), 0)
		require.NoError(t, err, "who has it open keeps it")
		d.Cut()
		d.Boot()
		if b := image(t, d, "f"); b == nil {
			lost++
		} else {
			require.Equal(t, page('b'), b)
		}
		if b := image(t, d, "old"); b != nil {
			require.Equal(t, page('a'), b)
			back++
		}

		d = NewDisk(seed)
		create(t, d, "old", page('a'))
		require.NoError(t, d.remove("old", true))
		require.ErrorIs(t, d.remove("old", true), ErrNoFile)
		d.Cut()
		d.Boot()
		require.Nil(t, image(t, d, "old"))
	}
	require.NotZero(t, lost)
	require.NotZero(t, back)
}

// The power goes at the event that was asked for.
func TestDisk_CutAt(t *testing.T) {
	before, after := 0, 0
	for seed := range uint64(60) {
		d := NewDisk(seed)
		h := create(t, d, "f", page('a'))
		d.CutAt(Write, 2)
		require.NoError(t, h.write(page('b'), 0))
		require.NoError(t, h.sync())
		require.ErrorIs(t, h.write(page('c'), 0), ErrOff)
		d.Boot()
		f, err := d.open("f", false, false)
		require.NoError(t, err)
		h = &handle{disk: d, file: f, boot: d.boot()}
		require.NoError(t, h.write(page('d'), 0), "one cut, not two")
		require.NoError(t, h.sync())

		d.CutAt(Sync, 1)
		require.NoError(t, h.write(page('e'), 0))
		require.ErrorIs(t, h.sync(), ErrOff)
		d.Boot()
		if d.Survived() == Nothing {
			switch image(t, d, "f")[0] {
			case 'd':
				before++
			case 'e':
				after++
			}
		}
		d.CutAt(Entry, 1)
		_, err = d.open("g", true, false)
		require.ErrorIs(t, err, ErrOff)
	}
	require.NotZero(t, before, "the power can go just before a flush")
	require.NotZero(t, after, "and just after it, when its caller does not know")
}

// SQLite finds on the disk what it wrote, from several connections, in the modes
// that lock and share differently.
func TestVFS(t *testing.T) {
	for _, mode := range []string{"DELETE", "TRUNCATE", "PERSIST", "WAL"} {
		t.Run(mode, func(t *testing.T) {
			d := NewDisk(1)
			v, err := d.Register(time.Now)
			require.NoError(t, err)
			pool, err := sql.Open("sqlite", "file:/t.db?vfs="+v.Name()+"&_pragma=busy_timeout(10000)&_pragma=journal_mode("+mode+")&_txlock=immediate")
			require.NoError(t, err)
			pool.SetMaxOpenConns(4)
			_, err = pool.ExecContext(t.Context(), "CREATE TABLE t (a INTEGER PRIMARY KEY, b BLOB)")
			require.NoError(t, err)
			done := make(chan error)
			for range 4 {
				go func() {
					done <- func() error {
						for range 25 {
							if _, err := pool.ExecContext(t.Context(), "INSERT INTO t (b) VALUES (randomblob(3000))"); err != nil {
								return err
							}
							var n int
							if err := pool.QueryRowContext(t.Context(), "SELECT count(*) FROM t").Scan(&n); err != nil {
								return err
							}
						}
						return nil
					}()
				}()
			}
			for range 4 {
				require.NoError(t, <-done)
			}
			_, err = pool.ExecContext(t.Context(), "DELETE FROM t WHERE a % 2 = 0; VACUUM")
			require.NoError(t, err)
			require.NoError(t, pool.Close())

			pool, err = sql.Open("sqlite", "file:/t.db?vfs="+v.Name())
			require.NoError(t, err)
			var n int
			var said, got string
			require.NoError(t, pool.QueryRowContext(t.Context(), "SELECT count(*) FROM t").Scan(&n))
			require.Equal(t, 50, n)
			require.NoError(t, pool.QueryRowContext(t.Context(), "PRAGMA integrity_check").Scan(&said))
			require.Equal(t, "ok", said)
			require.NoError(t, pool.QueryRowContext(t.Context(), "SELECT date('now')").Scan(&got))
			require.Equal(t, time.Now().UTC().Format(time.DateOnly), got)
			require.NoError(t, pool.Close())
			require.NoError(t, v.Close())
			require.NotZero(t, d.Count(Sync))
		})
	}
}
