package relay_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/dialback/dialback/agent"
	"github.com/dialback/dialback/relay"
	"github.com/dialback/dialback/relaytest"
	"github.com/dialback/dialback/transport"
)

// localService serves h on loopback and returns its URL, for agent.ForwardHTTP.
func localService(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: h}
	go srv.Serve(ln)
	t.Cleanup(func() { srv.Close() })
	return "http://" + ln.Addr().String()
}

// An agent's forwarder takes what belongs escaped to the letter too.
func TestHTTP_OddPathThroughAForwarder(t *testing.T) {
	s := server(t, nil)
	target := localService(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.RequestURI) })
	s.StartAgent("h", map[string]agent.Handler{"": agent.ForwardHTTP(target)}, nil)
	for _, uri := range []string{"/a%2Fb|c", "/a%2Fb/\xc3\xa9?\xc3\xa9", "/a%2Fb/\xe9\xff?\xff", `/%2F\"`} {
		if got := rawGet(t, s, "/hosts/h"+uri); got != uri {
			t.Errorf("the service saw %q, want %q", got, uri)
		}
	}
}

// A v2 host gets path and query in ASCII, and nothing that a URL would be ended or
// led elsewhere by; the rest is as it was sent.
func TestV2_OddPath(t *testing.T) {
	tests := []struct{ sent, path, query string }{
		{"/a%2Fb|{c}?d|{e}", "/a%2Fb|{c}", "d|{e}"},
		{"/a%2Fb/\xc3\xa9?\xc3\xa9", "/a%2Fb/%C3%A9", "%C3%A9"},
		{"/\xe9\xff?\xff", "/%E9%FF", "%FF"},
		{"/\u010d\u010a", "/%C4%8D%C4%8A", ""}, // "\r\n" to whom takes characters for bytes
		{"/\\evil.example/..\\", "/%5Cevil.example/..%5C", ""},
		{"/a#b?c#d", "/a%23b", "c%23d"},
	}
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		var dialed transport.StreamDial
		answer := relaytest.AnswerHTTP(func(r transport.HTTPRequest, _ []byte) (int, string) { return 200, r.Path })
		s.MustConnect("h", relaytest.HostConfig{OnDial: func(h *relaytest.Host, d transport.StreamDial) {
			dialed = d
			answer(h, d)
		}})
		for _, tt := range tests {
			want := tt.path
			if tt.query != "" {
				want += "?" + tt.query
			}
			if got := rawGet(t, s, "/hosts/h"+tt.sent); got != want || dialed.Path != tt.path || dialed.Query != tt.query {
				t.Errorf("%q: the host was dialed for %q %q and asked for %q, want %q", tt.sent, dialed.Path, dialed.Query, got, want)
			}
		}
	})
}

// What a program of the embedder's makes a path of is one path of a request line,
// whatever its URL was parsed from.
func TestRoundTripper_OddPath(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		s.StartAgent("h", handler(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.RequestURI) }), nil)
		for _, tt := range []struct{ path, raw, want string }{
			{"/a/b|", "/a%2Fb|", "/a%2Fb|"},
			{"/a b", "/a b", "/a%20b"},
			{"/a?b", "/a?b", "/a%3Fb"},
			{"/a|b", "/other", "/a%7Cb"},
			{"", "", "/"},
		} {
			r, _ := http.NewRequest("GET", "http://h", nil)
			r.URL.Path, r.URL.RawPath = tt.path, tt.raw
			resp, err := s.Relay.RoundTripper("h", relay.Target{}).RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			b, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if string(b) != tt.want {
				t.Errorf("%q of %q: the service saw %q, want %q", tt.path, tt.raw, b, tt.want)
			}
		}
	})
}

// What a request of the embedder's has in its Header for itself does not reach the
// host: a second Host, framing, an Expect that nobody waits for.
func TestRoundTripper_OwnFieldsStayHere(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		heads := make(chan string, 1)
		s.MustConnect("h", relaytest.HostConfig{Proto: 3, OnDial: sayToHead(heads)})
		s.MustConnect("v2", relaytest.HostConfig{OnDial: relaytest.AnswerHTTP(func(r transport.HTTPRequest, _ []byte) (int, string) {
			heads <- fmt.Sprint(r.Headers)
			return 204, ""
		})})
		for host, want := range map[string]string{
			"h":  "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nX-A: b\r\n\r\n",
			"v2": "map[x-a:b]",
		} {
			req, _ := http.NewRequest("POST", "http://x/", strings.NewReader("body"))
			req.Header = http.Header{
				"Expect": {"100-continue"}, "Host": {"other.example"}, "host": {"other.example"}, "content-length": {"1"}, "Transfer-Encoding": {"chunked"},
				"X-A": {"b"}, "Connection": {"X-Hop"}, "X-Hop": {"1"},
			}
			resp, err := s.Relay.RoundTripper(host, relay.Target{}).RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if head := <-heads; resp.StatusCode != 204 || head != want {
				t.Errorf("%s: %d; the host got\n%s, want\n%s", host, resp.StatusCode, head, want)
			}
		}
	})
}

// sayToHead is an OnDial of an agent that tells the head of a request as it came,
// and answers 204.
func sayToHead(heads chan<- string) func(*relaytest.Host, transport.StreamDial) {
	return func(h *relaytest.Host, d transport.StreamDial) {
		c, err := h.Open(d)
		if err != nil {
			return
		}
		br := bufio.NewReader(c)
		var head strings.Builder
		for {
			line, err := br.ReadString('\n')
			if err != nil {
				return
			}
			head.WriteString(line)
			if line == "\r\n" {
				break
			}
		}
		heads <- head.String()
		io.WriteString(c, "HTTP/1.1 204 No Content\r\n\r\n")
		io.Copy(io.Discard, br)
	}
}

// An identity's Host is the request's, and what it has of framing and of one hop,
// as the header of a request that it may be a copy of has, is left out.
func TestIdentity_HostAndFraming(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, func(c *relay.Config) {
			c.AuthorizeClient = func(_ context.Context, r *http.Request, _ string) (relay.Identity, error) {
				h := http.Header{"host": {"inner.example"}, "Content-Length": {"1"}, "Expect": {"100-continue"}, "Te": {"x"}, "X-User": {"alice"}}
				for k := range relay.HopByHop {
					h[strings.ToLower(k)] = []string{"x"}
				}
				return relay.Identity{Headers: h}, nil
			}
		})
		heads := make(chan string, 1)
		s.MustConnect("h", relaytest.HostConfig{Proto: 3, OnDial: sayToHead(heads)})
		do(s, "POST", "/hosts/h/x", "body").want(t, "headers of framing", 204, "")
		var names []string
		for line := range strings.SplitSeq(<-heads, "\r\n") {
			if name, value, ok := strings.Cut(line, ": "); ok && !strings.HasPrefix(name, "X-Forwarded-") {
				names = append(names, name)
				if name == "Host" && value != "inner.example" || name == "Content-Length" && value != "4" {
					t.Errorf("the host got %q", line)
				}
			}
		}
		slices.Sort(names)
		if want := []string{"Content-Length", "Host", "User-Agent", "X-User"}; !slices.Equal(names, want) {
			t.Errorf("the host got %q, want %q", names, want)
		}
	})
}

// X-Forwarded-Prefix is all that was cut off in front of the path that the host
// gets, whichever handler did so and wherever the token was.
func TestHTTP_ForwardedPrefix(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := relaytest.NewServer(t, &relaytest.Options{
			Config: func(c *relay.Config) { c.AuthorizeClient = token },
			Wrap: func(h http.Handler) http.Handler {
				srv := h.(*relay.Server)
				own := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { srv.ServeHost(w, r, "h", relay.Target{}) })
				mux := http.NewServeMux()
				mux.Handle("/", h)
				mux.Handle("/relay/", http.StripPrefix("/relay", h))
				mux.Handle("/machines/", http.StripPrefix("/machines", srv.HostsHandler()))
				mux.Handle("/own/", http.StripPrefix("/own", own))
				return mux
			}})
		s.StartAgent("h", handler(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, r.RequestURI, " ", r.Header["X-Forwarded-Prefix"])
		}), nil)
		const query = "?token=" + secret
		for _, tt := range []struct{ uri, want string }{
			{"/hosts/h/x", "/x [/hosts/h]"},
			{"/relay/hosts/h/x", "/x [/relay/hosts/h]"},
			{"/relay/hosts/h/hosts/h/x", "/hosts/h/x [/relay/hosts/h]"},
			{"/relay/hosts/h/a%2Fb|", "/a%2Fb| [/relay/hosts/h]"},
			{"/relay/hosts/%68/", "/ [/relay/hosts/%68]"},
			{"http://relay.test/relay/hosts/h/x", "/x [/relay/hosts/h]"},
			{"http://relay.test/hosts/h/x", "/x [/hosts/h]"},
			{"/machines/h/x", "/x [/machines/h]"},
			{"http://relay.test/machines/h/x", "/x [/machines/h]"},
			{"/own/h/x", "/h/x []"},
		} {
			if got := rawGet(t, s, tt.uri+query); got != tt.want {
				t.Errorf("%s: by a token in the query the service saw %q, want %q", tt.uri, got, tt.want)
			}
			if got := rawGet(t, s, tt.uri+" HTTP/1.1\r\nAuthorization: Bearer "+secret+"\r\nX-Rest:"); got != tt.want {
				t.Errorf("%s: by a header the service saw %q, want %q", tt.uri, got, tt.want)
			}
		}
	})
}
