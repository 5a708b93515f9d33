package relay_test

import (
	"io"
	"net"
	"net/http"
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
