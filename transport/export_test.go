package transport

// FrameScan is frameScan, for its test.
type FrameScan = frameScan

func (s *FrameScan) Advance(p []byte) int { return s.advance(p) }
func (s *FrameScan) AtBoundary() bool     { return s.atBoundary() }
func (s *FrameScan) Closed() bool         { return s.closed }
