package storetest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/dialback/dialback/store"
	"github.com/dialback/dialback/store/memory"
	"github.com/dialback/dialback/store/storetest"
)

// The suite fails for Stores that break a rule, and says which; and there is
// no case that no broken Store makes fail.
func TestRun_NoticesBrokenStores(t *testing.T) {
	noticed := make(map[string]bool)
	for _, m := range mutants() {
		t.Run(m.name, func(t *testing.T) {
			failed := failures(t, m.open)
			for _, name := range m.kill {
				if len(failed[name]) == 0 {
					t.Errorf("case %s passes", name)
				}
			}
			for name := range failed {
				noticed[name] = true
			}
			t.Logf("%d cases fail", len(failed))
		})
	}
	for _, name := range storetest.CaseNames() {
		if !noticed[name] {
			t.Errorf("no broken Store makes case %s fail", name)
		}
	}
}

// What the broken Stores are made from passes.
func TestRun_PassesUnbroken(t *testing.T) {
	failed := failures(t, func() (store.Store, store.Store) {
		s := &altered{Store: memory.New()}
		return s, s
	})
	for name, msgs := range failed {
		t.Errorf("%s: %s", name, msgs)
	}
}

// A backend whose time cannot be stopped passes as well. Its cases may run
// again with a longer Tick where the machine is slow, but must end.
func TestRun_RealTime(t *testing.T) {
	storetest.Run(t, storetest.Config{Open: func(*testing.T) storetest.Fixture {
		s := memory.New()
		return storetest.Fixture{A: s, B: s, Advance: time.Sleep, Tick: 10 * time.Millisecond}
	}})
}

// A machine that stands still in the middle of a case makes nothing fail, as
// long as it goes on: the case is run again with a longer Tick.
func TestRun_SlowMachine(t *testing.T) {
	opened := make(map[string]int)
	storetest.Run(t, storetest.Config{Bubble: true, Open: func(t *testing.T) storetest.Fixture {
		opened[t.Name()]++
		stall := time.Duration(max(0, 4-opened[t.Name()])) * 50 * time.Millisecond
		s := memory.New()
		return storetest.Fixture{
			A: s, B: s, Tick: 10 * time.Millisecond,
			Advance: func(d time.Duration) { time.Sleep(d + stall) },
		}
	}})
	again := 0
	for _, n := range opened {
		if n > 1 {
			again++
		}
	}
	if again == 0 {
		t.Error("no case was run again; this test has shown nothing")
	}
}

func failures(t *testing.T, open func() (a, b store.Store)) (failed map[string][]string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		failed = storetest.Failures(t.Context(), func() storetest.Fixture {
			a, b := open()
			return storetest.Fixture{A: a, B: b, Advance: time.Sleep, Tick: time.Second, Fast: true}
		})
	})
	return failed
}
