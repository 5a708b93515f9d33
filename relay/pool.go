package relay

import (
	"slices"
	"sync"
	"time"

	"github.com/dialback/dialback/store"
)

// pool is the idle streams of one host on this node. It belongs to the node of
// the client, whichever node holds the control socket.
type pool struct {
	// Guarded by mu.
	mu     sync.Mutex
	idle   []*httpStream // the last one was used last
	floor  store.Ref     // streams of sockets before it are not taken
	seen   store.Ref     // the socket that the Store named last
	seenAt time.Time     // when the read that said so began
}

// named records what a read of the Store said that began at began.
func (p *pool) named(socket store.Ref, began time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !began.Before(p.seenAt) {
		p.seen, p.seenAt = socket, began
	}
}

// socket is what the Store named within the last second, if it was asked.
func (p *pool) socket(now time.Time) (socket store.Ref, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen, p.seen.ID != "" && now.Sub(p.seenAt) < generationFresh
}

// generationFresh is how old a read of the Store may be for a stream to be
// taken from the pool on its word: the bound of I1 for pooled streams.
const generationFresh = time.Second

// clear closes all idle streams, and has the Store asked before the next is taken.
func (p *pool) clear() {
	p.mu.Lock()
	p.seenAt = time.Time{}
	p.mu.Unlock()
	p.drop(func(*httpStream) bool { return true })
}

// drop closes the idle streams that unwanted names.
func (p *pool) drop(unwanted func(*httpStream) bool) {
	p.mu.Lock()
	var gone []*httpStream
	p.idle = slices.DeleteFunc(p.idle, func(hs *httpStream) bool {
		if !unwanted(hs) {
			return false
		}
		hs.timer.Stop()
		gone = append(gone, hs)
		return true
	})
	p.mu.Unlock()
	for _, hs := range gone {
		hs.close()
	}
}

// isOld reports whether a newer one has replaced socket.
func (p *pool) isOld(socket store.Ref) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return before(socket, p.floor)
}

// dropVia closes the idle streams that pass through one of these nodes.
func (p *pool) dropVia(drains func(nodeID string) bool) {
	p.drop(func(hs *httpStream) bool { return drains(hs.passes()) })
}

// empty reports whether there is nothing to take.
func (p *pool) empty() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.idle) == 0
}

// take returns the idle stream that was used last, of those that a control socket
// has asked for. Those that have ended, and those of other sockets, are dropped.
//
// The generation alone is not enough: a Store that has lost a claim, and whose
// clock is behind, may give its number out once more.
func (p *pool) take(service string, socket store.Ref) *httpStream {
	p.mu.Lock()
	var found *httpStream
	var old []*httpStream
	for i := len(p.idle) - 1; i >= 0 && found == nil; i-- {
		hs := p.idle[i]
		switch {
		case hs.socket() != socket && guardPoolGeneration:
			old = append(old, hs)
		case hs.service != service:
			continue
		default:
			found = hs
		}
		p.idle = slices.Delete(p.idle, i, i+1)
		hs.timer.Stop()
	}
	p.mu.Unlock()
	for _, hs := range old {
		hs.close()
	}
	return found
}

// put keeps a stream for the next request; false means that it is not wanted.
func (p *pool) put(hs *httpStream, most int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if before(hs.socket(), p.floor) || len(p.idle) >= most {
		return false
	}
	hs.idleSince = time.Now()
	if hs.timer == nil {
		hs.timer = time.AfterFunc(provenFor, func() { p.rest(hs) })
	} else {
		hs.timer.Reset(provenFor)
	}
	p.idle = append(p.idle, hs)
	return true
}

// rest is called when a stream has been idle for provenFor, and once more when
// it has been for Config.PoolIdle.
func (p *pool) rest(hs *httpStream) {
	p.mu.Lock()
	if !slices.Contains(p.idle, hs) {
		p.mu.Unlock()
		return // taken in this very moment
	}
	if hs.ahead == nil {
		watching := hs.watch()
		hs.timer.Reset(hs.srv.cfg.PoolIdle - provenFor)
		p.mu.Unlock()
		if !watching {
			hs.close()
		}
		return
	}
	p.mu.Unlock()
	if p.remove(hs) {
		hs.close()
	}
}

// remove takes hs out, if it is idle.
func (p *pool) remove(hs *httpStream) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.idle, hs)
	if i < 0 {
		return false
	}
	p.idle = slices.Delete(p.idle, i, i+1)
	hs.timer.Stop()
	return true
}

// dropBelow closes the idle streams of sockets before this one, and keeps out
// those that come back.
func (p *pool) dropBelow(socket store.Ref) {
	p.mu.Lock()
	p.floor = newer(p.floor, socket)
	if before(p.seen, socket) {
		p.seenAt = time.Time{} // what the Store said before is no longer so
	}
	p.mu.Unlock()
	p.drop(func(hs *httpStream) bool { return before(hs.socket(), socket) })
}
