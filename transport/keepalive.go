package transport

import "time"

// missedPongs is how many intervals a pong may be missing.
const missedPongs = 3

// Keepalive knows when a protocol ping has to go out on a data socket, so that
// NATs and load balancers do not forget it, and when the other end is dead. It
// is logic only: time is passed in, and must not go backwards. It is for one
// goroutine.
//
// A pong travels behind the bytes that wait to be written, and an end that is
// slow to read them is not dead. So a missing pong counts only while no bytes
// wait here. Bytes that wait further away cannot be seen: an end that stops
// reading while it waits for a reader of its own does not pong either.
type Keepalive struct {
	// Immutable after NewKeepalive.
	interval time.Duration

	nextPing time.Time
	// unanswered is since when a pong has been missing without a good reason;
	// zero if none is.
	unanswered time.Time
}

// NewKeepalive is the keepalive of a data socket that was opened at now. A ping
// is due after each interval; zero or negative means never.
func NewKeepalive(interval time.Duration, now time.Time) *Keepalive {
	return &Keepalive{interval: interval, nextPing: now.Add(interval)}
}

// Heard records a pong or a part of any message: no pong is missing.
func (k *Keepalive) Heard(time.Time) { k.unanswered = time.Time{} }

// Pinged records that a ping was sent: the next one is due an interval later.
func (k *Keepalive) Pinged(now time.Time) {
	k.nextPing = now.Add(k.interval)
	if k.unanswered.IsZero() {
		k.unanswered = now
	}
}

// Due tells what is to be done at now: send a ping and call Pinged, or take the
// connection for dead, because a pong has been missing for three intervals.
// Otherwise ask again after wait, or sooner. writing says that a write is in
// flight (Conn.Writing); the three intervals begin anew whenever it is.
func (k *Keepalive) Due(now time.Time, writing bool) (ping, dead bool, wait time.Duration) {
	if k.interval <= 0 {
		return false, false, forever
	}
	wait = forever
	if !k.unanswered.IsZero() {
		if writing {
			k.unanswered = now
		}
		left := k.unanswered.Add(missedPongs * k.interval).Sub(now)
		if left <= 0 {
			return false, true, 0
		}
		wait = left
	}
	left := k.nextPing.Sub(now)
	if left <= 0 {
		return true, false, 0
	}
	return false, false, min(wait, left)
}
