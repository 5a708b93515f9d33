//go:build linux

package chaos

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/dialback/dialback/transport"
)

// v2Host is a process of a host of protocol 2, as its text describes it. It is
// trusting: it serves every dial on every socket that it still reads, however
// old that is, so only the relay keeps streams from its older sockets.
type v2Host struct {
	// Immutable after startV2.
	m        *member
	instance int
	relay    string
	once     *http.Transport // a connection for each handshake
	ctx      context.Context // ends with the process
	running  sync.WaitGroup  // dials that are served
}

func (m *member) startV2(in *instance, n int) {
	ctx, cancel := context.WithCancel(context.Background())
	h := &v2Host{
		m: m, instance: n, relay: "http://" + in.gate.Addr, ctx: ctx,
		once: &http.Transport{DisableKeepAlives: true},
	}
	ran := make(chan struct{})
	go func() {
		defer close(ran)
		h.run()
	}()
	in.stop = stopper(in, cancel, func() {
		<-ran
		h.running.Wait()
	})
}

// run connects and connects again, with the delays of the protocol.
func (h *v2Host) run() {
	const first = 500 * time.Millisecond
	bound := first
	for h.ctx.Err() == nil {
		begun := time.Now()
		h.connect()
		if time.Since(begun) > 10*time.Second {
			bound = first
		}
		select {
		case <-h.ctx.Done():
		case <-time.After(time.Duration(rand.Int64N(int64(bound)))):
		}
		bound = min(2*bound, backoff)
	}
}

// connect is the life of one control socket, until it ends or is silent.
func (h *v2Host) connect() {
	conn, err := transport.Dial(h.ctx, h.relay+"/v2/control?hostId="+h.m.id, &transport.DialOptions{Transport: h.once})
	if err != nil {
		return
	}
	// An older socket is read on, while it is open.
	heard := make(chan struct{}, 1)
	ended := make(chan struct{})
	id := identity{h.m.id, h.instance, h.m.nextSocket()}
	h.running.Go(func() {
		defer close(ended)
		h.read(conn, id, heard)
	})
	stop := context.AfterFunc(h.ctx, conn.CloseNow)
	h.running.Go(func() {
		<-ended
		stop()
	})
	ponged := false
	for last := time.Now(); ; {
		_ = conn.Write(transport.Text, transport.Encode(transport.Ping{}))
		select {
		case <-ended:
			return
		case <-heard:
			ponged, last = true, time.Now()
		case <-time.After(heartbeat):
		}
		if ponged && time.Since(last) > silence {
			return
		}
		select {
		case <-ended:
			return
		case <-time.After(heartbeat / 2):
		}
	}
}

// read handles the frames of a control socket until it ends.
func (h *v2Host) read(conn transport.Conn, id identity, heard chan<- struct{}) {
	defer conn.CloseNow()
	confirm := sync.OnceFunc(func() { h.m.roll.confirm(id) })
	for {
		_, p, err := readMessage(conn)
		if err != nil {
			return
		}
		switch f, _ := transport.Decode(p); f := f.(type) {
		case transport.Pong:
			confirm()
		case transport.StreamDial:
			h.running.Go(func() { h.serve(conn, id, f) })
		}
		select {
		case heard <- struct{}{}:
		default:
		}
	}
}

// serve dials back for one dial.
func (h *v2Host) serve(control transport.Conn, id identity, d transport.StreamDial) {
	q := url.Values{"hostId": {h.m.id}, "ticket": {d.Ticket}}
	conn, err := transport.Dial(h.ctx, h.relay+"/v2/dial?"+q.Encode(),
		&transport.DialOptions{Options: transport.Options{ReadLimit: -1}, Transport: h.once})
	if err != nil {
		var refused *transport.HandshakeError
		if !errors.As(err, &refused) || refused.Status != http.StatusNotFound {
			_ = control.Write(transport.Text, transport.Encode(transport.Refuse{Ticket: d.Ticket, Status: 502, Reason: "the dial-back failed"}))
		}
		return
	}
	stop := context.AfterFunc(h.ctx, conn.CloseNow)
	defer func() {
		stop()
		conn.CloseNow()
		<-conn.Done()
	}()
	if d.Kind == transport.KindWS {
		if conn.Write(transport.Text, []byte(id.String())) == nil {
			echoMessages(conn)
		}
		return
	}
	h.exchange(conn, id)
}

// exchange answers one HTTP request.
func (h *v2Host) exchange(conn transport.Conn, id identity) {
	var path string
	var body []byte
	for whole := false; !whole; {
		t, p, err := readMessage(conn)
		if err != nil {
			return // an abort: it must not run
		}
		if t == transport.Binary {
			body = append(body, p...)
			continue
		}
		switch f, _ := transport.Decode(p); f := f.(type) {
		case transport.HTTPRequest:
			path = f.Path
		case transport.HTTPEnd:
			whole = true
		}
	}
	u, err := url.Parse(path)
	if err != nil {
		return
	}
	if u.Path == "/post" {
		h.m.w.ran(h.m.id, u.Query().Get("id"))
	} else {
		n, _ := strconv.Atoi(u.Query().Get("n"))
		body = pattern[:min(n, len(pattern))]
	}
	_ = conn.Write(transport.Text, transport.Encode(transport.HTTPResponse{Status: 200, Headers: map[string]string{identityHeader: id.String()}}))
	for in := bytes.NewReader(body); in.Len() > 0; {
		part := make([]byte, 64<<10)
		n, _ := in.Read(part)
		if conn.Write(transport.Binary, part[:n]) != nil {
			return
		}
	}
	_ = conn.Write(transport.Text, transport.Encode(transport.HTTPEnd{}))
	_, _, _ = conn.Reader() // the relay closes
}
