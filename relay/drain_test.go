package relay_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dialback/dialback/agent"
	"github.com/dialback/dialback/relay"
	"github.com/dialback/dialback/relaytest"
	"github.com/dialback/dialback/store"
	"github.com/dialback/dialback/store/memory"
	"github.com/dialback/dialback/transport"
)

// A drain in its order: no new hosts, clients for the notice, then neither;
// streams finish; then everything is closed and detached (fault 39).
func TestShutdown_Order(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memory.New()
		s := server(t, func(c *relay.Config) { c.Store, c.Rand = st, func() float64 { return 0.5 } })
		v2 := s.MustConnect("v2", relaytest.HostConfig{OnDial: relaytest.AnswerText("v2")})
		h := s.MustConnect("h", relaytest.HostConfig{Proto: 3})
		client, host := connectTo(t, s, h)
		start := time.Now()
		done := make(chan error, 1)
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		go func() { done <- s.Relay.Shutdown(ctx) }()
		synctest.Wait()
		get(s, "/health").want(t, "health while draining", 503, "draining")
		_, err := s.Connect("new", relaytest.HostConfig{})
		var he *transport.HandshakeError
		if !errors.As(err, &he) || he.Status != 503 || he.RetryAfter == 0 {
			t.Errorf("a new host while draining: %v, want 503 with Retry-After", err)
		}
		time.Sleep(5*time.Second - time.Nanosecond)
		get(s, "/hosts/v2/x").want(t, "a client within DrainNotice", 200, "v2")
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		get(s, "/hosts/v2/x").want(t, "a client after DrainNotice", 503, "draining")
		time.Sleep(2500 * time.Millisecond)
		wantClosed(t, v2, "a v2 host is told by 1012", transport.CloseRestart)
		synctest.Wait()
		if n := relaytest.Count[transport.Drain](h); n != 1 {
			t.Errorf("the agent got %d drain frames, want 1", n)
		}
		time.Sleep(time.Until(start.Add(60 * time.Second)))
		roundTrip(t, client, host, "a stream of 60 s while draining")
		select {
		case err := <-done:
			t.Fatalf("Shutdown returned while a stream was left: %v", err)
		default:
		}
		client.Close()
		if err := <-done; err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		wantClosed(t, h, "the end", transport.CloseRestart)
		if _, err := st.Current(context.Background(), "h"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("the host is still current after Shutdown: %v", err)
		}
		if rows := st.Stats(); rows.Hosts != 0 || rows.Nodes != 0 || rows.Sockets != 0 {
			t.Errorf("left in the Store: %+v", rows)
		}
	})
}

// The end of Shutdown's ctx ends streams with 1012.
func TestShutdown_EndOfContextCutsStreams(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		h := s.MustConnect("h", relaytest.HostConfig{Proto: 3})
		client, _ := connectTo(t, s, h)
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		start := time.Now()
		if err := s.Relay.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Shutdown: %v, want the context's error", err)
		}
		if d := time.Since(start); d > 22*time.Second {
			t.Errorf("Shutdown took %v", d)
		}
		if _, err := client.Read(make([]byte, 1)); transport.CloseCodeOf(err) != transport.CloseRestart {
			t.Errorf("the stream ended with %v, want 1012", err)
		}
		if err := s.Relay.Shutdown(context.Background()); err != nil {
			t.Errorf("a second Shutdown: %v", err)
		}
	})
}

// A request that a service has when the Shutdown's time is up is not answered
// draining: that would say that it has not been reached, and the client would
// send it again.
func TestShutdown_CutsRequestsUnderWay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		s.StartAgent("v3", handler(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }), nil)
		s.MustConnect("v2", relaytest.HostConfig{OnDial: relaytest.AnswerHTTP(func(transport.HTTPRequest, []byte) (int, string) {
			time.Sleep(time.Minute)
			return 200, "too late"
		})})
		calls := make(map[string]chan reply)
		for what, r := range map[string]struct{ method, path, body string }{
			"a POST":           {"POST", "/hosts/v3/x", ""},
			"a POST with body": {"POST", "/hosts/v3/x", "body"},
			"a POST to v2":     {"POST", "/hosts/v2/x", "body"},
			"a GET":            {"GET", "/hosts/v3/x", ""},
		} {
			c := make(chan reply, 1)
			calls[what] = c
			go func() { c <- do(s, r.method, r.path, r.body) }()
		}
		embedded := make(chan error, 1)
		go func() {
			r, _ := http.NewRequest("POST", "http://v3/x", nil)
			_, err := s.Relay.RoundTripper("v3", relay.Target{}).RoundTrip(r)
			embedded <- err
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		go s.Relay.Shutdown(ctx)
		for what, c := range calls {
			(<-c).want(t, what+" when the time is up", 502, "stream_closed")
		}
		if err := <-embedded; !errors.Is(err, relay.ErrStreamClosed) {
			t.Errorf("a RoundTrip when the time is up: %v, want ErrStreamClosed", err)
		}
		time.Sleep(time.Minute) // v2's service
	})
}

// Dial-backs of streams that are being opened are accepted throughout.
func TestShutdown_DialBacksAreAccepted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, func(c *relay.Config) { c.DrainNotice = time.Second })
		h := s.MustConnect("h", relaytest.HostConfig{Proto: 3})
		c := async(s, "/hosts/h/x")
		d := nextDial(t, h)
		go s.Relay.Shutdown(context.Background())
		time.Sleep(3 * time.Second)
		conn, err := h.Open(d)
		if err != nil {
			t.Fatalf("a dial-back while draining: %v", err)
		}
		go func() {
			conn.Read(make([]byte, 4096))
			conn.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate"))
		}()
		(<-c).want(t, "a call from before the drain", 200, "late")
	})
}

// An agent that is told to drain goes to another node and no call fails.
func TestShutdown_AgentMovesWithoutAGap(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memory.New()
		a := server(t, func(c *relay.Config) { c.Store = st })
		b := server(t, func(c *relay.Config) { c.Store = st })
		moved := make(chan struct{}, 2)
		// The agent's transport leads to a first, and to b once a drains.
		tr := a.Transport()
		toB := b.Transport()
		dialA := tr.DialContext
		draining := make(chan struct{})
		tr.DialContext = switchDial(draining, dialA, toB.DialContext)
		cfg := agent.Config{Transport: tr, Hooks: agent.Hooks{Online: func(agent.Online) { moved <- struct{}{} }}}
		a.StartAgentOn(tr, "h", map[string]agent.Handler{"": text("served")}, &cfg)
		<-moved
		get(a, "/hosts/h/x").want(t, "before", 200, "served")
		close(draining)
		start := time.Now()
		if err := a.Relay.Shutdown(context.Background()); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		<-moved
		get(b, "/hosts/h/x").want(t, "after the move", 200, "served")
		if d := time.Since(start); d > 15*time.Second {
			t.Errorf("the drain took %v", d)
		}
	})
}

// Close ends everything at once and leaves nothing.
func TestClose_EndsEverything(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memory.New()
		s := server(t, func(c *relay.Config) { c.Store = st })
		h := s.MustConnect("h", relaytest.HostConfig{Proto: 3})
		mute := s.MustConnect("mute", relaytest.HostConfig{})
		client, _ := connectTo(t, s, h)
		c := async(s, "/hosts/mute/x")
		nextDial(t, mute)
		start := time.Now()
		s.Relay.Close()
		if d := time.Since(start); d > 2*time.Second {
			t.Errorf("Close took %v", d)
		}
		wantClosed(t, h, "Close", transport.CloseRestart)
		if _, err := client.Read(make([]byte, 1)); transport.CloseCodeOf(err) != transport.CloseRestart {
			t.Errorf("the stream ended with %v, want 1012", err)
		}
		(<-c).want(t, "a pending call", 503, "")
		get(s, "/hosts/h/x").want(t, "after Close", 503, "draining")
		if rows := st.Stats(); rows.Hosts != 0 {
			t.Errorf("left in the Store: %+v", rows)
		}
		if err := s.Relay.Close(); err != nil {
			t.Errorf("a second Close: %v", err)
		}
	})
}

func TestNew_ChecksTheConfig(t *testing.T) {
	node := func(url string) relay.Config {
		return relay.Config{Store: memory.New(), Node: relay.Node{URL: url, Key: []byte("a key that all share")}}
	}
	for _, tt := range []struct {
		name string
		cfg  relay.Config
		want string // in the error
	}{
		{"no Store", relay.Config{}, "Store"},
		{"negative", relay.Config{Store: memory.New(), DialTimeout: -1}, "DialTimeout"},
		{"node id", relay.Config{Store: memory.New(), Node: relay.Node{ID: "a b"}}, "Node.ID"},
		{"short key", relay.Config{Store: memory.New(), Node: relay.Node{Key: []byte("short")}}, "Node.Key"},
		{"ttl below stale", relay.Config{Store: memory.New(), RowTTL: time.Second}, "RowTTL"},
		{"unknown StoreOutage", relay.Config{Store: memory.New(), StoreOutage: 7}, "StoreOutage"},
		{"node URL without a host", node("http://"), "Node.URL"},
		{"node URL with a port only", node("http://:8080"), "Node.URL"},
		{"node URL of another scheme", node("ws://a.example"), "Node.URL"},
		{"node URL with credentials", node("http://me:pass@a.example"), "Node.URL"},
		{"node URL with a query", node("http://a.example/?x=y"), "Node.URL"},
		{"no URL", node("http://[::1"), "Node.URL"},
	} {
		s, err := relay.New(tt.cfg)
		if err == nil {
			s.Close()
			t.Errorf("%s: no error", tt.name)
		} else if !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "pass") {
			t.Errorf("%s: %v, want one that names %s", tt.name, err, tt.want)
		}
	}
	for _, url := range []string{"http://10.0.0.7:8080", "https://a.example/relay/", "HTTP://a.example"} {
		s, err := relay.New(node(url))
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		s.Close()
	}
}

// switchDial dials first until moved is closed, then second.
func switchDial(moved <-chan struct{}, first, second dialFunc) dialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		select {
		case <-moved:
			return second(ctx, network, addr)
		default:
			return first(ctx, network, addr)
		}
	}
}

type dialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

// All nodes of a cluster are shut down at once: there is nowhere else to go.
func TestShutdown_AllNodesAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := relaytest.NewCluster(t, 2, nil)
		c.Nodes[0].StartAgentOn(c.Balanced(0), "a", map[string]agent.Handler{"": text("a")}, nil)
		c.Nodes[0].StartAgentOn(c.Balanced(1), "b", map[string]agent.Handler{"": text("b")}, nil)
		time.Sleep(10 * time.Second)
		start := time.Now()
		done := make(chan error, 2)
		for _, n := range c.Nodes {
			go func() { done <- n.Relay.Shutdown(context.Background()) }()
		}
		for range c.Nodes {
			select {
			case err := <-done:
				t.Logf("Shutdown returned %v after %v", err, time.Since(start))
			case <-time.After(time.Hour):
				t.Error("no stream is left, and Shutdown has not returned after an hour")
				for _, n := range c.Nodes {
					n.Relay.Close()
				}
				return
			}
		}
	})
}
