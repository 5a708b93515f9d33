package agent

import (
	"context"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/dialback/dialback/transport"
)

// runner is one Run of an agent: the reconnect loop, and what it started.
type runner struct {
	// Immutable after newRunner.
	*Agent
	log      *slog.Logger
	ctx      context.Context // Run's; its end ends everything here
	events   *eventQueue
	services map[string]service
	backoff  *backoff // owned by run

	// tasks counts the goroutines and sockets that stop waits for.
	tasks sync.WaitGroup

	// Guarded by mu. Never held across I/O.
	mu         sync.Mutex
	stopping   bool
	newest     uint64                             // seq of the newest control socket that got a hello
	generation uint64                             // of that hello
	active     int                                // dials in flight and open streams
	dials      map[string]context.CancelCauseFunc // in flight, by ticket
	streams    map[*dataSocket]struct{}           // and spares, until they are over
	openings   openings                           // which streams were opened lately
}

func newRunner(ctx context.Context, a *Agent) *runner {
	r := &runner{
		Agent:    a,
		log:      a.cfg.Logger.With("host", a.cfg.HostID),
		ctx:      ctx,
		services: make(map[string]service, len(a.cfg.Services)),
		backoff:  newBackoff(&a.cfg),
		dials:    make(map[string]context.CancelCauseFunc),
		streams:  make(map[*dataSocket]struct{}),
		openings: newOpenings(a.cfg.SpareTimeout),
	}
	r.events = newEventQueue(r.log, &a.stats.hooksDropped)
	for name, h := range a.cfg.Services {
		r.services[name] = h.start(env{
			ctx:          ctx,
			log:          r.log,
			dialTimeout:  a.cfg.DialTimeout,
			closeTimeout: a.cfg.CloseTimeout,
			tasks:        &r.tasks,
		})
	}
	return r
}

// run opens control sockets until ctx ends, one after the other; a draining
// one serves on beside its successor.
func (r *runner) run() {
	var old []*control // draining, waiting for a successor
	for r.ctx.Err() == nil {
		c, err := r.connect(old)
		if err != nil {
			r.sleep(r.plan(err, 0), nil)
			continue
		}
		opened := time.Now()
		select {
		case <-r.ctx.Done():
			c.stop()
			return
		case delay := <-c.drain:
			old = append(stillOpen(c.takePredecessors()), c)
			r.log.Info("relay drains", "reconnect_after", delay)
			if r.sleep(delay, c.done) {
				r.backoff.lasted(time.Since(opened))
				continue
			}
		case <-c.done:
			old = c.takePredecessors()
		}
		if r.ctx.Err() == nil {
			r.sleep(r.plan(c.err, time.Since(opened)), nil)
		}
	}
	for _, c := range old {
		c.stop()
	}
}

// stillOpen forgets the sockets that the relay has closed meanwhile, and closes
// the oldest ones if it keeps too many draining.
func stillOpen(old []*control) []*control {
	const most = 3
	old = slices.DeleteFunc(old, (*control).ended)
	for len(old) > most {
		old[0].giveUp(ErrOverflow)
		old = old[1:]
	}
	return old
}

// connect makes one attempt. Every part of it is bounded.
func (r *runner) connect(predecessors []*control) (*control, error) {
	r.stats.connects.Add(1)
	header := make(http.Header)
	var token string
	if r.tokens != nil {
		var err error
		if token, err = r.tokens.get(r.ctx); err != nil {
			return nil, err
		}
		if token != "" {
			header.Set("Dialback-Authorization", "Bearer "+token)
		}
	}
	r.seq++
	conn, err := transport.Dial(r.ctx, r.url.control(r.instance, r.seq), &transport.DialOptions{
		Options: transport.Options{
			ReadLimit:    transport.MaxControlFrame,
			WriteTimeout: r.cfg.WriteTimeout,
			CloseTimeout: r.cfg.CloseTimeout,
		},
		Header:           header,
		Subprotocols:     []string{transport.Subprotocol},
		Transport:        r.cfg.Transport,
		HandshakeTimeout: r.cfg.HandshakeTimeout,
	})
	if err != nil {
		return nil, err
	}
	return startControl(r, conn, r.seq, token, predecessors), nil
}

// plan decides the delay after the end of an attempt, and reports it.
func (r *runner) plan(err error, lasted time.Duration) time.Duration {
	delay, fight := r.backoff.next(time.Now(), err, lasted)
	switch {
	case r.ctx.Err() != nil:
		return 0
	case fight:
		r.log.Warn("another agent with this host ID keeps taking over", "delay", delay)
		if f := r.cfg.Hooks.Replaced; f != nil {
			r.events.post(func() { f(delay) })
		}
	case adviceOf(err) == adviceSlow:
		r.log.Warn("relay denies this host", "err", err, "delay", delay)
	default:
		r.log.Info("reconnecting", "err", err, "delay", delay)
	}
	if f := r.cfg.Hooks.Retry; f != nil {
		r.events.post(func() { f(err, delay) })
	}
	return delay
}

// sleep waits for d and reports whether nothing cut it short: the end of ctx,
// or of early, which may be nil.
func (r *runner) sleep(d time.Duration, early <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-r.ctx.Done():
		return false
	case <-early:
		return false
	case <-t.C:
		return true
	}
}

// online counts a control socket that the relay has confirmed.
func (r *runner) online(h transport.Hello) {
	r.stats.online.Add(1)
	r.log.Info("online", "node", h.Node, "generation", h.Generation)
	if f := r.cfg.Hooks.Online; f != nil {
		r.events.post(func() { f(Online{Node: h.Node, Generation: h.Generation}) })
	}
}

// offline takes back an online.
func (r *runner) offline(err error) {
	if r.stats.online.Add(-1) > 0 {
		return
	}
	if f := r.cfg.Hooks.Offline; f != nil {
		r.events.post(func() { f(err) })
	}
}

// greeted notes the generation of a hello. That of the newest socket counts,
// not the highest: it is the relay that orders generations.
func (r *runner) greeted(c *control, generation uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.seq >= r.newest {
		r.newest, r.generation = c.seq, generation
	}
}

// stop ends all that is open and waits for it, but no longer than StopTimeout.
func (r *runner) stop() {
	r.mu.Lock()
	r.stopping = true
	open := slices.Collect(maps.Keys(r.streams))
	r.mu.Unlock()
	for _, s := range open {
		s.closeWith(transport.CloseGoingAway, "agent stopping")
	}
	for _, s := range r.services {
		s.stop()
	}
	// Not r.ctx, which has ended; one bound for both waits.
	timeout, cancel := context.WithTimeout(context.Background(), r.cfg.StopTimeout)
	defer cancel()
	done := make(chan struct{})
	go r.awaitTasks(done)
	select {
	case <-done:
	case <-timeout.Done():
		r.log.Warn("stopped with handlers that have not returned")
	}
	r.events.stop()
	select {
	case <-r.events.done:
	case <-timeout.Done():
		r.log.Warn("stopped with a hook that has not returned")
	}
}

func (r *runner) awaitTasks(done chan<- struct{}) {
	r.tasks.Wait()
	close(done)
}
