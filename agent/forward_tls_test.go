package agent_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dialback/dialback/agent"
)

// certified returns the configurations of a TLS server that is example.com, and
// of a client that believes it.
func certified() (server, client *tls.Config) {
	srv := httptest.NewUnstartedServer(nil)
	srv.StartTLS()
	defer srv.Close()
	return &tls.Config{Certificates: srv.TLS.Certificates, NextProtos: []string{"h2", "http/1.1"}},
		&tls.Config{RootCAs: srv.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}
}

// secure runs an agent that forwards to https://example.com, where serve serves
// connections before their handshake.
func secure(t *testing.T, client *tls.Config, serve func(net.Listener)) (*fakeControl, *countingDialer) {
	r := newFakeRelay(t)
	ln, err := r.net.Listen("example.com:443")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go serve(ln)
	d := &countingDialer{net: &r.net}
	return serving(t, r, agent.ForwardHTTPWith("https://example.com", agent.HTTPOptions{DialContext: d.dial, TLSClientConfig: client})), d
}

// Requests to an https target share connections, by HTTP/1.1.
func TestForwardHTTP_TLS(t *testing.T) {
	server, client := certified()
	synctest.Test(t, func(t *testing.T) {
		srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, r.Proto, " ", r.TLS.NegotiatedProtocol, " ", r.TLS.ServerName, " ", r.Host)
		})}
		c, d := secure(t, client, func(ln net.Listener) { _ = srv.Serve(tls.NewListener(ln, server)) })
		defer srv.Close()
		for range 2 {
			res, err := httpClient(c).Get("http://any/")
			if got := body(t, res, err); got != "HTTP/1.1 http/1.1 example.com example.com" {
				t.Errorf("the service was asked by %q", got)
			}
			time.Sleep(time.Second)
		}
		if n := d.dials.Load(); n != 1 {
			t.Errorf("%d connections, want one", n)
		}
	})
}

// A handshake that fails is told apart from a service that is down, and has the
// bound of a dial.
func TestForwardHTTP_TLSHandshake(t *testing.T) {
	server, client := certified()
	for _, tt := range []struct {
		name    string
		client  *tls.Config
		silent  bool
		after   time.Duration
		message string
	}{
		{"unknown certificate", nil, false, 0, "service down: TLS handshake failed"},
		{"silence", client, true, 5 * time.Second, "service down: timed out"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, _ := secure(t, tt.client, func(ln net.Listener) {
					conn, err := ln.Accept()
					if err != nil {
						return
					}
					defer conn.Close()
					if tt.silent {
						_, _ = io.Copy(io.Discard, conn)
					} else {
						_ = tls.Server(conn, server).Handshake()
					}
				})
				began := time.Now()
				res, err := httpClient(c).Get("http://any/")
				if got := body(t, res, err); res.StatusCode != 502 || !strings.Contains(got, tt.message) {
					t.Errorf("%d %s, want %q", res.StatusCode, got, tt.message)
				}
				if d := time.Since(began); d != tt.after {
					t.Errorf("the answer came after %v, want %v", d, tt.after)
				}
			})
		})
	}
}
