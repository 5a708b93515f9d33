//go:build linux

package soak

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/dialback/dialback/internal/proctest"
	"github.com/dialback/dialback/internal/redistest"
)

const seed = 20261130

// parts is how many times the relay is looked at while hosts come and go.
const parts = 10

func TestSoak(t *testing.T) {
	if *soakFor <= 0 {
		t.Skip("takes long: -soak.for=30m runs it, and .ci/run does so for a minute")
	}
	limit, err := fileLimit()
	if err != nil {
		t.Fatal(err)
	}
	// A control socket for each host, and for each that is used some more.
	if need := uint64(*soakHosts)*3/2 + 1000; limit < need {
		t.Skipf("%d hosts need %d descriptors in each process, and the hard limit is %d (ulimit -Hn)", *soakHosts, need, limit)
	}
	server := redistest.Start(t)
	url := "unix://" + server.Addr
	r := startRelay(t, url)
	w := &world{t: t, begun: time.Now(), redis: server.Client(t), relay: r, fleet: newFleet("http://"+r.addr, *soakHosts)}
	w.stalls = proctest.WatchStalls(t)
	defer w.report()
	bare := w.settle(0)
	if err := w.fleet.attach(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d hosts attached within %v", *soakHosts, time.Since(w.begun).Round(time.Millisecond))
	ctx, stop := context.WithCancel(t.Context())
	var beat sync.WaitGroup
	beat.Go(func() { w.fleet.beat(ctx) })
	end := func() {
		stop()
		beat.Wait()
		w.fleet.leave()
	}
	defer end()

	c := newCalls(w.fleet)
	w.churn(c, max(*soakFor/20, 10*time.Second), nil) // what is made once is there after it
	before := w.settle(*soakHosts)
	t.Logf("at rest before: %v", before)
	var during []census
	w.churn(c, *soakFor, func() { during = append(during, w.census()) })
	after := w.settle(*soakHosts)
	t.Logf("at rest after:  %v", after)
	w.compare(before, after)

	end()
	gone := w.settle(0)
	t.Logf("without hosts:  %v; at the start: %v", gone, bare)
	if extra := gone.Goroutines - bare.Goroutines; extra > 4 {
		t.Errorf("without hosts there are %d goroutines more than at the start", extra)
	}
	if extra := gone.Files - bare.Files; extra > 20 {
		t.Errorf("without hosts there are %d descriptors more than at the start", extra)
	}
	if gone.Live != 0 {
		t.Errorf("without hosts %d are attached in the Store", gone.Live)
	}
	w.stalls.Add(gone.Stalls...)
	if *soakReport != "" {
		w.write(*soakReport, c, server.Version(t), []census{bare, before}, during, []census{after, gone})
	}
}

// report makes errors of the test of failures.
func (w *world) report() {
	bad, _ := w.fleet.judge(w.stalls)
	const most = 20
	for i, b := range bad {
		if i == most {
			w.t.Errorf("and %d more", len(bad)-most)
			break
		}
		w.t.Error(b.at.Format("15:04:05.000"), b.text)
	}
}

// churn lets hosts come and go, and clients use them, for d. It calls look in
// between, if that is not nil.
func (w *world) churn(c *calls, d time.Duration, look func()) {
	ctx, cancel := context.WithTimeout(w.t.Context(), d)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() { w.fleet.churn(ctx, float64(*soakHosts)**soakChurn/100, seed) })
	wg.Go(func() { c.run(ctx, seed) })
	if look != nil {
		tick := time.NewTicker(d / (parts + 1))
		for range parts {
			<-tick.C
			look()
		}
		tick.Stop()
	}
	wg.Wait()
}
