package bench_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dialback/dialback/transport"
)

// idleHosts are hosts that do nothing but ping, as many as they are told to be.
type idleHosts struct {
	relay string
	conns []transport.Conn
	pongs atomic.Int64
}

// runHosts obeys "attach N QUERY" and "ping".
func runHosts(relay string) error {
	h := &idleHosts{relay: relay}
	defer h.close()
	return serveLines(h.obey)
}

func (h *idleHosts) obey(line string) error {
	words := strings.Fields(line)
	switch {
	case len(words) == 1 && words[0] == "ping":
		return h.ping()
	case len(words) >= 2 && words[0] == "attach":
		n, err := strconv.Atoi(words[1])
		if err != nil {
			return err
		}
		return h.attach(n, strings.Join(words[2:], ""))
	}
	return fmt.Errorf("unknown order %q", line)
}

// attach adds n hosts, 64 at once.
func (h *idleHosts) attach(n int, query string) error {
	const atOnce = 64
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		fails []error
		slots = make(chan struct{}, atOnce)
		base  = len(h.conns)
	)
	for i := range n {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			c, err := h.dial(base+i, query)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				fails = append(fails, err)
				return
			}
			h.conns = append(h.conns, c)
		})
	}
	wg.Wait()
	return errors.Join(fails...)
}

func (h *idleHosts) dial(i int, query string) (transport.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	u := fmt.Sprintf("http://%s/v2/control?hostId=%s%s", h.relay, url.QueryEscape(fmt.Sprintf("idle-%d", i)), query)
	c, err := transport.Dial(ctx, u, nil)
	if err != nil {
		return nil, err
	}
	go h.read(c)
	return c, nil
}

// read counts pongs until c ends.
func (h *idleHosts) read(c transport.Conn) {
	for {
		_, r, err := c.Reader()
		if err != nil {
			return
		}
		p, err := io.ReadAll(r)
		if err != nil {
			return
		}
		if f, err := transport.Decode(p); err == nil {
			if _, ok := f.(transport.Pong); ok {
				h.pongs.Add(1)
			}
		}
	}
}

// ping sends a ping from each host and waits for as many pongs.
func (h *idleHosts) ping() error {
	want := h.pongs.Load() + int64(len(h.conns))
	for _, c := range h.conns {
		if err := c.Write(transport.Text, transport.Encode(transport.Ping{})); err != nil {
			return err
		}
	}
	for end := time.Now().Add(30 * time.Second); h.pongs.Load() < want; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("%d of %d pongs are missing", want-h.pongs.Load(), len(h.conns))
		}
	}
	return nil
}

func (h *idleHosts) close() {
	for _, c := range h.conns {
		c.CloseNow()
	}
}
