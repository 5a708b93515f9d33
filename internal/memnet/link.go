package memnet

import (
	"bytes"
	"errors"
	"sync"
	"time"
)

// bufferSize is how many bytes one direction holds, as a socket buffer does.
const bufferSize = 64 << 10

// errWait says that a call cannot proceed yet; it never reaches a caller.
var errWait = errors.New("memnet: wait")

// link is what the two ends of a connection share.
type link struct {
	mu sync.Mutex // guards all of link and both halves; never held while waiting

	cut    bool
	ab, ba half
}

// half is one direction. Guarded by link.mu.
type half struct {
	buf        bytes.Buffer // written and not yet read
	frozen     bool         // nothing of it arrives
	delay      time.Duration
	arrivals   []arrival // of what is in buf, oldest first; empty while nothing was delayed
	writing    bool      // a Write has its turn
	writerDone bool      // the writer's end said CloseWrite or Close
	readerGone bool      // the reader's end said Close

	readDeadline  time.Time
	writeDeadline time.Time

	wake broadcast
}

// arrival is when a piece of a half's buffer, or its end, can be read.
type arrival struct {
	at   time.Time
	size int
}

// sentLocked notes that n bytes were put into buf, or the end after them.
func (h *half) sentLocked(n int) {
	if h.delay <= 0 && len(h.arrivals) == 0 {
		return
	}
	at := time.Now().Add(h.delay)
	if k := len(h.arrivals); k > 0 && at.Before(h.arrivals[k-1].at) {
		at = h.arrivals[k-1].at // a shorter delay overtakes nothing
	}
	h.arrivals = append(h.arrivals, arrival{at, n})
}

// endLocked ends the half after what is in buf.
func (h *half) endLocked() {
	if !h.writerDone {
		h.writerDone = true
		h.sentLocked(0)
	}
}

// readyLocked is how many bytes have arrived; next is when more will, zero if
// all there is has.
func (h *half) readyLocked() (n int, next time.Time) {
	if len(h.arrivals) == 0 {
		return h.buf.Len(), time.Time{}
	}
	now := time.Now()
	for _, a := range h.arrivals {
		if a.at.After(now) {
			return n, a.at
		}
		n += a.size
	}
	return n, time.Time{}
}

// readLocked reads of the n bytes that have arrived.
func (h *half) readLocked(p []byte, n int) int {
	n, _ = h.buf.Read(p[:min(len(p), n)])
	for left := n; left > 0 && len(h.arrivals) > 0; {
		first := &h.arrivals[0]
		take := min(left, first.size)
		first.size -= take
		left -= take
		if first.size == 0 {
			h.arrivals = h.arrivals[1:]
		}
	}
	return n
}

func (l *link) setFrozen(frozen bool, halves ...*half) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range halves {
		h.frozen = frozen
	}
	l.notifyLocked()
}

func (l *link) notifyLocked() {
	l.ab.wake.notifyLocked()
	l.ba.wake.notifyLocked()
}

// broadcast wakes everybody who waits. It is guarded by the mutex of what it
// tells about. The channel is made by the one who waits, so that it belongs to
// the waiter's bubble.
type broadcast struct{ c chan struct{} }

// waitLocked returns a channel that the next notifyLocked closes.
func (b *broadcast) waitLocked() <-chan struct{} {
	if b.c == nil {
		b.c = make(chan struct{})
	}
	return b.c
}

func (b *broadcast) notifyLocked() {
	if b.c != nil {
		close(b.c)
		b.c = nil
	}
}

// wait returns at a notification or at the deadline; zero means none.
func wait(wake <-chan struct{}, deadline time.Time) {
	if deadline.IsZero() {
		<-wake
		return
	}
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case <-wake:
	case <-timer.C:
	}
}
