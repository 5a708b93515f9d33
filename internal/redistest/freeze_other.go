//go:build !unix

package redistest

import "testing"

// Freeze skips the test: only unix can stop a process.
func (s *Server) Freeze(tb testing.TB) { tb.Skip("cannot stop a process on this system") }

// Thaw does nothing.
func (s *Server) Thaw(testing.TB) {}
