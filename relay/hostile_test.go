package relay_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/dialback/dialback/internal/memnet"
	"github.com/dialback/dialback/relay"
	"github.com/dialback/dialback/relaytest"
	"github.com/dialback/dialback/store"
	"github.com/dialback/dialback/transport"
)

// logged is a relay whose http.Server logs to log: net/http says there when a
// handler has panicked.
func logged(t *testing.T, log_ io.Writer, o relaytest.Options) *relaytest.Server {
	t.Helper()
	o.HTTP = func(h *http.Server) { h.ErrorLog = log.New(log_, "", 0) }
	return relaytest.NewServer(t, &o)
}

// sayRaw is an OnDial of an agent whose HTTP service says what it likes.
func sayRaw(answer string) func(*relaytest.Host, transport.StreamDial) {
	return func(h *relaytest.Host, d transport.StreamDial) {
		c, err := h.Open(d)
		if err != nil {
			return
		}
		if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
			io.WriteString(c, answer)
		}
	}
}

// A host cannot answer with a number that is no status of an answer: net/http
// panics when it is told to write some of them, and takes others for the begin
// of something else.
func TestHTTP_StatusThatIsNoAnswer(t *testing.T) {
	for _, line := range []string{"000 Zero", "099 Ninety-nine", "+99 Plus", "101 Switching Protocols"} {
		bubble(t, func(t *testing.T) {
			var log lockedBuffer
			s := logged(t, &log, relaytest.Options{})
			s.MustConnect("h", relaytest.HostConfig{Proto: 3, OnDial: sayRaw("HTTP/1.1 " + line + "\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\nHTTP/1.1 200 OK\r\n\r\n")})
			get(s, "/hosts/h/x").want(t, line, 502, "bad_answer")
			settled(t, s, line)
			if strings.Contains(log.String(), "panic") {
				t.Errorf("%s: %s", line, log.String())
			}
		})
	}
	for _, status := range []int{100, 101, 103, 199} {
		bubble(t, func(t *testing.T) {
			s := server(t, nil)
			s.MustConnect("h", relaytest.HostConfig{OnDial: relaytest.AnswerHTTP(func(transport.HTTPRequest, []byte) (int, string) { return status, "x" })})
			get(s, "/hosts/h/x").want(t, fmt.Sprintf("%d of a v2 host", status), 502, "bad_answer")
			settled(t, s, "a v2 host")
		})
	}
}

// What the embedder's middleware has set is on every answer, whatever the host
// sends before it, and on those that the relay makes itself.
func TestHTTP_EmbeddersHeadersStay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := relaytest.NewServer(t, &relaytest.Options{Wrap: func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Security-Policy", "sandbox")
				w.Header().Set("Strict-Transport-Security", "max-age=1")
				h.ServeHTTP(w, r)
			})
		}})
		early := "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\nClear-Site-Data: *\r\nConnection: close\r\n\r\n"
		s.MustConnect("h", relaytest.HostConfig{Proto: 3, OnDial: sayRaw(early + "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nStrict-Transport-Security: max-age=0\r\n\r\nx")})
		wantSet := func(what string, h http.Header) {
			t.Helper()
			if h.Get("Content-Security-Policy") != "sandbox" || h.Get("Strict-Transport-Security") != "max-age=1" {
				t.Errorf("%s: the embedder's headers are not on it: %v", what, h)
			}
		}
		c, err := s.Transport().DialContext(context.Background(), "tcp", "relay.test:80")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprintf(c, "GET /hosts/h/ HTTP/1.1\r\nHost: x\r\n\r\n")
		br := bufio.NewReader(c)
		for _, want := range []int{103, 200} {
			resp, err := http.ReadResponse(br, nil)
			if err != nil || resp.StatusCode != want {
				t.Fatalf("want %d: %v %v", want, resp, err)
			}
			if want == 200 {
				wantSet("an answer after early hints", resp.Header)
			} else if resp.Header.Get("Link") == "" || len(resp.Header) != 1 {
				t.Errorf("early hints have %v, want the Link alone", resp.Header)
			}
		}
		wantSet("an error of the relay's", get(s, "/hosts/nobody/").header)
	})
}

// A request of the embedder's own that would be two on the wire is refused: the
// second one would ride on a stream that clients share.
func TestRoundTripper_NeverWritesTwoRequests(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		s.StartAgent("h", handler(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.RequestURI) }), nil)
		rt := s.Relay.RoundTripper("h", relay.Target{})
		const second = "x HTTP/1.1\r\nHost: x\r\n\r\nGET /second"
		for what, change := range map[string]func(*http.Request){
			"method":  func(r *http.Request) { r.Method = "GET /" + second },
			"query":   func(r *http.Request) { r.URL.RawQuery = second },
			"host":    func(r *http.Request) { r.Host = "x\r\n\r\nGET / HTTP/1.1\r\nHost: x" },
			"upgrade": func(r *http.Request) { r.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"x\r\nA: b"}} },
		} {
			r, _ := http.NewRequest("GET", "http://h/ok", nil)
			change(r)
			if resp, err := rt.RoundTrip(r); !errors.Is(err, relay.ErrBadRequest) {
				t.Errorf("%s: %v, %v, want ErrBadRequest", what, resp, err)
			}
		}
		r, _ := http.NewRequest("GET", "http://h/a%20b?c=%0d%0a", nil)
		resp, err := rt.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		if b, _ := io.ReadAll(resp.Body); string(b) != "/a%20b?c=%0d%0a" {
			t.Errorf("what is escaped arrived as %q", b)
		}
		settled(t, s, "refused requests")
	})
}

// Anybody may begin a call of a node; nobody can hold a connection with one.
func TestCluster_NodeCallThatStallsIsEnded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := relaytest.NewCluster(t, 1, nil)
		for header, body := range map[string]string{"": "{", "Dialback-Node: x\r\n": "{", "dialback-node: x\r\n": strings.Repeat("x", 256<<10) + "y"} {
			conn, err := c.Nodes[0].Transport().DialContext(context.Background(), "tcp", "node0.test:80")
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			start := time.Now()
			go fmt.Fprintf(conn, "POST /node/dial HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n%s\r\n%s", header, body)
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil || resp.StatusCode != 401 || !resp.Close || time.Since(start) > 2*time.Second {
				t.Errorf("a call that stalls after %d bytes: %v, %v after %v; want 401 and a close within NodeTimeout", len(body), resp, err, time.Since(start))
			}
		}
	})
}

// A client of an upgrade that has closed its connection looks as if it had half
// closed. A host that says nothing more must not keep it for ever; one that
// goes on speaking is heard.
func TestUpgrade_QuietHostDoesNotKeepAClientThatLeft(t *testing.T) {
	const answer = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: other\r\n\r\n"
	upgrade := func(s *relaytest.Server) *memnet.Conn {
		c, err := s.Transport().DialContext(context.Background(), "tcp", "relay.test:80")
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "GET /hosts/h/ HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n")
		return c.(*memnet.Conn)
	}
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		s.MustConnect("h", relaytest.HostConfig{Proto: 3, OnDial: sayRaw(answer)})
		c := upgrade(s)
		if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || resp.StatusCode != 101 {
			t.Fatal(resp, err)
		}
		c.Close()
		time.Sleep(5*time.Minute - time.Second)
		if s.Relay.Stats().Streams != 1 {
			t.Error("a half close has ended the other direction before StallTimeout")
		}
		time.Sleep(2 * time.Second)
		settled(t, s, "StallTimeout after the client has left")
	})
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		s.MustConnect("h", relaytest.HostConfig{Proto: 3, OnDial: func(h *relaytest.Host, d transport.StreamDial) {
			c, _ := h.Open(d)
			http.ReadRequest(bufio.NewReader(c))
			io.WriteString(c, answer)
			for range 4 {
				time.Sleep(4 * time.Minute)
				io.WriteString(c, "late ")
			}
			c.Close()
		}})
		c := upgrade(s)
		defer c.Close()
		br := bufio.NewReader(c)
		if resp, err := http.ReadResponse(br, nil); err != nil || resp.StatusCode != 101 {
			t.Fatal(resp, err)
		}
		c.CloseWrite()
		if b, err := io.ReadAll(br); string(b) != "late late late late " {
			t.Errorf("after a half close: %q, %v", b, err)
		}
		settled(t, s, "both directions have ended")
	})
}

// An answer that breaks off at once has its status all the same: a connection
// that ends without one invites the client to send its request again.
func TestHTTP_AnswerThatBreaksOffAtOnceHasAStatus(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		s.MustConnect("h", relaytest.HostConfig{Proto: 3, OnDial: sayRaw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nokJJ")})
		resp, body, err := s.Do("GET", "/hosts/h/", nil)
		if resp == nil || resp.StatusCode != 200 || err == nil {
			t.Errorf("%v %q %v, want 200 and an error", resp, body, err)
		}
		settled(t, s, "an answer that broke off")
	})
}

// signedCall makes a call to a node of c as another node would.
func signedCall(t *testing.T, c *relaytest.Cluster, path, body string) (status int, answer string) {
	t.Helper()
	s := c.Nodes[0]
	nodes, err := c.Store.Nodes(context.Background())
	if err != nil || len(nodes) == 0 {
		t.Fatal(nodes, err)
	}
	var self store.Node
	for _, n := range nodes {
		if n.ID == "node0" {
			self = n
		}
	}
	req, _ := http.NewRequest("POST", s.URL+path, strings.NewReader(body))
	req.Header.Set("Dialback-Node", relay.NodeMAC(s.Relay, "POST", self.ID, self.Incarnation, path, []byte(body)))
	resp, answer, err := s.DoRequest(req)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, answer
}

// A node with the key has a right to much, but not to what can only be a fault:
// to take a ticket out of the hands of a client that waits here, to dial with
// one, or to answer a client with a number that is no refusal.
func TestCluster_CallsOfABrokenNode(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := relaytest.NewCluster(t, 2, nil)
		h := c.Nodes[0].MustConnect("h", relaytest.HostConfig{Proto: 3})
		att, err := c.Store.Current(context.Background(), "h")
		if err != nil {
			t.Fatal(err)
		}
		answered := async(c.Nodes[0], "/hosts/h/")
		d := nextDial(t, h)
		if status, body := signedCall(t, c, "/node/cancel", fmt.Sprintf(`{"HostID":"h","Ticket":%q}`, d.Ticket)); status != 200 {
			t.Errorf("cancel: %d %s", status, body)
		}
		dial := fmt.Sprintf(`{"HostID":"h","ID":%q,"Generation":%d,"Ticket":%q,"Kind":"tcp"}`, att.ID, att.Generation, d.Ticket)
		if status, body := signedCall(t, c, "/node/dial", dial); status != 200 || !strings.Contains(body, "not-mine") {
			t.Errorf("a dial with this node's own ticket: %d %s, want not-mine", status, body)
		}
		pending(t, answered, "a cancel that is not its client's")
		sayRaw("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")(h, d)
		(<-answered).want(t, "the dial is still good", 200, "ok")

		for _, status := range []int{0, 99, 101, 200, 302, 1000} {
			h := c.Nodes[0].MustConnect(fmt.Sprint("h", status), relaytest.HostConfig{Proto: 3})
			answered := async(c.Nodes[0], "/hosts/"+h.ID+"/")
			d := nextDial(t, h)
			signedCall(t, c, "/node/outcome", fmt.Sprintf(`{"Outcomes":[{"HostID":"h","Ticket":%q,"Result":"refused","Status":%d,"Reason":"a\nb"}]}`, d.Ticket, status))
			(<-answered).want(t, fmt.Sprintf("refused with %d", status), 502, "refused by the host: ab")
		}
	})
}
