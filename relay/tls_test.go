package relay_test

import (
	"context"
	"crypto/tls"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dialback/dialback/agent"
	"github.com/dialback/dialback/relay"
	"github.com/dialback/dialback/store"
	"github.com/dialback/dialback/store/memory"
)

// tlsNode is a node behind HTTPS on a loopback port. It trusts the others if
// trust says so.
func tlsNode(t *testing.T, st store.Store, id string, trust bool) (srv *relay.Server, ts *httptest.Server) {
	t.Helper()
	var handler atomic.Value
	ts = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler.Load().(http.HandlerFunc).ServeHTTP(w, r)
	}))
	ts.Config.ErrorLog = log.New(io.Discard, "", 0) // of handshakes that fail
	handler.Store(http.HandlerFunc(http.NotFound))
	ts.StartTLS()
	node := relay.Node{ID: id, URL: ts.URL, Key: []byte("the key of all the nodes")}
	if trust {
		node.TLS = clientTLS(ts)
	}
	srv, err := relay.New(relay.Config{Store: st, AuthorizeHost: relay.AllowAll, AuthorizeClient: relay.AllowAll, Node: node})
	if err != nil {
		t.Fatal(err)
	}
	handler.Store(http.HandlerFunc(srv.ServeHTTP))
	t.Cleanup(func() {
		srv.Close()
		ts.Close()
	})
	return srv, ts
}

// clientTLS trusts the certificate that all servers of httptest have.
func clientTLS(ts *httptest.Server) *tls.Config {
	return ts.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
}

// Nodes that are reached by https call each other, and hand dial-backs over, by
// TLS; one whose certificate is not trusted is not called at all.
func TestCluster_NodesByTLS(t *testing.T) {
	for _, trust := range []bool{true, false} {
		st := memory.New()
		_, first := tlsNode(t, st, "first", trust)
		_, second := tlsNode(t, st, "second", trust)
		online := make(chan struct{}, 10)
		a, err := agent.New(agent.Config{
			RelayURL: first.URL, HostID: "h", Transport: &http.Transport{TLSClientConfig: clientTLS(first)},
			Services: map[string]agent.Handler{"": text("by TLS")},
			Hooks:    agent.Hooks{Online: func(agent.Online) { online <- struct{}{} }},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); a.Run(ctx) }()
		select {
		case <-online:
		case <-time.After(time.Minute):
			t.Fatal("the agent is not online")
		}
		resp, err := second.Client().Get(second.URL + "/hosts/h/")
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if code := resp.Header.Get("Dialback-Error"); trust && string(b) != "by TLS" || !trust && code != "node_unreachable" {
			t.Errorf("trusted %v: %d %q %s", trust, resp.StatusCode, code, b)
		}
		cancel()
		<-done
		second.Client().CloseIdleConnections()
	}
}
