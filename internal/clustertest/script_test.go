//go:build linux

package clustertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/dialback/dialback/internal/proctest"
	"github.com/dialback/dialback/transport"
)

// scripted is a host that does what a test says, frame by frame. Dials that it
// gets wait until the test answers them, unless serve does.
type scripted struct {
	// Immutable after connect.
	t    *testing.T
	id   string
	conn transport.Conn

	hello  chan struct{} // closed when the relay has confirmed the socket
	closed chan struct{} // closed when the socket has ended; err is set before
	err    error
	dials  chan transport.StreamDial

	mu    sync.Mutex
	pongs int
	once  sync.Once
	wg    sync.WaitGroup
}

// script is what a scripted host says of itself. The zero script is a v2 host.
type script struct {
	instance string // of a host of protocol 3; seq counts its connections
	seq      int
}

// dialControl opens a control socket of a scripted host at a relay, and does
// not wait until the relay has confirmed it.
func dialControl(t *testing.T, relay, id string, s script) *scripted {
	t.Helper()
	q := url.Values{"hostId": {id}}
	if s.instance != "" {
		q.Set("proto", "3")
		q.Set("instance", s.instance)
		q.Set("seq", fmt.Sprint(s.seq))
	}
	conn, err := transport.Dial(t.Context(), relay+"/v2/control?"+q.Encode(), &transport.DialOptions{Transport: onceTransport})
	if err != nil {
		t.Fatalf("control socket of %s: %v", id, err)
	}
	h := &scripted{
		t: t, id: id, conn: conn,
		hello: make(chan struct{}), closed: make(chan struct{}), dials: make(chan transport.StreamDial, 1024),
	}
	h.wg.Go(h.read)
	t.Cleanup(func() {
		conn.CloseNow()
		h.wg.Wait()
		<-conn.Done()
	})
	h.ping()
	return h
}

// connect is dialControl, and waits for the confirmation.
func connect(t *testing.T, relay, id string, s script) *scripted {
	t.Helper()
	h := dialControl(t, relay, id, s)
	h.awaitClaim()
	return h
}

// awaitClaim waits until the relay has confirmed the socket.
func (h *scripted) awaitClaim() {
	h.t.Helper()
	select {
	case <-h.hello:
	case <-h.closed:
		h.t.Fatalf("control socket of %s ended: %v", h.id, h.err)
	case <-time.After(proctest.Patience):
		h.t.Fatalf("control socket of %s was not confirmed", h.id)
	}
}

func (h *scripted) read() {
	defer close(h.closed)
	for {
		_, r, err := h.conn.Reader()
		var p []byte
		if err == nil {
			p, err = io.ReadAll(r)
		}
		if err != nil {
			h.err = err
			return
		}
		switch f, _ := transport.Decode(p); f := f.(type) {
		case transport.Pong, transport.Hello:
			h.mu.Lock()
			if _, ok := f.(transport.Pong); ok {
				h.pongs++
			}
			h.mu.Unlock()
			h.once.Do(func() { close(h.hello) })
		case transport.StreamDial:
			_ = h.conn.Write(transport.Text, transport.Encode(transport.Ack{Ticket: f.Ticket}))
			h.dials <- f
		}
	}
}

// ping sends one ping, as a host does now and then.
func (h *scripted) ping() { _ = h.conn.Write(transport.Text, transport.Encode(transport.Ping{})) }

// ponged is how many pings were answered.
func (h *scripted) ponged() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.pongs
}

// isOpen reports whether the control socket is.
func (h *scripted) isOpen() bool {
	select {
	case <-h.closed:
		return false
	default:
		return true
	}
}

// wantClosed waits for the end of the control socket, with that code.
func (h *scripted) wantClosed(why string, code transport.CloseCode) {
	h.t.Helper()
	select {
	case <-h.closed:
		if got := transport.CloseCodeOf(h.err); got != code {
			h.t.Errorf("%s: closed with %v, want %d", why, h.err, code)
		}
	case <-time.After(proctest.Patience):
		h.t.Errorf("%s: not closed, want %d", why, code)
	}
}

// nextDial waits for a dial.
func (h *scripted) nextDial(why string) transport.StreamDial {
	h.t.Helper()
	select {
	case d := <-h.dials:
		return d
	case <-h.closed:
		h.t.Fatalf("%s: the control socket ended before the dial: %v", why, h.err)
	case <-time.After(proctest.Patience):
		h.t.Fatalf("%s: no dial", why)
	}
	return transport.StreamDial{}
}

// dialBack opens a data socket at a relay.
func (h *scripted) dialBack(relay string, d transport.StreamDial) (transport.Conn, error) {
	q := url.Values{"hostId": {h.id}, "ticket": {d.Ticket}}
	return transport.Dial(context.Background(), relay+"/v2/dial?"+q.Encode(),
		&transport.DialOptions{Options: transport.Options{ReadLimit: -1}, Transport: onceTransport})
}

// wantRefused dials back where a dial-back must find nobody: nothing reaches
// this host's service.
func (h *scripted) wantRefused(why, relay string, d transport.StreamDial) {
	h.t.Helper()
	conn, err := h.dialBack(relay, d)
	if err == nil {
		conn.CloseNow()
		<-conn.Done()
	}
	var refused *transport.HandshakeError
	if !errors.As(err, &refused) || refused.Status != 404 {
		h.t.Errorf("%s: the dial-back got %v, want 404", why, err)
	}
}

// serve answers all dials of the host from now on, with dial-backs to a relay:
// exchanges of a v2 host with text and the request's path, WebSockets with
// their own messages.
func (h *scripted) serve(relay, text string) {
	h.wg.Go(func() {
		for {
			select {
			case d := <-h.dials:
				h.wg.Go(func() { h.answer(relay, d, text) })
			case <-h.closed:
				return
			}
		}
	})
}

func (h *scripted) answer(relay string, d transport.StreamDial, text string) {
	conn, err := h.dialBack(relay, d)
	if err != nil {
		return // its client left, or was told why
	}
	defer func() {
		conn.CloseNow()
		<-conn.Done()
	}()
	if d.Kind == transport.KindHTTP {
		h.answerHTTP(conn, text)
		return
	}
	for {
		t, r, err := conn.Reader()
		var p []byte
		if err == nil {
			p, err = io.ReadAll(r)
		}
		if err != nil || conn.Write(t, p) != nil {
			return
		}
	}
}

func (h *scripted) answerHTTP(conn transport.Conn, text string) {
	var path string
	var body []byte
	for {
		t, r, err := conn.Reader()
		var p []byte
		if err == nil {
			p, err = io.ReadAll(r)
		}
		if err != nil {
			return
		}
		if t == transport.Binary {
			body = append(body, p...)
			continue
		}
		f, _ := transport.Decode(p)
		if req, ok := f.(transport.HTTPRequest); ok {
			path = req.Path
		}
		if _, ok := f.(transport.HTTPEnd); ok {
			break
		}
	}
	if len(body) == 0 {
		body = []byte(text + " " + path)
	}
	_ = conn.Write(transport.Text, transport.Encode(transport.HTTPResponse{Status: 200}))
	_ = conn.Write(transport.Binary, body)
	_ = conn.Write(transport.Text, transport.Encode(transport.HTTPEnd{}))
	_, _, _ = conn.Reader() // the relay closes
}

// refuse refuses a dial on the control socket.
func (h *scripted) refuse(d transport.StreamDial, reason string) {
	_ = h.conn.Write(transport.Text, transport.Encode(transport.Refuse{Ticket: d.Ticket, Status: 503, Reason: reason}))
}

// connectPatiently is connect at a node that may have no Store for a moment.
func connectPatiently(t *testing.T, relay, id string) *scripted {
	t.Helper()
	proctest.Within(t, proctest.Patience, "the node takes hosts", func() bool {
		resp, err := proctest.Client.Get(relay + "/health")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		return err == nil && resp.StatusCode == 200 && !bytes.Contains(b, []byte("degraded"))
	})
	return connect(t, relay, id, script{})
}
