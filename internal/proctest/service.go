package proctest

import (
	"net"
	"sync"
	"testing"
)

// Serve answers each connection on a loopback port with serve, and returns its
// address. It ends with the test: connections are closed, and serve is waited
// for.
func Serve(tb testing.TB, serve func(*net.TCPConn)) string {
	tb.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	s := &service{ln: ln, serve: serve, open: make(map[*net.TCPConn]struct{})}
	s.wg.Go(s.accept)
	tb.Cleanup(s.close)
	return ln.Addr().String()
}

type service struct {
	// Immutable after Serve.
	ln    net.Listener
	serve func(*net.TCPConn)
	wg    sync.WaitGroup

	// Guarded by mu.
	mu   sync.Mutex
	open map[*net.TCPConn]struct{}
	over bool
}

func (s *service) accept() {
	for {
		c, err := s.ln.Accept()
		if err != nil {
			return
		}
		tc := c.(*net.TCPConn)
		s.mu.Lock()
		if s.over {
			tc.Close()
		} else {
			s.open[tc] = struct{}{}
			s.wg.Go(func() { s.run(tc) })
		}
		s.mu.Unlock()
	}
}

func (s *service) run(c *net.TCPConn) {
	s.serve(c)
	c.Close()
	s.mu.Lock()
	delete(s.open, c)
	s.mu.Unlock()
}

func (s *service) close() {
	s.ln.Close()
	s.mu.Lock()
	s.over = true
	for c := range s.open {
		c.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
}
