package agent_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/dialback/dialback/agent"
	"github.com/dialback/dialback/transport"
)

// readAnswer reads the one final answer to a request, as net/http does, and
// what is behind it.
func readAnswer(p []byte, method string) (*http.Response, []byte, []byte, error) {
	br := bufio.NewReaderSize(bytes.NewReader(p), 1<<20)
	for {
		res, err := http.ReadResponse(br, &http.Request{Method: method})
		if err != nil {
			return nil, nil, nil, err
		}
		if res.StatusCode < 200 && res.StatusCode != 101 {
			continue
		}
		body, err := io.ReadAll(res.Body)
		rest, _ := io.ReadAll(br)
		return res, body, rest, err
	}
}

// A hostile service cannot make the agent send anything that is ambiguous, or
// that looks complete and is not.
func FuzzForwardHTTP_Answer(f *testing.F) {
	for _, s := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc",
		"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: A\r\n\r\n3;x\r\nabc\r\n0\r\nA: b\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
		"HTTP/1.1 103 x\r\nLink: a\r\n\r\nHTTP/1.0 200 OK\r\nA: b\r\n c\r\n\r\nabc",
		"HTTP/1.1 101 x\r\nUpgrade: a\r\n\r\n",
		"HTTP/1.1 304 x\r\nContent-Length: 3\r\nConnection: A, close\r\nA: b\r\nDialback-Error: x\r\n\r\n",
		"HTTP/1.1 204 x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	} {
		f.Add(false, []byte(s))
		f.Add(true, []byte(s))
	}
	f.Fuzz(func(t *testing.T, isHead bool, answer []byte) {
		method, request := http.MethodGet, get
		if isHead {
			method, request = http.MethodHead, head
		}
		got, end, _ := agent.ForwardOnce([]byte(request), answer)
		res, body, rest, err := readAnswer(got, method)
		if end != transport.CloseNormal {
			if err == nil {
				t.Fatalf("the stream ended with %d, but %q looks complete", end, got)
			}
			return
		}
		switch {
		case err != nil:
			t.Fatalf("the stream ended well, but %q is no answer: %v", got, err)
		case len(rest) > 0:
			t.Fatalf("behind the answer there is %q", rest)
		case res.StatusCode == 101:
			t.Fatalf("an upgrade that was not asked for: %q", got)
		case res.Header.Get("Dialback-Error") != "":
			return // of the agent's own
		}
		want, wantBody, _, err := readAnswer(answer, method)
		if err != nil {
			t.Fatalf("net/http: %v; but the agent sends %q", err, got)
		}
		if want.StatusCode != res.StatusCode || !bytes.Equal(wantBody, body) {
			t.Fatalf("the service sent %d %q, the agent %d %q", want.StatusCode, wantBody, res.StatusCode, body)
		}
	})
}

// Whatever a client sends, a service gets one request and not a byte behind it.
func FuzzForwardHTTP_Request(f *testing.F) {
	for _, s := range []string{
		get,
		get + head,
		"POST /a?b HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc",
		"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTrailer: A\r\n\r\n3\r\nabc\r\n0\r\nA: b\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + get,
		"GET http://a/b?c HTTP/1.0\r\nConnection: A\r\nA: b\r\n c\r\nUpgrade: x\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\na" + get,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, request []byte) {
		_, _, services := agent.ForwardOnce(request, []byte("HTTP/1.1 204 x\r\nConnection: close\r\n\r\n"))
		for i, got := range services {
			br := bufio.NewReaderSize(bytes.NewReader(got), 1<<20)
			req, err := http.ReadRequest(br)
			var notURL *url.Error
			if errors.As(err, &notURL) {
				continue // net/url does not like a target that passes to the letter
			}
			if err != nil {
				t.Fatalf("service %d got %q: %v", i, got, err)
			}
			if req.Host != "local:80" && !strings.Contains(req.RequestURI, "://") {
				t.Fatalf("service %d got the host %q", i, req.Host)
			}
			_, err = io.Copy(io.Discard, req.Body)
			if rest, _ := io.ReadAll(br); err == nil && len(rest) > 0 {
				t.Fatalf("service %d got a request and %q", i, rest)
			}
		}
	})
}

// Chunks are decoded as net/http does it, whatever the pieces in which they come.
func FuzzChunkReader(f *testing.F) {
	for _, s := range []string{"0\r\n", "1\r\na\r\n02 ;x=y\r\nbc\r\n0\r\n\r\n", "a\r\n", "1\r\nab\r\n", "fffffffffffffff\r\na", "1\n", "\r\n", "1\r\r\n", " 1\r\na\r\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		want, wantErr := io.ReadAll(httputil.NewChunkedReader(bytes.NewReader(p)))
		for name, src := range map[string]io.Reader{"at once": bytes.NewReader(p), "one by one": iotest.OneByteReader(bytes.NewReader(p))} {
			got, err := io.ReadAll(agent.NewChunkReader(src))
			if err == nil && (wantErr != nil || !bytes.Equal(got, want)) {
				t.Errorf("%s: %q; net/http says %q, %v", name, got, want, wantErr)
			}
			// Longer sizes, and control characters in extensions, are refused.
			if err != nil && wantErr == nil && !bytes.Contains(p, []byte("0000000")) && !bytes.Contains(p, []byte(";")) {
				t.Errorf("%s: %v of chunks that net/http decodes", name, err)
			}
		}
	})
}
