package agent

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/dialback/dialback/transport"
)

// probeInterval is how long nobody may read from a data socket before it is
// probed, and the time between two probes.
const probeInterval = 15 * time.Second

// The states of a probe.
const (
	probeIdle int32 = iota
	probeArmed
	probeStopped
)

// probe finds out that a stream has ended while nobody reads from it: its
// bytes go to a service that takes none. It does so by writing pings: the
// WriteTimeout of the socket ends it when one of them has failed, or makes no
// progress.
type probe struct {
	// Immutable after newProbe.
	conn  transport.Conn
	dead  func() // called once the stream has ended; must not block
	timer *time.Timer

	state atomic.Int32
}

// newProbe returns a probe that is not armed.
func newProbe(conn transport.Conn, dead func()) *probe {
	p := &probe{conn: conn, dead: dead}
	p.timer = time.AfterFunc(probeInterval, p.run)
	p.timer.Stop()
	return p
}

// arm says that from now on nobody reads.
func (p *probe) arm() {
	if p.state.CompareAndSwap(probeIdle, probeArmed) {
		p.timer.Reset(probeInterval)
	}
}

// disarm says that somebody reads again.
func (p *probe) disarm() {
	if p.state.CompareAndSwap(probeArmed, probeIdle) {
		p.timer.Stop()
	}
}

// stop ends the probe's work.
func (p *probe) stop() {
	p.state.Store(probeStopped)
	p.timer.Stop()
}

// run is called by timer.
func (p *probe) run() {
	if p.state.Load() != probeArmed {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), probeInterval/5)
	defer cancel()
	// No pong can be read, so its absence means nothing.
	err := p.conn.Ping(ctx)
	switch {
	case err != nil && ctx.Err() == nil:
		p.dead()
	case p.state.Load() == probeArmed:
		p.timer.Reset(probeInterval)
	}
}
