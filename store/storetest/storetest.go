// Package storetest proves that a backend keeps the contract of package store,
// and has a Store that fails on plan.
//
// A backend's test calls Run, its benchmark RunBenchmarks. Each sentence of the
// contract has cases here, named by what they demand; a failure names the rule
// that was broken. Every case runs on a fresh Store seen through two handles,
// which stand for two relay nodes: what one writes the other must see.
//
// Faulty is for the tests of those who use a Store.
package storetest

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/dialback/dialback/store"
)

// Config says how to test a backend.
type Config struct {
	// Open returns a fresh and empty Store. It cleans up with t.Cleanup; a case
	// may have closed the handles before. Required.
	Open func(t *testing.T) Fixture
	// Bubble runs each case, with its Open, inside synctest.Test. Only a
	// backend without network or other processes can be tested so.
	Bubble bool
}

// Fixture is one Store under test.
type Fixture struct {
	// A and B are the same data as two relay nodes see it. They may be the same
	// handle if the backend has only one.
	A, B store.Store
	// Advance makes d pass for the data: time.Sleep, or a call that moves the
	// backend's clock or shortens its deadlines.
	Advance func(d time.Duration)
	// Tick is the unit of the ttls in the suite: time.Second where Advance
	// costs nothing, 20 ms where it sleeps in earnest. At least 10 ms.
	Tick time.Duration
	// Fast says that Advance costs nothing and that time passes by it alone.
	// Then deadlines are tested to the millisecond, and the cases that wait
	// for a day are part of the run.
	Fast bool
}

// testCase is one rule, as a test.
type testCase struct {
	name string
	run  func(*env)
	// timed is set where the case fails on a correct backend if the machine is
	// slow: something must still stand after a while.
	timed bool
	// long is set where Advance takes a day.
	long bool
}

// allCases returns the suite in the order of the contract's parts.
func allCases() []testCase {
	var all []testCase
	for _, group := range [][]testCase{
		claimCases, pingCases, tombstoneCases, lifeCases, seenCases, socketCases, nodeCases,
		keyCases, dataCases, concurrencyCases, closeCases,
	} {
		all = append(all, group...)
	}
	return all
}

// Run tests the backend, each rule as a subtest.
func Run(t *testing.T, c Config) {
	fast := false
	t.Run("TheFixtureIsComplete", func(t *testing.T) {
		c.inBubble(t, func(t *testing.T) {
			f := c.Open(t)
			if f.A == nil || f.B == nil || f.Advance == nil || f.Tick < 10*time.Millisecond {
				t.Fatalf("Open returned %+v; A, B, Advance and a Tick of at least 10 ms are required", f)
			}
			fast = f.Fast
		})
	})
	if t.Failed() {
		return
	}
	for _, tc := range allCases() {
		if tc.long && !fast {
			continue
		}
		t.Run(tc.name, func(t *testing.T) {
			c.inBubble(t, func(t *testing.T) { c.runCase(t, tc) })
		})
	}
}

func (c Config) inBubble(t *testing.T, f func(*testing.T)) {
	if c.Bubble {
		synctest.Test(t, f)
	} else {
		f(t)
	}
}

// maxAttempts bounds how often a timed case is run. Tick doubles each time, so
// that the last one has room for a stall of 64 times as long.
const maxAttempts = 7

// runCase runs tc once. Only where time passes by itself, a timed case that
// failed while the machine stood still for half a Tick has shown nothing: it
// runs again with a longer Tick.
func (c Config) runCase(t *testing.T, tc testCase) {
	f := c.Open(t)
	if f.Fast || !tc.timed {
		tc.run(newEnv(t, f))
		return
	}
	for attempt := 1; ; attempt++ {
		var e *env
		failures := record(t.Context(), func(tb tb) {
			e = newEnv(tb, f)
			tc.run(e)
		})
		if len(failures) == 0 {
			return
		}
		if attempt == maxAttempts || e.delay() < f.Tick/2 {
			for _, msg := range failures {
				t.Error(msg)
			}
			return
		}
		tick := 2 * f.Tick
		t.Logf("the machine lost %v; again with a Tick of %v", e.delay(), tick)
		f = c.Open(t)
		f.Tick = tick
	}
}
