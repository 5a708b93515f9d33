package transport_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dialback/dialback/internal/memnet"
	"github.com/dialback/dialback/transport"
)

// FuzzHandshake: whatever a server answers, a dial ends in time, and its error
// tells no secret.
func FuzzHandshake(f *testing.F) {
	for _, s := range []string{
		"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n\x81\x02hi",
		"HTTP/1.1 503 Busy\r\nRetry-After: 7\r\nContent-Length: 42\r\n\r\n" + `{"error":{"code":"draining","message":""}}`,
		"HTTP/1.1 429 x\r\nRetry-After: Fri, 31 Dec 9999 23:59:59 GMT\r\n\r\n",
		"HTTP/1.1 302 x\r\nLocation: http://other/?a-secret-token\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n",
		"HTTP/1.1 401 x\r\nContent-Length: 30\r\n\r\n" + `{"error":{"code":"a-secret-tok`,
		"a-secret-token\r\n\r\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, answer []byte) {
		synctest.Test(t, func(t *testing.T) {
			var network memnet.Network
			ln, err := network.Listen("relay:80")
			if err != nil {
				t.Fatal(err)
			}
			defer ln.Close()
			var served net.Conn
			go func() {
				if served, err = ln.Accept(); err == nil {
					http.ReadRequest(bufio.NewReader(served))
					served.Write(answer)
				}
			}()
			start := time.Now()
			c, err := transport.Dial(t.Context(), "ws://relay:80/?token=a-secret-token", &transport.DialOptions{
				Transport: &http.Transport{DialContext: network.DialContext}, HandshakeTimeout: 10 * time.Second,
			})
			if took := time.Since(start); took > 10*time.Second {
				t.Errorf("Dial took %v", took)
			}
			if err == nil {
				served.Close()
				drain(c)
				<-c.Done()
				return
			}
			defer served.Close()
			var answered *transport.HandshakeError
			if errors.As(err, &answered) && (answered.RetryAfter < 0 || answered.RetryAfter > 24*time.Hour) {
				t.Errorf("Retry-After is %v", answered.RetryAfter)
			}
			if strings.Contains(err.Error(), "a-secret-token") {
				t.Errorf("the error tells the token: %v", err)
			}
		})
	})
}

// FuzzConn: whatever bytes come behind the handshake, reading ends with them or
// before, no message is larger than the limit, and the connection is over in
// time.
func FuzzConn(f *testing.F) {
	for _, s := range []string{
		string(rawFrame(true, 1, "hello")) + string(rawFrame(true, 8, "\x03\xe8bye")),
		string(rawFrame(false, 2, "he")) + string(rawFrame(true, 9, "ping")) + string(rawFrame(true, 0, "llo")),
		string(rawFrame(true, 1, strings.Repeat("x", 300))), string(rawFrame(true, 10, "")),
		"\x82\xff\xff\xff\xff\xff\xff\xff\xff\xff\x00\x00\x00\x00", "\xc1\x80\x00\x00\x00\x00", "\x83\x80\x00\x00\x00\x00", "\x81\x05hello",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		synctest.Test(t, func(t *testing.T) {
			const limit = 256
			var network memnet.Network
			ln, err := network.Listen("relay:80")
			if err != nil {
				t.Fatal(err)
			}
			accepted := make(chan transport.Conn, 1)
			srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				c, err := transport.Accept(w, r, &transport.AcceptOptions{Options: transport.Options{ReadLimit: limit, CloseTimeout: time.Second}})
				if err != nil {
					t.Errorf("accept: %v", err)
				}
				accepted <- c
			})}
			go srv.Serve(ln)
			defer srv.Close()
			nc, err := network.DialContext(t.Context(), "tcp", "relay:80")
			if err != nil {
				t.Fatal(err)
			}
			p := newRawPeer(t, nc, stream)
			go io.Copy(io.Discard, p.br)
			c := <-accepted
			go c.Write(transport.Text, []byte("meanwhile"))
			time.AfterFunc(time.Second, func() { nc.(*memnet.Conn).CloseWrite() })
			for {
				_, r, err := c.Reader()
				if err != nil {
					break
				}
				if n, _ := io.Copy(io.Discard, r); n > limit {
					t.Errorf("a message of %d bytes passed the limit of %d", n, limit)
				}
			}
			start := time.Now()
			c.Close(transport.CloseNormal, "")
			<-c.Done()
			if took := time.Since(start); took > 2*time.Second {
				t.Errorf("the connection was over %v after Close", took)
			}
			nc.Close()
		})
	})
}

// drain reads c to its end.
func drain(c transport.Conn) {
	for {
		_, r, err := c.Reader()
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, r)
	}
}
