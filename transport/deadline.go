package transport

import (
	"sync"
	"time"
)

// deadline is one deadline of a net.Conn: a channel that is closed while the
// deadline has passed. Its zero value is no deadline.
type deadline struct {
	// Guarded by mu.
	mu     sync.Mutex
	timer  *time.Timer   // closes passed
	armed  bool          // timer runs, or fires just now
	passed chan struct{} // nil until somebody waits or sets a deadline
}

// set moves the deadline to t; the zero time is none.
func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	passed := d.passedLocked()
	if d.armed && !d.timer.Stop() {
		<-passed // the timer has fired and closes it, or has
	}
	d.armed = false
	if isClosed(passed) {
		// The timer belongs to the channel.
		passed = make(chan struct{})
		d.passed, d.timer = passed, nil
	}
	if t.IsZero() {
		return
	}
	wait := time.Until(t)
	switch {
	case wait <= 0:
		close(passed)
		d.timer = nil
	case d.timer == nil:
		d.timer = time.AfterFunc(wait, func() { close(passed) })
		d.armed = true
	default:
		d.timer.Reset(wait)
		d.armed = true
	}
}

// wait returns a channel that is closed when the deadline passes. It serves
// until the next set after that.
func (d *deadline) wait() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.passedLocked()
}

func (d *deadline) passedLocked() chan struct{} {
	if d.passed == nil {
		d.passed = make(chan struct{})
	}
	return d.passed
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
