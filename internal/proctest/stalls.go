package proctest

import (
	"slices"
	"sync"
	"testing"
	"time"
)

// Stalls knows when the machine stood still: when this process, which asked to
// be woken soon, was not. What takes long then says nothing of what is tested.
type Stalls struct {
	mu     sync.Mutex
	pauses []Pause
}

// Pause is one stall.
type Pause struct{ From, To time.Time }

const (
	stallTick = 20 * time.Millisecond
	stallMin  = 200 * time.Millisecond // shorter pauses are not recorded
)

// WatchStalls watches until the test ends.
func WatchStalls(tb testing.TB) *Stalls {
	s, stop := NewStalls()
	tb.Cleanup(stop)
	return s
}

// NewStalls watches until stop is called. It is for another process of a test,
// which has a CPU of its own to wait for.
func NewStalls() (s *Stalls, stop func()) {
	s = &Stalls{}
	quit, done := make(chan struct{}), make(chan struct{})
	go s.watch(quit, done)
	return s, func() {
		close(quit)
		<-done
	}
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
			s.pauses = append(s.pauses, Pause{last, now})
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
		if p.To.After(begin) && p.From.Before(end) {
			longest = max(longest, p.To.Sub(p.From))
		}
	}
	return longest
}

// Add adds what another process has seen.
func (s *Stalls) Add(pauses ...Pause) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pauses = append(s.pauses, pauses...)
}

// All returns all stalls.
func (s *Stalls) All() []Pause {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.pauses)
}

// Total returns how many stalls there were, and the longest.
func (s *Stalls) Total() (n int, longest time.Duration) {
	longest = s.Longest(time.Time{}, time.Now())
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.pauses), longest
}
