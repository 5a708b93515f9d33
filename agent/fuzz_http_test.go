package agent_test

import (
	"bufio"
	"bytes"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/dialback/dialback/agent"
)

// FuzzForwardHead: whatever bytes a stream begins with, what goes to the
// service for them is the head of exactly one request as net/http reads it, to
// the service's own host and below its base path, with the framing that the
// agent goes by. And where net/http takes the request at all, it reads the same
// framing from it as the agent does: nothing can be smuggled between the two.
func FuzzForwardHead(f *testing.F) {
	for _, s := range []string{
		"GET /a?b HTTP/1.1\r\nHost: x\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody",
		"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTrailer: A, Content-Length\r\n\r\n0\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, identity\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding : chunked\r\n\r\n",
		"POST / HTTP/1.1\nHost: x\nContent-Length: 1\n\nx",
		"GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\td: e\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: x\r\nA: b\rContent-Length: 5\r\n\r\n",
		"GET http://evil/%2e%2e/x?y HTTP/1.1\r\nHost: evil\r\nConnection: close, A\r\nA: b\r\n\r\n",
		"GET //evil/..;/x HTTP/1.0\r\n\r\n",
		"GET /\\..\\x HTTP/1.1\r\nHost: x\r\nTE: trailers;q=1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: x\r\nKeep-Alive: timeout=5\r\n\r\n",
		"PATCH / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nProxy-Authorization: y\r\n\r\n",
	} {
		f.Add([]byte(s), "/base")
		f.Add([]byte(s), "")
	}
	const host = "local:80"
	f.Fuzz(func(t *testing.T, p []byte, base string) {
		if base != "" {
			base = "/base" // an operator's
		}
		out, n, framing, err := agent.ForwardHead(bytes.Clone(p), base, host)
		if err != nil {
			return
		}
		// What the service reads.
		br := bufio.NewReader(bytes.NewReader(out))
		sent, err := http.ReadRequest(br)
		if err != nil {
			if strings.Contains(err.Error(), "invalid URL escape") || strings.Contains(err.Error(), "invalid URI") || strings.Contains(err.Error(), "parse ") {
				return // paths are passed to the letter, and the service may not like them
			}
			t.Fatalf("%q becomes %q, which is no request: %v", p, out, err)
		}
		if br.Buffered() > 0 && framingOf(sent) == "0" {
			t.Fatalf("%q becomes %q, with %d bytes behind the request", p, out, br.Buffered())
		}
		if sent.Host != host && sent.URL.Host == "" || sent.URL.Host != "" {
			t.Fatalf("%q becomes %q, to the host %q %q", p, out, sent.Host, sent.URL.Host)
		}
		if got := framingOf(sent); got != framing {
			t.Fatalf("%q becomes %q: the agent goes by framing %s, and the service reads %s", p, out, framing, got)
		}
		if base != "" && sent.RequestURI != "*" && !strings.HasPrefix(sent.RequestURI, base) {
			t.Fatalf("%q becomes %q, which leads out of %s", p, out, base)
		}
		for _, name := range []string{"Proxy-Authorization", "Keep-Alive"} {
			if sent.Header.Get(name) != "" {
				t.Fatalf("%q becomes %q, with %s of another hop", p, out, name)
			}
		}
		// What net/http would have read from the same bytes.
		rest := bytes.TrimLeft(p, "\r\n")
		if asked, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(rest))); err == nil && len(rest) == len(p) {
			if got := framingOf(asked); got != framing {
				t.Fatalf("%q (%d bytes of head): the agent goes by framing %s, net/http by %s", p, n, framing, got)
			}
		}
	})
}

// framingOf is the framing of a request as net/http reads it.
func framingOf(r *http.Request) string {
	if r.ContentLength < 0 {
		return "chunked"
	}
	return strconv.FormatInt(r.ContentLength, 10)
}
