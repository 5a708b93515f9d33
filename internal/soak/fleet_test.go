//go:build linux

package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dialback/dialback/internal/proctest"
	"github.com/dialback/dialback/transport"
)

const (
	heartbeat   = 30 * time.Second // of each host
	connectMany = 64               // hosts that connect at once
	retryDelay  = time.Second      // after an attempt that failed
)

// fleet is all hosts.
type fleet struct {
	// Immutable after newFleet.
	relay   string // its URL
	hosts   []*host
	dialers []*http.Transport
	running sync.WaitGroup // goroutines of hosts

	data     atomic.Int64 // data sockets that are open
	connects atomic.Int64
	retries  atomic.Int64            // attempts that failed
	ways     [len(ways)]atomic.Int64 // how often each was taken

	// Guarded by mu.
	mu  sync.Mutex
	bad []failure
}

// failure is what must not happen, unless the machine has just stood still.
type failure struct {
	at   time.Time
	text string
}

// stallReach is how much later a stall of the machine may show: an agent has
// four seconds to answer a dial and a ping.
const (
	stallMin   = 250 * time.Millisecond
	stallReach = 5 * time.Second
)

func newFleet(relay string, n int) *fleet {
	f := &fleet{relay: relay}
	for i := range 16 {
		f.dialers = append(f.dialers, dialer(i))
	}
	for i := range n {
		f.hosts = append(f.hosts, newHost(f, i))
	}
	return f
}

// fail records a failure.
func (f *fleet) fail(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.bad = append(f.bad, failure{time.Now(), fmt.Sprintf(format, args...)})
}

// judge returns the failures that no stall explains, and how many there are that
// one does.
func (f *fleet) judge(stalls *proctest.Stalls) (bad []failure, stalled int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, b := range f.bad {
		if stalls.Longest(b.at.Add(-stallReach), b.at) >= stallMin {
			stalled++
		} else {
			bad = append(bad, b)
		}
	}
	return bad, stalled
}

// each calls do for every host, some at once.
func (f *fleet) each(do func(*host) error) error {
	var (
		wg   sync.WaitGroup
		next atomic.Int64
		mu   sync.Mutex
		errs []error
	)
	for range connectMany {
		wg.Go(func() {
			for i := next.Add(1) - 1; int(i) < len(f.hosts); i = next.Add(1) - 1 {
				if err := do(f.hosts[i]); err != nil {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
					next.Store(int64(len(f.hosts)))
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// attach connects all hosts.
func (f *fleet) attach() error {
	return f.each(func(h *host) error {
		h.busy.Lock()
		defer h.busy.Unlock()
		c, err := h.connect()
		h.current = c
		return err
	})
}

// leave ends all control sockets, and waits for everything of the hosts.
func (f *fleet) leave() {
	_ = f.each(func(h *host) error {
		h.busy.Lock()
		defer h.busy.Unlock()
		if h.current != nil {
			h.current.leaving.Store(true)
			h.current.conn.Close(transport.CloseGoingAway, "")
		}
		return nil
	})
	f.running.Wait()
}

// beat pings for all hosts until ctx ends, each of them once in a heartbeat.
func (f *fleet) beat(ctx context.Context) {
	const slots = 300
	tick := time.NewTicker(heartbeat / slots)
	defer tick.Stop()
	for n := 0; ; n = (n + 1) % slots {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for i := n; i < len(f.hosts); i += slots {
			h := f.hosts[i]
			if !h.busy.TryRLock() {
				continue // it connects anew, and pings then
			}
			if c := h.current; c.pings.Load() > 2 && !c.hasEnded() {
				f.fail("%d pings of %s were not answered", c.pings.Load(), h.id)
			} else {
				c.ping()
			}
			h.busy.RUnlock()
		}
	}
}

// reconnect connects a host anew whose socket the relay has ended, as hosts do.
func (f *fleet) reconnect(c *control) {
	f.running.Go(func() {
		<-c.ended
		c.h.busy.Lock()
		defer c.h.busy.Unlock()
		if c.h.current != c {
			return // it has another one
		}
		if err := c.h.next(); err != nil {
			f.fail("after its socket had ended: %v", err)
		}
	})
}

// ways are how a host loses its control socket, and gets the next one.
var ways = [...]struct {
	name string
	turn func(*host) error
}{
	{"closed, then connected", (*host).closeFirst},
	{"cut, then connected", (*host).cutFirst},
	{"connected, then replaced", (*host).replace},
}

func (h *host) closeFirst() error {
	h.current.leaving.Store(true)
	h.current.conn.Close(transport.CloseGoingAway, "")
	return h.next()
}

func (h *host) cutFirst() error {
	h.current.leaving.Store(true)
	h.current.conn.CloseNow()
	return h.next()
}

// replace connects while the socket before is open: the relay must close that.
func (h *host) replace() error {
	old := h.current
	old.leaving.Store(true)
	if err := h.next(); err != nil {
		return err
	}
	select {
	case <-old.ended:
	case <-time.After(patience):
		return fmt.Errorf("the replaced socket of %s stays open", h.id)
	}
	if code := transport.CloseCodeOf(old.err); code != transport.CloseReplaced {
		return fmt.Errorf("the replaced socket of %s ended with %v, want %d", h.id, old.err, transport.CloseReplaced)
	}
	return nil
}

// next connects until it has succeeded, as hosts do, for patience at most.
func (h *host) next() error {
	for begun := time.Now(); ; h.f.retries.Add(1) {
		c, err := h.connect()
		if err == nil {
			h.current = c
			h.f.connects.Add(1)
			return nil
		}
		if time.Since(begun) > patience {
			return err
		}
		time.Sleep(retryDelay)
	}
}

// churn connects hosts anew until ctx ends, perSecond of them, and waits for the
// last one. Each has its turn: a host that is replaced five times a minute is
// held off, and that is not the point here.
func (f *fleet) churn(ctx context.Context, perSecond float64, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	var wg sync.WaitGroup
	defer wg.Wait()
	slots := make(chan struct{}, connectMany)
	tick := time.NewTicker(time.Duration(float64(time.Second) / perSecond))
	defer tick.Stop()
	order := rng.Perm(len(f.hosts))
	for n := 0; ; n = (n + 1) % len(order) {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		h, way := f.hosts[order[n]], rng.IntN(len(ways))
		select {
		case slots <- struct{}{}:
		default:
			continue // the machine is behind
		}
		wg.Go(func() {
			defer func() { <-slots }()
			h.busy.Lock()
			defer h.busy.Unlock()
			if err := ways[way].turn(h); err != nil {
				f.fail("%s: %v", ways[way].name, err)
			}
			f.ways[way].Add(1)
		})
	}
}
