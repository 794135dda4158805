package powercut

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
	"unsafe"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

// VFS is a disk as SQLite sees it.
type VFS struct {
	name  string
	disk  *Disk
	now   func() time.Time
	loose string // what stands in place of synchronous=FULL; empty is FULL

	id    uintptr
	tls   *libc.TLS
	cvfs  uintptr
	cname uintptr

	closing sync.Once
}

// Option changes how SQLite sees the disk.
type Option func(*VFS)

// Loosely puts another level (NORMAL, OFF) in the place of every PRAGMA
// synchronous, behind the back of whoever sets it and reads it back: the program
// under test believes that it is FULL.
func Loosely(level string) Option { return func(v *VFS) { v.loose = level } }

// Register shows the disk to SQLite under a name of its own. now is its clock.
func (d *Disk) Register(now func() time.Time, options ...Option) (*VFS, error) {
	v := &VFS{disk: d, now: now, tls: libc.NewTLS()}
	for _, o := range options {
		o(v)
	}
	v.id = remember(v)
	v.name = fmt.Sprintf("powercut-%d", v.id)
	cname, err := libc.CString(v.name)
	if err != nil {
		return nil, errors.Join(err, v.Close())
	}
	v.cname = cname
	v.cvfs = libc.Xcalloc(v.tls, 1, libc.Tsize_t(unsafe.Sizeof(sqlite3.Tsqlite3_vfs{})))
	if v.cvfs == 0 {
		return nil, errors.Join(errors.New("powercut: no memory"), v.Close())
	}
	*at[sqlite3.Tsqlite3_vfs](v.cvfs) = sqlite3.Tsqlite3_vfs{
		FiVersion: 2, FszOsFile: int32(unsafe.Sizeof(cfile{})), FmxPathname: maxPath, FzName: cname, FpAppData: v.id,
		FxOpen: pointer(vfsOpen), FxDelete: pointer(vfsDelete), FxAccess: pointer(vfsAccess), FxFullPathname: pointer(vfsFullPathname),
		FxRandomness: pointer(vfsRandomness), FxSleep: pointer(vfsSleep), FxCurrentTime: pointer(vfsCurrentTime),
		FxGetLastError: pointer(vfsGetLastError), FxCurrentTimeInt64: pointer(vfsCurrentTimeInt64),
	}
	if rc := sqlite3.Xsqlite3_vfs_register(v.tls, v.cvfs, 0); rc != sqlite3.SQLITE_OK {
		return nil, errors.Join(fmt.Errorf("powercut: SQLite refuses the VFS: %d", rc), v.Close())
	}
	return v, nil
}

// Name is what SQLite knows the disk by.
func (v *VFS) Name() string { return v.name }

// Close takes the disk away from SQLite. Everything that was opened on it must be
// closed.
func (v *VFS) Close() error {
	v.closing.Do(func() {
		if v.cvfs != 0 {
			sqlite3.Xsqlite3_vfs_unregister(v.tls, v.cvfs)
			libc.Xfree(v.tls, v.cvfs)
		}
		if v.cname != 0 {
			libc.Xfree(v.tls, v.cname)
		}
		forget(v.id)
		v.tls.Close()
	})
	return nil
}

const (
	maxPath = 1024
	// deviceSector and the characteristics are what SQLite takes for granted of a
	// disk on Unix, so that it writes as it does there.
	deviceSector    = 4096
	characteristics = sqlite3.SQLITE_IOCAP_POWERSAFE_OVERWRITE | sqlite3.SQLITE_IOCAP_SUBPAGE_READ
)

// cfile is sqlite3_file with the id of its handle behind it.
type cfile struct {
	base sqlite3.Tsqlite3_file
	id   uintptr
}

var methods = sqlite3.Tsqlite3_io_methods{
	FiVersion: 2,
	FxClose:   pointer(fileClose), FxRead: pointer(fileRead), FxWrite: pointer(fileWrite), FxTruncate: pointer(fileTruncate),
	FxSync: pointer(fileSync), FxFileSize: pointer(fileSize), FxLock: pointer(fileLock), FxUnlock: pointer(fileUnlock),
	FxCheckReservedLock: pointer(fileCheckReservedLock), FxFileControl: pointer(fileControl),
	FxSectorSize: pointer(fileSectorSize), FxDeviceCharacteristics: pointer(fileCharacteristics),
	FxShmMap: pointer(shmMap), FxShmLock: pointer(shmLock), FxShmBarrier: pointer(shmBarrier), FxShmUnmap: pointer(shmUnmap),
}

// pointer gives a function as SQLite's translated code calls it: the word that a
// Go function value consists of. The functions are the package's own, which stay
// where they are.
func pointer[F any](f F) uintptr { return *(*uintptr)(unsafe.Pointer(&f)) }

// at gives what stands at an address that SQLite hands in. It is never Go's
// memory that can move.
func at[T any](p uintptr) *T { return *(**T)(unsafe.Pointer(&p)) }

// bytesAt gives n bytes at such an address.
func bytesAt(p uintptr, n int32) []byte { return unsafe.Slice(at[byte](p), n) }

// known are the disks and handles that SQLite holds the ids of.
var known = struct {
	sync.Mutex
	last uintptr
	by   map[uintptr]any
}{by: map[uintptr]any{}}

func remember(v any) uintptr {
	known.Lock()
	defer known.Unlock()
	known.last++
	known.by[known.last] = v
	return known.last
}

func forget(id uintptr) {
	known.Lock()
	defer known.Unlock()
	delete(known.by, id)
}

func recall[T any](id uintptr) T {
	known.Lock()
	defer known.Unlock()
	return known.by[id].(T)
}

func vfsOf(p uintptr) *VFS {
	return recall[*VFS](at[sqlite3.Tsqlite3_vfs](p).FpAppData)
}

// openFile is a handle with the VFS that it was opened by.
type openFile struct {
	handle
	vfs *VFS
}

func fileOf(p uintptr) *openFile { return recall[*openFile](at[cfile](p).id) }

func vfsOpen(_ *libc.TLS, pVfs, zName, pFile uintptr, flags int32, pOutFlags uintptr) int32 {
	v := vfsOf(pVfs)
	c := at[cfile](pFile)
	*c = cfile{}
	name, create := "", true
	if zName != 0 {
		name, create = libc.GoString(zName), flags&sqlite3.SQLITE_OPEN_CREATE != 0
	}
	f := &file{}
	if name != "" { // else a file that nobody finds again
		var err error
		if f, err = v.disk.open(name, create, flags&sqlite3.SQLITE_OPEN_EXCLUSIVE != 0); err != nil {
			return sqlite3.SQLITE_CANTOPEN
		}
	}
	h := &openFile{vfs: v, handle: handle{disk: v.disk, file: f, boot: v.disk.boot()}}
	h.syncsDirectory = create && flags&(sqlite3.SQLITE_OPEN_MAIN_JOURNAL|sqlite3.SQLITE_OPEN_SUPER_JOURNAL|sqlite3.SQLITE_OPEN_WAL) != 0
	if flags&sqlite3.SQLITE_OPEN_DELETEONCLOSE != 0 {
		h.gone = name
	}
	if pOutFlags != 0 {
		*at[int32](pOutFlags) = flags
	}
	c.id = remember(h)
	c.base.FpMethods = uintptr(unsafe.Pointer(&methods))
	return sqlite3.SQLITE_OK
}

func vfsDelete(_ *libc.TLS, pVfs, zPath uintptr, dirSync int32) int32 {
	err := vfsOf(pVfs).disk.remove(libc.GoString(zPath), dirSync&1 != 0)
	switch {
	case errors.Is(err, ErrNoFile):
		return sqlite3.SQLITE_IOERR_DELETE_NOENT
	case err != nil:
		return sqlite3.SQLITE_IOERR_DELETE
	}
	return sqlite3.SQLITE_OK
}

func vfsAccess(_ *libc.TLS, pVfs, zPath uintptr, flags int32, pResOut uintptr) int32 {
	n, there, err := vfsOf(pVfs).disk.size(libc.GoString(zPath))
	if err != nil {
		return sqlite3.SQLITE_IOERR_ACCESS
	}
	// On Unix a file without a byte does not exist in this sense.
	*at[int32](pResOut) = libc.BoolInt32(there && (n > 0 || flags != sqlite3.SQLITE_ACCESS_EXISTS))
	return sqlite3.SQLITE_OK
}

func vfsFullPathname(_ *libc.TLS, _, zPath uintptr, n int32, zOut uintptr) int32 {
	name := libc.GoString(zPath)
	if !strings.HasPrefix(name, "/") || len(name) >= int(n) {
		return sqlite3.SQLITE_CANTOPEN
	}
	out := bytesAt(zOut, n)
	out[copy(out, name)] = 0
	return sqlite3.SQLITE_OK
}

func vfsRandomness(_ *libc.TLS, pVfs uintptr, n int32, zOut uintptr) int32 {
	vfsOf(pVfs).disk.randomness(bytesAt(zOut, n))
	return n
}

func vfsSleep(_ *libc.TLS, _ uintptr, microseconds int32) int32 {
	time.Sleep(time.Duration(microseconds) * time.Microsecond)
	return microseconds
}

// julian is the Unix epoch in SQLite's milliseconds.
const julian = 210866760000000

func vfsCurrentTimeInt64(_ *libc.TLS, pVfs, p uintptr) int32 {
	*at[int64](p) = julian + vfsOf(pVfs).now().UnixMilli()
	return sqlite3.SQLITE_OK
}

func vfsCurrentTime(_ *libc.TLS, pVfs, p uintptr) int32 {
	*at[float64](p) = float64(julian+vfsOf(pVfs).now().UnixMilli()) / 86400000
	return sqlite3.SQLITE_OK
}

func vfsGetLastError(*libc.TLS, uintptr, int32, uintptr) int32 { return 0 }

func fileClose(tls *libc.TLS, p uintptr) int32 {
	h := fileOf(p)
	h.unmap(tls)
	h.unlockTo(sqlite3.SQLITE_LOCK_NONE)
	if h.gone != "" {
		_ = h.disk.remove(h.gone, false) // without power it stays, as it would
	}
	forget(at[cfile](p).id)
	at[cfile](p).base.FpMethods = 0
	return sqlite3.SQLITE_OK
}

func fileRead(_ *libc.TLS, p, zBuf uintptr, n int32, from int64) int32 {
	b := bytesAt(zBuf, n)
	got, err := fileOf(p).read(b, from)
	switch {
	case err != nil:
		return sqlite3.SQLITE_IOERR_READ
	case got < len(b):
		clear(b[got:])
		return sqlite3.SQLITE_IOERR_SHORT_READ
	}
	return sqlite3.SQLITE_OK
}

func fileWrite(_ *libc.TLS, p, zBuf uintptr, n int32, to int64) int32 {
	return code(fileOf(p).write(bytesAt(zBuf, n), to), sqlite3.SQLITE_IOERR_WRITE)
}

func fileTruncate(_ *libc.TLS, p uintptr, size int64) int32 {
	return code(fileOf(p).truncate(size), sqlite3.SQLITE_IOERR_TRUNCATE)
}

func fileSync(_ *libc.TLS, p uintptr, _ int32) int32 {
	return code(fileOf(p).sync(), sqlite3.SQLITE_IOERR_FSYNC)
}

func fileSize(_ *libc.TLS, p, pSize uintptr) int32 {
	n, err := fileOf(p).length()
	*at[int64](pSize) = n
	return code(err, sqlite3.SQLITE_IOERR_FSTAT)
}

func code(err error, failed int32) int32 {
	if err != nil {
		return failed
	}
	return sqlite3.SQLITE_OK
}

func busyUnless(ok bool) int32 {
	if !ok {
		return sqlite3.SQLITE_BUSY
	}
	return sqlite3.SQLITE_OK
}

func fileLock(_ *libc.TLS, p uintptr, level int32) int32 {
	return busyUnless(fileOf(p).lockTo(level))
}

func fileUnlock(_ *libc.TLS, p uintptr, level int32) int32 {
	fileOf(p).unlockTo(level)
	return sqlite3.SQLITE_OK
}

func fileCheckReservedLock(_ *libc.TLS, p, pResOut uintptr) int32 {
	*at[int32](pResOut) = libc.BoolInt32(fileOf(p).reserved())
	return sqlite3.SQLITE_OK
}

// fileControl lets SQLite do what it does by itself, save what Loosely changes.
func fileControl(tls *libc.TLS, p uintptr, op int32, arg uintptr) int32 {
	v := fileOf(p).vfs
	if op != sqlite3.SQLITE_FCNTL_PRAGMA || v.loose == "" {
		return sqlite3.SQLITE_NOTFOUND
	}
	words := at[[3]uintptr](arg) // what to answer, the name, the value
	if !strings.EqualFold(libc.GoString(words[1]), "synchronous") {
		return sqlite3.SQLITE_NOTFOUND
	}
	if words[2] == 0 { // the question what it is
		words[0] = answer(tls, "2")
		return sqlite3.SQLITE_OK
	}
	// SQLite reads the value from here when it goes on.
	value := bytesAt(words[2], int32(len(libc.GoString(words[2]))))
	if n := copy(value, levels[v.loose]); n < len(value) {
		value[n] = 0
	}
	return sqlite3.SQLITE_NOTFOUND
}

// levels are the levels of synchronous as numbers, which fit in the place of any
// word for one.
var levels = map[string]string{"OFF": "0", "NORMAL": "1", "FULL": "2"}

// answer gives a text in SQLite's own memory.
func answer(tls *libc.TLS, s string) uintptr {
	p := sqlite3.Xsqlite3_malloc(tls, int32(len(s)+1))
	if p == 0 {
		return 0
	}
	b := bytesAt(p, int32(len(s)+1))
	b[copy(b, s)] = 0
	return p
}

func fileSectorSize(*libc.TLS, uintptr) int32 { return deviceSector }

func fileCharacteristics(*libc.TLS, uintptr) int32 { return characteristics }

func shmMap(tls *libc.TLS, p uintptr, region, size, extend int32, pp uintptr) int32 {
	address, ok := fileOf(p).mapRegion(tls, int(region), size, extend != 0)
	*at[uintptr](pp) = address
	if !ok {
		return sqlite3.SQLITE_NOMEM
	}
	return sqlite3.SQLITE_OK
}

func shmLock(_ *libc.TLS, p uintptr, from, n, flags int32) int32 {
	return busyUnless(fileOf(p).lockShared(from, n, flags))
}

// shmBarrier orders memory: a lock that is taken and dropped does.
func shmBarrier(_ *libc.TLS, p uintptr) {
	h := fileOf(p)
	h.disk.mu.Lock()
	defer h.disk.mu.Unlock()
}

func shmUnmap(tls *libc.TLS, p uintptr, _ int32) int32 {
	fileOf(p).unmap(tls)
	return sqlite3.SQLITE_OK
}
