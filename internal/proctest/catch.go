package proctest

import (
	"bytes"
	"sync"
	"testing"
	"time"
)

// Action is what a Catch does with the request that it catches, or with its
// reply.
type Action int

const (
	HoldRequest Action = iota
	HoldReply
	LoseReply // and cut the connection
)

// Catch waits for one request that contains a text.
type Catch struct {
	text     []byte
	what     Action
	caught   chan struct{} // closed when it has caught one
	released chan struct{} // closed by Release
	once     sync.Once
}

// Catch catches the next request that contains text, and no other. A request is
// what is read from the client at once.
func (g *Gate) Catch(what Action, text string) *Catch {
	c := &Catch{text: []byte(text), what: what, caught: make(chan struct{}), released: make(chan struct{})}
	g.mu.Lock()
	g.catches = append(g.catches, c)
	g.mu.Unlock()
	return c
}

func (c *Catch) matches(b []byte) bool { return bytes.Contains(b, c.text) }

// Await waits until something is caught.
func (c *Catch) Await(tb testing.TB) {
	tb.Helper()
	select {
	case <-c.caught:
	case <-time.After(Patience):
		tb.Fatalf("nothing passed that has %q in it", c.text)
	}
}

// Release lets pass what is held. It may be called twice.
func (c *Catch) Release() { c.once.Do(func() { close(c.released) }) }
