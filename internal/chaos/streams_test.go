//go:build linux

package chaos

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/dialback/dialback/internal/proctest"
	"github.com/dialback/dialback/transport"
)

// stream is a client's WebSocket or byte stream to the echo of a host.
type stream struct {
	conn  transport.Conn
	bytes *transport.StreamConn // of a byte stream
	in    *bufio.Reader         // of a byte stream
}

// open opens a stream and checks who serves it. It returns why it cannot.
func (c *clients) open(kind string, m *member, begun time.Time) (*stream, string) {
	path := "/hosts/" + m.id + "/ws"
	raw := kind == kindBytes || kind == kindKeptBytes
	if raw {
		path = "/connect/" + url.PathEscape(m.id) + "?service=echo"
	}
	conn, err := transport.Dial(context.Background(), c.w.balancer.URL+path,
		&transport.DialOptions{Transport: c.once.Transport.(*http.Transport), HandshakeTimeout: proctest.Patience})
	if err != nil {
		return nil, reasonOf(err)
	}
	s := &stream{conn: conn}
	if raw {
		s.bytes = transport.NewStreamConn(conn)
		s.in = bufio.NewReader(s.bytes)
	}
	by, err := s.receive(0)
	if err != nil {
		s.close()
		return nil, reasonOf(err)
	}
	c.served(kind, m, by, begun, false)
	return s, ""
}

// receive returns the next message, or n bytes, or for 0 a line.
func (s *stream) receive(n int) (string, error) {
	stop := time.AfterFunc(proctest.Patience, s.conn.CloseNow)
	defer stop.Stop()
	if s.bytes == nil {
		_, p, err := readMessage(s.conn)
		return string(p), err
	}
	if n == 0 {
		line, err := s.in.ReadString('\n')
		if err != nil {
			return "", err
		}
		return line[:len(line)-1], nil
	}
	p := make([]byte, n)
	_, err := io.ReadFull(s.in, p)
	return string(p), err
}

// errOther is an echo of something else.
var errOther = errors.New("the echo is not what was sent")

func (s *stream) echo(text string) error {
	var err error
	if s.bytes == nil {
		err = s.conn.Write(transport.Text, []byte(text))
	} else {
		_, err = io.WriteString(s.bytes, text)
	}
	if err != nil {
		// Why it ended is what the reader is told.
		if _, rerr := s.receive(1); rerr != nil {
			err = rerr
		}
		return err
	}
	got, err := s.receive(len(text))
	if err == nil && got != text {
		return errOther
	}
	return err
}

func (s *stream) close() {
	if s.bytes != nil {
		_ = s.bytes.Close()
	} else {
		s.conn.Close(transport.CloseNormal, "")
	}
	<-s.conn.Done()
}

func (c *clients) webSocket(m *member) { c.openAndEcho(kindWS, m) }
func (c *clients) bytes(m *member)     { c.openAndEcho(kindBytes, m) }

func (c *clients) openAndEcho(kind string, m *member) {
	begun := time.Now()
	s, reason := c.open(kind, m, begun)
	if s != nil {
		reason = c.echoes(s, kind, m, 1, 0)
		s.close()
	}
	c.w.ledger.add(kind, m.id, begun, reason)
}

func (c *clients) keepWebSocket(m *member) { c.keep(kindKeptWS, m) }
func (c *clients) keepBytes(m *member)     { c.keep(kindKeptBytes, m) }

// keep keeps a stream until it ends, or the clients do.
func (c *clients) keep(kind string, m *member) {
	begun := time.Now()
	s, reason := c.open(kind, m, begun)
	if s == nil {
		// It is counted as an open, for it has no life.
		c.w.ledger.add(map[string]string{kindKeptWS: kindWS, kindKeptBytes: kindBytes}[kind], m.id, begun, reason)
		return
	}
	defer s.close()
	c.w.ledger.add(kind, m.id, begun, c.echoes(s, kind, m, 1<<30, pause))
}

// echoes sends numbered messages and wants each of them back, in order. It
// returns why the stream ended, if it did by itself.
func (c *clients) echoes(s *stream, kind string, m *member, n int, pause time.Duration) string {
	for i := range n {
		switch err := s.echo(fmt.Sprintf("%s %s message %d", kind, m.id, i)); {
		case errors.Is(err, errOther):
			c.w.ledger.violate(ruleBytes, "%s of %s: message %d: %v", kind, m.id, i, err)
			return ""
		case err != nil:
			return reasonOf(err)
		}
		select {
		case <-c.ctx.Done():
			return ""
		case <-time.After(pause):
		}
	}
	return ""
}
