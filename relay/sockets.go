package relay

import (
	"context"
	"sync"
	"time"

	"github.com/dialback/dialback/store"
)

// recorder writes the records of client and dial sockets to the Store behind
// the streams, in batches. Losing one is harmless; a stream that is shorter
// than a batch is never written.
type recorder struct {
	srv *Server

	// Guarded by mu.
	mu      sync.Mutex
	live    map[string]store.Attachment // what the Store should know, by ID
	written map[string]bool             // of live: the Store has it
	drops   []store.SocketRef
	writing bool        // a flush is under way: another must not overtake it
	timer   *time.Timer // of the next flush; nil when none is due
	due     time.Time   // when it fires
	refresh time.Time   // when live is written again whole
}

func (r *recorder) put(as ...store.Attachment) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.live == nil {
		r.live = make(map[string]store.Attachment)
		r.written = make(map[string]bool)
	}
	for _, a := range as {
		r.live[a.ID] = a
	}
	r.armLocked(time.Second)
}

func (r *recorder) drop(as ...store.Attachment) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range as {
		delete(r.live, a.ID)
		if r.written[a.ID] {
			delete(r.written, a.ID)
			r.drops = append(r.drops, store.SocketRef{HostID: a.HostID, ID: a.ID})
			r.armLocked(time.Second)
		}
	}
}

// armLocked sees to a flush within d.
func (r *recorder) armLocked(d time.Duration) {
	at := time.Now().Add(d)
	switch {
	case r.timer == nil:
		r.timer = time.AfterFunc(d, func() { r.srv.spawn(r.flush) })
	case at.Before(r.due):
		r.timer.Reset(d)
	default:
		return
	}
	r.due = at
}

// flush writes what is new, drops what ended, and refreshes the rest once in a
// third of its life.
func (r *recorder) flush() {
	r.mu.Lock()
	if r.writing { // a drop that came before its put would leave the row
		r.timer = nil
		r.armLocked(time.Second)
		r.mu.Unlock()
		return
	}
	r.writing = true
	defer r.wrote()
	ttl := r.srv.cfg.RowTTL
	all := !time.Now().Before(r.refresh)
	if all {
		r.refresh = time.Now().Add(ttl / 3)
	}
	var puts []store.Attachment
	for id, a := range r.live {
		if all || !r.written[id] {
			puts = append(puts, a)
			r.written[id] = true
		}
	}
	drops := r.drops
	r.drops, r.timer = nil, nil
	if len(r.live) > 0 {
		r.armLocked(ttl / 3)
	}
	r.mu.Unlock()
	if r.srv.outage.out() {
		r.again(drops)
		return
	}
	ctx, cancel := r.srv.storeContext()
	defer cancel()
	if len(puts) > 0 {
		r.srv.outage.observe(r.srv.cfg.Store.PutSockets(ctx, puts, ttl))
	}
	if len(drops) > 0 {
		err := r.srv.cfg.Store.DropSockets(ctx, drops)
		if r.srv.outage.observe(err); err != nil {
			r.again(drops)
		}
	}
}

// again keeps drops that could not be written for the next flush, as many as
// there is room for; the others' records expire.
func (r *recorder) again(drops []store.SocketRef) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := min(len(drops), maxOwed-len(r.drops)); n > 0 {
		r.drops = append(r.drops, drops[:n]...)
		r.armLocked(10 * time.Second)
	}
}

// wrote ends a flush.
func (r *recorder) wrote() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writing = false
}

// flushAll is the last flush, of a closing Server.
func (r *recorder) flushAll() {
	r.mu.Lock()
	idle := len(r.live) == 0 && len(r.drops) == 0
	r.mu.Unlock()
	if !idle {
		r.flush()
	}
}

// Sockets lists the client and dial sockets of a host's streams, on all nodes,
// as the Store knows them: at most limit with an ID above after. Exchanges, and
// streams of less than a second, leave no record; the others are written
// behind, and one may be missing or a few minutes late. It fails with
// ErrStoreUnavailable, and with ctx's own error when that ends first.
func (s *Server) Sockets(ctx context.Context, hostID, after string, limit int) ([]store.Attachment, error) {
	if err := checkHostID(hostID); err != nil {
		return nil, err
	}
	if s.outage.out() {
		return nil, ErrStoreUnavailable
	}
	sctx, cancel := context.WithTimeout(ctx, s.cfg.StoreTimeout)
	defer cancel()
	list, err := s.cfg.Store.Sockets(sctx, hostID, after, limit)
	switch {
	case err != nil && ctx.Err() != nil: // which says nothing of the Store
		return nil, ctx.Err()
	case failed(err):
		s.outage.observe(err)
		return nil, ErrStoreUnavailable
	}
	return list, err
}
