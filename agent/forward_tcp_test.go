package agent_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dialback/dialback/agent"
	"github.com/dialback/dialback/internal/memnet"
	"github.com/dialback/dialback/transport"
)

// tcp runs an agent that forwards to a local service, and returns both ends of
// one stream: the relay's, and the service's.
func tcp(t *testing.T) (*fakeStream, *memnet.Conn) {
	r := newFakeRelay(t)
	r.pongs = true
	ln, err := r.net.Listen("local:22")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	cfg := r.config()
	cfg.Services = map[string]agent.Handler{"": agent.ForwardTCPWith("local:22", agent.TCPOptions{DialContext: r.net.DialContext})}
	a := run(t, cfg)
	c := r.next(1)
	c.dial(transport.StreamDial{Ticket: "t"})
	conn, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		synctest.Wait()
		if n := a.Stats().Streams; n > 0 {
			t.Errorf("%d streams are open at the end", n)
		}
		conn.Close()
	})
	return r.stream(), conn.(*memnet.Conn)
}

func wantRead(t *testing.T, c net.Conn, want string) {
	t.Helper()
	buf := make([]byte, len(want))
	if _, err := io.ReadFull(c, buf); string(buf) != want || err != nil {
		t.Errorf("the service read %q, %v; want %q", buf, err, want)
	}
}

func wantEOF(t *testing.T, c net.Conn) {
	t.Helper()
	if n, err := c.Read(make([]byte, 10)); n != 0 || err != io.EOF {
		t.Errorf("the service read %d bytes, %v; want EOF", n, err)
	}
}

// An SSH banner, then 10 MB at once, before the client has said a word.
func TestForwardTCP_HostSpeaksFirst(t *testing.T) { synctest.Test(t, testForwardTCPHostSpeaksFirst) }
func testForwardTCPHostSpeaksFirst(t *testing.T) {
	s, conn := tcp(t)
	p := make([]byte, 10<<20)
	_, _ = rand.Read(p)
	copy(p, "SSH-2.0-x\r\n")
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		if _, err := conn.Write(p); err != nil {
			t.Error(err)
		}
		conn.Close()
	})
	time.Sleep(time.Minute) // nobody reads yet
	var got bytes.Buffer
	for {
		m, err := s.message()
		if err != nil {
			t.Fatal(err)
		}
		if m == "EOF" {
			break
		}
		got.WriteString(m)
	}
	if sha256.Sum256(got.Bytes()) != sha256.Sum256(p) {
		t.Errorf("%d bytes came, and not those of the service", got.Len())
	}
	s.eof()
	s.wantEnd(transport.CloseNormal, "")
}

func TestForwardTCP_HalfCloseOfTheClient(t *testing.T) {
	synctest.Test(t, testForwardTCPHalfCloseOfTheClient)
}
func testForwardTCPHalfCloseOfTheClient(t *testing.T) {
	s, conn := tcp(t)
	s.write("request")
	s.eof()
	wantRead(t, conn, "request")
	wantEOF(t, conn)
	time.Sleep(24 * time.Hour) // no limit
	_, _ = conn.Write([]byte("answer"))
	s.wantMessage("answer")
	conn.Close()
	s.wantMessage("EOF")
	s.wantEnd(transport.CloseNormal, "")
}

func TestForwardTCP_HalfCloseOfTheService(t *testing.T) {
	synctest.Test(t, testForwardTCPHalfCloseOfTheService)
}
func testForwardTCPHalfCloseOfTheService(t *testing.T) {
	s, conn := tcp(t)
	_, _ = conn.Write([]byte("bye"))
	_ = conn.CloseWrite()
	s.wantMessage("bye")
	s.wantMessage("EOF")
	time.Sleep(24 * time.Hour)
	s.write("more")
	wantRead(t, conn, "more")
	s.eof()
	wantEOF(t, conn)
	s.wantEnd(transport.CloseNormal, "")
}

func TestForwardTCP_ServiceResets(t *testing.T) { synctest.Test(t, testForwardTCPServiceResets) }
func testForwardTCPServiceResets(t *testing.T) {
	s, conn := tcp(t)
	s.write("x")
	wantRead(t, conn, "x")
	conn.Cut()
	s.wantEnd(transport.CloseInternal, "service connection broke")
}

// A service that closes while the client still sends has closed cleanly: what
// it said before arrives, and the end is 1000.
func TestForwardTCP_ServiceClosesWhileTheClientSends(t *testing.T) {
	synctest.Test(t, testForwardTCPServiceClosesWhileTheClientSends)
}
func testForwardTCPServiceClosesWhileTheClientSends(t *testing.T) {
	s, conn := tcp(t)
	_, _ = conn.Write([]byte("go away"))
	conn.Close()
	s.wantMessage("go away")
	s.wantMessage("EOF")
	s.write("too late")
	s.wantEnd(transport.CloseNormal, "")
}

func TestForwardTCP_ClientCloses(t *testing.T) { synctest.Test(t, testForwardTCPClientCloses) }
func testForwardTCPClientCloses(t *testing.T) {
	s, conn := tcp(t)
	s.write("last")
	s.Close(transport.CloseNormal, "")
	wantRead(t, conn, "last")
	wantEOF(t, conn)
	synctest.Wait()
	if _, err := conn.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("write to a client that has closed: %v, want a closed connection", err)
	}
}

// A service that takes nothing must not stop the other direction.
func TestForwardTCP_DirectionsAreSeparate(t *testing.T) {
	synctest.Test(t, testForwardTCPDirectionsAreSeparate)
}
func testForwardTCPDirectionsAreSeparate(t *testing.T) {
	s, conn := tcp(t)
	go func() { _ = s.Write(transport.Binary, make([]byte, 1<<20)) }()
	synctest.Wait()
	for range 10 {
		_, _ = conn.Write([]byte("tick"))
		s.wantMessage("tick")
	}
	// Nobody reads from the stream now; its end is found out all the same.
	s.CloseNow()
	time.Sleep(6 * time.Minute)
}

func TestForwardTCP_TextMessageIsAnError(t *testing.T) {
	synctest.Test(t, testForwardTCPTextMessageIsAnError)
}
func testForwardTCPTextMessageIsAnError(t *testing.T) {
	s, conn := tcp(t)
	if err := s.Write(transport.Text, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	s.wantEnd(transport.CloseUnsupported, "a text message in a byte stream")
	if n, err := io.Copy(io.Discard, conn); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the service read %d bytes, %v; want a reset", n, err)
	}
}

// lingerConn records what SetLinger was told.
type lingerConn struct {
	*memnet.Conn
	linger chan int
}

func (c *lingerConn) SetLinger(sec int) error {
	c.linger <- sec
	return nil
}

// A stream that breaks must not look to the service like a whole one.
func TestForwardTCP_AbnormalEndResetsTheService(t *testing.T) {
	for _, tt := range []struct {
		name  string
		end   func(s *fakeStream)
		reset bool
	}{
		{"cut", func(s *fakeStream) { s.CloseNow() }, true},
		{"closed 4410", func(s *fakeStream) { s.Close(transport.CloseDataAbnormal, "") }, true},
		{"closed 1001", func(s *fakeStream) { s.Close(transport.CloseGoingAway, "") }, true},
		{"closed 1000", func(s *fakeStream) { s.Close(transport.CloseNormal, "") }, false},
		{"closed without a code", func(s *fakeStream) { s.Close(transport.CloseNoStatus, "") }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newFakeRelay(t)
				local, service := memnet.Pipe()
				defer service.Close()
				conn := &lingerConn{Conn: local, linger: make(chan int, 1)}
				cfg := r.config()
				cfg.Services = map[string]agent.Handler{"": agent.ForwardTCPWith("local:22", agent.TCPOptions{
					DialContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil },
				})}
				run(t, cfg)
				c := r.next(1)
				c.dial(transport.StreamDial{Ticket: "t"})
				tt.end(r.stream())
				_, _ = io.Copy(io.Discard, service)
				synctest.Wait()
				if got := len(conn.linger) == 1; got != tt.reset {
					t.Errorf("connection reset: %v, want %v", got, tt.reset)
				}
			})
		})
	}
}

// A connection by TLS is reset as well, and without the close_notify that would
// make what the service has read a whole.
func TestForwardTCP_AbnormalEndResetsATLSService(t *testing.T) {
	server, client := certified()
	client.ServerName = "example.com"
	for _, tt := range []struct {
		name  string
		end   func(s *fakeStream)
		reset bool
	}{
		{"cut", func(s *fakeStream) { s.CloseNow() }, true},
		{"closed 1011", func(s *fakeStream) { s.Close(transport.CloseInternal, "") }, true},
		{"closed 1000", func(s *fakeStream) { s.Close(transport.CloseNormal, "") }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ln, err := tls.Listen("tcp", "127.0.0.1:0", server) // only TCP has resets
			if err != nil {
				t.Fatal(err)
			}
			defer ln.Close()
			c := serving(t, newFakeRelay(t), agent.ForwardTCPWith(ln.Addr().String(), agent.TCPOptions{
				DialContext: (&tls.Dialer{Config: client}).DialContext,
			}))
			c.dial(transport.StreamDial{Ticket: "t"})
			conn, err := ln.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			go func() { _ = conn.(*tls.Conn).Handshake() }()
			s := c.relay.stream()
			s.write("half")
			if _, err := io.ReadFull(conn, make([]byte, 4)); err != nil {
				t.Fatal(err)
			}
			tt.end(s)
			if _, err := conn.Read(make([]byte, 1)); errors.Is(err, syscall.ECONNRESET) != tt.reset || (err == io.EOF) == tt.reset {
				t.Errorf("the service's read ended with %v, want a reset: %v", err, tt.reset)
			}
		})
	}
}

// A client that half-closed and is slow to read gets all of the answer, and a
// clean end, however much of it waits in the network when the service is done.
func TestForwardTCP_SlowClientGetsTheEnd(t *testing.T) {
	const window = 64 << 10 // of the in-memory network
	for n := window - 64; n <= window; n++ {
		synctest.Test(t, func(t *testing.T) { testForwardTCPSlowClientGetsTheEnd(t, n) })
	}
	synctest.Test(t, func(t *testing.T) { testForwardTCPSlowClientGetsTheEnd(t, 4<<20) })
}
func testForwardTCPSlowClientGetsTheEnd(t *testing.T, n int) {
	s, conn := tcp(t)
	s.eof()
	wantEOF(t, conn)
	go func() {
		_, _ = conn.Write(make([]byte, n))
		conn.Close()
	}()
	time.Sleep(5 * time.Second)
	got := 0
	for {
		m, err := s.message()
		if err != nil {
			t.Fatalf("after %d of %d bytes: %v", got, n, err)
		}
		if m == "EOF" {
			break
		}
		got += len(m)
	}
	if got != n {
		t.Errorf("%d of %d bytes came", got, n)
	}
	time.Sleep(5 * time.Second)
	s.wantEnd(transport.CloseNormal, "")
}
