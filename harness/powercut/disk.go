package powercut

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
)

// Errors of a disk.
var (
	// ErrOff: the power is gone.
	ErrOff = errors.New("powercut: the power is off")
	// ErrNoFile: there is no file of that name.
	ErrNoFile = errors.New("powercut: no such file")
)

// sector is the unit in which a disk writes whole or not at all.
const sector = 512

// Event is a moment at which the power may go.
type Event int

const (
	// AnyEvent is each of the others.
	AnyEvent Event = iota
	// Write is a write to a file.
	Write
	// Sync is a flush of a file: the power goes just before it or just after, when
	// everything is safe and its caller does not know.
	Sync
	// Entry is a creation, a deletion or a truncation.
	Entry
)

func (e Event) String() string {
	return [...]string{"any event", "write", "sync", "entry"}[e]
}

// Moment is what a cut came with: an event, and the file that it was about; "" is
// the directory.
type Moment struct {
	Event Event
	File  string
}

// Survival is what a cut leaves of the changes that were not flushed.
type Survival int

const (
	// Nothing of them.
	Nothing Survival = iota
	// Everything, as if there had been time.
	Everything
	// Prefix: everything up to some moment, with the write that it fell into torn.
	Prefix
	// Scattered: the sectors were written in an order of the disk's own choosing,
	// and the power went in the middle of that; a file that grew may have its new
	// length with anything in it.
	Scattered
	survivals
)

func (s Survival) String() string {
	return [...]string{"nothing", "everything", "prefix", "scattered"}[s]
}

// Disk is a disk in memory with one directory. It is safe for concurrent use.
type Disk struct {
	mu  sync.Mutex
	rng *rand.Rand

	// names is the directory as programs see it, safe as it would be found after a
	// cut; between the two stand the changes in entries.
	names, safe map[string]*file
	entries     []entry

	// boots counts how often the power came back: what was opened before is dead.
	boots int
	off   bool
	last  Survival
	// wentAt is what the last armed cut came with.
	wentAt Moment

	cut    Event
	left   int // events until the cut; 0: none is armed
	counts map[Event]int

	// deaf says of which files flushes do nothing.
	deaf func(file string) bool
}

// file is what a name stands for.
type file struct {
	name      string // that it was made under
	now, safe []byte
	// changes are the steps from safe to now, oldest first.
	changes []change
	locks   locks
	shared  *sharedMemory
}

// change is one write of at most a sector, or one truncation.
type change struct {
	at       int64
	data     []byte
	truncate bool
}

// entry is one change of the directory: a creation, or a deletion (file is nil).
type entry struct {
	name string
	file *file
}

// NewDisk gives an empty disk that is on. The seed decides what cuts leave.
func NewDisk(seed uint64) *Disk {
	return &Disk{
		rng:   rand.New(rand.NewPCG(seed, 0)),
		names: map[string]*file{}, safe: map[string]*file{}, counts: map[Event]int{},
		deaf: func(string) bool { return false },
	}
}

// CutAt arms the power cut: it comes with the n-th event of a kind from now on,
// n from 1. Zero disarms.
func (d *Disk) CutAt(kind Event, n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cut, d.left, d.wentAt = kind, n, Moment{}
}

// Cut cuts the power now, if it is on.
func (d *Disk) Cut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.off {
		d.goOff()
	}
}

// Deafen makes flushes of some files do nothing, as those of a disk that lies do;
// file is the name, "" the directory.
func (d *Disk) Deafen(to func(file string) bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.deaf = to
}

// Off reports that the power is gone.
func (d *Disk) Off() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.off
}

// Survived says how the last cut went.
func (d *Disk) Survived() Survival {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.last
}

// WentAt says what the last armed cut came with; nothing when it has not come.
func (d *Disk) WentAt() Moment {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.wentAt
}

// Count is how many events of a kind there were since the disk was made.
func (d *Disk) Count(kind Event) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.counts[kind]
}

// Boot gives the power back. Programs find what survived; whatever they opened
// before is dead.
func (d *Disk) Boot() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.off, d.left = false, 0
	d.boots++
}

// happens counts an event and reports that the power goes with it. The lock is
// held.
func (d *Disk) happens(kind Event, file string) bool {
	d.counts[kind]++
	d.counts[AnyEvent]++
	if d.left == 0 || d.cut != AnyEvent && d.cut != kind {
		return false
	}
	if d.left--; d.left > 0 {
		return false
	}
	d.wentAt = Moment{kind, file}
	return true
}

// goOff cuts the power: what is only written gets its fate.
func (d *Disk) goOff() {
	d.off = true
	d.last = Survival(d.rng.IntN(int(survivals)))
	for _, i := range d.surviving(len(d.entries)) {
		d.entries[i].apply(d.safe)
	}
	d.entries = nil
	// One inode may be found under several names only while a deletion of it is
	// not safe; each file is decided on once, in the order of the names.
	done := map[*file]*file{}
	names := map[string]*file{}
	for _, name := range slices.Sorted(maps.Keys(d.safe)) {
		f := d.safe[name]
		if done[f] == nil {
			for _, i := range d.surviving(len(f.changes)) {
				f.safe = f.changes[i].apply(f.safe)
			}
			d.grow(f)
			done[f] = &file{name: f.name, now: slices.Clone(f.safe), safe: f.safe}
		}
		names[name] = done[f]
	}
	d.safe, d.names = names, maps.Clone(names)
}

// surviving says which of n changes in a row survive the cut, in their order.
func (d *Disk) surviving(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	switch d.last {
	case Nothing:
		return nil
	case Prefix:
		return all[:d.rng.IntN(n+1)]
	case Scattered:
		d.rng.Shuffle(n, func(i, j int) { all[i], all[j] = all[j], all[i] })
		some := all[:d.rng.IntN(n+1)]
		// A sector that was written twice holds the younger of those that arrived.
		slices.Sort(some)
		return some
	default:
		return all
	}
}

// grow lets a file that was getting longer have its new length without its new
// bytes, as file systems do that write the length first: there stands nothing, or
// what stood on the disk before.
func (d *Disk) grow(f *file) {
	missing := len(f.now) - len(f.safe)
	if d.last != Scattered || missing <= 0 || d.rng.IntN(2) == 0 {
		return
	}
	rest := make([]byte, missing)
	if d.rng.IntN(2) == 0 {
		for i := range rest {
			rest[i] = byte(d.rng.Uint32())
		}
	}
	f.safe = append(f.safe, rest...)
}

// open finds or makes a file.
func (d *Disk) open(name string, create, exclusive bool) (*file, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f, there := d.names[name]
	switch {
	case d.off:
		return nil, ErrOff
	case there && exclusive:
		return nil, fmt.Errorf("powercut: %s is there already", name)
	case there:
		return f, nil
	case !create:
		return nil, ErrNoFile
	}
	f = &file{name: name}
	return f, d.enter(entry{name, f})
}

// remove deletes a name. Who has the file open keeps it.
func (d *Disk) remove(name string, flush bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.off {
		return ErrOff
	}
	if _, there := d.names[name]; !there {
		return ErrNoFile
	}
	if err := d.enter(entry{name, nil}); err != nil {
		return err
	}
	if flush {
		return d.syncDirectory()
	}
	return nil
}

func (d *Disk) enter(e entry) error {
	e.apply(d.names)
	d.entries = append(d.entries, e)
	return d.pass(Entry, e.name)
}

// pass counts an event; if the power goes with it, its caller is told so.
func (d *Disk) pass(kind Event, file string) error {
	if d.happens(kind, file) {
		d.goOff()
		return ErrOff
	}
	return nil
}

func (e entry) apply(names map[string]*file) {
	if e.file == nil {
		delete(names, e.name)
		return
	}
	names[e.name] = e.file
}

// size is a file's length; ok is false when there is none.
func (d *Disk) size(name string) (n int64, ok bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.off {
		return 0, false, ErrOff
	}
	f, ok := d.names[name]
	if !ok {
		return 0, false, nil
	}
	return int64(len(f.now)), true, nil
}

// handle is an open file.
type handle struct {
	disk *Disk
	file *file
	boot int
	// syncsDirectory: the file may be new, and the first flush by this handle
	// flushes the directory too, as SQLite does on Unix.
	syncsDirectory bool
	// gone is the name to delete when it is closed.
	gone string
	// lock is what it holds of the file's lock.
	lock int32
	// exclusive and shared are the masks of what it holds of the shared memory's.
	exclusive, shared uint16
	mapped            bool
}

// alive reports whether the handle's power is still on. The lock is held.
func (h *handle) alive() bool { return !h.disk.off && h.boot == h.disk.boots }

// read fills b from the file and gives how much of it there was.
func (h *handle) read(b []byte, at int64) (int, error) {
	h.disk.mu.Lock()
	defer h.disk.mu.Unlock()
	if !h.alive() {
		return 0, ErrOff
	}
	if at >= int64(len(h.file.now)) {
		return 0, nil
	}
	return copy(b, h.file.now[at:]), nil
}

// write changes the file, sector by sector.
func (h *handle) write(b []byte, at int64) error {
	h.disk.mu.Lock()
	defer h.disk.mu.Unlock()
	if !h.alive() {
		return ErrOff
	}
	for len(b) > 0 {
		n := min(sector-int(at%sector), len(b))
		h.change(change{at: at, data: slices.Clone(b[:n])})
		b, at = b[n:], at+int64(n)
	}
	return h.disk.pass(Write, h.file.name)
}

func (h *handle) truncate(size int64) error {
	h.disk.mu.Lock()
	defer h.disk.mu.Unlock()
	if !h.alive() {
		return ErrOff
	}
	h.change(change{at: size, truncate: true})
	return h.disk.pass(Entry, h.file.name)
}

func (h *handle) change(c change) {
	h.file.now = c.apply(h.file.now)
	h.file.changes = append(h.file.changes, c)
}

// sync makes everything in the file safe.
func (h *handle) sync() error {
	d := h.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	if !h.alive() {
		return ErrOff
	}
	goes := d.happens(Sync, h.file.name)
	if goes && d.rng.IntN(2) == 0 {
		d.goOff()
		return ErrOff
	}
	if !d.deaf(h.file.name) {
		for _, c := range h.file.changes {
			h.file.safe = c.apply(h.file.safe)
		}
		h.file.changes = nil
	}
	if h.syncsDirectory {
		h.syncsDirectory = false
		if err := d.syncDirectory(); err != nil {
			return err
		}
	}
	if goes {
		d.goOff()
		return ErrOff
	}
	return nil
}

// syncDirectory makes every name safe. It is an event of its own.
func (d *Disk) syncDirectory() error {
	goes := d.happens(Sync, "")
	if goes && d.rng.IntN(2) == 0 {
		d.goOff()
		return ErrOff
	}
	if !d.deaf("") {
		for _, e := range d.entries {
			e.apply(d.safe)
		}
		d.entries = nil
	}
	if goes {
		d.goOff()
		return ErrOff
	}
	return nil
}

// length is the file's length.
func (h *handle) length() (int64, error) {
	h.disk.mu.Lock()
	defer h.disk.mu.Unlock()
	if !h.alive() {
		return 0, ErrOff
	}
	return int64(len(h.file.now)), nil
}

// apply makes the change on an image and gives the image.
func (c change) apply(b []byte) []byte {
	end := c.at + int64(len(c.data))
	if c.truncate && int64(len(b)) > c.at {
		return b[:c.at]
	}
	if grow := end - int64(len(b)); grow > 0 {
		b = append(b, make([]byte, grow)...)
	}
	copy(b[c.at:], c.data)
	return b
}

// boot is which life of the disk this is.
func (d *Disk) boot() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.boots
}

// randomness fills b.
func (d *Disk) randomness(b []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range b {
		b[i] = byte(d.rng.Uint32())
	}
}
