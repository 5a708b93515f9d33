package relay

import (
	"sync"

	"github.com/dialback/dialback/transport"
)

// conns is the client and data sockets of this node, until each is over: a
// socket may take a while to close after its stream has ended. Control sockets
// have their own goroutine, which sees to that.
type conns struct {
	mu   sync.Mutex
	open map[transport.Conn]struct{}
}

// adopt keeps conn until it is over, so that Close can wait for it. On a Server
// that is closed it cuts conn.
func (s *Server) adopt(conn transport.Conn) {
	s.conns.mu.Lock()
	s.conns.open[conn] = struct{}{}
	s.conns.mu.Unlock()
	done := func() {
		<-conn.Done()
		s.conns.mu.Lock()
		defer s.conns.mu.Unlock()
		delete(s.conns.open, conn)
	}
	if !s.spawn(done) {
		conn.CloseNow()
	}
}

// closeAll closes what is open; what is closing already has CloseTimeout left.
func (c *conns) closeAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.open {
		conn.Close(transport.CloseRestart, "node is restarting")
	}
}
