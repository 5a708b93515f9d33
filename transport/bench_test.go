package transport_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dialback/dialback/internal/memnet"
	"github.com/dialback/dialback/transport"
)

// readInto reads one message into buf.
func readInto(c transport.Conn, buf []byte) (int, error) {
	_, r, err := c.Reader()
	if err != nil {
		return 0, err
	}
	n := 0
	for {
		k, err := r.Read(buf[n:])
		n += k
		if err == io.EOF {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}

func tcpPairFor(tb testing.TB) (a, b transport.Conn) {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	a, b, stop := pairOver(tb, transport.Options{ReadLimit: -1}, l, nil, "ws://"+l.Addr().String())
	tb.Cleanup(stop)
	return a, b
}

// A message costs no allocation, in either direction, in one frame or in
// fragments: a relay handles millions.
func TestConn_MessagesDoNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	a, b := tcpPairFor(t)
	small, buf := make([]byte, 100), make([]byte, 64<<10)
	for _, c := range []struct {
		name     string
		from, to transport.Conn
		send     func(c transport.Conn) error
	}{
		{"client, one frame", a, b, func(c transport.Conn) error { return c.Write(transport.Binary, small) }},
		{"server, one frame", b, a, func(c transport.Conn) error { return c.Write(transport.Binary, small) }},
		{"client, large", a, b, func(c transport.Conn) error { return c.Write(transport.Binary, buf[:20_000]) }},
		{"server, large", b, a, func(c transport.Conn) error { return c.Write(transport.Binary, buf[:20_000]) }},
		{"server, fragments", b, a, func(c transport.Conn) error {
			w, err := c.Writer(transport.Text)
			if err != nil {
				return err
			}
			if _, err := w.Write(small); err != nil {
				return err
			}
			if _, err := w.Write(small); err != nil {
				return err
			}
			return w.Close()
		}},
	} {
		got := testing.AllocsPerRun(200, func() {
			if err := c.send(c.from); err != nil {
				t.Fatal(err)
			}
			if _, err := readInto(c.to, buf); err != nil {
				t.Fatal(err)
			}
		})
		if got != 0 {
			t.Errorf("%s: %v allocations per message, want 0", c.name, got)
		}
	}
}

// countingConn counts the writes to the network.
type countingConn struct {
	net.Conn
	writes atomic.Int64
}

func (c *countingConn) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}

// The library writes as its buffers fill, a client 4 KiB at a time. On the
// network a frame of up to 32 KiB is one write.
func TestConn_FrameIsOneWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var network memnet.Network
		l, err := network.Listen("relay:80")
		if err != nil {
			t.Fatal(err)
		}
		var client *countingConn
		a, b, stop := pairOver(t, transport.Options{ReadLimit: -1}, l, &http.Transport{
			DialContext: func(ctx context.Context, n, addr string) (net.Conn, error) {
				c, err := network.DialContext(ctx, n, addr)
				client = &countingConn{Conn: c}
				return client, err
			},
		}, "ws://relay:80")
		defer stop()
		for _, c := range []struct {
			size int
			most int64
		}{{0, 1}, {100, 1}, {4096, 1}, {4097, 1}, {20_000, 1}, {32_000, 1}, {100_000, 4}} {
			before := client.writes.Load()
			m := strings.Repeat("x", c.size)
			go a.Write(transport.Text, []byte(m))
			wantMessage(t, b, m)
			if n := client.writes.Load() - before; n > c.most {
				t.Errorf("a message of %d bytes took %d writes, want %d at most", c.size, n, c.most)
			}
		}
		s := transport.NewStreamConn(a)
		peer := transport.NewStreamConn(b)
		before := client.writes.Load()
		big := strings.Repeat("x", 1<<20)
		go io.WriteString(s, big)
		wantRead(t, peer, big)
		if n := client.writes.Load() - before; n > 40 {
			t.Errorf("1 MiB of a stream took %d writes, want one per 32 KiB", n)
		}
	})
}

func BenchmarkConn_Echo(b *testing.B) {
	for _, size := range []int{128, 4 << 10, 64 << 10} {
		b.Run(fmt.Sprintf("%dB", size), func(b *testing.B) {
			x, y := tcpPairFor(b)
			go func() {
				buf := make([]byte, size+1)
				for {
					n, err := readInto(y, buf)
					if err != nil || y.Write(transport.Binary, buf[:n]) != nil {
						return
					}
				}
			}()
			p, buf := make([]byte, size), make([]byte, size+1)
			b.ReportAllocs()
			b.SetBytes(int64(2 * size))
			for b.Loop() {
				if err := x.Write(transport.Binary, p); err != nil {
					b.Fatal(err)
				}
				if _, err := readInto(x, buf); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkStreamConn_Echo(b *testing.B) {
	for _, size := range []int{128, 4 << 10} {
		b.Run(fmt.Sprintf("%dB", size), func(b *testing.B) {
			x, y := tcpPairFor(b)
			s, peer := transport.NewStreamConn(x), transport.NewStreamConn(y)
			go func() { _, _ = io.Copy(struct{ io.Writer }{peer}, peer) }()
			p := make([]byte, size)
			b.ReportAllocs()
			b.SetBytes(int64(2 * size))
			for b.Loop() {
				if _, err := s.Write(p); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(s, p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkStreamConn_Throughput(b *testing.B) {
	x, y := tcpPairFor(b)
	s, peer := transport.NewStreamConn(x), transport.NewStreamConn(y)
	go func() { _, _ = io.Copy(io.Discard, struct{ io.Reader }{peer}) }()
	p := make([]byte, 64<<10)
	b.ReportAllocs()
	b.SetBytes(int64(len(p)))
	for b.Loop() {
		if _, err := s.Write(p); err != nil {
			b.Fatal(err)
		}
	}
}

// idleConn is a net.Conn on which nothing happens.
type idleConn struct{ wait chan struct{} }

func (c *idleConn) Read([]byte) (int, error)         { <-c.wait; return 0, io.EOF }
func (c *idleConn) Write(p []byte) (int, error)      { return len(p), nil }
func (c *idleConn) Close() error                     { close(c.wait); return nil }
func (c *idleConn) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (c *idleConn) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (c *idleConn) SetDeadline(time.Time) error      { return nil }
func (c *idleConn) SetReadDeadline(time.Time) error  { return nil }
func (c *idleConn) SetWriteDeadline(time.Time) error { return nil }

// idleWriter is a ResponseWriter that gives an idleConn to its hijacker.
type idleWriter struct{ http.ResponseWriter }

func (idleWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c := &idleConn{wait: make(chan struct{})}
	return c, bufio.NewReadWriter(bufio.NewReader(c), bufio.NewWriter(c)), nil
}

// acceptIdle accepts a connection that stays idle.
func acceptIdle(tb testing.TB, bufferSize int) transport.Conn {
	r := httptest.NewRequest("GET", "/", nil)
	r.Header = http.Header{
		"Connection": {"Upgrade"}, "Upgrade": {"websocket"},
		"Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="},
	}
	c, err := transport.Accept(idleWriter{httptest.NewRecorder()}, r, &transport.AcceptOptions{
		Options: transport.Options{BufferSize: bufferSize},
	})
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// heapPer is the heap that each of n calls of make keeps, in bytes. free ends
// what they made.
func heapPer(n int, make func() (free func())) float64 {
	frees := []func(){}
	frees = append(frees, func() {})[:0]
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range n {
		frees = append(frees, make())
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	for _, free := range frees {
		free()
	}
	return float64(after.HeapAlloc-before.HeapAlloc) / float64(n)
}

// An idle control socket must stay small: hosts are many. Stacks and the
// kernel are not counted.
func TestAccept_IdleConnIsSmall(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector changes sizes")
	}
	for _, c := range []struct {
		name   string
		buffer int
		most   float64
		wrap   func(transport.Conn)
	}{
		{"control socket, 512 B buffers", 512, 4 << 10, func(transport.Conn) {}},
		{"data socket, 4 KiB buffers", 4 << 10, 11.5 * 1024, func(transport.Conn) {}},
		{"idle StreamConn, 4 KiB buffers", 4 << 10, 13 << 10, func(c transport.Conn) { transport.NewStreamConn(c) }},
	} {
		got := heapPer(500, func() func() {
			conn := acceptIdle(t, c.buffer)
			if err := conn.Write(transport.Text, []byte("hello")); err != nil {
				t.Fatal(err)
			}
			c.wrap(conn)
			return func() { endConn(conn) }
		})
		t.Logf("%s: %.0f B of heap", c.name, got)
		if got > c.most {
			t.Errorf("%s: %.0f B of heap each, want %.0f at most", c.name, got, c.most)
		}
	}
}

func BenchmarkAccept_IdleHeap(b *testing.B) {
	for _, size := range []int{512, 4 << 10} {
		b.Run(fmt.Sprintf("%dB", size), func(b *testing.B) {
			var got float64
			for b.Loop() {
				got = heapPer(1000, func() func() {
					c := acceptIdle(b, size)
					return func() { endConn(c) }
				})
			}
			b.ReportMetric(got, "B/conn")
		})
	}
}
