package relay

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dialback/dialback/store"
	"github.com/dialback/dialback/transport"
)

// outage knows whether the Store is out. Once that is sure one prober asks each
// second, and nobody else waits for it.
type outage struct {
	srv *Server

	// Guarded by mu.
	mu     sync.Mutex
	isOut  bool
	asking bool // confirm is on
	owed   []debt
}

// debt is the mark of a socket that was retired or ended, and could not be
// written.
type debt struct {
	ref store.Ref
	why store.Reason
}

// maxOwed bounds what is remembered: the rows of the rest expire.
const maxOwed = 10_000

// failed reports whether err is a failure of the Store. The sentinels of the
// contract are answers; nor does the end of a caller's own context say anything.
func failed(err error) bool {
	return err != nil && !errors.Is(err, store.ErrNotFound) && !errors.Is(err, store.ErrRetired) &&
		!errors.Is(err, store.ErrInvalid) && !errors.Is(err, context.Canceled)
}

// observe takes the error of a call of the Store. One failure is no outage: a
// process that was stopped, or a machine that was busy, finds its calls timed
// out although the Store is there. It is asked afresh.
func (o *outage) observe(err error) {
	if !failed(err) {
		return
	}
	o.mu.Lock()
	ask := !o.isOut && !o.asking
	o.asking = o.asking || ask
	o.mu.Unlock()
	if ask && !o.srv.spawn(o.confirm) {
		o.mu.Lock()
		o.asking = false
		o.mu.Unlock()
	}
}

// confirm asks once more whether the Store is out. If it is not, what is owed is
// made good: nobody else would do it before the next outage.
func (o *outage) confirm() {
	for {
		err := o.srv.nodes.keep()
		out := failed(err)
		if !out {
			o.repay()
		}
		o.mu.Lock()
		done := out || len(o.owed) == 0
		o.asking = !done
		o.mu.Unlock()
		if out {
			o.declare(err)
		}
		if done || wait(o.srv.ctx, time.Second) != nil {
			return
		}
	}
}

// try calls the Store, and once more if that failed; both within StoreTimeout.
// A second failure is an outage, and what the caller may do in one is safe.
func (o *outage) try(f func(ctx context.Context) error) error {
	var err error
	for range 2 {
		ctx, cancel := context.WithTimeout(context.Background(), o.srv.cfg.StoreTimeout/2)
		err = f(ctx)
		cancel()
		if !failed(err) || o.out() {
			return err
		}
	}
	o.declare(err)
	return err
}

// declare begins an outage.
func (o *outage) declare(err error) {
	o.mu.Lock()
	was := o.isOut
	o.isOut = true
	o.mu.Unlock()
	if !was {
		o.srv.log.Warn("store unavailable", "error", err.Error())
		o.srv.spawn(o.probe)
	}
}

func (o *outage) out() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.isOut
}

// owe remembers a mark that could not be written, until repay. The error is to
// be observed after that.
func (o *outage) owe(d debt) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.owed) < maxOwed {
		o.owed = append(o.owed, d)
	}
}

// askOthers is how often a node without the Store asks the others whether they
// have it, in seconds of the prober.
const askOthers = 5

// evictSpread is the time over which a node that alone has lost the Store sends
// its hosts elsewhere.
const evictSpread = 30 * time.Second

// probe asks until the Store answers, then makes good what it missed.
func (o *outage) probe() {
	evicted := false
	for n := 1; ; n++ {
		if wait(o.srv.ctx, time.Second) != nil {
			return
		}
		if !failed(o.srv.nodes.keep()) {
			break
		}
		if n%askOthers == 0 && !evicted && o.srv.cutOff() {
			evicted = true
			o.srv.evict()
		}
	}
	o.mu.Lock()
	o.isOut = false
	o.mu.Unlock()
	o.srv.log.Info("store is back")
	o.srv.assertAll()
	o.observe(o.repay())
}

// repay writes what is owed, until a call fails: the rest is still owed then.
func (o *outage) repay() error {
	o.mu.Lock()
	owed := o.owed
	o.owed = nil
	o.mu.Unlock()
	for i, d := range owed {
		if err := o.srv.mark(d); err != nil {
			for _, d := range owed[i:] {
				o.owe(d)
			}
			return err
		}
	}
	return nil
}

// mark writes that a socket is retired, or has ended.
func (s *Server) mark(d debt) error {
	if d.why == store.ReasonGone {
		return s.disown(d.ref)
	}
	ctx, cancel := s.storeContext()
	defer cancel()
	return s.cfg.Store.Retire(ctx, d.ref, d.why)
}

// cutOff reports whether another node has the Store: then this one is the one
// that is cut off.
func (s *Server) cutOff() bool {
	for _, n := range s.nodes.others() {
		var answer nodeStore
		if s.call(s.ctx, n, "/node/store", nothing{}, &answer) == nil && answer.Store {
			return true
		}
	}
	return false
}

// evict sends the hosts of this node to a better place, one by one, unless the
// Store comes back meanwhile.
func (s *Server) evict() {
	controls := s.registry.controls()
	s.log.Warn("this node alone has lost the store; sending its hosts elsewhere", "hosts", len(controls))
	for _, c := range controls {
		s.spawn(func() {
			if wait(s.ctx, s.jitter(evictSpread)) == nil && s.outage.out() {
				c.retire(store.ReasonGone, transport.CloseRestart, "this node has lost its store")
			}
		})
	}
}

// assertAll has every host here confirmed by the Store, which writes again
// what it has lost, spread over a few batches.
func (s *Server) assertAll() {
	for _, c := range s.registry.controls() {
		s.pinger.add(c, 0, 0)
	}
}
