package relay

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/dialback/dialback/store"
	"github.com/dialback/dialback/transport"
)

// pinger collects the pings of hosts and answers each after the Store has
// confirmed, in the batch that carried it, that its socket is current.
type pinger struct {
	srv *Server

	mu    sync.Mutex
	batch map[*controlConn]*[2]uint8 // pings by their words; nil when no flush is due
}

// add puts n pings of c into the next batch. words is 1 for {"op":"ping"}.
// With n 0 the socket is only confirmed and refreshed.
func (p *pinger) add(c *controlConn, words int, n uint8) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.batch == nil {
		p.batch = make(map[*controlConn]*[2]uint8)
		time.AfterFunc(p.srv.cfg.PingBatch, func() { p.srv.spawn(p.flush) })
	}
	counts := p.batch[c]
	if counts == nil {
		counts = new([2]uint8)
		p.batch[c] = counts
	}
	counts[words] = min(counts[words]+n, pingCap)
}

// flush sends the batch to the Store, and the pongs to the hosts.
func (p *pinger) flush() {
	p.mu.Lock()
	batch := p.batch
	p.batch = nil
	p.mu.Unlock()
	conns := make([]*controlConn, 0, min(len(batch), pingBatchTo))
	for c := range batch {
		if c.isRetired() {
			continue // a Store that has lost its end would name it again
		}
		if conns = append(conns, c); len(conns) == pingBatchTo {
			p.confirm(conns, batch)
			conns = conns[:0]
		}
	}
	if len(conns) > 0 {
		p.confirm(conns, batch)
	}
}

// confirm is one call of the Store. batch may be nil: then nobody is answered.
func (p *pinger) confirm(conns []*controlConn, batch map[*controlConn]*[2]uint8) {
	s := p.srv
	as := make([]store.Attachment, len(conns))
	for i, c := range conns {
		as[i] = c.att
	}
	var current []bool
	err := s.outage.try(func(ctx context.Context) (err error) {
		current, err = s.cfg.Store.Ping(ctx, as, s.cfg.RowTTL)
		return err
	})
	for i, c := range conns {
		if i%pongBurst == pongBurst-1 {
			runtime.Gosched() // sendLoops end here, and the next ones take over their stacks
		}
		switch {
		case err != nil && s.cfg.StoreOutage == FailClosed:
			// No pong: it would mean routable.
		case err != nil || current[i] || !guardPongConfirmed:
			if counts := batch[c]; counts != nil {
				c.pong(counts)
			}
		default:
			c.replaced()
		}
	}
}

// pong answers the pings of one socket in their own words.
func (c *controlConn) pong(counts *[2]uint8) {
	for words, n := range counts {
		frame := transport.Encode(transport.Pong{Op: words == 1})
		for range n {
			if c.send(frame) {
				c.srv.stats.pongs.Add(1)
			}
		}
	}
}
