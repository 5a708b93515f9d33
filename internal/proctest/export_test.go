package proctest

import "time"

// Add records a stall as the watch does.
func (s *Stalls) Add(from, to time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pauses = append(s.pauses, pause{from, to})
}
