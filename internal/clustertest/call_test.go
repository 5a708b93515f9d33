//go:build linux

package clustertest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/dialback/dialback/internal/proctest"
	"github.com/dialback/dialback/transport"
)

// onceTransport makes a connection for each handshake.
var onceTransport = proctest.Client.Transport.(*http.Transport)

// reply is what a call got.
type reply struct {
	status int
	code   string // of the relay's error, if it is one
	body   string
	took   time.Duration
	err    error
}

func (r reply) String() string {
	if r.err != nil {
		return fmt.Sprintf("%v after %v", r.err, r.took)
	}
	return fmt.Sprintf("%d %s %.80q after %v", r.status, r.code, r.body, r.took)
}

// want checks status and body; an empty body is any.
func (r reply) want(t *testing.T, why string, status int, body string) {
	t.Helper()
	if r.err != nil || r.status != status || body != "" && r.body != body {
		t.Errorf("%s: %v, want %d %q", why, r, status, body)
	}
}

// wantCode checks that the relay answered with an error, and how soon.
func (r reply) wantCode(t *testing.T, why string, status int, code string, soon time.Duration) {
	t.Helper()
	if r.err != nil || r.status != status || r.code != code || r.took > soon {
		t.Errorf("%s: %v, want %d %s within %v", why, r, status, code, soon)
	}
}

// do makes one request with client.
func do(ctx context.Context, client *http.Client, method, url, body string) (r reply) {
	begun := time.Now()
	defer func() { r.took = time.Since(begun) }()
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader([]byte(body)))
	if err != nil {
		return reply{err: err}
	}
	resp, err := client.Do(req)
	if err != nil {
		return reply{err: err}
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return reply{status: resp.StatusCode, code: resp.Header.Get("Dialback-Error"), body: string(b), err: err}
}

// get makes one GET of a host's path through a relay.
func get(relay, host, path string) reply {
	return do(context.Background(), proctest.Client, http.MethodGet, relay+"/hosts/"+host+path, "")
}

// getAsync is get in the background. The channel has room for the reply.
func getAsync(relay, host, path string) <-chan reply {
	c := make(chan reply, 1)
	go func() { c <- get(relay, host, path) }()
	return c
}

// await waits for a reply, which has a bound of its own.
func await(t *testing.T, c <-chan reply) reply {
	t.Helper()
	select {
	case r := <-c:
		return r
	case <-time.After(proctest.Patience):
		t.Fatal("no reply")
		return reply{}
	}
}

// socket is a client's WebSocket to the echo of a host.
type socket struct{ conn transport.Conn }

// open opens a WebSocket to a host through a relay.
func open(ctx context.Context, relay, host string) (socket, error) {
	conn, err := transport.Dial(ctx, relay+"/hosts/"+host+"/ws", &transport.DialOptions{Transport: onceTransport})
	return socket{conn}, err
}

// echo sends one message and waits for it to come back, or for ctx.
func (s socket) echo(ctx context.Context, text string) error {
	stop := context.AfterFunc(ctx, s.conn.CloseNow)
	defer stop()
	if err := s.conn.Write(transport.Text, []byte(text)); err != nil {
		return err
	}
	_, r, err := s.conn.Reader()
	if err != nil {
		return err
	}
	got, err := io.ReadAll(r)
	if err == nil && string(got) != text {
		err = fmt.Errorf("echo of %q is %q", text, got)
	}
	return err
}

// close ends the socket cleanly and waits for its end.
func (s socket) close() {
	s.conn.Close(transport.CloseNormal, "")
	<-s.conn.Done()
}

// wantEcho checks that a new WebSocket to a host works.
func wantEcho(t *testing.T, why, relay, host string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), proctest.Patience)
	defer cancel()
	s, err := open(ctx, relay, host)
	if err != nil {
		t.Errorf("%s: %v", why, err)
		return
	}
	defer s.close()
	if err := s.echo(ctx, strings.Repeat("echo ", 100)); err != nil {
		t.Errorf("%s: %v", why, err)
	}
}
