package agent_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/dialback/dialback/agent"
	"github.com/dialback/dialback/transport"
)

// BenchmarkHTTP is one small GET at a time over one stream: relay to agent, and
// to a local service.
func BenchmarkHTTP(b *testing.B) {
	answer := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 1024)) })
	local := httptest.NewServer(answer)
	defer local.Close()
	for _, bb := range []struct {
		name    string
		handler agent.Handler
	}{
		{"HTTP", agent.HTTP(answer)},
		{"ForwardHTTP", agent.ForwardHTTP(local.URL)},
	} {
		b.Run(bb.name, func(b *testing.B) {
			dial := benchRelay(b, bb.handler, transport.ProtoHTTP)
			client := &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return dial(), nil }}}
			defer client.CloseIdleConnections()
			b.ReportAllocs()
			for b.Loop() {
				res, err := client.Get("http://any/")
				if err != nil {
					b.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, res.Body)
				_ = res.Body.Close()
			}
		})
	}
}

// BenchmarkForwardTCP is the round trip of an echo.
func BenchmarkForwardTCP(b *testing.B) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer ln.Close()
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(conn, conn) }()
		}
	}()
	conn := benchRelay(b, agent.ForwardTCP(ln.Addr().String()), transport.ProtoRaw)()
	defer conn.Close()
	buf := make([]byte, 32)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := conn.Write(buf); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(conn, buf); err != nil {
			b.Fatal(err)
		}
	}
}

// benchRelay runs an agent and a relay over TCP, and returns what opens a
// stream.
func benchRelay(b *testing.B, h agent.Handler, proto string) func() *transport.StreamConn {
	dialed := make(chan transport.Conn, 1)
	controls := make(chan transport.Conn, 1)
	relay := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := transport.Accept(w, r, &transport.AcceptOptions{Options: transport.Options{ReadLimit: -1}})
		if err != nil {
			b.Error(err)
			return
		}
		if r.URL.Path == "/v2/dial" {
			if _, m, err := conn.Reader(); err == nil {
				_, _ = io.Copy(io.Discard, m) // stream:opened
			}
			dialed <- conn
			return
		}
		_ = conn.Write(transport.Text, transport.Encode(transport.Hello{Generation: 1}))
		controls <- conn
		for {
			_, m, err := conn.Reader()
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, m)
		}
	}))
	a, err := agent.New(agent.Config{RelayURL: relay.URL, HostID: "h", Services: map[string]agent.Handler{"": h}})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	b.Cleanup(func() {
		cancel()
		<-done
		relay.Close()
	})
	control := <-controls
	return func() *transport.StreamConn {
		dial := transport.StreamDial{Ticket: "t", Kind: transport.KindTCP, Proto: proto, Generation: 1}
		if err := control.Write(transport.Text, transport.Encode(dial)); err != nil {
			b.Fatal(err)
		}
		return transport.NewStreamConn(<-dialed)
	}
}
