package proctest

import (
	"sync"
	"testing"
	"time"
)

// Stalls knows when the machine stood still: when this process, which asked to
// be woken soon, was not. What takes long then says nothing of what is tested.
type Stalls struct {
	mu     sync.Mutex
	pauses []pause // in order of time
}

type pause struct{ from, to time.Time }

const (
	stallTick = 20 * time.Millisecond
	stallMin  = 200 * time.Millisecond // shorter pauses are not recorded
)

// WatchStalls watches until the test ends.
func WatchStalls(tb testing.TB) *Stalls {
	s := &Stalls{}
	stop, done := make(chan struct{}), make(chan struct{})
	go s.watch(stop, done)
	tb.Cleanup(func() {
		close(stop)
		<-done
	})
	return s
}

func (s *Stalls) watch(stop <-chan struct{}, done chan<- struct{}) {
	defer close(done)
	tick := time.NewTicker(stallTick)
	defer tick.Stop()
	for last := time.Now(); ; {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		now := time.Now()
		if now.Sub(last) > stallMin {
			s.mu.Lock()
			s.pauses = append(s.pauses, pause{last, now})
			s.mu.Unlock()
		}
		last = now
	}
}

// Longest returns the longest stall that touches the time from begin to end.
func (s *Stalls) Longest(begin, end time.Time) (longest time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.pauses {
		if p.to.After(begin) && p.from.Before(end) {
			longest = max(longest, p.to.Sub(p.from))
		}
	}
	return longest
}

// Total returns how many stalls there were, and the longest.
func (s *Stalls) Total() (n int, longest time.Duration) {
	longest = s.Longest(time.Time{}, time.Now())
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.pauses), longest
}
