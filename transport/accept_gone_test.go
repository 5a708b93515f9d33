package transport_test

import (
	"bufio"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/dialback/dialback/transport"
)

// goneWriter is a ResponseWriter whose client leaves as it is hijacked.
type goneWriter struct {
	*httptest.ResponseRecorder
	hijacked bool
	late     []int // what was answered after that
}

func (w *goneWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.hijacked = true
	client, server := net.Pipe()
	client.Close()
	server.Close() // SetDeadline fails
	return server, bufio.NewReadWriter(bufio.NewReader(server), bufio.NewWriter(server)), nil
}

func (w *goneWriter) WriteHeader(code int) {
	if w.hijacked {
		w.late = append(w.late, code)
	}
	w.ResponseRecorder.WriteHeader(code)
}

// A client that leaves in the middle of its upgrade is an end like any other:
// nothing is written for it to the log of the http.Server.
func TestAccept_ClientLeavesDuringTheUpgrade(t *testing.T) {
	r := httptest.NewRequest("GET", "/", nil)
	r.Header = http.Header{
		"Connection": {"Upgrade"}, "Upgrade": {"websocket"},
		"Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="},
	}
	w := &goneWriter{ResponseRecorder: httptest.NewRecorder()}
	c, err := transport.Accept(w, r, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseNow()
	if _, _, err := c.Reader(); err == nil {
		t.Error("a message came from a client that has left")
	}
	<-c.Done()
	if w.late != nil {
		t.Errorf("answers %v after the connection was hijacked", w.late)
	}
}
