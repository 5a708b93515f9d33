package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// call is what became of one request to a host.
type call struct {
	hostID string
	begun  time.Time
	took   time.Duration
	ok     bool
	what   string // the answer, or why there was none
}

func (c call) ended() time.Time { return c.begun.Add(c.took) }

// get calls a host at a node, or at the balancer.
func get(ctx context.Context, client *http.Client, base, hostID string) call {
	c := call{hostID: hostID, begun: time.Now()}
	c.ok, c.what = fetch(ctx, client, base+"/hosts/"+hostID+"/")
	c.took = time.Since(c.begun)
	return c
}

func fetch(ctx context.Context, client *http.Client, url string) (ok bool, what string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false, err.Error()
	}
	resp, err := client.Do(req)
	if err != nil {
		return false, "the connection was cut before an answer came"
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return false, resp.Status + ", and then the connection was cut"
	case resp.StatusCode == http.StatusOK:
		return true, fmt.Sprintf("%s: %q", resp.Status, body)
	}
	var failure struct {
		Error struct{ Code, Message string }
	} // the relay's own answers
	_ = json.Unmarshal(body, &failure)
	return false, fmt.Sprintf("%s: %s, %q", resp.Status, failure.Error.Code, failure.Error.Message)
}

// callInterval is the time between two calls of one host.
const callInterval = 50 * time.Millisecond

// load is clients that call all hosts steadily, one after the other.
type load struct {
	client *http.Client
	base   func(hostID string) string // where they call it

	wg   sync.WaitGroup
	done chan struct{} // closed by stop

	// Guarded by mu.
	mu    sync.Mutex
	calls []call
}

func startLoad(ctx context.Context, client *http.Client, hosts []string, base func(hostID string) string) *load {
	l := &load{client: client, base: base, done: make(chan struct{})}
	for _, id := range hosts {
		l.wg.Go(func() { l.run(ctx, id) })
	}
	return l
}

func (l *load) run(ctx context.Context, hostID string) {
	tick := time.NewTicker(callInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.done:
			return
		case <-tick.C:
		}
		c := get(ctx, l.client, l.base(hostID), hostID)
		l.mu.Lock()
		l.calls = append(l.calls, c)
		l.mu.Unlock()
	}
}

// stop lets the calls that are on their way end, and returns all.
func (l *load) stop() []call {
	close(l.done)
	l.wg.Wait()
	return l.calls
}
