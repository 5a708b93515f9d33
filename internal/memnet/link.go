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

	frozen bool
	cut    bool
	ab, ba half
}

// half is one direction. Guarded by link.mu.
type half struct {
	buf        bytes.Buffer // written and not yet read
	writing    bool         // a Write has its turn
	writerDone bool         // the writer's end said CloseWrite or Close
	readerGone bool         // the reader's end said Close

	readDeadline  time.Time
	writeDeadline time.Time

	wake broadcast
}

func (l *link) setFrozen(frozen bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.frozen = frozen
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
