package agent_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"testing"
	"testing/synctest"

	"github.com/dialback/dialback/agent"
)

// Path and query reach the service to the letter.
func TestForwardHTTP_RequestTarget(t *testing.T) {
	for _, tt := range []struct{ target, request, want string }{
		{"http://local:80", "/", "/"},
		{"http://local:80", "/a%2Fb?c=%20&d", "/a%2Fb?c=%20&d"},
		{"http://local:80", "/a?", "/a?"},
		{"http://local:80", "/a;b?x;y=1&&=", "/a;b?x;y=1&&="},
		{"http://local:80", "/a/./b/../c//d", "/a/./b/../c//d"},
		{"http://local:80", "/%7e~|\"^{}`é", "/%7e~|\"^{}`é"},
		{"http://local:80", "/@evil/", "/@evil/"},
		{"http://local:80", "//evil:80/x?y", "//evil:80/x?y"},
		{"http://local:80", "///x", "///x"},
		{"http://local:80", "//a%2fb|c", "//a%2fb|c"},
		{"http://local:80", "/http://evil/x", "/http://evil/x"},
		{"http://local:80", "http://evil/x?y", "/x?y"},
		{"http://local:80", "http://evil?y", "/?y"},
		{"http://local:80", "http://evil", "/"},
		{"http://local:80/", "/x", "/x"},
		{"http://local:80/base/", "/x", "/base/x"},
		{"http://local:80/base", "/", "/base/"},
		{"http://local:80/b%2Fse", "/x%2F", "/b%2Fse/x%2F"},
		{"http://local:80/base", "//evil", "/base//evil"},
		{"http://local:80/base", "/...", "/base/..."},
		{"http://local:80/base", "/a..b", "/base/a..b"},
		{"http://local:80", "/a%23b", "/a%23b"},
		{"http://local:80", "/a#b", "400"},
		{"http://local:80", "/?#", "400"},
		{"http://local:80", "http://evil#x", "400"},
		{"http://local:80/base", "/..", "400"},
		{"http://local:80/base", "/..#x", "400"},
		{"http://local:80/base", "/x/../../etc", "400"},
		{"http://local:80/base", "/x/%2e%2E/y", "400"},
		{"http://local:80/base", "/x%2f..%2fy", "400"},
		{"http://local:80/base", "/x\\..\\y", "400"},
		{"http://local:80/base", "/x%5c..%5cy", "400"},
		{"http://local:80/base", "/..;a/x", "400"},
		{"http://local:80/base", "http://local:80/../x", "400"},
	} {
		t.Run(tt.target+" "+tt.request, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := forward(t, tt.target, func(w http.ResponseWriter, r *http.Request) {
					io.WriteString(w, r.RequestURI)
				})
				res, got := raw(t, c, "GET "+tt.request+" HTTP/1.1\r\nHost: x\r\n\r\n")
				if res.StatusCode != 200 {
					got = fmt.Sprint(res.StatusCode)
				}
				if got != tt.want {
					t.Errorf("the service was asked for %q, want %q", got, tt.want)
				}
			})
		})
	}
}

func TestForwardHTTP_OptionsAsterisk(t *testing.T) { synctest.Test(t, testForwardHTTPOptionsAsterisk) }
func testForwardHTTPOptionsAsterisk(t *testing.T) {
	c := forward(t, "http://local:80", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.RequestURI) })
	if res, _ := raw(t, c, "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n"); res.StatusCode != 200 {
		t.Errorf("OPTIONS *: %d", res.StatusCode)
	}
}

func TestForwardHTTP_RequestHeaders(t *testing.T) { synctest.Test(t, testForwardHTTPRequestHeaders) }
func testForwardHTTPRequestHeaders(t *testing.T) {
	got := make(chan *http.Request, 1)
	c := forward(t, "http://local:80", func(w http.ResponseWriter, r *http.Request) { got <- r })
	_, _ = raw(t, c, "GET / HTTP/1.1\r\nHost: client.example\r\n"+
		"Cookie: a=1\r\nX-Multi: 1\r\nX-Multi: 2\r\nX-Forwarded-For: 1.2.3.4\r\nX-Forwarded-Host: h\r\nX-Forwarded-Proto: https\r\nForwarded: for=1.2.3.4\r\n"+
		"Te: trailers\r\nConnection: X-Hop\r\nX-Hop: 1\r\nAccept-Encoding: br\r\nAuthorization: Basic x\r\n\r\n")
	r := <-got
	if r.Host != "local:80" {
		t.Errorf("Host is %q, want that of the target", r.Host)
	}
	want := http.Header{
		"Cookie": {"a=1"}, "X-Multi": {"1", "2"}, "X-Forwarded-For": {"1.2.3.4"}, "X-Forwarded-Host": {"h"}, "X-Forwarded-Proto": {"https"},
		"Forwarded": {"for=1.2.3.4"}, "Te": {"trailers"}, "Accept-Encoding": {"br"}, "Authorization": {"Basic x"},
	}
	if fmt.Sprint(r.Header) != fmt.Sprint(want) {
		t.Errorf("the service got\n%v, want\n%v", r.Header, want)
	}
}

// Nothing is added to an answer: no guessed type, no date.
func TestForwardHTTP_ResponseHeaders(t *testing.T) {
	synctest.Test(t, testForwardHTTPResponseHeaders)
}
func testForwardHTTPResponseHeaders(t *testing.T) {
	r := newFakeRelay(t)
	answers := []string{
		"HTTP/1.1 200 OK\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nContent-Length: 6\r\n\r\n<html>",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nDate: yesterday\r\nContent-Type: x/y\r\n\r\n2\r\nab\r\n0\r\n\r\n",
		"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 404 Not Found\r\nContent-Length: 2\r\nDialback-Error: forged\r\n\r\nno",
		"HTTP/1.1 304 Not Modified\r\nEtag: x\r\n\r\n",
		"HTTP/1.1 204 No Content\r\nX: y\r\n\r\n",
		"HTTP/1.0 299 Odd\r\nX: y\r\n\r\nuntil the end",
	}
	ln, err := r.net.Listen("local:80")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for _, a := range answers {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = http.ReadRequest(bufio.NewReader(conn))
			_, _ = io.WriteString(conn, a)
			conn.Close()
		}
	}()
	c := serving(t, r, agent.ForwardHTTPWith("http://local:80", agent.HTTPOptions{DialContext: r.net.DialContext}))
	client := httpClient(c)
	for i, want := range []string{
		`200 map[Content-Length:[6] Set-Cookie:[a=1 b=2]] "<html>" []`,
		`200 map[Content-Type:[x/y] Date:[yesterday]] "ab" []`,
		`404 map[Content-Length:[2]] "no" [103 map[Link:[</x>]]]`,
		`304 map[Etag:[x]] "" []`,
		`204 map[X:[y]] "" []`,
		`299 map[X:[y]] "until the end" []`,
	} {
		var hints []string
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			hints = append(hints, fmt.Sprint(code, " ", map[string][]string(h)))
			return nil
		}})
		req, _ := http.NewRequestWithContext(ctx, "GET", "http://any/", nil)
		res, err := client.Do(req)
		b := body(t, res, err)
		if got := fmt.Sprintf("%d %v %q %v", res.StatusCode, res.Header, b, hints); got != want {
			t.Errorf("answer %d is\n%s, want\n%s", i, got, want)
		}
	}
}

func TestForwardHTTP_Head(t *testing.T) { synctest.Test(t, testForwardHTTPHead) }
func testForwardHTTPHead(t *testing.T) {
	c := forward(t, "http://local:80", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "12345")
	})
	res, err := httpClient(c).Head("http://any/")
	if b := body(t, res, err); b != "" || res.ContentLength != 12345 {
		t.Errorf("HEAD: %q, Content-Length %d", b, res.ContentLength)
	}
}

func TestForwardHTTP_Trailers(t *testing.T) { synctest.Test(t, testForwardHTTPTrailers) }
func testForwardHTTPTrailers(t *testing.T) {
	got := make(chan http.Header, 1)
	c := forward(t, "http://local:80", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		got <- r.Trailer
		w.Header().Set("Trailer", "X-Declared")
		io.WriteString(w, "body")
		w.Header().Set("X-Declared", "1")
		w.Header().Set(http.TrailerPrefix+"X-Undeclared", "2")
	})
	conn, _ := dialStream(c)(t.Context(), "", "")
	defer conn.Close()
	io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n1\r\na\r\n0\r\nX-Sum: 3\r\nX-Late: 4\r\n\r\n")
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if b := body(t, res, err); b != "body" || res.Trailer.Get("X-Declared") != "1" || res.Trailer.Get("X-Undeclared") != "2" {
		t.Errorf("answer %q with trailers %v", b, res.Trailer)
	}
	if h := <-got; h.Get("X-Sum") != "3" || h.Get("X-Late") != "4" {
		t.Errorf("the service got trailers %v", h)
	}
	io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-Only: 5\r\n\r\n")
	if h := <-got; h.Get("X-Only") != "5" {
		t.Errorf("the service got trailers %v, want one that was not announced", h)
	}
}
