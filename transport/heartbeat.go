package transport

import (
	"math"
	"time"
)

// Subprotocol is the WebSocket subprotocol that an agent offers for its control
// socket. A relay that takes it says that it knows the ping, so that its silence
// means something although it has never answered one (PROTOCOL.md, section 6).
const Subprotocol = "dialback.v3"

// forever is the wait when nothing will be due.
const forever = time.Duration(math.MaxInt64)

// Heartbeat knows when a host has to ping on its control socket, and when it
// has to give the socket up. It is logic only: time is passed in, and must not
// go backwards. It is for one goroutine.
//
// Only text frames count as life. A protocol pong may have been written by an
// edge in front of the relay that no longer reaches the code behind it.
type Heartbeat struct {
	// Immutable after NewHeartbeat.
	interval time.Duration
	silence  time.Duration

	nextPing  time.Time
	lastHeard time.Time
	// confirmed: a pong or a hello was seen on this connection, or the relay has
	// taken Subprotocol. Until then its silence proves nothing: a relay of an
	// earlier version may not know the ping, and would lose every host every so
	// often.
	confirmed bool
}

// NewHeartbeat is the heartbeat of a control socket that was opened at now. A
// ping is due at once and then each interval; the socket is given up after
// silence without an inbound text frame, if it was ever Confirmed. Zero or
// negative means never, for either.
func NewHeartbeat(interval, silence time.Duration, now time.Time) *Heartbeat {
	return &Heartbeat{interval: interval, silence: silence, nextPing: now, lastHeard: now}
}

// Confirmed records that the relay answers pings: a pong or a hello came, or it
// has taken Subprotocol. It is Heard as well.
func (h *Heartbeat) Confirmed(now time.Time) {
	h.confirmed = true
	h.Heard(now)
}

// Heard records an inbound text frame, whatever is in it.
func (h *Heartbeat) Heard(now time.Time) { h.lastHeard = now }

// Pinged records that a ping was sent: the next one is due an interval later.
func (h *Heartbeat) Pinged(now time.Time) { h.nextPing = now.Add(h.interval) }

// Due tells what is to be done at now: send a ping and call Pinged, or give the
// connection up. Otherwise ask again after wait, or sooner; hearing something
// meanwhile only makes the answer later.
func (h *Heartbeat) Due(now time.Time) (ping, dead bool, wait time.Duration) {
	wait = forever
	if (h.confirmed || !guardPongSeen) && h.silence > 0 {
		left := h.lastHeard.Add(h.silence).Sub(now)
		if left <= 0 {
			return false, true, 0
		}
		wait = left
	}
	if h.interval > 0 {
		left := h.nextPing.Sub(now)
		if left <= 0 {
			return true, false, 0
		}
		wait = min(wait, left)
	}
	return false, false, wait
}
