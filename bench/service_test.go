package bench_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"strconv"

	"github.com/dialback/dialback/agent"
	"github.com/dialback/dialback/transport"
)

// What goes over the paths, in bytes.
const (
	smallSize = 1 << 10
	postSize  = 1 << 20
	bigSize   = 64 << 20
	bulkSize  = 32 << 20
	chunkSize = 32 << 10 // of bulk, one message
	echoSize  = 64
)

// greeting is the first byte of a new stream.
const greeting = "!"

// pattern has a length that is no power of two, so that a piece that is lost or
// doubled shows.
var pattern = newPattern(1<<20 - 7)

func newPattern(n int) []byte {
	p := make([]byte, n)
	x := uint32(1)
	for i := range p {
		x = x*1664525 + 1013904223
		p[i] = byte(x >> 24)
	}
	return p
}

// serviceHandler is the service, the same in its own process and in the
// agent's.
func serviceHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /small", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/octet-stream")
		_, _ = w.Write(pattern[:smallSize])
	})
	mux.HandleFunc("POST /echo", serveEchoPost)
	mux.HandleFunc("GET /big", serveBig)
	mux.HandleFunc("GET /ws/echo", serveWebSocket(echoMessages))
	mux.HandleFunc("GET /ws/greet", serveWebSocket(func(c transport.Conn) error { return c.Write(transport.Binary, []byte(greeting)) }))
	mux.HandleFunc("GET /ws/sink", serveWebSocket(sinkMessages))
	mux.HandleFunc("GET /ws/flood", serveWebSocket(floodMessages))
	return mux
}

// serveEchoPost reads the whole request before it answers, as most services do.
func serveEchoPost(w http.ResponseWriter, r *http.Request) {
	body := make([]byte, 0, max(r.ContentLength, 512))
	buf := bytes.NewBuffer(body)
	if _, err := buf.ReadFrom(r.Body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.Itoa(buf.Len()))
	_, _ = w.Write(buf.Bytes())
}

func serveBig(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.Itoa(bigSize))
	for left := bigSize; left > 0; {
		n, err := w.Write(pattern[:min(left, len(pattern))])
		if err != nil {
			return
		}
		left -= n
	}
}

// serveWebSocket accepts a WebSocket, serves it and then closes it cleanly.
func serveWebSocket(serve func(transport.Conn) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c, err := transport.Accept(w, r, &transport.AcceptOptions{Options: transport.Options{ReadLimit: -1}})
		if err != nil {
			return
		}
		if err := serve(c); err != nil {
			c.CloseNow()
		} else {
			c.Close(transport.CloseNormal, "")
		}
		for err == nil { // the client's close is noticed only by a reader
			_, _, err = c.Reader()
		}
		<-c.Done()
	}
}

// echoMessages answers each message with itself until the client closes.
func echoMessages(c transport.Conn) error {
	var buf bytes.Buffer
	for {
		t, r, err := c.Reader()
		if err != nil {
			return err
		}
		buf.Reset()
		if _, err := buf.ReadFrom(r); err != nil {
			return err
		}
		if err := c.Write(t, buf.Bytes()); err != nil {
			return err
		}
	}
}

// sinkMessages takes binary messages up to a text message and answers how many
// bytes they had.
func sinkMessages(c transport.Conn) error {
	buf := make([]byte, chunkSize)
	for total := 0; ; {
		t, r, err := c.Reader()
		if err != nil {
			return err
		}
		n, err := drain(r, buf)
		if err != nil {
			return err
		}
		total += n
		if t == transport.Text {
			return c.Write(transport.Text, strconv.AppendInt(nil, int64(total-n), 10))
		}
	}
}

// drain reads r to its end through buf and returns its length.
func drain(r io.Reader, buf []byte) (int, error) {
	for total := 0; ; {
		n, err := r.Read(buf)
		total += n
		if err == io.EOF {
			return total, nil
		}
		if err != nil {
			return total, err
		}
	}
}

// floodMessages waits for a message and then sends bulkSize.
func floodMessages(c transport.Conn) error {
	_, r, err := c.Reader()
	if err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, r); err != nil {
		return err
	}
	for range bulkSize / chunkSize {
		if err := c.Write(transport.Binary, pattern[:chunkSize]); err != nil {
			return err
		}
	}
	return nil
}

// serveGreeting speaks first on each connection and waits for its end.
func serveGreeting(ln net.Listener) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		go greet(c)
	}
}

func greet(c net.Conn) {
	defer c.Close()
	if _, err := io.WriteString(c, greeting); err == nil {
		_, _ = io.Copy(io.Discard, c)
	}
}

// greetStream is serveGreeting in the agent's process.
func greetStream(_ context.Context, s *agent.Stream) { greet(s) }
