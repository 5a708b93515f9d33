package transport

import (
	"context"
	"encoding/binary"
)

// pingWait is a call of Ping that waits.
type pingWait struct {
	id   uint64
	pong chan struct{} // closed when the pong came
}

func (c *wsConn) Ping(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if e := c.end.Load(); e != nil {
		return e
	}
	pong := make(chan struct{})
	c.mu.Lock()
	c.lastPing++
	id := c.lastPing
	c.pings = append(c.pings, pingWait{id, pong})
	c.raw.sendPing(id)
	c.mu.Unlock()
	select {
	case <-pong:
		return nil
	case <-ctx.Done():
		c.forgetPing(id)
		return ctx.Err()
	case <-c.done:
		return c.end.Load()
	}
}

func (c *wsConn) forgetPing(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, p := range c.pings {
		if p.id == id {
			c.pings = append(c.pings[:i], c.pings[i+1:]...)
			return
		}
	}
}

// ponged takes a pong, which answers its ping and all before it.
func (c *wsConn) ponged(payload []byte) {
	if len(payload) != 8 {
		return
	}
	id := binary.BigEndian.Uint64(payload)
	c.mu.Lock()
	defer c.mu.Unlock()
	if id > c.lastPing {
		return
	}
	n := 0
	for n < len(c.pings) && c.pings[n].id <= id {
		close(c.pings[n].pong)
		n++
	}
	c.pings = c.pings[n:]
	if len(c.pings) == 0 {
		c.pings = nil
	}
}
