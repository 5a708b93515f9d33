//go:build linux

package chaos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
	"time"
)

// slowSize and slowPace make an answer that takes ten seconds to read.
const (
	slowSize = 4 << 20
	slowPart = 64 << 10
	slowPace = 150 * time.Millisecond
)

// readSlowly reads a large answer a little at a time, so that all buffers on the
// way are full.
func (c *clients) readSlowly(m *member) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true, DialContext: smallBuffers}}
	begun := time.Now()
	resp, err := client.Get(fmt.Sprintf("%s/hosts/%s/get?n=%d", c.w.balancer.URL, m.id, slowSize))
	if err != nil {
		c.w.ledger.add(kindSlow, m.id, begun, reasonOf(err))
		return
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		c.w.ledger.add(kindSlow, m.id, begun, fmt.Sprint(resp.StatusCode, " ", resp.Header.Get("Dialback-Error")))
		return
	}
	part, at := make([]byte, slowPart), 0
	for {
		n, err := io.ReadFull(resp.Body, part)
		if at+n > slowSize || !bytes.Equal(part[:n], pattern[at:at+n]) {
			c.w.ledger.violate(ruleBytes, "slow reader of %s: other bytes at %d", m.id, at)
			return
		}
		at += n
		switch {
		case err == nil && c.ctx.Err() == nil:
			time.Sleep(slowPace)
		case err == nil: // the end of the test: read the rest quickly
		case (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)) && at == slowSize:
			c.served(kindSlow, m, resp.Header.Get(identityHeader), begun, true)
			c.w.ledger.add(kindSlow, m.id, begun, "")
			return
		case errors.Is(err, io.EOF):
			c.w.ledger.violate(ruleTruncated, "slow reader of %s: %d bytes of %d, with a clean end", m.id, at, slowSize)
			return
		default:
			c.w.ledger.add(kindSlow, m.id, begun, "answer broken off")
			return
		}
	}
}

// smallBuffers connects with a receive buffer that a slow reader soon fills.
func smallBuffers(ctx context.Context, network, addr string) (net.Conn, error) {
	d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		if cerr := c.Control(func(fd uintptr) {
			err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, slowPart)
		}); cerr != nil {
			return cerr
		}
		return err
	}}
	return d.DialContext(ctx, network, addr)
}
