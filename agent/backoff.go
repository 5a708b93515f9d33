package agent

import (
	"errors"
	"time"

	"github.com/dialback/dialback/transport"
)

const (
	// codeDraining is the relay's code for a node that takes no new hosts. Its
	// Retry-After is not for us: the next attempt may reach another node.
	codeDraining = "draining"
	// maxRetryAfter bounds what a relay's Retry-After can ask for.
	maxRetryAfter = time.Minute
	// replacedLimit replacements within replacedWindow are a fight: another
	// agent has the same host ID.
	replacedLimit  = 3
	replacedWindow = time.Minute
	// replacedDelay bounds the delay after a replacement that is no fight:
	// the newer claim may have been a late one.
	replacedDelay = time.Second
)

// advice is what the end of an attempt says about the next one.
type advice int

const (
	adviceBackoff  advice = iota // come back as the backoff says
	adviceNow                    // the relay lost us, not we it: no delay the first time
	adviceSlow                   // coming back soon cannot help
	adviceReplaced               // a newer socket took over
)

// adviceOf reads the end of a control socket or of an attempt to open one.
func adviceOf(err error) advice {
	var closed *transport.CloseError
	var answered *transport.HandshakeError
	code := transport.CloseAbnormal
	switch {
	case errors.As(err, &answered):
		code = denied(answered.Status)
	case errors.As(err, &closed) && closed.Remote:
		code = closed.Code
	}
	switch code {
	case transport.CloseStale:
		return adviceNow
	case transport.CloseReplaced:
		return adviceReplaced
	case transport.CloseBadRequest, transport.CloseForbidden:
		return adviceSlow
	}
	return adviceBackoff
}

// backoff decides how long to wait before the next attempt. It is pure logic:
// the time is passed in. One goroutine uses it.
type backoff struct {
	// Immutable after newBackoff.
	first, most, stable, slow time.Duration
	rand                      func() float64

	failures int         // in a row
	replaced []time.Time // of the last replacedWindow
	fighting bool        // until a connection lasts for replacedWindow
}

func newBackoff(cfg *Config) *backoff {
	return &backoff{
		first:  cfg.ReconnectDelay,
		most:   cfg.MaxReconnectDelay,
		stable: cfg.StableAfter,
		slow:   cfg.SlowReconnectDelay,
		rand:   cfg.Rand,
	}
}

// next is the delay after an attempt that ended with err at now, having been
// open for lasted (zero if it never was). fight reports that this host is
// being replaced again and again.
func (b *backoff) next(now time.Time, err error, lasted time.Duration) (delay time.Duration, fight bool) {
	b.lasted(lasted)
	b.failures++
	switch adviceOf(err) {
	case adviceNow:
		if b.failures == 1 {
			return 0, false
		}
	case adviceSlow:
		return b.slowly(), false
	case adviceReplaced:
		if b.fight(now) {
			return b.slowly(), true
		}
		if b.failures == 1 {
			return b.jitter(replacedDelay), false
		}
	}
	delay = b.jitter(b.limit())
	var answered *transport.HandshakeError
	if errors.As(err, &answered) && answered.Code != codeDraining {
		delay += min(answered.RetryAfter, maxRetryAfter)
	}
	return delay, false
}

// lasted notes for how long a connection was open. One that has ended otherwise
// than in a failure, by a drain, says no more.
func (b *backoff) lasted(d time.Duration) {
	if d >= b.stable {
		b.failures = 0
	}
	if d >= replacedWindow {
		b.fighting = false
	}
}

// limit is the upper bound of the delay after that many failures in a row.
func (b *backoff) limit() time.Duration {
	d := b.first
	for i := 1; i < b.failures && d < b.most; i++ {
		d *= 2
	}
	return min(d, b.most)
}

// fight counts a replacement and reports whether they have become too many.
func (b *backoff) fight(now time.Time) bool {
	recent := b.replaced[:0]
	for _, t := range b.replaced {
		if now.Sub(t) < replacedWindow {
			recent = append(recent, t)
		}
	}
	b.replaced = append(recent, now)
	if len(b.replaced) >= replacedLimit {
		b.fighting = true
	}
	return b.fighting
}

func (b *backoff) jitter(limit time.Duration) time.Duration {
	return time.Duration(b.random() * float64(limit))
}

// random calls the embedder's rand, whose panic or nonsense must not stop the
// reconnect loop.
func (b *backoff) random() (f float64) {
	f = 1
	defer func() { _ = recover() }()
	if x := b.rand(); x >= 0 && x <= 1 {
		f = x
	}
	return f
}

func (b *backoff) slowly() time.Duration { return b.slow + b.jitter(b.slow/10) }
