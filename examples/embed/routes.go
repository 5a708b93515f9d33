package main

import (
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/dialback/dialback/relay"
)

// routes decides between the hosts' subdomains, the relay and the routes that
// the server had before.
func (a *app) routes() http.Handler {
	mounted := http.StripPrefix("/relay", a.relay)
	own := a.ownRoutes()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if hostID, ok := subdomain(r.Host, a.cfg.Domain); ok {
			a.relay.ServeHost(w, r, hostID, relay.Target{})
			return
		}
		// Not by the ServeMux: it would clean the path, and hosts are to get
		// theirs to the letter.
		if strings.HasPrefix(r.URL.Path, "/relay/") {
			mounted.ServeHTTP(w, r)
			return
		}
		own.ServeHTTP(w, r)
	})
}

// ownRoutes are those of the existing server, and two for deployed v2 hosts,
// which ignore the path of their relay's URL.
func (a *app) ownRoutes() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/v2/control", a.relay.ControlHandler())
	mux.Handle("/v2/dial", a.relay.DialHandler())
	mux.HandleFunc("GET /ready", a.serveReady)
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "the server that was here before")
	})
	return mux
}

// serveReady is for the load balancer.
func (a *app) serveReady(w http.ResponseWriter, _ *http.Request) {
	if !a.ready.Load() {
		http.Error(w, "draining", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ready")
}

// subdomain returns the first label of a Host header that is one label below
// domain.
func subdomain(host, domain string) (string, bool) {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	label, rest, _ := strings.Cut(strings.ToLower(strings.TrimSuffix(host, ".")), ".")
	return label, label != "" && rest == domain
}
