package main

import (
	"net"
	"net/http"
	"time"

	"github.com/dialback/dialback/relay"
	"github.com/dialback/dialback/store/memory"
)

// relayServer is a relay that listens on this machine only.
type relayServer struct {
	url   string
	relay *relay.Server
	http  *http.Server
}

// startRelay is all that a relay needs: a store, two functions that decide who
// may come, and an HTTP server. This one lets everybody in.
func startRelay(listen string) (*relayServer, error) {
	srv, err := relay.New(relay.Config{
		Store:           memory.New(),
		AuthorizeHost:   relay.AllowAll,
		AuthorizeClient: relay.AllowAll,
	})
	if err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", listen)
	if err != nil {
		srv.Close()
		return nil, err
	}
	r := &relayServer{
		url:   "http://" + ln.Addr().String(),
		relay: srv,
		http:  &http.Server{Handler: srv, ReadHeaderTimeout: 10 * time.Second},
	}
	go r.http.Serve(ln)
	return r, nil
}

// stop ends everything at once. A server that others use would drain first: see
// examples/embed.
func (r *relayServer) stop() {
	r.relay.Close()
	r.http.Close()
}
