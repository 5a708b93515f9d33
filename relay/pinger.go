package relay

import (
	"context"
	"maps"
	"runtime"
	"slices"
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
	// doubted are the sockets of which the Store could not tell when it was asked
	// for one alone, although it answers: their part of it is out.
	doubted map[*controlConn]struct{}
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

// flush sends the batch to the Store, and the pongs to the hosts. Sockets in
// doubt are not mixed with the others, whom they would hinder.
func (p *pinger) flush() {
	var sure, doubted []*controlConn
	p.mu.Lock()
	batch := p.batch
	p.batch = nil
	for c := range batch {
		if _, ok := p.doubted[c]; ok {
			doubted = append(doubted, c)
		} else {
			sure = append(sure, c)
		}
	}
	p.mu.Unlock()
	ended := (*controlConn).isRetired // a Store that has lost its end would name it again
	for conns := range slices.Chunk(slices.DeleteFunc(sure, ended), pingBatchTo) {
		p.confirm(conns, batch)
	}
	for conns := range slices.Chunk(slices.DeleteFunc(doubted, ended), pingBatchTo) {
		p.askFor(p.srv.outage.once, conns, batch)
	}
}

// confirm has the Store confirm sockets, and answers their pings. batch may be
// nil: then nobody is answered.
func (p *pinger) confirm(conns []*controlConn, batch map[*controlConn]*[2]uint8) {
	p.askFor(p.srv.outage.try, conns, batch)
}

// askFor is confirm by one call of the Store, which call makes. If that fails
// although the Store answers, each socket is asked for alone.
func (p *pinger) askFor(call func(func(context.Context) error) error, conns []*controlConn, batch map[*controlConn]*[2]uint8) {
	s := p.srv
	as := make([]store.Attachment, len(conns))
	for i, c := range conns {
		as[i] = c.att
	}
	var current []bool
	err := call(func(ctx context.Context) (err error) {
		current, err = s.cfg.Store.Ping(ctx, as, s.cfg.RowTTL)
		return err
	})
	out := err != nil && s.outage.out()
	if err != nil && !out {
		if len(conns) > 1 {
			p.askForEach(conns, batch)
		} else {
			p.doubt(conns[0])
		}
		return
	}
	if !out {
		p.trust(conns)
	}
	for i, c := range conns {
		if i%pongBurst == pongBurst-1 {
			runtime.Gosched() // sendLoops end here, and the next ones take over their stacks
		}
		switch {
		case out && s.cfg.StoreOutage == FailClosed:
			// No pong: it would mean routable.
		case out || current[i] || !guardPongConfirmed:
			if counts := batch[c]; counts != nil {
				c.pong(counts)
			}
		default:
			c.unnamed()
		}
	}
}

// askForEach asks for sockets one by one, apartAtOnce at once. It stops when it
// has found none of so many that the Store could tell of: the rest will be asked
// for with their next ping.
func (p *pinger) askForEach(conns []*controlConn, batch map[*controlConn]*[2]uint8) {
	for group := range slices.Chunk(conns, apartAtOnce) {
		var wg sync.WaitGroup
		for _, c := range group {
			wg.Go(func() { p.askFor(p.srv.outage.once, []*controlConn{c}, batch) })
		}
		wg.Wait()
		if p.allDoubted(group) {
			return
		}
	}
}

// doubt sets c apart, until the Store can tell of it. It is asked for with each
// ping of the host, and each NodeBeat.
func (p *pinger) doubt(c *controlConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.doubted == nil {
		p.doubted = make(map[*controlConn]struct{})
		time.AfterFunc(p.srv.cfg.NodeBeat, p.askAgain)
	}
	p.doubted[c] = struct{}{}
}

func (p *pinger) trust(conns []*controlConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		delete(p.doubted, c)
	}
}

func (p *pinger) allDoubted(conns []*controlConn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		if _, ok := p.doubted[c]; !ok {
			return false
		}
	}
	return true
}

// askAgain puts the sockets in doubt into the next batch, and forgets those that
// have ended.
func (p *pinger) askAgain() {
	p.mu.Lock()
	doubted := slices.Collect(maps.Keys(p.doubted))
	p.mu.Unlock()
	for _, c := range doubted {
		if c.isRetired() {
			p.trust([]*controlConn{c})
		} else {
			p.add(c, 0, 0)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.doubted) == 0 {
		p.doubted = nil
		return
	}
	time.AfterFunc(p.srv.cfg.NodeBeat, p.askAgain)
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
