package transport_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dialback/dialback/internal/memnet"
	"github.com/dialback/dialback/transport"
)

// memServer is an http.Server on an in-memory network, which passes on what
// its handler accepts.
type memServer struct {
	network  memnet.Network
	accepted chan transport.Conn
}

// newMemServer serves h, or if that is nil a handler that calls Accept with o,
// under the address relay:80. wrap, if any, is middleware.
func newMemServer(t *testing.T, srv *http.Server, o *transport.AcceptOptions, wrap func(http.Handler) http.Handler) *memServer {
	t.Helper()
	s := &memServer{accepted: make(chan transport.Conn, 1)}
	l, err := s.network.Listen("relay:80")
	if err != nil {
		t.Fatal(err)
	}
	srv.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := transport.Accept(w, r, o)
		if err != nil {
			t.Errorf("Accept: %v", err)
			return
		}
		s.accepted <- c
	})
	if wrap != nil {
		srv.Handler = wrap(srv.Handler)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = srv.Serve(l)
	}()
	t.Cleanup(func() {
		_ = srv.Close()
		<-served
	})
	return s
}

func (s *memServer) dial(t *testing.T, o *transport.DialOptions) transport.Conn {
	t.Helper()
	if o == nil {
		o = &transport.DialOptions{}
	}
	o.Transport = &http.Transport{DialContext: s.network.DialContext}
	c, err := transport.Dial(t.Context(), "ws://relay:80/", o)
	if err != nil {
		t.Fatalf("Dial: %v", err)
	}
	t.Cleanup(func() { endConn(c) })
	return c
}

// rawPeer dials and does the handshake by hand.
func (s *memServer) rawPeer(t *testing.T, early []byte) *rawPeer {
	t.Helper()
	nc, err := s.network.DialContext(t.Context(), "tcp", "relay:80")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	return newRawPeer(t, nc, early)
}

func (s *memServer) accept(t *testing.T) transport.Conn {
	t.Helper()
	c := <-s.accepted
	t.Cleanup(func() { endConn(c) })
	return c
}

// endConn ends c and waits until nothing of it is left.
func endConn(c transport.Conn) {
	c.CloseNow()
	<-c.Done()
}

func wantMessage(t *testing.T, c transport.Conn, want string) {
	t.Helper()
	_, r, err := c.Reader()
	if err != nil {
		t.Fatalf("Reader: %v", err)
	}
	got, err := io.ReadAll(r)
	if err != nil || string(got) != want {
		t.Fatalf("got message %.60q, %v, want %.60q", got, err, want)
	}
}

func write(t *testing.T, c transport.Conn, s string) {
	t.Helper()
	if err := c.Write(transport.Text, []byte(s)); err != nil {
		t.Fatalf("Write: %v", err)
	}
}

// unwrapper is what middleware makes of a ResponseWriter today: it implements
// nothing but Unwrap.
type unwrapper struct{ w http.ResponseWriter }

func (u unwrapper) Header() http.Header         { return u.w.Header() }
func (u unwrapper) Write(p []byte) (int, error) { return u.w.Write(p) }
func (u unwrapper) WriteHeader(status int)      { u.w.WriteHeader(status) }
func (u unwrapper) Unwrap() http.ResponseWriter { return u.w }

func TestAccept_BehindMiddlewareThatOnlyUnwraps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMemServer(t, &http.Server{}, nil, func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				h.ServeHTTP(unwrapper{unwrapper{w}}, r)
			})
		})
		a := s.dial(t, nil)
		b := s.accept(t)
		write(t, a, "through")
		wantMessage(t, b, "through")
	})
}

// The first words of a peer that speaks with its handshake are not lost
// (fault 18), however small the buffers are.
func TestAccept_KeepsWhatCameWithTheHandshake(t *testing.T) {
	for _, size := range []int{0, 16, 512} {
		synctest.Test(t, func(t *testing.T) {
			s := newMemServer(t, &http.Server{}, &transport.AcceptOptions{
				Options: transport.Options{BufferSize: size},
			}, nil)
			banner := strings.Repeat("SSH-2.0-", 300)
			early := append(rawFrame(true, 1, banner), rawFrame(true, 1, "second")...)
			p := s.rawPeer(t, early)
			b := s.accept(t)
			wantMessage(t, b, banner)
			wantMessage(t, b, "second")
			p.send(t, rawFrame(true, 1, "third"))
			wantMessage(t, b, "third")
		})
	}
}

// ReadTimeout and WriteTimeout of the embedder's server are for requests; a
// handshake that is answered after them is answered nevertheless.
func TestAccept_OutlivesTheDeadlinesOfTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMemServer(t, &http.Server{
			ReadTimeout: time.Second, WriteTimeout: time.Second, IdleTimeout: time.Second,
		}, nil, func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				time.Sleep(2 * time.Second)
				h.ServeHTTP(w, r)
			})
		})
		a := s.dial(t, nil)
		b := s.accept(t)
		time.Sleep(time.Hour)
		write(t, a, "to the server")
		wantMessage(t, b, "to the server")
		time.Sleep(time.Hour)
		write(t, b, "to the client")
		wantMessage(t, a, "to the client")
	})
}

func TestAccept_Subprotocol(t *testing.T) {
	for _, c := range []struct {
		name    string
		offered []string
		ours    string
		want    string
	}{
		{"offered", []string{"a", "b"}, "b", "b"},
		{"not offered", []string{"a"}, "b", ""},
		{"none of ours", []string{"a"}, "", ""},
		{"none offered", nil, "b", ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newMemServer(t, &http.Server{}, &transport.AcceptOptions{Subprotocol: c.ours}, nil)
			a := s.dial(t, &transport.DialOptions{Subprotocols: c.offered})
			b := s.accept(t)
			if a.Subprotocol() != c.want || b.Subprotocol() != c.want {
				t.Errorf("%s: the client has %q, the server %q, want %q", c.name, a.Subprotocol(), b.Subprotocol(), c.want)
			}
		})
	}
}

// Whether an Origin may come in is the caller's to decide.
func TestAccept_LeavesOriginToTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMemServer(t, &http.Server{}, nil, nil)
		a := s.dial(t, &transport.DialOptions{Header: http.Header{"Origin": {"https://elsewhere.example"}}})
		b := s.accept(t)
		write(t, a, "in")
		wantMessage(t, b, "in")
		if b.RemoteAddr() == "" || a.RemoteAddr() == "" {
			t.Errorf("no RemoteAddr: %q, %q", a.RemoteAddr(), b.RemoteAddr())
		}
	})
}

func TestAccept_AnswersWhatIsNoUpgrade(t *testing.T) {
	upgrade := http.Header{
		"Connection": {"Upgrade"}, "Upgrade": {"websocket"},
		"Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="},
	}
	for _, c := range []struct {
		name   string
		method string
		header http.Header
		want   int
	}{
		{"a plain request", "GET", http.Header{}, http.StatusUpgradeRequired},
		{"a POST", "POST", upgrade, http.StatusMethodNotAllowed},
		{"no Hijacker", "GET", upgrade, http.StatusNotImplemented},
	} {
		r := httptest.NewRequest(c.method, "/", nil)
		r.Header = c.header
		w := httptest.NewRecorder() // no Hijacker
		conn, err := transport.Accept(w, r, nil)
		if err == nil || conn != nil {
			t.Errorf("%s: Accept gave a connection", c.name)
		}
		if w.Code != c.want {
			t.Errorf("%s: answered %d, want %d", c.name, w.Code, c.want)
		}
	}
}

// A violation of the protocol is answered by 1002 and ends the connection.
func TestAccept_PeerBreaksTheProtocol(t *testing.T) {
	for _, c := range []struct {
		name  string
		frame []byte
	}{
		{"unmasked", []byte{0x81, 1, 'x'}},
		{"reserved bit", []byte{0xC1, 0x81, 0, 0, 0, 0, 'x'}},
		{"unknown opcode", rawFrame(true, 5, "x")},
		{"continuation of nothing", rawFrame(true, 0, "x")},
		{"long ping", rawFrame(true, 9, strings.Repeat("x", 126))},
		{"fragmented ping", rawFrame(false, 9, "x")},
		{"close with half a code", rawFrame(true, 8, "x")},
		{"close with a code that is never sent", rawFrame(true, 8, "\x03\xee")},
		{"two messages at once", append(rawFrame(false, 1, ""), rawFrame(true, 1, "x")...)},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newMemServer(t, &http.Server{}, nil, nil)
			p := s.rawPeer(t, c.frame)
			b := s.accept(t)
			_, r, err := b.Reader()
			if err == nil {
				_, err = io.ReadAll(r)
			}
			if code := transport.CloseCodeOf(err); code != transport.CloseProtocolError {
				t.Errorf("%s: Reader says %v, want code 1002", c.name, err)
			}
			op, payload, err := p.frame()
			if err != nil || op != 0x88 || !strings.HasPrefix(payload, "\x03\xea") {
				t.Errorf("%s: the peer got frame %#x %q, %v, want a close with 1002", c.name, op, payload, err)
			}
			<-b.Done()
		})
	}
}

// A frame that ends in the middle is an abnormal end, however much of it came.
func TestAccept_CutInTheMiddleOfAFrame(t *testing.T) {
	whole := rawFrame(true, 2, strings.Repeat("x", 300))
	for _, n := range []int{0, 1, 2, 3, 4, 7, 8, 9, 200, len(whole) - 1} {
		synctest.Test(t, func(t *testing.T) {
			s := newMemServer(t, &http.Server{}, nil, nil)
			p := s.rawPeer(t, whole[:n])
			b := s.accept(t)
			p.Close()
			_, r, err := b.Reader()
			if err == nil {
				_, err = io.Copy(&bytes.Buffer{}, r)
			}
			if code := transport.CloseCodeOf(err); err == nil || code != transport.CloseAbnormal {
				t.Errorf("cut after %d bytes: %v, want code 1006", n, err)
			}
			<-b.Done()
		})
	}
}

// What came of a frame before the connection broke is what was sent, or nothing.
// coder/websocket hands such bytes out as they are on the wire, still masked
// (readFramePayload, v1.8.15); they ended up in clients' answers.
func TestAccept_NoMaskedBytesAtTheEnd(t *testing.T) {
	key := [4]byte{0x5a, 0xa5, 0x3c, 0xc3}
	payload := strings.Repeat("x", 300)
	whole := rawFrame(true, 2, payload)
	head := len(whole) - len(payload)
	copy(whole[head-4:], key[:])
	for i := range payload {
		whole[head+i] ^= key[i%4]
	}
	synctest.Test(t, func(t *testing.T) {
		s := newMemServer(t, &http.Server{}, nil, nil)
		p := s.rawPeer(t, whole[:head+200])
		b := s.accept(t)
		p.Close()
		var got bytes.Buffer
		_, r, err := b.Reader()
		if err == nil {
			_, err = io.Copy(&got, r)
		}
		if code := transport.CloseCodeOf(err); code != transport.CloseAbnormal {
			t.Errorf("the read ended with %v, want code 1006", err)
		}
		if !strings.HasPrefix(payload, got.String()) {
			t.Errorf("read %.20q before the end, which nobody has sent", got.String())
		}
		<-b.Done()
	})
}

// Only the most recent ping needs an answer, and it comes once the blocked
// write is through (RFC 6455, 5.5.3).
func TestAccept_AnswersTheLastOfManyPings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMemServer(t, &http.Server{}, nil, nil)
		p := s.rawPeer(t, nil)
		b := s.accept(t)
		go func() {
			_, _, _ = b.Reader()
		}()
		p.send(t, rawFrame(true, 9, "at once"))
		p.wantFrame(t, 0x8A, "at once")
		p.send(t, rawFrame(true, 9, ""))
		p.wantFrame(t, 0x8A, "")

		body := strings.Repeat("x", 1<<20)
		written := make(chan error, 1)
		go func() { written <- b.Write(transport.Binary, []byte(body)) }()
		synctest.Wait()
		for _, s := range []string{"1", "2", "three", strings.Repeat("4", 125)} {
			p.send(t, rawFrame(true, 9, s))
		}
		time.Sleep(6 * time.Second)
		p.wantFrame(t, 0x82, body)
		p.wantFrame(t, 0x8A, strings.Repeat("4", 125))
		if err := <-written; err != nil {
			t.Error(err)
		}
		b.Close(transport.CloseNormal, "")
		p.wantFrame(t, 0x88, "\x03\xe8")
	})
}

// A ping that cannot be written, since the peer reads nothing, keeps nobody:
// neither its caller, nor Close (fault 4), nor a Write beyond WriteTimeout.
func TestAccept_BlockedPingKeepsNobody(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(transport.Conn)
		want time.Duration
	}{
		{"Close", func(c transport.Conn) { c.Close(transport.CloseStale, "") }, 2 * time.Second},
		{"CloseNow", transport.Conn.CloseNow, 0},
		{"a Write", func(c transport.Conn) { go c.Write(transport.Text, nil) }, time.Minute - time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newMemServer(t, &http.Server{}, &transport.AcceptOptions{
				Options: transport.Options{CloseTimeout: 2 * time.Second, WriteTimeout: time.Minute},
			}, nil)
			s.rawPeer(t, nil)
			b := s.accept(t)
			go func() {
				_, _, _ = b.Reader()
			}()
			// A frame that fills the network to the last byte.
			if err := b.Write(transport.Binary, make([]byte, 64<<10-10)); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			ping := make(chan error, 1)
			go func() { ping <- b.Ping(ctx) }()
			synctest.Wait()
			if b.Writing() {
				t.Errorf("%s: Writing while only a ping waits: it says that data does", c.name)
			}
			if err := <-ping; !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: Ping: %v, want context.DeadlineExceeded", c.name, err)
			}
			began := time.Now()
			c.end(b)
			if d := time.Since(began); d != 0 {
				t.Errorf("%s returned after %v", c.name, d)
			}
			<-b.Done()
			if d := time.Since(began); d != c.want {
				t.Errorf("%s: over after %v, want %v", c.name, d, c.want)
			}
		})
	}
}

// A peer that closes and reads nothing more: its code is reported although our
// blocked write leaves no room for the answer.
func TestAccept_PeerClosesDuringABlockedWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMemServer(t, &http.Server{}, nil, nil)
		p := s.rawPeer(t, nil)
		b := s.accept(t)
		written := make(chan error, 1)
		go func() { written <- b.Write(transport.Binary, make([]byte, 1<<20)) }()
		synctest.Wait()
		p.send(t, rawFrame(true, 8, "\x11\x38bye")) // 4408
		began := time.Now()
		_, _, err := b.Reader()
		var ce *transport.CloseError
		if !errors.As(err, &ce) || ce.Code != transport.CloseStale || ce.Reason != "bye" || !ce.Remote {
			t.Errorf("Reader: %v, want the peer's 4408", err)
		}
		if d := time.Since(began); d > 5*time.Second {
			t.Errorf("Reader took %v to tell, want 5s at most", d)
		}
		if err := <-written; err == nil {
			t.Error("the blocked Write succeeded")
		}
		<-b.Done()
		if d := time.Since(began); d != time.Second {
			t.Errorf("cut after %v, want 1s, the CloseTimeout", d)
		}
	})
}

// Our own ping goes out between two fragments of a message, not inside one.
func TestAccept_PingBetweenFragments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMemServer(t, &http.Server{}, &transport.AcceptOptions{
			Options: transport.Options{BufferSize: 16},
		}, nil)
		p := s.rawPeer(t, nil)
		b := s.accept(t)
		go func() {
			_, _, _ = b.Reader()
		}()
		w, err := b.Writer(transport.Text)
		if err != nil {
			t.Fatal(err)
		}
		part := strings.Repeat("f", 20) // more than the buffer: half of it is on the wire
		if _, err := io.WriteString(w, part); err != nil {
			t.Fatal(err)
		}
		ping := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			ping <- b.Ping(ctx)
		}()
		p.send(t, rawFrame(true, 9, "yours"))
		synctest.Wait()
		for range 2 { // a message that goes on, and is never at the end of a frame
			if _, err := io.WriteString(w, part); err != nil {
				t.Fatal(err)
			}
		}
		var pong, pinged, fragments, whole int
		var text strings.Builder
		for whole == 0 {
			op, payload, err := p.frame()
			if err != nil {
				t.Fatal(err)
			}
			if fragments == 1 && pinged+pong == 2 {
				if err := w.Close(); err != nil {
					t.Fatal(err)
				}
			}
			switch op {
			case 0x8A:
				pong++
			case 0x89:
				pinged++
				p.send(t, rawFrame(true, 10, payload))
			case 0x01, 0x00:
				fragments++
				text.WriteString(payload)
			case 0x80:
				whole++
				text.WriteString(payload)
			default:
				t.Fatalf("frame %#x %q is none of ours", op, payload)
			}
		}
		if want := part + part + part; text.String() != want {
			t.Errorf("the message is %q, want %q", text.String(), want)
		}
		if err := <-ping; err != nil {
			t.Errorf("Ping: %v", err)
		}
	})
}

// A message whose turn cannot come, since the one before it has failed in the
// middle, fails at once too.
func TestAccept_WriteBehindAMessageThatFailed(t *testing.T) {
	for _, waits := range []bool{true, false} { // for its turn, when the other one fails
		synctest.Test(t, func(t *testing.T) {
			s := newMemServer(t, &http.Server{}, nil, nil)
			p := s.rawPeer(t, nil)
			b := s.accept(t)
			defer endConn(b)
			w, err := b.Writer(transport.Binary)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(w, "begin"); err != nil {
				t.Fatal(err)
			}
			second := make(chan error, 1)
			write := func() { second <- b.Write(transport.Binary, []byte("second")) }
			if waits {
				go write()
				synctest.Wait()
			}
			p.Close()
			began := time.Now()
			if _, err := io.WriteString(w, "end"); err == nil {
				t.Fatal("a fragment could be written to a peer that has gone")
			}
			if !waits {
				go write()
			}
			if err := <-second; err == nil {
				t.Errorf("waits %t: a message could be written in the middle of another", waits)
			}
			if d := time.Since(began); d > 0 {
				t.Errorf("waits %t: a Write behind a message that has failed took %v, want none", waits, d)
			}
		})
	}
}

// Both ends close at the same moment, each while its reader waits: the readers
// take the close frames, and nothing more is to be waited for. Both ends waited
// for the time of CloseSlowly, five minutes.
func TestAccept_ClosesThatCross(t *testing.T) {
	for _, reading := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			const oneWay = 10 * time.Millisecond
			s := newMemServer(t, &http.Server{}, nil, nil)
			s.network.OnDial = func(client, server *memnet.Conn) {
				client.SetDelay(oneWay)
				server.SetDelay(oneWay)
			}
			a := s.dial(t, nil)
			b := s.accept(t)
			for _, c := range []transport.Conn{a, b} {
				if reading {
					go c.Reader()
				}
			}
			synctest.Wait()
			start := time.Now()
			a.CloseSlowly(transport.CloseNormal, "")
			b.CloseSlowly(transport.CloseInternal, "")
			<-a.Done()
			<-b.Done()
			if d := time.Since(start); d != oneWay {
				t.Errorf("readers wait: %v: the closes took %v, want %v", reading, d, oneWay)
			}
		})
	}
}
