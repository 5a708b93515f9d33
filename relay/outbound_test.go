package relay_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

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

// HTTP/2 is never begun behind an upgrade: its requests would pass the relay. Who
// offers it, as some clients do with each request, is answered by HTTP/1.1.
func TestUpgrade_ToHTTP2IsIgnored(t *testing.T) {
	tests := []struct{ name, proto, connection, upgrade, want string }{
		{"h2c", "HTTP/1.1", "Upgrade, HTTP2-Settings", "h2c", ""},
		{"h2c, settings not named", "HTTP/1.1", "Upgrade", "H2C", ""},
		{"a draft of it", "HTTP/1.1", "Upgrade", "h2c-14", ""},
		{"h2c among others", "HTTP/1.1", "Upgrade, HTTP2-Settings", "h2c, echo/1,other", "echo/1, other"},
		{"in two lines", "HTTP/1.1", "Upgrade", "h2c\r\nUpgrade: echo", "echo"},
		{"HTTP/1.0", "HTTP/1.0", "Upgrade", "echo", ""},
		{"WebSocket by HTTP/1.0", "HTTP/1.0", "Upgrade", "websocket", ""},
		{"not in Connection", "HTTP/1.1", "close", "echo", ""},
	}
	for _, tt := range tests {
		bubble(t, func(t *testing.T) {
			s := server(t, nil)
			heads := make(chan string, 1)
			s.MustConnect("h", relaytest.HostConfig{Proto: 3, OnDial: sayToHead(heads)})
			resp, _ := rawRequest(t, s, "GET /hosts/h/x "+tt.proto+"\r\nHost: x\r\nConnection: "+tt.connection+"\r\nUpgrade: "+tt.upgrade+"\r\nHTTP2-Settings: AAMAAABk\r\n\r\n")
			want := ""
			if tt.want != "" {
				want = "Connection: Upgrade\r\nUpgrade: " + tt.want + "\r\n"
			}
			_, head, _ := strings.Cut(<-heads, "Host: x\r\n")
			head, _, _ = strings.Cut(head, "X-Forwarded-") // which may be in any order
			if !strings.HasPrefix(head, want) || strings.Contains(head[len(want):], "pgrade") || strings.Contains(strings.ToLower(head), "settings") {
				t.Errorf("%s: the service was sent\n%s, want the upgrade %q", tt.name, head, tt.want)
			}
			if resp.StatusCode != 204 {
				t.Errorf("%s: answered %s, want the service's 204", tt.name, resp.Status)
			}
			settled(t, s, tt.name)
		})
	}
}

// An upgrade that a v2 host cannot make is ignored (RFC 9110, section 7.8).
func TestV2_OtherUpgradesAreIgnored(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		s.MustConnect("v2", relaytest.HostConfig{OnDial: relaytest.AnswerHTTP(func(r transport.HTTPRequest, body []byte) (int, string) {
			return 200, fmt.Sprint(r.Headers["upgrade"], r.Headers["connection"], string(body))
		})})
		for _, offer := range []string{"h2c", "echo", "h2c, TLS/1.0"} {
			head := "Host: x\r\nConnection: Upgrade\r\nUpgrade: " + offer + "\r\n"
			if resp, body := rawRequest(t, s, "GET /hosts/v2/x HTTP/1.1\r\n"+head+"\r\n"); resp.StatusCode != 200 || body != "" {
				t.Errorf("%s: %s %q, want the answer by HTTP/1.1", offer, resp.Status, body)
			}
			if resp, body := rawRequest(t, s, "POST /hosts/v2/x HTTP/1.1\r\n"+head+"Content-Length: 4\r\n\r\nbody"); resp.StatusCode != 200 || body != "body" {
				t.Errorf("POST, %s: %s %q, want the answer by HTTP/1.1", offer, resp.Status, body)
			}
		}
		req, _ := http.NewRequest("GET", "http://x/", nil)
		req.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"echo"}}
		if _, err := s.Relay.RoundTripper("v2", relay.Target{}).RoundTrip(req); !errors.Is(err, relay.ErrHostV2) {
			t.Errorf("an upgrade of the embedder's: %v, want ErrHostV2", err)
		}
		settled(t, s, "after upgrades that were ignored")
	})
}

// The error of a body that cannot be read is that of the round trip, and not a
// client's that went away.
func TestRoundTripper_BodyErrorIsItsOwn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		s.StartAgent("h", handler(func(w http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) }), nil)
		s.MustConnect("v2", relaytest.HostConfig{OnDial: relaytest.AnswerText("too late")})
		onFire := errors.New("disk on fire")
		for _, host := range []string{"h", "v2"} {
			for _, key := range []string{"", "key"} {
				pr, pw := io.Pipe()
				go func() {
					io.WriteString(pw, "a part")
					time.Sleep(time.Second)
					pw.CloseWithError(onFire)
				}()
				req, _ := http.NewRequest("POST", "http://x/", pr)
				if key != "" {
					req.Header.Set("Idempotency-Key", key)
				}
				if resp, err := s.Relay.RoundTripper(host, relay.Target{}).RoundTrip(req); !errors.Is(err, onFire) {
					t.Errorf("%s, Idempotency-Key %q: %v, %v, want the body's own error", host, key, resp, err)
				}
			}
		}
		req, _ := http.NewRequest("POST", "http://x/", strings.NewReader("short"))
		req.ContentLength = 10
		if _, err := s.Relay.RoundTripper("h", relay.Target{}).RoundTrip(req); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("a body that is too short: %v, want ErrUnexpectedEOF", err)
		}
		settled(t, s, "after bodies that failed")
	})
}

// Trailers of a request reach an agent's service, announced or not; but none of a
// name for which the relay vouches.
func TestHTTP_RequestTrailers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, func(c *relay.Config) {
			c.TrustForwarded = true
			c.AuthorizeClient = func(context.Context, *http.Request, string) (relay.Identity, error) {
				return relay.Identity{Headers: http.Header{"x-user": {"alice"}}}, nil
			}
		})
		s.StartAgent("h", handler(func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			fmt.Fprint(w, r.Header["X-User"], r.Trailer)
		}), nil)
		const forged = "X-User: mallory\r\nx-forwarded-for: 6.6.6.6\r\nForwarded: for=6.6.6.6\r\nDialback-Error: x\r\nDialback-Authorization: x\r\nHost: x\r\nConnection: x\r\n"
		for _, announced := range []string{"", "Trailer: X-Sum\r\n", "Trailer: X-Sum, X-User, X-Forwarded-For, Dialback-Error\r\n", "Trailer: X-Other\r\n"} {
			_, got := rawRequest(t, s, "POST /hosts/h/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n"+announced+
				"\r\n1\r\nx\r\n0\r\nX-Sum: 1\r\n"+forged+"\r\n")
			want := "[alice] map[X-Sum:[1]]"
			if strings.Contains(announced, "Other") {
				want = "[alice] map[X-Other:[] X-Sum:[1]]"
			}
			if got != want {
				t.Errorf("announced by %q: the service saw %s, want %s", announced, got, want)
			}
		}
		req, _ := http.NewRequest("POST", "http://x/", struct{ io.Reader }{strings.NewReader("x")})
		req.Trailer = http.Header{"X-Sum": {"2"}}
		resp, err := s.Relay.RoundTripper("h", relay.Target{}).RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		if b, _ := io.ReadAll(resp.Body); string(b) != "[] map[X-Sum:[2]]" {
			t.Errorf("of a round trip the service saw %s", b)
		}
		resp.Body.Close()
	})
}

// A request without a path, by the absolute form or behind a mount point, is one
// for / (RFC 9112, section 3.2.1).
func TestServeHost_WithoutAPath(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := relaytest.NewServer(t, &relaytest.Options{Wrap: func(h http.Handler) http.Handler {
			own := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				h.(*relay.Server).ServeHost(w, r, r.Host, relay.Target{})
			})
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch {
				case strings.HasPrefix(r.URL.Path, "/mount"):
					http.StripPrefix("/mount", own).ServeHTTP(w, r)
				case strings.HasSuffix(r.Host, ".example"):
					own.ServeHTTP(w, r)
				default:
					h.ServeHTTP(w, r)
				}
			})
		}})
		s.StartAgent("h.example", handler(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.RequestURI) }), nil)
		s.MustConnect("v2.example", relaytest.HostConfig{OnDial: relaytest.AnswerHTTP(func(r transport.HTTPRequest, _ []byte) (int, string) { return 200, r.Path })})
		for _, host := range []string{"h.example", "v2.example"} {
			for uri, want := range map[string]string{"http://" + host: "/", "http://" + host + "?a=b": "/?a=b", "http://" + host + "/mount": "/"} {
				if got := rawGet(t, s, uri); got != want {
					t.Errorf("%s: the service saw %q, want %q", uri, got, want)
				}
			}
		}
	})
}

// To services behind CGI or WSGI a header with _ in its name is the one with -: a
// client's is removed where the relay or the identity sets that one.
func TestHTTP_UnderscoresForgeNothing(t *testing.T) {
	for _, trust := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			s := server(t, func(c *relay.Config) {
				c.TrustForwarded = trust
				c.AuthorizeClient = func(context.Context, *http.Request, string) (relay.Identity, error) {
					return relay.Identity{Headers: http.Header{"X-User": {"alice"}, "x_group": {"staff"}, "X-None": nil}}, nil
				}
			})
			s.StartAgent("h", handler(func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				for _, h := range []http.Header{r.Header, r.Trailer} {
					for name, values := range h {
						fmt.Fprintf(w, "%s: %q\n", name, values)
					}
				}
			}), nil)
			const forged = "X_User: mallory\r\nx-Group: mallory\r\nX_none: mallory\r\nX_Forwarded_For: mallory\r\nX_forwarded-Proto: mallory\r\nContent_Length: mallory\r\n"
			_, got := rawRequest(t, s, "POST /hosts/h/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\nX_Other: o\r\n"+forged+
				"\r\n1\r\nx\r\n0\r\nX_Sum: 1\r\n"+forged+"\r\n")
			if strings.Contains(got, "mallory") {
				t.Errorf("TrustForwarded %v: the service saw\n%s", trust, got)
			}
			for _, want := range []string{`X-User: ["alice"]`, `X_group: ["staff"]`, `X_other: ["o"]`, `X_sum: ["1"]`} {
				if !strings.Contains(got, want) {
					t.Errorf("TrustForwarded %v: the service saw\n%s, want %s", trust, got, want)
				}
			}
		})
	}
}
