package sim

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dialback/dialback/transport"
)

// v2Host is a host of version 2, as PROTOCOL.md has it: it pings each 45 s,
// leaves after 100 s of silence, answers dials of kind http and ws, comes back
// after its socket has ended whatever the code was, and knows nothing of
// generations: it dials back for any dial that it has read, after as long as
// its schedule says.
type v2Host struct {
	w         *World
	p         *process
	transport *http.Transport
	rand      *random
	tasks     sync.WaitGroup
}

const (
	v2Ping    = 45 * time.Second
	v2Silence = 100 * time.Second
	v2Dialing = 10 * time.Second
)

// run keeps the host connected until ctx ends.
func (h *v2Host) run(ctx context.Context) {
	defer h.tasks.Wait()
	for failures := 0; ctx.Err() == nil; {
		begun := time.Now()
		conn, err := transport.Dial(ctx, "http://lb/v2/control?hostId="+h.p.name, &transport.DialOptions{Transport: h.transport})
		if err == nil {
			h.serve(ctx, conn)
		}
		if time.Since(begun) >= 10*time.Second {
			failures = 0
		}
		failures++
		limit := min(500*time.Millisecond<<min(failures-1, 4), 5*time.Second)
		pause(ctx, time.Duration(h.rand.Float64()*float64(limit)))
	}
}

// pause waits for d or for ctx.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// serve is one control socket.
func (h *v2Host) serve(ctx context.Context, conn transport.Conn) {
	defer context.AfterFunc(ctx, func() { conn.Close(transport.CloseGoingAway, "") })()
	sctx, cancel := context.WithCancel(ctx)
	defer cancel()
	h.tasks.Go(func() { h.beat(sctx, conn) })
	var silence *time.Timer // not before the first pong
	for {
		t, r, err := conn.Reader()
		var p []byte
		if err == nil {
			p, err = io.ReadAll(r)
		}
		if err != nil {
			if silence != nil {
				silence.Stop()
			}
			conn.CloseNow()
			return
		}
		if t != transport.Text {
			continue
		}
		if silence != nil {
			silence.Reset(v2Silence)
		}
		switch f, _ := transport.Decode(p); f := f.(type) {
		case transport.Pong:
			if silence == nil {
				silence = time.AfterFunc(v2Silence, conn.CloseNow)
			}
		case transport.StreamDial:
			h.tasks.Go(func() { h.answer(ctx, conn, f) })
		}
	}
}

func (h *v2Host) beat(ctx context.Context, conn transport.Conn) {
	for ctx.Err() == nil {
		if conn.Write(transport.Text, transport.Encode(transport.Ping{})) != nil {
			return
		}
		pause(ctx, v2Ping)
	}
}

// answer dials back and serves.
func (h *v2Host) answer(ctx context.Context, control transport.Conn, d transport.StreamDial) {
	pause(ctx, h.w.slowness(h.p.name))
	q := url.Values{"hostId": {h.p.name}, "ticket": {d.Ticket}}
	conn, err := transport.Dial(ctx, "http://lb/v2/dial?"+q.Encode(), &transport.DialOptions{
		Options: transport.Options{ReadLimit: -1}, Transport: h.transport, HandshakeTimeout: v2Dialing,
	})
	if err != nil {
		var answered *transport.HandshakeError
		if !errors.As(err, &answered) || answered.Status != http.StatusNotFound {
			control.Write(transport.Text, transport.Encode(transport.Refuse{Ticket: d.Ticket, Status: 502, Reason: "dial-back failed"}))
		}
		return
	}
	defer context.AfterFunc(ctx, conn.CloseNow)()
	switch d.Kind {
	case transport.KindHTTP:
		h.exchange(ctx, conn)
		<-conn.Done()
	case transport.KindWS:
		// A dial says nothing of a client's yet: its first message does. The
		// relay may close with 4404 at this moment.
		var once sync.Once
		echoMessages(conn, func() {
			once.Do(func() { h.w.outcomes.served(markedID([]byte(d.Path)), h.p) })
		})
	default:
		conn.Close(transport.CloseInternal, "unknown kind")
		<-conn.Done()
	}
}

// exchange answers one request.
func (h *v2Host) exchange(ctx context.Context, conn transport.Conn) {
	defer conn.CloseNow()
	req, body, ok := readV2(conn)
	if !ok {
		return
	}
	id := markedID([]byte(req.Path))
	h.w.outcomes.served(id, h.p)
	(&service{h.w, h.p}).checkBody(id, strings.NewReader(string(body)), len(body))
	u, _ := url.Parse(req.Path)
	delay, _ := strconv.Atoi(u.Query().Get("delay"))
	pause(ctx, time.Duration(delay)*time.Millisecond)
	size, _ := strconv.Atoi(u.Query().Get("size"))
	for _, f := range []transport.Frame{
		transport.HTTPResponse{Status: 200, Headers: map[string]string{"sim-id": id, "content-length": strconv.Itoa(size)}},
		transport.HTTPEnd{},
	} {
		if _, end := f.(transport.HTTPEnd); end && size > 0 && conn.Write(transport.Binary, patterned(id, 0, size)) != nil {
			return
		}
		if conn.Write(transport.Text, transport.Encode(f)) != nil {
			return
		}
	}
	conn.Reader() // the relay closes
}

// readV2 reads a request to its end: a socket that ends before has no request.
func readV2(conn transport.Conn) (req transport.HTTPRequest, body []byte, ok bool) {
	for {
		t, r, err := conn.Reader()
		if err != nil {
			return req, nil, false
		}
		p, err := io.ReadAll(r)
		if err != nil {
			return req, nil, false
		}
		if t == transport.Binary {
			body = append(body, p...)
			continue
		}
		switch f, _ := transport.Decode(p); f := f.(type) {
		case transport.HTTPRequest:
			req = f
		case transport.HTTPEnd:
			return req, body, true
		}
	}
}
