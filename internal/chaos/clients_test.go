//go:build linux

package chaos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/dialback/dialback/internal/proctest"
	"github.com/dialback/dialback/transport"
)

// The kinds of calls.
const (
	kindGet       = "GET"
	kindPost      = "POST"
	kindWS        = "WebSocket"
	kindBytes     = "byte stream"
	kindCadence   = "POST every 5 s"
	kindSlow      = "slow reader"
	kindKeptWS    = "kept WebSocket"
	kindKeptBytes = "kept byte stream"
	kindSSH       = "ssh"
)

var kindsOfCalls = []string{kindGet, kindPost, kindWS, kindBytes, kindCadence, kindSlow, kindKeptWS, kindKeptBytes, kindSSH}

// clients use hosts through the balancer, some also at a node itself.
type clients struct {
	w    *world
	ctx  context.Context // ends when clients begin nothing more
	stop context.CancelFunc
	wg   sync.WaitGroup
	once *http.Client // a connection for each request
}

func newClients(w *world) *clients {
	ctx, cancel := context.WithCancel(context.Background())
	return &clients{w: w, ctx: ctx, stop: cancel, once: &http.Client{
		Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true}, Timeout: proctest.Patience,
	}}
}

// pause is between two calls of one kind to one host.
const pause = 300 * time.Millisecond

func (c *clients) start() {
	for _, m := range c.w.members {
		c.every(pause, func(n int) { c.get(m, n) })
		c.every(pause, func(int) { c.post(m, kindPost, c.once) })
		c.every(pause, func(int) { c.webSocket(m) })
		c.every(pause, func(int) { c.keepWebSocket(m) })
		c.every(4*pause, func(int) { c.readSlowly(m) })
		// Both ends of this connection, and of the one behind it, have the same
		// idle clock as its pace.
		kept := &http.Client{Transport: &http.Transport{DisableCompression: true}, Timeout: proctest.Patience}
		c.every(5*time.Second, func(int) { c.post(m, kindCadence, kept) })
		if !m.v2 {
			c.every(pause, func(int) { c.bytes(m) })
			c.every(pause, func(int) { c.keepBytes(m) })
		}
		if m.proc {
			c.every(pause, func(int) { c.ssh(m) })
		}
	}
}

// every calls f until the clients stop, with a pause that is always the same: a
// rhythm of 5 s must stay one.
func (c *clients) every(pause time.Duration, f func(n int)) {
	c.wg.Go(func() {
		for n := 0; c.ctx.Err() == nil; n++ {
			f(n)
			select {
			case <-c.ctx.Done():
			case <-time.After(pause):
			}
		}
	})
}

// end waits for the last call.
func (c *clients) end() {
	c.stop()
	c.wg.Wait()
}

// at is the URL of a relay: of the balancer, and each fourth time of a node.
func (c *clients) at(n int) string {
	if n%4 == 3 {
		return c.w.nodes[n/4%len(c.w.nodes)].URL
	}
	return c.w.balancer.URL
}

// served checks who has served a request. A kept stream may be used for a second
// after its host was replaced: kept says that this was a request of which that
// is true.
func (c *clients) served(kind string, m *member, by string, begun time.Time, kept bool) {
	id, err := parseIdentity(by)
	if err != nil || id.host != m.id {
		c.w.ledger.violate(ruleBytes, "%s of %s was answered by %q", kind, m.id, by)
		return
	}
	newer, is := m.roll.newer(id, begun)
	switch ago := begun.Sub(newer.at); {
	case !is:
	case kept && ago <= time.Second:
		c.w.ledger.oldStream()
	default:
		c.w.ledger.violate(ruleRetired, "%s of %s, begun %s, was served by %v, and %v was confirmed %v before it began",
			kind, m.id, begun.Format("15:04:05.000"), id, newer.identity, ago)
	}
}

// request makes one exchange, and checks that what comes with a clean end is
// want.
func (c *clients) request(client *http.Client, kind string, m *member, method, url string, body, want []byte, header http.Header) {
	begun := time.Now()
	req, err := http.NewRequest(method, url, bytes.NewReader(body))
	if err != nil {
		panic(err) // it is made of constants
	}
	for k, v := range header {
		req.Header[k] = v
	}
	resp, err := client.Do(req)
	if err != nil {
		c.w.ledger.add(kind, m.id, begun, reasonOf(err))
		return
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	code := resp.Header.Get("Dialback-Error")
	switch {
	case resp.StatusCode != http.StatusOK && code == "":
		c.w.ledger.add(kind, m.id, begun, fmt.Sprint("balancer's ", resp.StatusCode))
	case resp.StatusCode != http.StatusOK:
		c.w.ledger.add(kind, m.id, begun, fmt.Sprint(resp.StatusCode, " ", code))
	case err != nil && bytes.HasPrefix(want, got):
		c.w.ledger.add(kind, m.id, begun, "answer broken off")
	case err != nil:
		c.w.ledger.violate(ruleBytes, "%s of %s: what came of the answer, %d bytes, is not how it begins", kind, m.id, len(got))
		c.w.ledger.add(kind, m.id, begun, "answer broken off")
	case !bytes.Equal(got, want):
		rule := ruleBytes
		if bytes.HasPrefix(want, got) {
			rule = ruleTruncated
		}
		c.w.ledger.violate(rule, "%s of %s: %d bytes of %d, with a clean end", kind, m.id, len(got), len(want))
		c.w.ledger.add(kind, m.id, begun, "")
	default:
		c.served(kind, m, resp.Header.Get(identityHeader), begun, true)
		c.w.ledger.add(kind, m.id, begun, "")
	}
}

func (c *clients) get(m *member, n int) {
	size := rand.IntN(4096)
	if n%16 == 0 {
		size = 1 << 20
	}
	c.request(c.once, kindGet, m, http.MethodGet, fmt.Sprintf("%s/hosts/%s/get?n=%d", c.at(n), m.id, size), nil, pattern[:size], nil)
}

func (c *clients) post(m *member, kind string, client *http.Client) {
	size := 1 + rand.IntN(64<<10)
	url := fmt.Sprintf("%s/hosts/%s/post?id=%s", c.w.balancer.URL, m.id, uuid.NewString())
	c.request(client, kind, m, http.MethodPost, url, pattern[:size], pattern[:size], nil)
}

// reasonOf is why something failed, in as many words as there are reasons.
func reasonOf(err error) string {
	var refused *transport.HandshakeError
	var closed *transport.CloseError
	switch {
	case errors.As(err, &refused) && refused.Code != "":
		return fmt.Sprint(refused.Status, " ", refused.Code)
	case errors.As(err, &refused):
		return fmt.Sprint("balancer's ", refused.Status)
	case errors.As(err, &closed) && closed.Code == transport.CloseAbnormal:
		return "connection lost"
	case errors.As(err, &closed) && closed.Remote:
		return fmt.Sprint("close ", int(closed.Code))
	case isTimeout(err):
		return "client's own timeout"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "connection lost"
	}
	return err.Error()
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}
