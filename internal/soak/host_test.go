//go:build linux

package soak

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/dialback/dialback/transport"
)

// answer is what every host's service says: its name.
func answer(id string) string { return "this is " + id }

// host is one host, that has a control socket nearly all the time.
type host struct {
	// Immutable after newHost.
	f        *fleet
	id       string
	proto3   bool
	instance string // of a host of protocol 3

	// busy is held by whoever connects the host anew, so that no call meets
	// it then, and by calls, for reading.
	busy sync.RWMutex

	// Written with busy held.
	seq     int
	current *control
}

// control is one control socket of a host.
type control struct {
	h         *host
	conn      transport.Conn
	confirmed chan struct{} // closed when the relay has said that it is current
	ended     chan struct{} // closed when it has ended; err is set before
	err       error
	leaving   atomic.Bool  // its end is no news: this side ends it, or a newer one does
	pings     atomic.Int64 // not answered yet
}

// dialer spreads connections over local addresses, of which each has a limited
// number of ports.
func dialer(i int) *http.Transport {
	d := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(1+i%16))}}
	return &http.Transport{DialContext: d.DialContext, DisableKeepAlives: true}
}

// connect opens a control socket and waits until the relay has confirmed it.
// The one before it is left as it is.
func (h *host) connect() (*control, error) {
	q := url.Values{"hostId": {h.id}}
	h.seq++
	if h.proto3 {
		q.Set("proto", "3")
		q.Set("instance", h.instance)
		q.Set("seq", fmt.Sprint(h.seq))
	}
	conn, err := transport.Dial(context.Background(), h.f.relay+"/v2/control?"+q.Encode(), &transport.DialOptions{Transport: h.f.dialers[h.seq%len(h.f.dialers)]})
	if err != nil {
		return nil, fmt.Errorf("%s connects: %w", h.id, err)
	}
	c := &control{h: h, conn: conn, confirmed: make(chan struct{}), ended: make(chan struct{})}
	h.f.running.Go(c.read)
	c.ping()
	select {
	case <-c.confirmed:
		return c, nil
	case <-c.ended:
		return nil, fmt.Errorf("%s is not confirmed: %w", h.id, c.err)
	case <-time.After(patience):
		c.leaving.Store(true)
		conn.CloseNow()
		return nil, fmt.Errorf("%s is not confirmed", h.id)
	}
}

func (c *control) ping() {
	c.pings.Add(1)
	_ = c.conn.Write(transport.Text, transport.Encode(transport.Ping{})) // read tells of the end
}

func (c *control) isConfirmed() bool { return isClosed(c.confirmed) }
func (c *control) hasEnded() bool    { return isClosed(c.ended) }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// read handles frames until the socket ends.
func (c *control) read() {
	defer close(c.ended)
	defer c.conn.CloseNow()
	confirm := sync.OnceFunc(func() { close(c.confirmed) })
	for {
		c.conn.Await()
		_, r, err := c.conn.Reader()
		var p []byte
		if err == nil {
			p, err = io.ReadAll(r)
		}
		if err != nil {
			if c.err = err; c.isConfirmed() && !c.leaving.Load() {
				c.h.f.fail("the control socket of %s ended: %v", c.h.id, err)
				c.h.f.reconnect(c)
			}
			return
		}
		switch f, _ := transport.Decode(p); f := f.(type) {
		case transport.Hello:
			confirm()
		case transport.Pong:
			c.pings.Store(0)
			confirm()
		case transport.StreamDial:
			_ = c.conn.Write(transport.Text, transport.Encode(transport.Ack{Ticket: f.Ticket}))
			c.h.f.running.Go(func() { c.serve(f) })
		}
	}
}

// serve dials back and serves one stream.
func (c *control) serve(d transport.StreamDial) {
	known := d.Kind == transport.KindHTTP || d.Kind == transport.KindTCP
	if !known {
		_ = c.conn.Write(transport.Text, transport.Encode(transport.Refuse{Ticket: d.Ticket, Status: 502, Reason: "unknown kind"}))
		return
	}
	q := url.Values{"hostId": {c.h.id}, "ticket": {d.Ticket}}
	conn, err := transport.Dial(context.Background(), c.h.f.relay+"/v2/dial?"+q.Encode(),
		&transport.DialOptions{Options: transport.Options{ReadLimit: -1}, Transport: c.h.f.dialers[0]})
	if err != nil {
		return // its client has left
	}
	c.h.f.data.Add(1)
	defer func() {
		<-conn.Done()
		c.h.f.data.Add(-1)
	}()
	if d.Kind == transport.KindHTTP {
		c.serveV2(conn)
		conn.CloseNow()
		return
	}
	_ = conn.Write(transport.Text, transport.Encode(transport.Opened{})) // a failure is the stream's too
	s := transport.NewStreamConn(conn)
	if d.Proto == transport.ProtoHTTP {
		serveHTTP(s, answer(c.h.id))
	} else if _, err := io.Copy(s, s); err == nil {
		_ = s.CloseWrite()
	}
	_ = s.Close()
}

// serveV2 answers one exchange of protocol 2.
func (c *control) serveV2(conn transport.Conn) {
	for {
		t, r, err := conn.Reader()
		var p []byte
		if err == nil {
			p, err = io.ReadAll(r)
		}
		if err != nil {
			return
		}
		if f, _ := transport.Decode(p); t == transport.Text && f == (transport.HTTPEnd{}) {
			break
		}
	}
	_ = conn.Write(transport.Text, transport.Encode(transport.HTTPResponse{Status: 200}))
	_ = conn.Write(transport.Binary, []byte(answer(c.h.id)))
	_ = conn.Write(transport.Text, transport.Encode(transport.HTTPEnd{}))
	_, _, _ = conn.Reader() // the relay closes
}

// serveHTTP answers requests on a stream that the relay keeps, until it ends it.
func serveHTTP(s *transport.StreamConn, body string) {
	in := bufio.NewReader(s)
	for {
		req, err := http.ReadRequest(in)
		if err == nil {
			_, err = io.Copy(io.Discard, req.Body)
		}
		if err != nil {
			return
		}
		if _, err := fmt.Fprintf(s, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body); err != nil {
			return
		}
	}
}

func newHost(f *fleet, i int) *host {
	return &host{f: f, id: fmt.Sprintf("host-%05d", i), proto3: i%2 == 1, instance: uuid.NewString()}
}
