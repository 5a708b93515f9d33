package agent_test

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dialback/dialback/agent"
)

// listening records what a service gets on its first connection, without
// answering, until the client leaves.
func listening(t *testing.T, r *fakeRelay) <-chan string {
	t.Helper()
	ln, err := r.net.Listen("local:80")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	got := make(chan string, 1)
	go func() {
		conn, err := ln.Accept()
		if err != nil {
			close(got)
			return
		}
		defer conn.Close()
		p, _ := io.ReadAll(conn)
		got <- string(p)
	}()
	return got
}

// named is Connection lines that name n fields: A0, A1 and so on.
func named(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "Connection: A%d, keep-alive\r\n", i)
	}
	return b.String()
}

// Exact bytes of a client, and what the service gets of them. A Connection may
// name so few fields only because all others are compared with each of them.
func TestForwardHTTP_RequestFraming(t *testing.T) {
	const refused = "" // by a 400 of the agent's
	for _, tt := range []struct{ name, request, want string }{
		{"GET", "GET /a?b HTTP/1.1\r\nHost: x\r\n\r\n", "GET /a?b HTTP/1.1\r\nHost: local:80\r\n\r\n"},
		{"HTTP/1.0", "GET / HTTP/1.0\r\n\r\n", "GET / HTTP/1.1\r\nHost: local:80\r\n\r\n"},
		{"empty lines before it", "\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n", "GET / HTTP/1.1\r\nHost: local:80\r\n\r\n"},
		{"spelling and order", "GET / HTTP/1.1\r\nx-B:1\r\nHOST: x\r\nX-a: 2\r\nx-B: 3\r\n\r\n", "GET / HTTP/1.1\r\nHost: local:80\r\nx-B: 1\r\nX-a: 2\r\nx-B: 3\r\n\r\n"},
		{"another method", "FOO /a HTTP/1.1\r\nHost: x\r\n\r\n", "FOO /a HTTP/1.1\r\nHost: local:80\r\n\r\n"},
		{"folded line", "GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n\tc\r\n\r\n", "GET / HTTP/1.1\r\nHost: local:80\r\nA: b  \tc\r\n\r\n"},
		{"hop by hop", "GET / HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, A, X-Forwarded-For\r\nA: b\r\nX-Forwarded-For: c\r\nKeep-Alive: d\r\nProxy-Connection: e\r\nProxy-Authorization: f\r\nUpgrade: g\r\nTe: gzip\r\nTrailer: h\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: local:80\r\nX-Forwarded-For: c\r\n\r\n"},
		{"a Connection that names 32 fields", "GET / HTTP/1.1\r\nHost: x\r\n" + named(32) + "A31: b\r\nA32: c\r\n\r\n", "GET / HTTP/1.1\r\nHost: local:80\r\nA32: c\r\n\r\n"},
		{"TE: trailers", "GET / HTTP/1.1\r\nHost: x\r\nTE: gzip;q=1, Trailers;q=0.5\r\n\r\n", "GET / HTTP/1.1\r\nHost: local:80\r\nTe: trailers\r\n\r\n"},
		{"upgrade", "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, A\r\nA: b\r\nUpgrade: foo/1, bar\r\n\r\n", "GET / HTTP/1.1\r\nHost: local:80\r\nConnection: Upgrade\r\nUpgrade: foo/1, bar\r\n\r\n"},
		{"no body of POST", "POST / HTTP/1.1\r\nHost: x\r\n\r\n", "POST / HTTP/1.1\r\nHost: local:80\r\nContent-Length: 0\r\n\r\n"},
		{"body with its head", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", "POST / HTTP/1.1\r\nHost: local:80\r\nContent-Length: 3\r\n\r\nabc"},
		{"the same length twice", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc", "POST / HTTP/1.1\r\nHost: local:80\r\nContent-Length: 3\r\n\r\nabc"},
		{"half a body", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nab", "POST / HTTP/1.1\r\nHost: local:80\r\nContent-Length: 4\r\n\r\nab"},
		{"chunked", "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTrailer: A, Host\r\n\r\n1;x\r\na\r\n2\r\nbc\r\n0\r\nA: b\r\nHost: c\r\n\r\n",
			"POST / HTTP/1.1\r\nHost: local:80\r\nTransfer-Encoding: chunked\r\nTrailer: A\r\n\r\n0003\r\nabc\r\n0\r\nA: b\r\n\r\n"},
		{"half a chunk", "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nab", "POST / HTTP/1.1\r\nHost: local:80\r\nTransfer-Encoding: chunked\r\n\r\n0002\r\nab\r\n"},
		{"a bad chunk", "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\nx\r\n", "POST / HTTP/1.1\r\nHost: local:80\r\nTransfer-Encoding: chunked\r\n\r\n"},
		{"a long header", "GET / HTTP/1.1\r\nHost: x\r\nA: " + strings.Repeat("b", 60_000) + "\r\n\r\n", "GET / HTTP/1.1\r\nHost: local:80\r\nA: " + strings.Repeat("b", 60_000) + "\r\n\r\n"},

		{"length and chunked", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", refused},
		{"two lengths", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef", refused},
		{"a signed length", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", refused},
		{"another encoding", "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: identity\r\n\r\n", refused},
		{"encodings", "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", refused},
		{"chunked by HTTP/1.0", "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", refused},
		{"a space before the colon", "GET / HTTP/1.1\r\nHost: x\r\nContent-Length : 5\r\n\r\n", refused},
		{"a bare carriage return", "GET / HTTP/1.1\r\nHost: x\r\nA: b\rC: d\r\n\r\n", refused},
		{"no host", "GET / HTTP/1.1\r\nA: b\r\n\r\n", refused},
		{"two hosts", "GET / HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n", refused},
		{"no version", "GET /\r\nHost: x\r\n\r\n", refused},
		{"HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", refused},
		{"a space in the target", "GET /a b HTTP/1.1\r\nHost: x\r\n\r\n", refused},
		{"a tab in the target", "GET /a\tb HTTP/1.1\r\nHost: x\r\n\r\n", refused},
		{"a bad method", "GE(T / HTTP/1.1\r\nHost: x\r\n\r\n", refused},
		{"a Connection that names 33 fields", "GET / HTTP/1.1\r\nHost: x\r\n" + named(33) + "\r\n", refused},
		{"CONNECT", "CONNECT / HTTP/1.1\r\nHost: x\r\n\r\n", refused},
		{"a header of a MiB", "GET / HTTP/1.1\r\nHost: x\r\nA: " + strings.Repeat("b", 1<<20) + "\r\n\r\n", refused},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newFakeRelay(t)
				service := listening(t, r)
				c := serving(t, r, agent.ForwardHTTPWith("http://local:80", agent.HTTPOptions{DialContext: r.net.DialContext}))
				conn, _ := dialStream(c)(t.Context(), "", "")
				_, _ = io.WriteString(conn, tt.request)
				if tt.want == refused {
					_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
					p := make([]byte, 1<<10)
					n, _ := conn.Read(p)
					if got := string(p[:n]); !strings.HasPrefix(got, "HTTP/1.1 4") || !strings.Contains(got, "Dialback-Error: bad_request\r\n") {
						t.Errorf("the client got %q, want a refusal", got)
					}
					_ = conn.Close()
					return
				}
				time.Sleep(time.Second)
				_ = conn.Close()
				if got := receive(t, service, "what the service got"); got != tt.want {
					t.Errorf("the service got %q, want %q", got, tt.want)
				}
			})
		})
	}
}

// What is wrong with a target or a host is said at once.
func TestForwardHTTP_Config(t *testing.T) {
	for _, tt := range []struct{ name, target, host, want string }{
		{"fine", "http://127.0.0.1:80/x", "example.com:80", ""},
		{"zone", "http://[fe80::1%25eth0]:80", "", ""},
		{"scheme", "ftp://x", "", "scheme"},
		{"query", "http://x?y", "", "host and a path only"},
		{"host in Unicode", "http://bücher.example", "", "ASCII"},
		{"line end in the host", "http://x", "a\r\nB: c", "HTTPOptions.Host"},
	} {
		_, err := agent.New(agent.Config{RelayURL: relayURL, HostID: "h", Services: map[string]agent.Handler{"": agent.ForwardHTTPWith(tt.target, agent.HTTPOptions{Host: tt.host})}})
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want an error with %q", tt.name, err, tt.want)
		}
	}
}
