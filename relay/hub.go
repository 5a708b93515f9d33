package relay

import (
	"sync"
	"time"
)

// hub is one host as this node sees it. A reconnect makes a new controlConn;
// whatever was started under the old one keeps its pointer to the old one.
type hub struct {
	hostID string

	users int // guarded by registry.mu

	// Guarded by mu, which comes before controlConn.mu and is never held
	// across I/O.
	mu       sync.Mutex
	current  *controlConn  // nil while no routable socket of the host is here
	guest    bool          // one socket of the host more is here than count against MaxHosts
	changed  chan struct{} // closed when current changes; nil when nobody waits
	goneAt   time.Time     // when the last current socket left; zero before
	dials    int           // that wait for a dial-back
	streams  map[*stream]struct{}
	replaced []time.Time // replacements within flapWindow, oldest first
	reported time.Time   // last report of flapping
	revoked  int         // how often the host was revoked
	read     sharedRead

	pool   pool   // has its own lock
	spares spares // so has this
}

// install makes c the hub's current socket and returns the one that it took
// over from, if any. It fails if c has ended meanwhile, if the host was revoked
// since c was let in, or if a newer generation is here already.
func (h *hub) install(c *controlConn, hello []byte) (old *controlConn, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.current != nil && h.current.att.Generation > c.att.Generation {
		return nil, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != stateAttaching || c.revoked != h.revoked {
		return nil, false
	}
	c.state = stateCurrent
	c.lastPing = time.Now()
	if hello != nil {
		c.sendq = append(c.sendq, hello)
	}
	old, h.current = h.current, c
	h.goneAt = time.Time{}
	h.changedLocked()
	return old, true
}

// leave takes c out of routing, if it is there, and moves it to state to. It
// returns the state before and the dials that waited on c.
func (h *hub) leave(c *controlConn, to controlState) (was controlState, removed bool, pending map[string]*dial) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if removed = h.current == c || !guardLateClose; removed {
		h.current = nil
		h.goneAt = time.Time{}
		if c.revoked == h.revoked { // else nobody waits for it
			h.goneAt = time.Now()
		}
		h.changedLocked()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	was = c.state
	c.state = max(c.state, to)
	pending, c.pending = c.pending, nil
	for _, t := range []*time.Timer{c.stale, c.expiry} {
		if t != nil {
			t.Stop()
		}
	}
	return was, removed, pending
}

// revoke notes that the host is revoked: whatever was let in before is not any
// more. It returns the current socket, or nil.
func (h *hub) revoke() *controlConn {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.revoked++
	return h.current
}

// revocations is how often the host was revoked while there was a hub of it.
func (h *hub) revocations() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.revoked
}

func (h *hub) changedLocked() {
	if h.changed != nil {
		close(h.changed)
		h.changed = nil
	}
}

// look returns the current socket and a channel that is closed when it changes.
func (h *hub) look() (c *controlConn, goneAt time.Time, changed <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.changed == nil {
		h.changed = make(chan struct{})
	}
	return h.current, h.goneAt, h.changed
}

// here returns the current socket, or nil.
func (h *hub) here() *controlConn {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.current
}

// addGuest lets a socket in on a full node if it is going to take over from the
// current one: the host is there already, and that socket may be half-open. There
// is one guest at a time.
func (h *hub) addGuest() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.current == nil || h.guest {
		return false
	}
	h.guest = true
	return true
}

// endGuest is called when a socket of the host has ended. It reports whether the
// place of that one is still needed: the guest has it from now on, if it is not
// the one that has ended.
func (h *hub) endGuest() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	was := h.guest
	h.guest = false
	return was
}

// beginDial counts a dial against the limit.
func (h *hub) beginDial(limit int) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.dials >= limit {
		return ErrHostLimit
	}
	h.dials++
	return nil
}

func (h *hub) endDial() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dials--
}

// addStream counts st against the limit.
func (h *hub) addStream(st *stream, limit int) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.streams) >= limit {
		return ErrHostLimit
	}
	if h.streams == nil {
		h.streams = make(map[*stream]struct{})
	}
	h.streams[st] = struct{}{}
	return nil
}

func (h *hub) removeStream(st *stream) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.streams, st)
	if len(h.streams) == 0 {
		h.streams = nil
	}
}

func (h *hub) liveStreams() []*stream {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]*stream, 0, len(h.streams))
	for st := range h.streams {
		all = append(all, st)
	}
	return all
}

// noteReplaced counts a replacement; report says that it is time to report
// that the host flaps.
func (h *hub) noteReplaced(now time.Time) (n int, report bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.replaced = append(h.pruneLocked(now), now)
	if len(h.replaced) > 4*flapCount {
		h.replaced = h.replaced[1:]
	}
	n = len(h.replaced)
	if n >= flapCount && (h.reported.IsZero() || now.Sub(h.reported) >= flapWindow) {
		h.reported, report = now, true
	}
	return n, report
}

// incumbent returns the current socket if the host flaps and c is of another
// process than that socket's, or of one that does not say.
func (h *hub) incumbent(c *controlConn, now time.Time) *controlConn {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.replaced = h.pruneLocked(now)
	if len(h.replaced) < flapCount || h.current == nil {
		return nil
	}
	if c.att.Instance != "" && c.att.Instance == h.current.att.Instance {
		return nil
	}
	return h.current
}

func (h *hub) pruneLocked(now time.Time) []time.Time {
	for len(h.replaced) > 0 && now.Sub(h.replaced[0]) >= flapWindow {
		h.replaced = h.replaced[1:]
	}
	if len(h.replaced) == 0 {
		return nil
	}
	return h.replaced
}
