package relay_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dialback/dialback/agent"
	"github.com/dialback/dialback/relay"
	"github.com/dialback/dialback/relaytest"
	"github.com/dialback/dialback/store"
	"github.com/dialback/dialback/store/storetest"
	"github.com/dialback/dialback/transport"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bubble runs f in fake time.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

// reply is an answer to a client, and how long it took.
type reply struct {
	status int
	body   string
	header http.Header
	took   time.Duration
	err    error
}

// get asks the relay for path.
func get(s *relaytest.Server, path string) reply {
	return do(s, http.MethodGet, path, "")
}

func do(s *relaytest.Server, method, path, body string) reply {
	start := time.Now()
	var r io.Reader
	if body != "" {
		r = strings.NewReader(body)
	}
	resp, b, err := s.Do(method, path, r)
	if err != nil {
		return reply{err: err, took: time.Since(start)}
	}
	return reply{resp.StatusCode, b, resp.Header, time.Since(start), nil}
}

// async runs get in the background.
func async(s *relaytest.Server, path string) <-chan reply {
	c := make(chan reply, 1)
	go func() { c <- get(s, path) }()
	return c
}

// want checks status and a part of the body.
func (r reply) want(t *testing.T, why string, status int, part string) {
	t.Helper()
	if r.err != nil || r.status != status || !strings.Contains(r.body, part) {
		t.Fatalf("%s: got %d %.200q in %v, %v; want %d with %q", why, r.status, r.body, r.took, r.err, status, part)
	}
}

// wantWithin checks how long the answer took, in fake time.
func (r reply) wantWithin(t *testing.T, why string, d time.Duration) {
	t.Helper()
	if r.took > d {
		t.Fatalf("%s: took %v, want %v at most", why, r.took, d)
	}
}

// pending fails if there is an answer already.
func pending(t *testing.T, c <-chan reply, why string) {
	t.Helper()
	synctest.Wait()
	select {
	case r := <-c:
		t.Fatalf("%s: answered already: %d %.200q %v", why, r.status, r.body, r.err)
	default:
	}
}

// wantClosed checks how a control socket ended.
func wantClosed(t *testing.T, h *relaytest.Host, why string, code transport.CloseCode) {
	t.Helper()
	select {
	case ce := <-h.Closed():
		if ce.Code != code {
			t.Fatalf("%s: closed with %d %q, want %d", why, ce.Code, ce.Reason, code)
		}
	case <-time.After(10 * time.Second):
		t.Fatalf("%s: not closed, want %d", why, code)
	}
}

// endOf connects a host that is not let stay, and returns how it ended. Its claim
// may be seen before its end.
func endOf(s *relaytest.Server, hostID string) error {
	h, err := s.Connect(hostID, relaytest.HostConfig{})
	if err == nil {
		err = <-h.Closed()
	}
	return err
}

func wantOpen(t *testing.T, h *relaytest.Host, why string) {
	t.Helper()
	synctest.Wait()
	select {
	case ce := <-h.Closed():
		t.Fatalf("%s: closed with %d %q", why, ce.Code, ce.Reason)
	default:
	}
}

// nextDial waits for a dial.
func nextDial(t *testing.T, h *relaytest.Host) transport.StreamDial {
	t.Helper()
	select {
	case d := <-h.Dials():
		return d
	case <-time.After(20 * time.Second):
		t.Fatal("no dial came")
		panic("unreachable")
	}
}

// answerEmpty answers a v2 exchange with 204.
func answerEmpty(conn transport.Conn) {
	conn.Write(transport.Text, transport.Encode(transport.HTTPResponse{Status: 204}))
	conn.Write(transport.Text, transport.Encode(transport.HTTPEnd{}))
}

// byConnect begins a byte stream.
func byConnect(t *testing.T, s *relaytest.Server, host string) transport.Conn {
	t.Helper()
	conn, err := s.DialWS(context.Background(), "/connect/"+host, nil)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// readMessage reads one message.
func readMessage(t *testing.T, c transport.Conn) (transport.MessageType, string) {
	t.Helper()
	typ, r, err := c.Reader()
	if err != nil {
		t.Fatalf("read: %v", err)
	}
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatalf("read: %v", err)
	}
	return typ, string(b)
}

// closeOf reads until the connection ends and returns how.
func closeOf(c transport.Conn) *transport.CloseError {
	for {
		_, r, err := c.Reader()
		if err == nil {
			_, err = io.Copy(io.Discard, r)
		}
		var ce *transport.CloseError
		if errors.As(err, &ce) {
			return ce
		}
	}
}

// wantEnd reads until the connection ends and checks how.
func wantEnd(t *testing.T, c transport.Conn, why string, code transport.CloseCode, reason string) {
	t.Helper()
	if ce := closeOf(c); ce.Code != code || !strings.Contains(ce.Reason, reason) {
		t.Fatalf("%s: closed with %d %q, want %d %q", why, ce.Code, ce.Reason, code, reason)
	}
}

// text answers every request with s and a newline-free body.
func text(s string) agent.Handler {
	return agent.HTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, s) }))
}

// echo is a raw service that gives back what it gets, and half closes when
// its client does.
func echo() agent.Handler {
	return agent.Raw(func(_ context.Context, s *agent.Stream) {
		io.Copy(s, s)
		s.CloseWrite()
	})
}

func server(t *testing.T, change func(*relay.Config)) *relaytest.Server {
	t.Helper()
	return relaytest.NewServer(t, &relaytest.Options{Config: change})
}

// faultyCluster starts n nodes, each with a way of its own to the Store.
func faultyCluster(t *testing.T, n int, shared store.Store) (*relaytest.Cluster, []*storetest.Faulty) {
	t.Helper()
	var ways []*storetest.Faulty
	c := relaytest.NewCluster(t, n, &relaytest.Options{Config: func(cfg *relay.Config) {
		f := storetest.NewFaulty(shared)
		ways, cfg.Store = append(ways, f), f
	}})
	return c, ways
}

// settled checks that nothing of what came and went is left.
func settled(t *testing.T, s *relaytest.Server, why string) {
	t.Helper()
	synctest.Wait()
	if st := s.Relay.Stats(); st.Streams != 0 || st.PendingDials != 0 {
		t.Fatalf("%s: %d streams and %d pending dials are left", why, st.Streams, st.PendingDials)
	}
}
