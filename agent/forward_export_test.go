package agent

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/url"
	"sync"
	"time"

	"github.com/dialback/dialback/transport"
)

// ForwardOnce gives a forwarder these bytes of a client, who half-closes then,
// and connects it to services that send answer and then end. It returns what
// the client got and the code with which the stream ended, and what each
// service got.
func ForwardOnce(fromClient, answer []byte) (toClient []byte, end transport.CloseCode, toServices [][]byte) {
	client, host := transport.Pipe(nil)
	var mu sync.Mutex
	var services []*playedConn
	target := &url.URL{Scheme: "http", Host: "local:80"}
	o := &HTTPOptions{DialContext: func(context.Context, string, string) (net.Conn, error) {
		mu.Lock()
		defer mu.Unlock()
		c := &playedConn{answer: bytes.NewReader(answer)}
		services = append(services, c)
		return c, nil
	}}
	r := &runner{Agent: &Agent{}, streams: make(map[*dataSocket]struct{})}
	e := env{ctx: context.Background(), log: slog.New(slog.DiscardHandler), dialTimeout: time.Minute, closeTimeout: time.Minute, tasks: &r.tasks}
	s := &forwardService{env: e, host: "local:80", hop: newHop(target, o, time.Minute)}
	socket := &dataSocket{conn: host, r: r}
	r.tasks.Add(2) // of the stream, until awaitClosed and serve
	go func() {
		defer r.tasks.Done()
		s.serve(socket)
	}()
	go func() {
		for p := range bytes.SplitAfterSeq(fromClient, []byte("\r\n\r\n")) {
			if client.Write(transport.Binary, p) != nil {
				return
			}
		}
		_ = client.Write(transport.Text, transport.Encode(transport.EOF{}))
	}()
	for {
		_, m, err := client.Reader()
		if err == nil {
			var p []byte
			p, err = io.ReadAll(m)
			toClient = append(toClient, p...)
		}
		var ended *transport.CloseError
		if errors.As(err, &ended) {
			end = ended.Code
			break
		}
	}
	client.CloseNow()
	s.stop()
	r.tasks.Wait()
	for _, c := range services {
		toServices = append(toServices, c.got)
	}
	return toClient, end, toServices
}

// playedConn is a connection to a service that does not listen to what it gets.
type playedConn struct {
	answer *bytes.Reader

	mu     sync.Mutex
	got    []byte
	closed bool
}

func (c *playedConn) Read(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return 0, net.ErrClosed
	}
	return c.answer.Read(p)
}

func (c *playedConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return 0, net.ErrClosed
	}
	c.got = append(c.got, p...)
	return len(p), nil
}

func (c *playedConn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	return nil
}

func (c *playedConn) LocalAddr() net.Addr              { return Addr{} }
func (c *playedConn) RemoteAddr() net.Addr             { return Addr{} }
func (c *playedConn) SetDeadline(time.Time) error      { return errors.ErrUnsupported }
func (c *playedConn) SetReadDeadline(time.Time) error  { return errors.ErrUnsupported }
func (c *playedConn) SetWriteDeadline(time.Time) error { return errors.ErrUnsupported }

// NewChunkReader decodes the chunks that come from r.
func NewChunkReader(r io.Reader) io.Reader {
	src := newSource(r)
	return &chunkReader{src: &src}
}
