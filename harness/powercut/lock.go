package powercut

import (
	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

// locks is the state of a file's lock: SQLite's five levels, within one process.
type locks struct {
	shared int // how many hold SHARED or more
	// reserved holds RESERVED or more, pending keeps new readers out.
	reserved, pending *handle
}

// lockTo raises what the handle holds; false is busy.
func (h *handle) lockTo(level int32) bool {
	h.disk.mu.Lock()
	defer h.disk.mu.Unlock()
	l := &h.file.locks
	if h.lock >= level {
		return true
	}
	switch level {
	case sqlite3.SQLITE_LOCK_SHARED:
		if l.pending != nil {
			return false
		}
		l.shared++
	case sqlite3.SQLITE_LOCK_RESERVED:
		if l.reserved != nil {
			return false
		}
		l.reserved = h
	default: // EXCLUSIVE, by way of PENDING
		if l.pending != nil && l.pending != h || l.reserved != nil && l.reserved != h {
			return false
		}
		l.pending = h
		if l.shared > 1 {
			h.lock = sqlite3.SQLITE_LOCK_PENDING
			return false
		}
	}
	h.lock = level
	return true
}

// unlockTo lowers what the handle holds to SHARED or to nothing.
func (h *handle) unlockTo(level int32) {
	h.disk.mu.Lock()
	defer h.disk.mu.Unlock()
	l := &h.file.locks
	if h.lock <= level {
		return
	}
	if l.reserved == h {
		l.reserved = nil
	}
	if l.pending == h {
		l.pending = nil
	}
	if level == sqlite3.SQLITE_LOCK_NONE {
		l.shared--
	}
	h.lock = level
}

// reserved reports that somebody is about to write.
func (h *handle) reserved() bool {
	h.disk.mu.Lock()
	defer h.disk.mu.Unlock()
	return h.file.locks.reserved != nil || h.file.locks.pending != nil
}

// sharedMemory is the index of a write-ahead log that the connections of a
// process share. It is no file: after a cut there is none.
type sharedMemory struct {
	users   int
	regions []uintptr
	// held counts the shared holders of each lock; -1 is an exclusive one.
	held [sqlite3.SQLITE_SHM_NLOCK]int
}

// mapRegion gives a region of the shared memory; 0 when it is not there and is not
// to be made.
func (h *handle) mapRegion(tls *libc.TLS, region int, size int32, extend bool) (p uintptr, ok bool) {
	h.disk.mu.Lock()
	defer h.disk.mu.Unlock()
	if h.file.shared == nil {
		h.file.shared = &sharedMemory{}
	}
	m := h.file.shared
	if !h.mapped {
		h.mapped = true
		m.users++
	}
	for len(m.regions) <= region {
		if !extend {
			return 0, true
		}
		// Not Go's memory: SQLite keeps pointers into it.
		p := libc.Xcalloc(tls, 1, libc.Tsize_t(size))
		if p == 0 {
			return 0, false
		}
		m.regions = append(m.regions, p)
	}
	return m.regions[region], true
}

// lockShared takes or drops locks of the shared memory; false is busy.
func (h *handle) lockShared(from, n, flags int32) bool {
	h.disk.mu.Lock()
	defer h.disk.mu.Unlock()
	m := h.file.shared
	if m == nil || !h.mapped {
		return false
	}
	mask := uint16(1<<(from+n) - 1<<from)
	span := m.held[from : from+n]
	switch {
	case flags&sqlite3.SQLITE_SHM_UNLOCK != 0 && flags&sqlite3.SQLITE_SHM_SHARED != 0:
		if h.shared&mask != 0 {
			span[0]--
		}
		h.shared &^= mask
	case flags&sqlite3.SQLITE_SHM_UNLOCK != 0:
		if h.exclusive&mask == mask {
			clear(span)
		}
		h.exclusive &^= mask
	case flags&sqlite3.SQLITE_SHM_SHARED != 0:
		if h.shared&mask != 0 {
			return true
		}
		if span[0] < 0 {
			return false
		}
		span[0]++
		h.shared |= mask
	default:
		for _, held := range span {
			if held != 0 {
				return false
			}
		}
		for i := range span {
			span[i] = -1
		}
		h.exclusive |= mask
	}
	return true
}

// unmap lets go of the shared memory; the last user frees it.
func (h *handle) unmap(tls *libc.TLS) {
	h.disk.mu.Lock()
	defer h.disk.mu.Unlock()
	m := h.file.shared
	if m == nil || !h.mapped {
		return
	}
	for i := range m.held {
		bit := uint16(1) << i
		switch {
		case h.exclusive&bit != 0:
			m.held[i] = 0
		case h.shared&bit != 0:
			m.held[i]--
		}
	}
	h.mapped, h.exclusive, h.shared = false, 0, 0
	if m.users--; m.users > 0 {
		return
	}
	for _, p := range m.regions {
		libc.Xfree(tls, p)
	}
	h.file.shared = nil
}
