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

// probe finds out that a stream has ended while nobody reads from it: its
// bytes go to a service that takes none. It does so by writing pings, which
// fail when the relay has closed the socket.
type probe struct {
	// Immutable after newProbe.
	conn  transport.Conn
	dead  func() // called once the stream has ended; must not block
	timer *time.Timer

	armed atomic.Bool
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
	p.armed.Store(true)
	p.timer.Reset(probeInterval)
}

// disarm says that somebody reads again, or that the stream is over.
func (p *probe) disarm() {
	p.armed.Store(false)
	p.timer.Stop()
}

// run is called by timer.
func (p *probe) run() {
	if !p.armed.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), probeInterval/5)
	defer cancel()
	// No pong can be read, so its absence means nothing. Ping returns early
	// when the connection has ended.
	_ = p.conn.Ping(ctx)
	select {
	case <-p.conn.Done():
		p.dead()
	case <-ctx.Done():
		if p.armed.Load() {
			p.timer.Reset(probeInterval)
		}
	}
}
