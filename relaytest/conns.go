package relaytest

import (
	"net"
	"net/http"
	"sync"
	"time"
)

// conns counts the connections that an http.Server still serves, so that a
// test can wait for their goroutines: http.Server.Close does not.
type conns struct {
	mu   sync.Mutex
	open int
	none chan struct{} // closed while open is 0
}

func newConns() *conns {
	c := &conns{none: make(chan struct{})}
	close(c.none)
	return c
}

// connState is an http.Server.ConnState.
func (c *conns) connState(_ net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew:
		if c.open++; c.open == 1 {
			c.none = make(chan struct{})
		}
	case http.StateClosed, http.StateHijacked:
		if c.open--; c.open == 0 {
			close(c.none)
		}
	}
}

// wait returns when no connection is served any more, or after d.
func (c *conns) wait(d time.Duration) {
	c.mu.Lock()
	none := c.none
	c.mu.Unlock()
	select {
	case <-none:
	case <-time.After(d):
	}
}
