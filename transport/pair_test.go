package transport_test

import (
	"net"
	"net/http"
	"testing"

	"github.com/dialback/dialback/internal/memnet"
	"github.com/dialback/dialback/transport"
)

// pairOver connects a and b by a WebSocket: a has dialed url by tr, b was
// accepted by an http.Server on l. stop cuts both and takes the server down.
func pairOver(t testing.TB, o transport.Options, l net.Listener, tr *http.Transport, url string) (a, b transport.Conn, stop func()) {
	t.Helper()
	accepted := make(chan transport.Conn, 1)
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := transport.Accept(w, r, &transport.AcceptOptions{Options: o})
		if err != nil {
			t.Errorf("Accept: %v", err)
		}
		accepted <- c
	})}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = srv.Serve(l)
	}()
	a, err := transport.Dial(t.Context(), url, &transport.DialOptions{Options: o, Transport: tr})
	if err != nil {
		t.Fatalf("Dial: %v", err)
	}
	b = <-accepted
	return a, b, func() {
		a.CloseNow()
		b.CloseNow()
		<-a.Done()
		<-b.Done()
		_ = srv.Close()
		<-served
	}
}

// memPair is a WebSocket over an in-memory network.
func memPair(t *testing.T, o transport.Options) (a, b transport.Conn, stop func()) {
	t.Helper()
	var n memnet.Network
	l, err := n.Listen("relay:80")
	if err != nil {
		t.Fatal(err)
	}
	return pairOver(t, o, l, &http.Transport{DialContext: n.DialContext}, "ws://relay:80")
}

// tcpPair is a WebSocket over TCP on loopback.
func tcpPair(t *testing.T, o transport.Options) (a, b transport.Conn, stop func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return pairOver(t, o, l, nil, "ws://"+l.Addr().String())
}

// pipePair is a Pipe.
func pipePair(_ *testing.T, o transport.Options) (a, b transport.Conn, stop func()) {
	a, b = transport.Pipe(&o)
	return a, b, func() {
		a.CloseNow()
		b.CloseNow()
		<-a.Done()
		<-b.Done()
	}
}
