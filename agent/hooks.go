package agent

import (
	"log/slog"
	"sync/atomic"
	"time"
)

// Hooks are told what an agent does. Each may be nil.
//
// They are called one at a time, in order, from one goroutine that does
// nothing else, so none of them can delay the agent. One that panics is
// logged. While one does not return, up to 256 calls wait and further ones are
// dropped; [Stats] counts those.
type Hooks struct {
	// Online: the relay has confirmed a control socket: dials will come. Also
	// called for the successor of one that the relay drains.
	Online func(Online)
	// Offline: the last confirmed control socket ended, for the reason err.
	Offline func(err error)
	// Retry: an attempt, or the connection that it made, ended with err; the
	// next one begins after delay.
	Retry func(err error, delay time.Duration)
	// Replaced: another agent with this host ID keeps taking over. This one
	// stays away for delay, and comes back.
	Replaced func(delay time.Duration)
	// Refused: a dial was refused with that status and reason.
	Refused func(StreamInfo, int, string)
	// DialFailed: a dial-back did not reach the relay, or the relay no longer
	// wanted it.
	DialFailed func(StreamInfo, error)
	// StreamOpened and StreamClosed: a stream began and ended. Both are told of
	// each, also of one whose data socket broke before the relay heard of it.
	StreamOpened func(StreamInfo)
	StreamClosed func(StreamInfo)
}

// Online describes a control socket that the relay confirmed.
type Online struct {
	Node       string // the relay node, as it names itself; empty if that has the token in it
	Generation uint64 // the generation of this host's attachment
}

const eventQueueSize = 256

// eventQueue calls hooks in order from a goroutine of its own.
type eventQueue struct {
	// Immutable after newEventQueue.
	log     *slog.Logger
	dropped *atomic.Uint64
	// c carries calls to run. Sent to without blocking, by any goroutine;
	// never closed.
	c    chan func()
	quit chan struct{} // closed by stop: nothing is sent any more
	done chan struct{} // closed when run has returned
}

func newEventQueue(log *slog.Logger, dropped *atomic.Uint64) *eventQueue {
	q := &eventQueue{log: log, dropped: dropped, c: make(chan func(), eventQueueSize), quit: make(chan struct{}), done: make(chan struct{})}
	go q.run()
	return q
}

// post queues one call; it never blocks.
func (q *eventQueue) post(call func()) {
	select {
	case q.c <- call:
	default:
		q.dropped.Add(1)
	}
}

func (q *eventQueue) run() {
	defer close(q.done)
	for {
		select {
		case call := <-q.c:
			q.call(call)
		case <-q.quit:
			for {
				select {
				case call := <-q.c:
					q.call(call)
				default:
					return
				}
			}
		}
	}
}

func (q *eventQueue) call(f func()) {
	defer func() {
		if p := recover(); p != nil {
			q.log.Warn("hook panicked", "panic", p)
		}
	}()
	f()
}

// stop lets run finish what is queued and return.
func (q *eventQueue) stop() { close(q.quit) }
