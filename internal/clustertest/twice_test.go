//go:build linux

package clustertest

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/dialback/dialback/internal/proctest"
)

// A balancer sends no request to a second node once the first may have it, if to
// carry it out twice may make a difference: here each node takes a request whole
// and is gone before it answers.
func TestBalancer_SendsNothingTwice(t *testing.T) {
	// To the letter: what treats some methods apart must not touch the path.
	const path = "/hosts/h//a%2Fb/../order?q=%20"
	for name, startBalancer := range balancers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			network := proctest.Network()
			nodes := startLostNodes(t, network)
			b := startBalancer(t, network, plain)
			// One for each node, as nginx passes over one that has failed for a while.
			for _, method := range []string{"PUT", "DELETE", "POST"} {
				r := do(t.Context(), onceClient, method, b.address()+path, "one")
				if got := nodes.taken(method); len(got) != 1 || got[0] != path {
					t.Errorf("%s %s, which got %v, reached nodes as %q, want once and as it is", method, path, r, got)
				}
			}
		})
	}
}

// onceClient makes a connection for each request, and so sends none again.
var onceClient = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: proctest.Patience}

// lostNodes are three nodes that answer nothing but /health.
type lostNodes struct {
	mu   sync.Mutex
	seen map[string][]string // request URIs by method
}

func startLostNodes(t *testing.T, network string) *lostNodes {
	t.Helper()
	l := &lostNodes{seen: make(map[string][]string)}
	for _, n := range []string{"1", "2", "3"} {
		ln, err := net.Listen("tcp", network+n+":8080")
		if err != nil {
			t.Fatal(err)
		}
		srv := &http.Server{Handler: l}
		served := make(chan error, 1)
		go func() { served <- srv.Serve(ln) }()
		t.Cleanup(func() {
			_ = srv.Close()
			if err := <-served; !errors.Is(err, http.ErrServerClosed) {
				t.Errorf("node %s: %v", n, err)
			}
		})
	}
	return l
}

func (l *lostNodes) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/health" {
		return
	}
	body, _ := io.ReadAll(r.Body)
	l.mu.Lock()
	l.seen[r.Method] = append(l.seen[r.Method], r.RequestURI)
	if !strings.HasPrefix(string(body), "one") {
		l.seen[r.Method] = append(l.seen[r.Method], "with the body "+string(body))
	}
	l.mu.Unlock()
	panic(http.ErrAbortHandler)
}

// taken returns what the nodes got of a method.
func (l *lostNodes) taken(method string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seen[method]
}
