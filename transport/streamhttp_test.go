package transport_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dialback/dialback/transport"
)

// connListener hands out connections that are put into it.
type connListener struct {
	conns  chan net.Conn
	closed chan struct{}
}

func newConnListener() *connListener {
	return &connListener{conns: make(chan net.Conn, 1), closed: make(chan struct{})}
}

func (l *connListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *connListener) Close() error   { close(l.closed); return nil }
func (l *connListener) Addr() net.Addr { return &net.TCPAddr{} }

// httpOver serves h on one end of a stream and gives a client whose
// connections are other ends. dialed counts them. server tells which end of a
// pair serves: 0 the one that has dialed.
func httpOver(t *testing.T, pair makePair, server int, srv *http.Server) (client *http.Client, dialed *atomic.Int32) {
	t.Helper()
	l := newConnListener()
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = srv.Serve(l)
	}()
	dialed = new(atomic.Int32)
	var stops []func()
	tr := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		dialed.Add(1)
		a, b, stop := pair(t, transport.Options{})
		stops = append(stops, stop)
		if server == 0 {
			a, b = b, a
		}
		l.conns <- transport.NewStreamConn(b)
		return transport.NewStreamConn(a), nil
	}}
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		_ = srv.Close()
		<-served
		for _, stop := range stops {
			stop()
		}
	})
	return &http.Client{Transport: tr}, dialed
}

// overStreams runs f with the two implementations and both directions.
func overStreams(t *testing.T, f func(t *testing.T, pair makePair, server int)) {
	t.Helper()
	for server, side := range []string{"DialerServes", "AccepterServes"} {
		t.Run("Pipe/"+side, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(t, pipePair, server) })
		})
		t.Run("WebSocket/"+side, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(t, memPair, server) })
		})
		t.Run("TCP/"+side, func(t *testing.T) { f(t, tcpPair, server) })
	}
}

// Between two requests http.Serve reads ahead, and ends that by a deadline in
// the past: a net.Conn whose deadlines close the connection, or do nothing,
// breaks keep-alive (fault 32).
func TestStreamConn_HTTPKeepAlive(t *testing.T) {
	overStreams(t, func(t *testing.T, pair makePair, server int) {
		client, dialed := httpOver(t, pair, server, &http.Server{
			ReadTimeout: time.Minute, WriteTimeout: time.Minute, IdleTimeout: time.Minute,
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if err := http.NewResponseController(w).EnableFullDuplex(); err != nil {
					t.Errorf("EnableFullDuplex: %v", err)
				}
				w.Header().Set("Trailer", "Length")
				n, err := io.Copy(w, r.Body)
				if err != nil {
					t.Errorf("reading the body: %v", err)
				}
				w.Header().Set("Length", fmt.Sprint(n))
			}),
		})
		for i, n := range []int{0, 1, 1000, 32 << 10, 64<<10 + 1, 3 << 20} {
			body := strings.Repeat("x", n)
			resp, err := client.Post("http://host/", "text/plain", strings.NewReader(body))
			if err != nil {
				t.Fatalf("request %d: %v", i, err)
			}
			got, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || string(got) != body {
				t.Fatalf("request %d: got %d bytes, %v, want %d", i, len(got), err, n)
			}
			if got := resp.Trailer.Get("Length"); got != fmt.Sprint(n) {
				t.Errorf("request %d: trailer %q, want %d", i, got, n)
			}
		}
		if n := dialed.Load(); n != 1 {
			t.Errorf("%d connections for requests in a row, want 1", n)
		}
	})
}

// IdleTimeout and ReadTimeout do close the connection, and at their time.
func TestStreamConn_HTTPTimeouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, dialed := httpOver(t, memPair, 0, &http.Server{
			ReadTimeout: time.Second, IdleTimeout: time.Minute,
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, err := io.ReadAll(r.Body)
				if err != nil {
					w.WriteHeader(http.StatusRequestTimeout)
				}
			}),
		})
		get := func() {
			t.Helper()
			resp, err := client.Get("http://host/")
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
		}
		get()
		time.Sleep(time.Minute - time.Nanosecond)
		get()
		if n := dialed.Load(); n != 1 {
			t.Errorf("%d connections before IdleTimeout, want 1", n)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		get()
		if n := dialed.Load(); n != 2 {
			t.Errorf("%d connections after IdleTimeout, want 2", n)
		}

		r, w := io.Pipe()
		defer w.Close()
		began := time.Now()
		resp, err := client.Post("http://host/", "text/plain", r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if d := time.Since(began); resp.StatusCode != http.StatusRequestTimeout || d != time.Second {
			t.Errorf("a body that does not come: %d after %v, want 408 after ReadTimeout, 1s", resp.StatusCode, d)
		}
	})
}

func TestStreamConn_HTTPHijack(t *testing.T) {
	overStreams(t, func(t *testing.T, pair makePair, server int) {
		client, _ := httpOver(t, pair, server, &http.Server{
			ReadTimeout: time.Second, IdleTimeout: time.Second,
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				nc, brw, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Errorf("Hijack: %v", err)
					return
				}
				defer nc.Close()
				_, _ = brw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
				if err := brw.Flush(); err != nil {
					t.Errorf("Flush: %v", err)
				}
				_, _ = io.Copy(nc, brw)
			}),
		})
		req, err := http.NewRequest("GET", "http://host/", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"echo"}}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		rwc := resp.Body.(io.ReadWriteCloser)
		br := bufio.NewReader(rwc)
		for i := range 100 {
			line := fmt.Sprintf("line %d\n", i)
			if _, err := io.WriteString(rwc, line); err != nil {
				t.Fatal(err)
			}
			got, err := br.ReadString('\n')
			if err != nil || got != line {
				t.Fatalf("got %q, %v, want %q", got, err, line)
			}
		}
		big := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
		go rwc.Write(big)
		got := make([]byte, len(big))
		if _, err := io.ReadFull(br, got); err != nil || !bytes.Equal(got, big) {
			t.Errorf("1 MiB came back wrong: %v", err)
		}
		rwc.Close()
	})
}

// A response that is cut off is an error to the client, never a short body.
func TestStreamConn_HTTPTruncatedBody(t *testing.T) {
	overStreams(t, func(t *testing.T, pair makePair, server int) {
		client, _ := httpOver(t, pair, server, &http.Server{
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				nc, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Errorf("Hijack: %v", err)
					return
				}
				// No length, no chunks: only the end of the stream ends the body.
				_, _ = io.WriteString(nc, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhalf of it")
				nc.(*transport.StreamConn).CloseWith(transport.CloseInternal, "")
			}),
		})
		resp, err := client.Get("http://host/")
		if err != nil {
			return // the close came before the head: an error as well
		}
		defer resp.Body.Close()
		if body, err := io.ReadAll(resp.Body); err == nil {
			t.Errorf("the body ends with %q as if it were whole", body)
		}
	})
}
