package relay_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/dialback/dialback/internal/hostile"
	"github.com/dialback/dialback/relaytest"
)

// fuzzClient is a client with a connection of its own, and how it ended.
type fuzzClient struct {
	what string
	conn net.Conn
	slow bool // its request is never complete

	answered chan struct{} // closed when resp, peer and err are set
	resp     *http.Response
	peer     *hostile.Peer // after a 101
	err      error
	done     chan struct{} // closed when the answer's body has ended too
}

// ask sends a request, whose last empty line is added, and body.
func (w *fuzzWorld) ask(what, request, body string) *fuzzClient {
	return w.askAt(w.s, what, request, body)
}

// askAt is ask at a node.
func (w *fuzzWorld) askAt(s *relaytest.Server, what, request, body string) *fuzzClient {
	conn, err := s.Transport().DialContext(w.t.Context(), "tcp", strings.TrimPrefix(s.URL, "http://"))
	if err != nil {
		w.t.Fatal(err)
	}
	c := &fuzzClient{what: what, conn: conn, answered: make(chan struct{}), done: make(chan struct{})}
	go c.run(request, body)
	w.atEnd(c.leave)
	return c
}

func (c *fuzzClient) run(request, body string) {
	defer close(c.done)
	_, _ = io.WriteString(c.conn, request+"\r\n"+body)
	br := bufio.NewReader(c.conn)
	for {
		c.resp, c.err = http.ReadResponse(br, nil)
		if c.err != nil || c.resp.StatusCode >= 200 || c.resp.StatusCode == 101 {
			break
		}
	}
	if c.err == nil && c.resp.StatusCode == http.StatusSwitchingProtocols {
		c.peer = hostile.Upgraded(c.conn, br)
	}
	close(c.answered)
	if c.err == nil && c.peer == nil {
		_, _ = io.Copy(io.Discard, c.resp.Body)
	}
}

// leave ends the client, whatever it waits for.
func (c *fuzzClient) leave() {
	_ = c.conn.Close()
	<-c.done
	if c.peer != nil {
		c.peer.Close()
	}
}

// check says what is wrong with how the client was answered, once it has been
// given all the time there is.
func (c *fuzzClient) check() error {
	select {
	case <-c.answered:
	default:
		if c.slow {
			return nil // it has not asked yet
		}
		return errors.New("no answer")
	}
	if c.err != nil {
		if c.slow {
			return nil
		}
		return fmt.Errorf("the connection ended without an answer: %v", c.err)
	}
	if code := c.resp.Header.Get("Dialback-Error"); code != "" && !slices.Contains(codes[code], c.resp.StatusCode) {
		return fmt.Errorf("answered %d with the code %q", c.resp.StatusCode, code)
	}
	return nil
}
