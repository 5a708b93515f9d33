//go:build unix

package redistest

import (
	"syscall"
	"testing"
)

// Freeze stops the server's process: its connections stay open and nothing
// answers. Thaw, or the end of the test, lets it go on.
func (s *Server) Freeze(tb testing.TB) {
	tb.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		tb.Fatal(err)
	}
}

// Thaw lets a frozen server go on.
func (s *Server) Thaw(tb testing.TB) {
	tb.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		tb.Fatal(err)
	}
}
