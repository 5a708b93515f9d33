//go:build linux

package soak

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dialback/dialback/transport"
)

const callsPerSecond = 50

// calls are clients that use hosts: none of their calls may fail, for hosts do
// not connect anew meanwhile.
type calls struct {
	f       *fleet
	client  *http.Client
	total   atomic.Int64
	aborted atomic.Int64
}

func newCalls(f *fleet) *calls {
	return &calls{f: f, client: &http.Client{Transport: f.dialers[1], Timeout: patience}}
}

// run makes calls until ctx ends, and waits for the last one.
func (c *calls) run(ctx context.Context, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 2))
	var wg sync.WaitGroup
	defer wg.Wait()
	slots := make(chan struct{}, 2*callsPerSecond)
	tick := time.NewTicker(time.Second / callsPerSecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		h, kind, leave := c.f.hosts[rng.IntN(len(c.f.hosts))], rng.IntN(4), time.Duration(rng.IntN(4000))*time.Microsecond
		select {
		case slots <- struct{}{}:
		default:
			continue // the machine is behind
		}
		wg.Go(func() {
			defer func() { <-slots }()
			h.busy.RLock()
			defer h.busy.RUnlock()
			if err := c.call(h, kind, leave); err != nil {
				c.f.fail("call of %s: %v", h.id, err)
			}
			c.total.Add(1)
		})
	}
}

// call makes one call: an exchange, one that its client leaves, or a stream.
func (c *calls) call(h *host, kind int, leave time.Duration) error {
	switch {
	case kind == 0:
		ctx, cancel := context.WithTimeout(context.Background(), leave)
		defer cancel()
		if err := c.get(ctx, h); err != nil && ctx.Err() == nil {
			return err
		}
		c.aborted.Add(1)
		return nil
	case kind == 1 && h.proto3:
		return c.stream(h)
	default:
		return c.get(context.Background(), h)
	}
}

func (c *calls) get(ctx context.Context, h *host) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.f.relay+"/hosts/"+h.id+"/", nil)
	if err != nil {
		return err
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || string(body) != answer(h.id) {
		return fmt.Errorf("%d %.100q, %v", resp.StatusCode, body, err)
	}
	return nil
}

// stream sends bytes to the host's echo and wants them back, to their end.
func (c *calls) stream(h *host) error {
	conn, err := transport.Dial(context.Background(), c.f.relay+"/connect/"+h.id, &transport.DialOptions{Transport: c.f.dialers[2]})
	if err != nil {
		return err
	}
	s := transport.NewStreamConn(conn)
	defer func() {
		_ = s.Close()
		<-conn.Done()
	}()
	_ = s.SetDeadline(time.Now().Add(patience))
	want := strings.Repeat(h.id, 100)
	if _, err := io.WriteString(s, want); err != nil {
		return err
	}
	if err := s.CloseWrite(); err != nil {
		return err
	}
	if got, err := io.ReadAll(s); err != nil || string(got) != want {
		return fmt.Errorf("echo of %d bytes has %d, %v", len(want), len(got), err)
	}
	return nil
}
