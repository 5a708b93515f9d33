//go:build linux

package clustertest

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/dialback/dialback/internal/proctest"
)

// slowest is how long a call may take while nodes come and go.
const slowest = 3 * time.Second

// load is clients that make calls, one after the other, until it is stopped. A
// call that fails, or takes longer than slowest, is an error of the test.
type load struct {
	// Immutable after startLoad.
	t      *testing.T
	name   string
	relay  string
	hosts  []*host
	client *http.Client
	cancel context.CancelFunc
	wg     sync.WaitGroup

	// Guarded by mu.
	mu    sync.Mutex
	calls map[string]int
	worst time.Duration
	bad   []string
}

// pause is between two calls of one client.
const pause = 50 * time.Millisecond

// startLoad starts clients of hosts through a relay: one that sends GETs, one
// that sends POSTs, one that keeps a WebSocket and one that opens them anew.
// The kept one is opened when startLoad returns.
func startLoad(t *testing.T, name, relay string, hosts []*host) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{
		t: t, name: name, relay: relay, hosts: hosts, cancel: cancel, calls: make(map[string]int),
		// A connection that is kept open may be closed by a balancer at the
		// very moment of a POST, which nobody can repeat.
		client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: proctest.Patience},
	}
	t.Cleanup(cancel)
	l.every(ctx, "GET", func(h *host, n int) error {
		path := fmt.Sprint("/", n)
		return l.expect(do(context.WithoutCancel(ctx), l.client, "GET", relay+"/hosts/"+h.id+path, ""), h.id+" "+path)
	})
	l.every(ctx, "POST", func(h *host, n int) error {
		body := fmt.Sprint("body ", n)
		return l.expect(do(context.WithoutCancel(ctx), l.client, "POST", relay+"/hosts/"+h.id+"/echo", body), body)
	})
	l.every(ctx, "WebSocket", func(h *host, n int) error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), proctest.Patience)
		defer cancel()
		s, err := open(ctx, relay, h.id)
		if err != nil {
			return err
		}
		defer s.close()
		return s.echo(ctx, fmt.Sprint("hello ", n))
	})
	return l
}

// keep adds a WebSocket to each host, which must last until the load stops.
func (l *load) keep() {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), proctest.Patience)
	defer cancel()
	stop := make(chan struct{})
	cancelLoad := l.cancel
	l.cancel = func() { close(stop); cancelLoad() }
	for _, h := range l.hosts {
		s, err := open(ctx, l.relay, h.id)
		if err != nil {
			l.t.Fatalf("%s: WebSocket to %s: %v", l.name, h.id, err)
		}
		l.wg.Go(func() { l.echoes(s, h.id, stop) })
	}
}

// echoes sends messages on a kept WebSocket until stop.
func (l *load) echoes(s socket, host string, stop <-chan struct{}) {
	defer s.close()
	for n := 0; ; n++ {
		select {
		case <-stop:
			return
		case <-time.After(pause):
		}
		ctx, cancel := context.WithTimeout(context.Background(), proctest.Patience)
		begun := time.Now()
		err := s.echo(ctx, fmt.Sprint("message ", n))
		cancel()
		l.count("echo on a kept WebSocket", host, time.Since(begun), err)
		if err != nil {
			return
		}
	}
}

// every makes calls, in turn to each host, until ctx ends.
func (l *load) every(ctx context.Context, kind string, call func(h *host, n int) error) {
	l.wg.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			h := l.hosts[n%len(l.hosts)]
			begun := time.Now()
			err := call(h, n)
			l.count(kind, h.id, time.Since(begun), err)
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
		}
	})
}

func (l *load) expect(r reply, body string) error {
	if r.err != nil || r.status != http.StatusOK || r.body != body {
		return fmt.Errorf("%v, want 200 %q", r, body)
	}
	return nil
}

func (l *load) count(kind, host string, took time.Duration, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls[kind]++
	l.worst = max(l.worst, took)
	if err != nil || took > slowest {
		l.bad = append(l.bad, fmt.Sprintf("%s %s of %s after %v: %v", time.Now().Format("15:04:05.000"), kind, host, took, err))
	}
}

// stop ends the load and checks what it saw: something of each kind, and
// nothing bad.
func (l *load) stop() {
	l.t.Helper()
	l.cancel()
	l.wg.Wait()
	l.t.Logf("%s: %v calls, the slowest took %v", l.name, l.calls, l.worst.Round(time.Millisecond))
	for _, kind := range []string{"GET", "POST", "WebSocket"} {
		if l.calls[kind] == 0 {
			l.t.Errorf("%s: no %s was done", l.name, kind)
		}
	}
	for i, bad := range l.bad {
		if i == 10 {
			l.t.Errorf("%s: and %d more", l.name, len(l.bad)-i)
			break
		}
		l.t.Errorf("%s: %s", l.name, bad)
	}
}
