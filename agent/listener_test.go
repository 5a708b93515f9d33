package agent_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dialback/dialback/agent"
	"github.com/dialback/dialback/transport"
)

func listen(t *testing.T, cfg agent.Config) *agent.Listener {
	t.Helper()
	cfg.Services = nil
	ln, err := agent.Listen(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}

func TestListen_Accept(t *testing.T) { synctest.Test(t, testListenAccept) }
func testListenAccept(t *testing.T) {
	r := newFakeRelay(t)
	cfg := r.config()
	cfg.ListenService = "ssh"
	ln := listen(t, cfg)
	if a := ln.Addr(); a.Network() != "dialback" || a.String() != "host-1/ssh" {
		t.Errorf("Addr is %s %s", a.Network(), a)
	}
	c := r.next(1)
	c.dial(transport.StreamDial{Ticket: "t", Service: "ssh"})
	conn, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	s := r.stream()
	if info := conn.(*agent.Stream).Info(); info != (agent.StreamInfo{ID: "s-t", Service: "ssh"}) {
		t.Errorf("Info: %+v", info)
	}
	_, _ = io.WriteString(conn, "banner")
	s.wantMessage("banner")
	_ = conn.SetReadDeadline(time.Now().Add(time.Second))
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, context.DeadlineExceeded) && err.(net.Error).Timeout() != true {
		t.Errorf("read deadline: %v", err)
	}
	_ = conn.SetReadDeadline(time.Time{})
	s.write("hello")
	wantRead(t, conn, "hello")
	_ = conn.(*agent.Stream).CloseWrite()
	s.wantMessage("EOF")
}

func TestListen_CloseEndsTheAgent(t *testing.T) { synctest.Test(t, testListenCloseEndsTheAgent) }
func testListenCloseEndsTheAgent(t *testing.T) {
	r := newFakeRelay(t)
	ln := listen(t, r.config())
	c := r.next(1)
	c.dial(transport.StreamDial{Ticket: "waits in the backlog"})
	s := r.stream()
	accepted := make(chan error)
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				accepted <- err
				return
			}
			if conn.(*agent.Stream).Info().ID == "" {
				conn.Close()
			}
		}
	}()
	synctest.Wait()
	if err := ln.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if err := <-accepted; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept: %v, want net.ErrClosed", err)
	}
	s.wantEnd(transport.CloseGoingAway, "agent stopping")
	if ce := c.ended(); ce.Code != transport.CloseGoingAway {
		t.Errorf("control socket: %v", ce)
	}
	if err := ln.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	if _, err := ln.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept after Close: %v", err)
	}
}

func TestListen_ContextEndsTheAgent(t *testing.T) { synctest.Test(t, testListenContextEndsTheAgent) }
func testListenContextEndsTheAgent(t *testing.T) {
	r := newFakeRelay(t)
	cfg := r.config()
	cfg.Services = nil
	ctx, cancel := context.WithCancel(t.Context())
	ln, err := agent.Listen(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	c := r.next(1)
	cancel()
	if _, err := ln.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept: %v", err)
	}
	c.ended()
}

func TestListen_BacklogIsBounded(t *testing.T) { synctest.Test(t, testListenBacklogIsBounded) }
func testListenBacklogIsBounded(t *testing.T) {
	r := newFakeRelay(t)
	ln := listen(t, r.config())
	c := r.next(1)
	for i := range 128 {
		c.dial(transport.StreamDial{Ticket: fmt.Sprint(i)})
		r.stream()
	}
	c.dial(transport.StreamDial{Ticket: "full"})
	c.want(transport.Refuse{Ticket: "full", Status: 503, Reason: "backlog full"})
	conn, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	c.dial(transport.StreamDial{Ticket: "room"})
	r.stream()

	// A dial-back that fails gives its place back.
	conn, _ = ln.Accept()
	conn.Close()
	r.refuseWith(func(w http.ResponseWriter, req *http.Request) bool { http.NotFound(w, req); return true })
	for i := range 3 {
		c.dial(transport.StreamDial{Ticket: fmt.Sprint("gone", i)})
		synctest.Wait()
	}
	r.refuseWith(nil)
	c.dial(transport.StreamDial{Ticket: "again"})
	r.stream()
}

// http.Serve over the listener: keep-alive and hijack need deadlines that
// work.
func TestListen_HTTPServe(t *testing.T) { synctest.Test(t, testListenHTTPServe) }
func testListenHTTPServe(t *testing.T) {
	r := newFakeRelay(t)
	r.pongs = true
	ln := listen(t, r.config())
	go func() {
		_ = http.Serve(ln, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/hijack" {
				fmt.Fprint(w, r.URL.Path)
				return
			}
			conn, brw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
			_, _ = io.Copy(conn, brw)
			conn.Close()
		}))
	}()
	c := r.next(1)
	c.dial(transport.StreamDial{Ticket: "t"})
	conn := transport.NewStreamConn(r.stream().Conn)
	br := bufio.NewReader(conn)
	for i := range 5 {
		fmt.Fprintf(conn, "GET /%d HTTP/1.1\r\nHost: x\r\n\r\n", i)
		res, err := http.ReadResponse(br, nil)
		if got := body(t, res, err); got != fmt.Sprintf("/%d", i) {
			t.Errorf("answer %d on one stream: %q", i, got)
		}
		time.Sleep(time.Hour)
	}
	_, _ = io.WriteString(conn, "GET /hijack HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nearly")
	res, err := http.ReadResponse(br, nil)
	if err != nil || res.StatusCode != 101 {
		t.Fatalf("hijack: %v, %v", res, err)
	}
	buf := make([]byte, 5)
	if _, err := io.ReadFull(br, buf); string(buf) != "early" || err != nil {
		t.Errorf("after the hijack: %q, %v", buf, err)
	}
	conn.CloseWrite()
	if rest, err := io.ReadAll(br); len(rest) > 0 || err != nil {
		t.Errorf("then %q, %v", rest, err)
	}
}
