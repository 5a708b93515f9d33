package relay

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dialback/dialback/store"
	"github.com/dialback/dialback/transport"
)

// outage knows whether the Store is out. Once that is sure one prober asks each
// second, and nobody else waits for it.
type outage struct {
	srv *Server

	// Guarded by mu.
	mu       sync.Mutex
	isOut    bool
	asked    chan struct{} // closed when the Store has been asked; nil when nobody asks
	repaying bool          // settle is on
	owed     []debt
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
// out although the Store is there; and a part of the Store may be out, with the
// hosts in it. It is asked afresh.
func (o *outage) observe(err error) {
	if failed(err) && !o.out() {
		o.ask()
	}
}

// ask asks the Store itself whether it is out, once for all who doubt it at that
// moment. The channel is closed when that has been decided, after half of
// StoreTimeout at the latest.
func (o *outage) ask() <-chan struct{} {
	o.mu.Lock()
	asked, start := o.asked, o.asked == nil
	if start {
		asked = make(chan struct{})
		o.asked = asked
	}
	o.mu.Unlock()
	if start && !o.srv.spawn(o.confirm) {
		o.decided()
	}
	return asked
}

// confirm asks for ask. If the Store is not out, what is owed is made good:
// nobody else would do it before the next outage.
func (o *outage) confirm() {
	err := o.beat()
	if failed(err) {
		o.declare(err)
	}
	o.decided()
	o.mu.Lock()
	start := !failed(err) && !o.repaying && len(o.owed) > 0
	o.repaying = o.repaying || start
	o.mu.Unlock()
	if start {
		o.settle()
	}
}

func (o *outage) decided() {
	o.mu.Lock()
	defer o.mu.Unlock()
	close(o.asked)
	o.asked = nil
}

// beat is the cheapest call that tells whether the Store answers.
func (o *outage) beat() error {
	ctx, cancel := context.WithTimeout(context.Background(), o.srv.cfg.StoreTimeout/2)
	defer cancel()
	return o.srv.nodes.keep(ctx)
}

// settle writes what is owed, each second, until nothing is or the Store is out.
func (o *outage) settle() {
	for {
		o.repay()
		o.mu.Lock()
		done := o.isOut || len(o.owed) == 0
		o.repaying = !done
		o.mu.Unlock()
		if done || wait(o.srv.ctx, time.Second) != nil {
			return
		}
		<-o.ask()
	}
}

// try calls the Store, and once more if that failed; both within StoreTimeout.
// Beside the second call the Store itself is asked: only if it does not answer
// either is a second failure an outage, in which what the caller may do is safe.
// If it does, the failure says something of those hosts only for whom the call
// was: a master of several may be down.
func (o *outage) try(f func(ctx context.Context) error) error {
	err := o.once(f)
	if !failed(err) || o.out() {
		return err
	}
	asked := o.ask()
	if err = o.once(f); failed(err) {
		<-asked
	}
	return err
}

// once is one call of the Store, within half of StoreTimeout.
func (o *outage) once(f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), o.srv.cfg.StoreTimeout/2)
	defer cancel()
	return f(ctx)
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
		if !failed(o.beat()) {
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

// repayFailures ends one turn of repay: each may take StoreTimeout.
const repayFailures = 16

// repay writes what is owed. What cannot be written is still owed, and comes
// last the next time: it may be for hosts in a part of the Store that is out,
// and hinders no others.
func (o *outage) repay() (err error) {
	o.mu.Lock()
	owed := o.owed
	o.owed = nil
	o.mu.Unlock()
	var unpaid []debt
	for len(owed) > 0 && len(unpaid) < repayFailures {
		if e := o.srv.mark(owed[0]); e != nil {
			err = e
			unpaid = append(unpaid, owed[0])
		}
		owed = owed[1:]
	}
	for _, d := range append(owed, unpaid...) {
		o.owe(d)
	}
	return err
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
// that is cut off. All are asked at once: whoever has lost them with the Store must
// not wait for one after the other.
func (s *Server) cutOff() bool {
	ctx, found := context.WithCancel(s.ctx)
	defer found()
	var has atomic.Bool
	var wg sync.WaitGroup
	for _, n := range s.nodes.others() {
		wg.Go(func() {
			var answer nodeStore
			if s.call(ctx, n, "/node/store", nothing{}, &answer) == nil && answer.Store {
				has.Store(true)
				found()
			}
		})
	}
	wg.Wait()
	return has.Load()
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
