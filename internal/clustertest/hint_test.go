//go:build linux

package clustertest

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/dialback/dialback/agent"
	"github.com/dialback/dialback/internal/proctest"
	"github.com/dialback/dialback/relay"
	"github.com/dialback/dialback/store"
	"github.com/dialback/dialback/store/memory"
	"github.com/dialback/dialback/transport"
)

// counted are nodes in the test's process, whose counters can be read.
type counted struct {
	network string
	servers []*relay.Server
}

// startCounted starts nodes with the IDs node1, node2, and so on. They end with
// the test.
func startCounted(t *testing.T, n int) *counted {
	t.Helper()
	c := &counted{network: proctest.Network()}
	st := memory.New()
	for i := range n {
		c.add(t, i+1, st)
	}
	return c
}

func (c *counted) add(t *testing.T, i int, st store.Store) {
	t.Helper()
	addr := fmt.Sprint(c.network, i, ":", nodesPort)
	srv, err := relay.New(relay.Config{
		Store: st, AuthorizeHost: relay.AllowAll, AuthorizeClient: relay.AllowAll,
		Node: relay.Node{ID: fmt.Sprint("node", i), URL: "http://" + addr, Key: []byte("a key for the nodes of a test")},
	})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	hs := &http.Server{Handler: srv}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = hs.Serve(ln) // until Close
	}()
	t.Cleanup(func() {
		_ = srv.Close()
		_ = hs.Close()
		<-served
	})
	c.servers = append(c.servers, srv)
}

func (c *counted) url(i int) string { return fmt.Sprint("http://", c.network, i, ":", nodesPort) }

// hops is how many dial-backs were handed from node to node.
func (c *counted) hops() (n uint64) {
	for _, s := range c.servers {
		n += s.Stats().Hops
	}
	return n
}

// Every client and every dial-back may land anywhere, and with the ticket's
// hint each dial-back lands where its client waits: nothing hops, hosts of
// protocol 2 included. The fourth node is one that the balancer does not know.
func TestBalancer_Hint(t *testing.T) {
	for name, startBalancer := range balancers {
		for _, h := range []hint{hinted, plain} {
			t.Run(name+"/"+h.String(), func(t *testing.T) {
				t.Parallel()
				nodes := startCounted(t, 4)
				b := startBalancer(t, nodes.network, h)
				var hosts []*host
				for i := range 6 {
					hosts = append(hosts, startHost(t, b.address(), fmt.Sprint("h", i), nil))
				}
				awaitOnline(t, hosts...)
				v2 := connect(t, b.address(), "v2", script{})
				v2.serve(b.address(), "v2")

				everything := func(relay string) {
					for round := range 3 {
						for _, h := range hosts {
							path := fmt.Sprint("/", round)
							get(relay, h.id, path).want(t, "GET", 200, h.id+" "+path)
							wantEcho(t, "WebSocket", relay, h.id)
							wantBytes(t, relay, h.id)
						}
						get(relay, "v2", "/x").want(t, "GET of a v2 host", 200, "v2 /x")
						wantEcho(t, "WebSocket of a v2 host", relay, "v2")
					}
				}
				everything(b.address())
				switch n := nodes.hops(); {
				case h == hinted && n > 0:
					t.Errorf("%d dial-backs hopped; with the hint each lands where its client waits", n)
				case h == plain && n == 0:
					t.Error("no dial-back hopped: the hint is tested by nothing")
				}
				before := nodes.hops()
				everything(nodes.url(4))
				if nodes.hops() == before {
					t.Error("no dial-back hopped to a node that the balancer does not know")
				}
			})
		}
	}
}

// wantBytes checks that a byte stream to the raw echo of a host works.
func wantBytes(t *testing.T, relay, host string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), proctest.Patience)
	defer cancel()
	conn, err := transport.Dial(ctx, relay+"/connect/"+host+"?service=echo", &transport.DialOptions{Transport: onceTransport})
	if err != nil {
		t.Errorf("stream to %s: %v", host, err)
		return
	}
	s := transport.NewStreamConn(conn)
	defer func() {
		_ = s.Close()
		<-conn.Done()
	}()
	_ = s.SetDeadline(time.Now().Add(proctest.Patience))
	want := strings.Repeat("bytes ", 20_000)
	go func() {
		_, _ = io.WriteString(s, want) // what is missing is missed below
		_ = s.CloseWrite()
	}()
	if got, err := io.ReadAll(s); string(got) != want || err != nil {
		t.Errorf("stream to %s: %d bytes of %d, %v", host, len(got), len(want), err)
	}
}

// What the README says of a balancer that must not get in the way: requests and
// answers pass as they come, whatever their size, and paths to the letter.
func TestBalancer_GetsNotInTheWay(t *testing.T) {
	for name, startBalancer := range balancers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nodes := startCounted(t, 3)
			b := startBalancer(t, nodes.network, hinted)
			s := newSlowService()
			h := startHost(t, b.address(), "h", map[string]agent.Handler{"": agent.HTTP(s)})
			awaitOnline(t, h)

			const path = "/a//b/%2e%2e/c%2Fd/?x=1&&y=%20"
			if r := get(b.address(), "h", path); r.body != path {
				t.Errorf("the host was asked for %v, want %q: paths are not cleaned, decoded or escaped", r, path)
			}

			big := strings.Repeat("0123456789abcdef", 1<<18) // 4 MiB
			if r := do(t.Context(), proctest.Client, "POST", b.address()+"/hosts/h/echo", big); r.body != big {
				t.Errorf("echo of %d bytes: %v", len(big), r)
			}

			s.answerInParts(t, b.address()+"/hosts/h/parts")
			s.askInParts(t, b.address()+"/hosts/h/upload")

			if r := do(t.Context(), proctest.Client, "POST", b.address()+"/node/dial", "{}"); r.status != 404 {
				t.Errorf("a node call from outside: %v, want 404 of the balancer", r)
			}
		})
	}
}

// slowService is a service that waits for its client in the middle of answers,
// and lets it wait in the middle of requests.
type slowService struct {
	seen chan string   // sent to by the service for each part of a request
	more chan struct{} // the service waits for it between two parts of an answer
}

func newSlowService() *slowService {
	return &slowService{seen: make(chan string, 8), more: make(chan struct{}, 1)}
}

func (s *slowService) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/parts":
		_, _ = io.WriteString(w, "first ")
		_ = http.NewResponseController(w).Flush()
		select {
		case <-s.more:
		case <-r.Context().Done():
		}
		_, _ = io.WriteString(w, "second")
	case "/upload":
		part := make([]byte, 64)
		for {
			n, err := r.Body.Read(part)
			if n > 0 {
				s.seen <- string(part[:n])
			}
			if err != nil {
				return
			}
		}
	case "/echo":
		_, _ = io.Copy(w, r.Body)
	default:
		_, _ = io.WriteString(w, r.RequestURI)
	}
}

// answerInParts lets the service send the second part of its answer when the
// first has come.
func (s *slowService) answerInParts(t *testing.T, url string) {
	t.Helper()
	resp, err := proctest.Client.Get(url)
	if err != nil {
		t.Errorf("an answer in parts: %v; the first part must not wait for the second", err)
		return
	}
	defer resp.Body.Close()
	first := make([]byte, len("first "))
	if _, err := io.ReadFull(resp.Body, first); err != nil {
		t.Errorf("an answer in parts: %v; the first part must not wait for the second", err)
		return
	}
	s.more <- struct{}{}
	if rest, err := io.ReadAll(resp.Body); string(rest) != "second" || err != nil {
		t.Errorf("an answer in parts ends with %q, %v", rest, err)
	}
}

// askInParts sends the second part of a request when the service has the first.
func (s *slowService) askInParts(t *testing.T, url string) {
	t.Helper()
	body, parts := io.Pipe()
	done := make(chan error, 1)
	go func() {
		resp, err := proctest.Client.Post(url, "text/plain", body)
		if err == nil {
			err = resp.Body.Close()
		}
		done <- err
	}()
	for _, part := range []string{"first", "second"} {
		_, _ = io.WriteString(parts, part)
		select {
		case got := <-s.seen:
			if got != part {
				t.Errorf("a request in parts: the service got %q, want %q", got, part)
			}
		case <-time.After(proctest.Patience):
			t.Errorf("a request in parts: %q has not come; a request must not be collected first", part)
		}
	}
	_ = parts.Close()
	if err := <-done; err != nil {
		t.Errorf("a request in parts: %v", err)
	}
}
