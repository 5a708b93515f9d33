package relay_test

import (
	"bytes"
	"context"
	"crypto/rand"
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
	"github.com/dialback/dialback/store/memory"
	"github.com/dialback/dialback/store/storetest"
	"github.com/dialback/dialback/transport"
)

// wsPair opens a WebSocket to a v2 host and returns both ends.
func wsPair(t *testing.T, s *relaytest.Server, h *relaytest.Host, path string, o *transport.DialOptions) (client, host transport.Conn, d transport.StreamDial) {
	t.Helper()
	type dialed struct {
		c   transport.Conn
		err error
	}
	done := make(chan dialed, 1)
	go func() {
		c, err := s.DialWS(context.Background(), "/hosts/"+h.ID+path, o)
		done <- dialed{c, err}
	}()
	d = nextDial(t, h)
	host, err := h.DialBack(d)
	if err != nil {
		t.Fatal(err)
	}
	r := <-done
	if r.err != nil {
		t.Fatal(r.err)
	}
	t.Cleanup(r.c.CloseNow)
	return r.c, host, d
}

// A v2 host's WebSocket: types and boundaries stay, the dial says path and
// query apart, and the first offered subprotocol is echoed.
func TestWS_MessagesStayAsTheyAre(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		h := s.MustConnect("h", relaytest.HostConfig{})
		client, host, d := wsPair(t, s, h, "/term/7?seq=3&x=%2F", &transport.DialOptions{Subprotocols: []string{"a", "b"}})
		if d.Kind != "ws" || d.Path != "/term/7" || d.Query != "seq=3&x=%2F" || d.Generation != 0 || d.Stream != "" {
			t.Errorf("the dial: %+v", d)
		}
		if client.Subprotocol() != "a" {
			t.Errorf("subprotocol %q, want the first offered", client.Subprotocol())
		}
		big := make([]byte, 2<<20)
		rand.Read(big)
		for _, m := range []struct {
			typ  transport.MessageType
			data []byte
		}{{transport.Text, []byte("abc")}, {transport.Binary, nil}, {transport.Text, []byte(`{"type":"ping"}`)}, {transport.Binary, big}, {transport.Text, []byte{}}, {transport.Binary, big[:32<<10]}, {transport.Binary, big[:32<<10+1]}} {
			for _, dir := range []struct{ from, to transport.Conn }{{client, host}, {host, client}} {
				go dir.from.Write(m.typ, m.data)
				typ, got := readMessage(t, dir.to)
				if typ != m.typ || got != string(m.data) {
					t.Fatalf("%d bytes of type %d arrived as %d of type %d", len(m.data), m.typ, len(got), typ)
				}
			}
		}
		client.Close(1000, "")
		closeOf(host)
		settled(t, s, "after the stream")
	})
}

// An offline host is 503, a mute one 504, both before the handshake.
func TestWS_NoHandshakeWithoutAHost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		if _, err := s.DialWS(context.Background(), "/hosts/nobody/x", nil); handshakeStatus(err) != 503 {
			t.Errorf("offline: %v, want 503 before the handshake", err)
		}
		s.MustConnect("mute", relaytest.HostConfig{})
		if _, err := s.DialWS(context.Background(), "/hosts/mute/x", &transport.DialOptions{HandshakeTimeout: time.Minute}); handshakeStatus(err) != 504 {
			t.Errorf("mute: %v, want 504 before the handshake", err)
		}
	})
}

// When one side closes, the other gets the same code and reason; an empty
// close stays empty; an abnormal end is 4410 for the client and 1011 for the
// host, never 1000 (fault 24).
func TestWS_CloseCodesPassBothWays(t *testing.T) {
	tests := []struct {
		name         string
		close        func(c transport.Conn)
		toClient     transport.CloseCode
		toHost       transport.CloseCode
		clientReason string
	}{
		{"normal", func(c transport.Conn) { c.Close(1000, "bye") }, 1000, 1000, "bye"},
		{"going away", func(c transport.Conn) { c.Close(1001, "off") }, 1001, 1001, "off"},
		{"internal", func(c transport.Conn) { c.Close(1011, "oops") }, 1011, 1011, "oops"},
		{"private", func(c transport.Conn) { c.Close(4321, "as asked") }, 4321, 4321, "as asked"},
		{"empty", func(c transport.Conn) { c.Close(transport.CloseNoStatus, "") }, 1005, 1005, ""},
		{"abnormal", func(c transport.Conn) { c.CloseNow() }, 4410, 1011, ""},
		{"long reason", func(c transport.Conn) { c.Close(4000, strings.Repeat("é", 100)) }, 4000, 4000, "éééé"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := server(t, nil)
				h := s.MustConnect("h", relaytest.HostConfig{})
				client, host, _ := wsPair(t, s, h, "/x", nil)
				go tt.close(host)
				wantEnd(t, client, "the host closed", tt.toClient, tt.clientReason)
				closeOf(host)
				client, host, _ = wsPair(t, s, h, "/x", nil)
				go tt.close(client)
				wantEnd(t, host, "the client closed", tt.toHost, "")
				closeOf(client)
				settled(t, s, "after the close")
			})
		})
	}
}

// A slow reader stalls only itself (faults 21 and 22), and is ended when bytes
// have waited for StallTimeout.
func TestStream_SlowReaderStallsOnlyItself(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		h := s.MustConnect("h", relaytest.HostConfig{})
		slow, flooding, _ := wsPair(t, s, h, "/slow", nil)
		quick, host, _ := wsPair(t, s, h, "/quick", nil)
		floodEnded := make(chan time.Time, 1)
		go func() {
			for flooding.Write(transport.Binary, make([]byte, 64<<10)) == nil {
			}
			floodEnded <- time.Now()
		}()
		go io.Copy(io.Discard, connReader{flooding})
		start := time.Now()
		synctest.Wait()
		for range 50 {
			go quick.Write(transport.Text, []byte("ping"))
			if _, m := readMessage(t, host); m != "ping" {
				t.Fatal("the quick stream is broken")
			}
		}
		if d := time.Since(start); d != 0 {
			t.Errorf("the quick stream took %v beside a stalled one", d)
		}
		at := <-floodEnded
		if d := at.Sub(start); d < 5*time.Minute || d > 5*time.Minute+2*time.Second {
			t.Errorf("the stalled stream ended after %v, want 5 min of waiting bytes", d)
		}
		closeOf(slow)
	})
}

// connReader reads messages and their bytes until the connection ends.
type connReader struct{ transport.Conn }

func (c connReader) Read(p []byte) (int, error) {
	_, r, err := c.Conn.Reader()
	if err != nil {
		return 0, err
	}
	n, _ := io.Copy(io.Discard, r)
	return int(min(n, int64(len(p)))), nil
}

// An idle stream is kept: protocol pings go out on both sockets, and nothing
// ends while they are answered (fault 23).
func TestStream_IdleForAnHour(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		h := s.MustConnect("h", relaytest.HostConfig{Proto: 3, OnDial: func(h *relaytest.Host, d transport.StreamDial) {
			if c, err := h.Open(d); err == nil {
				io.Copy(c, c)
				c.Close()
			}
		}})
		go func() {
			for range 120 {
				h.Send(transport.Ping{})
				time.Sleep(30 * time.Second)
			}
		}()
		conn := byConnect(t, s, "h")
		client := transport.NewStreamConn(conn)
		time.Sleep(time.Hour)
		client.Write([]byte("still here"))
		b := make([]byte, 10)
		if _, err := io.ReadFull(client, b); string(b) != "still here" {
			t.Errorf("after an idle hour: %q %v", b, err)
		}
		client.Close()
	})
}

// A host that vanished is noticed when it has sent no pong for StallTimeout.
func TestStream_VanishedHostIsNoticed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		h := s.MustConnect("h", relaytest.HostConfig{Proto: 3})
		conn := byConnect(t, s, "h")
		_, freeze, err := h.OpenFreezable(nextDial(t, h))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		freeze()
		start := time.Now()
		wantEnd(t, conn, "the host vanished", transport.CloseDataAbnormal, "lost")
		if d := time.Since(start); d < 5*time.Minute || d > 6*time.Minute {
			t.Errorf("noticed after %v", d)
		}
	})
}

func TestConnect_OfflineIs1013AfterTheHandshake(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		conn, err := s.DialWS(context.Background(), "/connect/nobody", nil)
		if err != nil {
			t.Fatal(err)
		}
		wantEnd(t, conn, "offline", transport.CloseOffline, "offline")
		s.MustConnect("v2", relaytest.HostConfig{})
		conn, err = s.DialWS(context.Background(), "/connect/v2", nil)
		if err != nil {
			t.Fatal(err)
		}
		wantEnd(t, conn, "a v2 host has no byte streams", transport.CloseBadRequest, "v2")
		s.MustConnect("mute", relaytest.HostConfig{Proto: 3})
		conn, err = s.DialWS(context.Background(), "/connect/mute", nil)
		if err != nil {
			t.Fatal(err)
		}
		wantEnd(t, conn, "no dial-back", transport.CloseNoDialBack, "")
		settled(t, s, "after failures")
	})
}

// Half close both ways: the end of one direction does not cut the other.
func TestConnect_HalfClose(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		s.StartAgent("h", map[string]agent.Handler{"": agent.Raw(func(_ context.Context, st *agent.Stream) {
			b, _ := io.ReadAll(st)
			time.Sleep(time.Minute)
			st.Write(bytes.ToUpper(b))
		})}, nil)
		conn := byConnect(t, s, "h")
		c := transport.NewStreamConn(conn)
		io.WriteString(c, "answer after my end")
		c.CloseWrite()
		b, err := io.ReadAll(c)
		if string(b) != "ANSWER AFTER MY END" || err != nil {
			t.Errorf("%q %v", b, err)
		}
		settled(t, s, "after the stream")
	})
}

// What has come of a message goes on while the message does, in a byte stream
// and in a v2 host's WebSocket.
func TestStream_FragmentsPassAsTheyCome(t *testing.T) {
	for _, c := range []struct {
		name string
		open func(t *testing.T, s *relaytest.Server) (from, to transport.Conn)
	}{
		{"byte stream", func(t *testing.T, s *relaytest.Server) (from, to transport.Conn) {
			s.StartAgent("h", map[string]agent.Handler{"": echo()}, nil)
			c := byConnect(t, s, "h")
			return c, c
		}},
		{"v2 WebSocket to the host", func(t *testing.T, s *relaytest.Server) (from, to transport.Conn) {
			client, host, _ := wsPair(t, s, s.MustConnect("h", relaytest.HostConfig{}), "/x", nil)
			return client, host
		}},
		{"v2 WebSocket to the client", func(t *testing.T, s *relaytest.Server) (from, to transport.Conn) {
			client, host, _ := wsPair(t, s, s.MustConnect("h", relaytest.HostConfig{}), "/x", nil)
			return host, client
		}},
	} {
		bubble(t, func(t *testing.T) {
			from, to := c.open(t, server(t, nil))
			defer func() {
				from.CloseNow()
				<-from.Done()
			}()
			stuck := time.AfterFunc(time.Minute, from.CloseNow)
			defer stuck.Stop()
			w, err := from.Writer(transport.Binary)
			if err != nil {
				t.Fatal(err)
			}
			r := transport.NewStreamConn(to)
			for _, part := range []string{"first", "second"} {
				if _, err := io.WriteString(w, part); err != nil {
					t.Fatal(err)
				}
				got := make([]byte, len(part))
				if _, err := io.ReadFull(r, got); err != nil || string(got) != part {
					t.Fatalf("%s: %q of a message that goes on arrived as %q, %v", c.name, part, got, err)
				}
			}
		})
	}
}

func TestConnect_OtherTextCloses1003(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		h := s.MustConnect("h", relaytest.HostConfig{Proto: 3})
		conn := byConnect(t, s, "h")
		host, err := h.Open(nextDial(t, h))
		if err != nil {
			t.Fatal(err)
		}
		conn.Write(transport.Text, []byte("hello"))
		wantEnd(t, conn, "text on a byte stream", transport.CloseUnsupported, "")
		if _, err := io.ReadAll(host); transport.CloseCodeOf(err) != transport.CloseInternal {
			t.Errorf("the host sees %v, want 1011", err)
		}
		settled(t, s, "after the stream")
	})
}

// A truncated upload must not run: the data socket is cut, no http:end.
func TestV2_AbortedUploadHasNoEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		got := make(chan error, 1)
		s.MustConnect("h", relaytest.HostConfig{OnDial: func(h *relaytest.Host, d transport.StreamDial) {
			c, err := h.DialBack(d)
			if err != nil {
				return
			}
			_, _, err = relaytest.ReadHTTPRequest(c)
			got <- err
		}})
		ctx, cancel := context.WithCancel(context.Background())
		pr, pw := io.Pipe()
		req, _ := http.NewRequestWithContext(ctx, "POST", s.URL+"/hosts/h/x", pr)
		req.ContentLength = 1000
		go s.DoRequest(req)
		io.WriteString(pw, "a part")
		synctest.Wait()
		cancel()
		pw.Close()
		if err := <-got; transport.CloseCodeOf(err) != transport.CloseAbnormal {
			t.Errorf("the host's request ended with %v, want a cut socket", err)
		}
		settled(t, s, "after an aborted upload")
	})
}

// What a v2 host is sent: flat headers, no hop-by-hop ones, path and query as
// sent; what could lead it elsewhere is refused.
func TestV2_Request(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		var got transport.HTTPRequest
		s.MustConnect("h", relaytest.HostConfig{OnDial: relaytest.AnswerHTTP(func(r transport.HTTPRequest, body []byte) (int, string) {
			got = r
			return 201, string(body)
		})})
		body := strings.Repeat("x", 3<<20)
		req, _ := http.NewRequest("POST", s.URL+"/hosts/h/a.b%2Fc?x=1&y=%2F", strings.NewReader(body))
		req.Header = http.Header{"X-Two": {"1", "2"}, "Cookie": {"a=1", "b=2"}, "Connection": {"X-Hop"}, "X-Hop": {"1"}, "Expect": {"100-continue"}}
		resp, answer, err := s.DoRequest(req)
		if err != nil || resp.StatusCode != 201 || answer != body {
			t.Fatalf("%v, %d bytes, %v", resp, len(answer), err)
		}
		if got.Method != "POST" || got.Path != "/a.b%2Fc?x=1&y=%2F" {
			t.Errorf("%s %s", got.Method, got.Path)
		}
		if got.Headers["x-two"] != "1, 2" || got.Headers["cookie"] != "a=1; b=2" {
			t.Errorf("repeated headers are joined: %v", got.Headers)
		}
		for _, k := range []string{"host", "expect", "connection", "x-hop", "content-length", "transfer-encoding"} {
			if v, ok := got.Headers[k]; ok {
				t.Errorf("the host was sent %s: %q", k, v)
			}
		}
		get(s, "/hosts/h//evil.example/").want(t, "two slashes", 400, "bad_request")
		do(s, "GET", "/hosts/h/x", "body").want(t, "GET with a body", 400, "bad_request")
		req, _ = http.NewRequest("GET", s.URL+"/hosts/h/x", nil)
		req.Header.Set("X-Big", strings.Repeat("x", 70<<10))
		resp, answer, err = s.DoRequest(req)
		if err != nil || resp.StatusCode != 400 {
			t.Errorf("a header above 64 KiB: %v %.80q %v, want 400", resp, answer, err)
		}
		settled(t, s, "after the exchanges")
	})
}

// Revoke ends control and streams with 4403, at host and client (fault 40).
func TestRevoke_EndsControlAndStreams(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memory.New()
		s := server(t, func(c *relay.Config) { c.Store = st })
		h := s.MustConnect("h", relaytest.HostConfig{Proto: 3})
		client, host := connectTo(t, s, h)
		roundTrip(t, client, host, "before")
		if err := s.Relay.Revoke(context.Background(), "h", "stolen laptop"); err != nil {
			t.Fatal(err)
		}
		wantClosed(t, h, "revoked", transport.CloseForbidden)
		for name, c := range map[string]*transport.StreamConn{"client": client, "host": host} {
			if _, err := io.ReadAll(c); transport.CloseCodeOf(err) != transport.CloseForbidden {
				t.Errorf("the %s's stream ended with %v, want 4403", name, err)
			}
		}
		if seen, _ := st.LastSeen(context.Background(), []string{"h"}); seen["h"].Reason != "revoked" {
			t.Errorf("the tombstone: %+v, want revoked", seen["h"])
		}
		settled(t, s, "after the revoke")
		s.MustConnect("h", relaytest.HostConfig{}) // AuthorizeHost lets it
	})
}

// Whoever asks for a revoke may leave: it is not half done. What somebody's own
// context has ended is no failure of the Store.
func TestRevoke_CallerHasLeft(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := storetest.NewFaulty(memory.New())
		s := server(t, func(c *relay.Config) { c.Store = st })
		s.MustConnect("h", relaytest.HostConfig{})
		st.Set("*", storetest.Fault{Delay: 100 * time.Millisecond})
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if _, err := s.Relay.Presence(ctx, "h"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Presence: %v, want the context's error", err)
		}
		if err := s.Relay.Revoke(ctx, "h", "stolen"); err != nil {
			t.Errorf("Revoke: %v", err)
		}
		if seen, err := st.LastSeen(t.Context(), []string{"h"}); err != nil || seen["h"].Reason != store.ReasonRevoked {
			t.Errorf("the tombstone: %+v, %v; want revoked", seen["h"], err)
		}
	})
}

// Sockets takes StoreTimeout at most, as every call of the Store, and says what
// has failed: the Store, the caller's own context, or the host ID.
func TestSockets_Failures(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := storetest.NewFaulty(memory.New())
		s := server(t, func(c *relay.Config) { c.Store = st })
		if _, err := s.Relay.Sockets(t.Context(), "a/b", "", 10); !errors.Is(err, relay.ErrBadRequest) {
			t.Errorf("of no host ID: %v, want ErrBadRequest", err)
		}
		if _, err := s.Relay.Sockets(t.Context(), "h", "", -1); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("of a negative limit: %v, want ErrInvalid", err)
		}
		st.Set("Sockets", storetest.Fault{Hang: true})
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		if _, err := s.Relay.Sockets(ctx, "h", "", 10); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the caller's context has ended: %v, want its error", err)
		}
		if _, err := s.Relay.Sockets(t.Context(), "h", "", 10); !errors.Is(err, relay.ErrStoreUnavailable) {
			t.Errorf("the Store hangs: %v, want ErrStoreUnavailable", err)
		}
		if took := time.Since(start); took != 1500*time.Millisecond {
			t.Errorf("both took %v, want 500 ms and StoreTimeout", took)
		}
	})
}

// A WebSocket to an agent's service is bytes to the relay, and its client is
// told all the same: 4403 when revoked, 4401 when its credentials expire, 4410
// when the host's data socket is lost.
func TestUpgrade_WebSocketEndsWithACode(t *testing.T) {
	tests := []struct {
		name string
		end  func(s *relaytest.Server, drop func())
		code transport.CloseCode
	}{
		{"revoked", func(s *relaytest.Server, _ func()) { s.Relay.Revoke(context.Background(), "h", "test") }, 4403},
		{"expired", func(*relaytest.Server, func()) { time.Sleep(time.Minute) }, 4401},
		{"lost", func(_ *relaytest.Server, drop func()) { drop() }, 4410},
		{"closed by the relay", func(s *relaytest.Server, _ func()) { s.Relay.Close() }, 1012},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				expires := time.Now().Add(time.Minute)
				s := server(t, func(c *relay.Config) {
					c.AuthorizeClient = func(context.Context, *http.Request, string) (relay.Identity, error) {
						return relay.Identity{ExpiresAt: expires}, nil
					}
				})
				stop := s.StartAgent("h", handler(func(w http.ResponseWriter, r *http.Request) {
					c, err := transport.Accept(w, r, nil)
					if err != nil {
						return
					}
					c.Write(transport.Text, []byte("hello"))
					closeOf(c)
				}), nil)
				client, err := s.DialWS(context.Background(), "/hosts/h/ws", nil)
				if err != nil {
					t.Fatal(err)
				}
				readMessage(t, client)
				go tt.end(s, stop)
				wantEnd(t, client, tt.name, tt.code, "")
			})
		})
	}
}

// An exchange is ended by Revoke too, and says so.
func TestRevoke_EndsExchanges(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		h := s.MustConnect("h", relaytest.HostConfig{})
		c := async(s, "/hosts/h/x")
		d := nextDial(t, h)
		if _, err := h.DialBack(d); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		s.Relay.Revoke(context.Background(), "h", "test")
		(<-c).want(t, "an exchange under way", 403, "revoked")
	})
}

// Credentials that expire end control socket and streams with 4401.
func TestExpiry_EndsControlAndStreams(t *testing.T) {
	bubble(t, func(t *testing.T) {
		expires := time.Now().Add(10 * time.Second)
		limited := func(context.Context, *http.Request, string) (relay.Identity, error) {
			return relay.Identity{ExpiresAt: expires}, nil
		}
		s := server(t, func(c *relay.Config) { c.AuthorizeHost, c.AuthorizeClient = limited, limited })
		h := s.MustConnect("h", relaytest.HostConfig{Proto: 3})
		client, host := connectTo(t, s, h)
		time.Sleep(10*time.Second - time.Nanosecond)
		roundTrip(t, client, host, "one nanosecond before the expiry")
		time.Sleep(time.Nanosecond)
		wantClosed(t, h, "expired", transport.CloseUnauthorized)
		if _, err := io.ReadAll(client); transport.CloseCodeOf(err) != transport.CloseUnauthorized {
			t.Errorf("the stream ended with %v, want 4401", err)
		}
	})
}

// Sockets of a stream are recorded, and the records go with it.
func TestSockets_AreRecorded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memory.New()
		s := server(t, func(c *relay.Config) { c.Store = st })
		h := s.MustConnect("h", relaytest.HostConfig{Proto: 3})
		client, _ := connectTo(t, s, h)
		time.Sleep(2 * time.Second)
		list, err := s.Relay.Sockets(context.Background(), "h", "", 10)
		if err != nil || len(list) != 2 || list[0].StreamID == "" || list[0].StreamID != list[1].StreamID {
			t.Fatalf("%+v %v, want a client and a dial of one stream", list, err)
		}
		client.Close()
		time.Sleep(3 * time.Second)
		if list, _ := s.Relay.Sockets(context.Background(), "h", "", 10); len(list) != 0 {
			t.Errorf("records that are left: %+v", list)
		}
	})
}

// Credentials that end while the control socket is being accepted (run with -race).
func TestExpiry_DuringTheUpgrade(t *testing.T) {
	var us int
	s := server(t, func(c *relay.Config) {
		c.AuthorizeHost = func(context.Context, *http.Request, string) (relay.Identity, error) {
			return relay.Identity{ExpiresAt: time.Now().Add(time.Duration(us) * time.Microsecond)}, nil
		}
	})
	for i := range 300 {
		us = 1 + i%60
		c, err := s.DialWS(context.Background(), "/v2/control?hostId=h", &transport.DialOptions{})
		if err == nil {
			closeOf(c)
		}
	}
}
