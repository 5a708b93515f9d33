package memnet_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dialback/dialback/internal/memnet"
)

func listen(t *testing.T, n *memnet.Network, addr string) net.Listener {
	t.Helper()
	ln, err := n.Listen(addr)
	if err != nil {
		t.Fatalf("Listen(%q): %v", addr, err)
	}
	return ln
}

func TestNetwork_ServesHTTPInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n memnet.Network
		srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Minute)
			io.WriteString(w, r.RemoteAddr)
		})}
		ln := listen(t, &n, "relay:80")
		go srv.Serve(ln)
		transport := &http.Transport{DialContext: n.DialContext}

		start := time.Now()
		for range 2 {
			res, err := (&http.Client{Transport: transport}).Get("http://relay/")
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(res.Body)
			res.Body.Close()
			if host, _, err := net.SplitHostPort(string(body)); err != nil || net.ParseIP(host) == nil {
				t.Errorf("the client's address is %q, want an IP address and a port", body)
			}
		}
		if took := time.Since(start); took != 2*time.Minute {
			t.Errorf("two requests took %v, want exactly 2m0s", took)
		}
		transport.CloseIdleConnections()
		if err := srv.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestNetwork_DialErrors(t *testing.T) {
	var n memnet.Network
	ln := listen(t, &n, "relay:80")
	if _, err := n.Listen("relay:80"); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("Listen at a used address = %v, want EADDRINUSE", err)
	}
	for _, addr := range []string{"relay", "relay:81", "RELAY:80", ""} {
		if _, err := n.DialContext(t.Context(), "tcp", addr); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("dial %q = %v, want ECONNREFUSED: addresses are taken to the letter", addr, err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := n.DialContext(ended, "tcp", "relay:80"); !errors.Is(err, context.Canceled) {
		t.Errorf("dial with an ended ctx = %v, want context.Canceled", err)
	}
	if err := ln.Close(); err != nil {
		t.Error(err)
	}
	if err := ln.Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("second Close = %v, want net.ErrClosed", err)
	}
	if _, err := n.DialContext(t.Context(), "tcp", "relay:80"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dial after Close = %v, want ECONNREFUSED", err)
	}
	listen(t, &n, "relay:80").Close()
}

func TestNetwork_OnDialGetsBothEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var client, server *memnet.Conn
		n := memnet.Network{OnDial: func(c, s *memnet.Conn) { client, server = c, s }}
		ln := listen(t, &n, "relay")
		defer ln.Close()
		dialed, err := n.DialContext(t.Context(), "tcp", "relay")
		if err != nil {
			t.Fatal(err)
		}
		accepted, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if dialed != net.Conn(client) || accepted != net.Conn(server) {
			t.Error("OnDial got other connections than DialContext and Accept")
		}
		if got, want := accepted.RemoteAddr().String(), dialed.LocalAddr().String(); got != want {
			t.Errorf("RemoteAddr of the server's end = %q, LocalAddr of the client's = %q; want the same", got, want)
		}
		if got := accepted.LocalAddr().String(); got != "relay" {
			t.Errorf("LocalAddr of the server's end = %q, want the listener's address", got)
		}
		run(write(client, 3)).want(t, 3, nil, "the ends are connected")
		run(read(server, 9)).want(t, 3, nil, "the ends are connected")
	})
}

func TestListener_CloseWakesAcceptAndCutsTheBacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n memnet.Network
		ln := listen(t, &n, "relay:80")
		accept := run(func() (int, error) { _, err := ln.Accept(); return 0, err })
		ln.Close()
		accept.want(t, 0, net.ErrClosed, "Close wakes Accept")

		ln = listen(t, &n, "relay:80")
		waiting, err := n.DialContext(t.Context(), "tcp", "relay:80")
		if err != nil {
			t.Fatal(err)
		}
		r := run(read(waiting, 1))
		ln.Close()
		r.want(t, 0, syscall.ECONNRESET, "nobody will accept it any more")
	})
}

func TestListener_FullBacklogMakesDialsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n memnet.Network
		ln := listen(t, &n, "relay:80")
		for range 128 {
			if _, err := n.DialContext(t.Context(), "tcp", "relay:80"); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		dial := func(ctx context.Context) func() (int, error) {
			return func() (int, error) { _, err := n.DialContext(ctx, "tcp", "relay:80"); return 0, err }
		}
		short, long, last := run(dial(ctx)), run(dial(t.Context())), run(dial(t.Context()))
		time.Sleep(time.Second)
		short.want(t, 0, context.DeadlineExceeded, "its ctx ended while the backlog was full")
		long.wantBlocked(t, "the backlog is full")
		if _, err := ln.Accept(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if first, second := finished(long), finished(last); first == second {
			t.Errorf("after one Accept the waiting dials have finished: %v and %v; want exactly one", first, second)
		}
		ln.Close()
		synctest.Wait()
		if !finished(long) || !finished(last) || (long.err == nil) == (last.err == nil) {
			t.Errorf("dials ended with %v and %v, want one connection and one refusal", long.err, last.err)
		}
	})
}

func finished(a *async) bool {
	select {
	case <-a.done:
		return true
	default:
		return false
	}
}
