package transport_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dialback/dialback/internal/memnet"
	"github.com/dialback/dialback/transport"
)

// echoHandler accepts and sends every message back.
func echoHandler(t *testing.T) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 1 {
			t.Errorf("the handshake came by %s, want HTTP/1.1", r.Proto)
		}
		c, err := transport.Accept(w, r, nil)
		if err != nil {
			t.Errorf("Accept: %v", err)
			return
		}
		for {
			kind, rd, err := c.Reader()
			if err != nil {
				return
			}
			p, err := io.ReadAll(rd)
			if err != nil {
				return
			}
			if err := c.Write(kind, p); err != nil {
				return
			}
		}
	}
}

func wantEcho(t *testing.T, c transport.Conn) {
	t.Helper()
	write(t, c, "hello")
	wantMessage(t, c, "hello")
}

func TestDial_Schemes(t *testing.T) {
	plain := httptest.NewServer(echoHandler(t))
	defer plain.Close()
	secure := httptest.NewUnstartedServer(echoHandler(t))
	secure.EnableHTTP2 = true // which a WebSocket cannot use
	secure.StartTLS()
	defer secure.Close()
	tr := secure.Client().Transport.(*http.Transport)

	for _, c := range []struct{ scheme, base string }{
		{"http", plain.URL}, {"ws", plain.URL}, {"https", secure.URL}, {"wss", secure.URL},
	} {
		_, rest, _ := strings.Cut(c.base, ":")
		conn, err := transport.Dial(t.Context(), c.scheme+":"+rest+"/v2/control?hostId=h", &transport.DialOptions{Transport: tr})
		if err != nil {
			t.Errorf("%s: %v", c.scheme, err)
			continue
		}
		wantEcho(t, conn)
		conn.Close(transport.CloseNormal, "")
		<-conn.Done()
	}
	conn, err := transport.Dial(t.Context(), plain.URL, nil) // our own Transport
	if err != nil {
		t.Fatal(err)
	}
	wantEcho(t, conn)
	endConn(conn)
}

func TestDial_EndOfContextAfterwardsDoesNotMatter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMemServer(t, &http.Server{}, nil, nil)
		ctx, cancel := context.WithCancel(t.Context())
		a, err := transport.Dial(ctx, "ws://relay:80/", &transport.DialOptions{
			Transport:        &http.Transport{DialContext: s.network.DialContext},
			HandshakeTimeout: time.Second,
		})
		if err != nil {
			t.Fatal(err)
		}
		defer endConn(a)
		b := s.accept(t)
		cancel()
		time.Sleep(time.Hour)
		write(t, a, "out")
		wantMessage(t, b, "out")
		write(t, b, "in")
		wantMessage(t, a, "in")
	})
}

func TestDial_HandshakeError(t *testing.T) {
	for _, c := range []struct {
		name   string
		header http.Header
		status int
		body   string
		want   transport.HandshakeError
	}{
		{
			"the relay's own", http.Header{"Retry-After": {"7"}}, 503,
			`{"error":{"code":"host_offline","message":"host is offline"}}`,
			transport.HandshakeError{Status: 503, RetryAfter: 7 * time.Second, Code: "host_offline", Message: "host is offline"},
		},
		{"a date", http.Header{"Retry-After": {"Sat, 01 Jan 2000 00:01:00 GMT"}}, 503, "", transport.HandshakeError{Status: 503, RetryAfter: time.Minute}},
		{"a date that has passed", http.Header{"Retry-After": {"Fri, 31 Dec 1999 00:00:00 GMT"}}, 503, "", transport.HandshakeError{Status: 503}},
		{"a wait beyond reason", http.Header{"Retry-After": {"4294967295"}}, 503, "", transport.HandshakeError{Status: 503, RetryAfter: 24 * time.Hour}},
		{"a wait of more than 32 bits", http.Header{"Retry-After": {"4294967296"}}, 503, "", transport.HandshakeError{Status: 503, RetryAfter: 24 * time.Hour}},
		{"a wait of more than 64 bits", http.Header{"Retry-After": {"18446744073709551616"}}, 503, "", transport.HandshakeError{Status: 503, RetryAfter: 24 * time.Hour}},
		{"nonsense", http.Header{"Retry-After": {"-3"}}, 404, "404 page not found", transport.HandshakeError{Status: 404}},
		{"a body of another shape", nil, 400, `{"error":"text"}`, transport.HandshakeError{Status: 400}},
		{"no upgrade at all", nil, 200, "hello", transport.HandshakeError{Status: 200}},
		{"a redirect", http.Header{"Location": {"http://relay:80/elsewhere"}}, 307, "", transport.HandshakeError{Status: 307}},
		{"a redirect to nowhere", http.Header{"Location": {"http://[:/?token=secret-in-query"}}, 302, "", transport.HandshakeError{Status: 302}},
		{"a long body", nil, 502, strings.Repeat("x", 1<<20), transport.HandshakeError{Status: 502}},
		{
			"a body that names the host", nil, 503, `{"error":{"message":"machine-1 is offline"}}`,
			transport.HandshakeError{Status: 503, Message: "machine-1 is offline"},
		},
		{
			"a body that quotes the query", nil, 400,
			`{"error":{"code":"secret-in-query","message":"bad token=secret-in-query"}}`,
			transport.HandshakeError{Status: 400, Code: "(not shown, since it quotes the request)", Message: "(not shown, since it quotes the request)"},
		},
	} {
		synctest.Test(t, func(t *testing.T) { // begins at 2000-01-01 00:00:00
			var requests atomic.Int32
			s := newMemServer(t, &http.Server{}, nil, func(http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					requests.Add(1)
					for k, v := range c.header {
						w.Header()[k] = v
					}
					w.WriteHeader(c.status)
					_, _ = io.WriteString(w, c.body)
				})
			})
			tr := &http.Transport{DialContext: s.network.DialContext}
			defer tr.CloseIdleConnections()
			_, err := transport.Dial(t.Context(), "ws://relay:80/?hostId=machine-1&token=secret-in-query", &transport.DialOptions{Transport: tr})
			var he *transport.HandshakeError
			if !errors.As(err, &he) {
				t.Fatalf("%s: Dial: %v (%T), want a *HandshakeError", c.name, err, err)
			}
			if *he != c.want {
				t.Errorf("%s: got %+v, want %+v", c.name, *he, c.want)
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: the error tells the token: %v", c.name, err)
			}
			if n := requests.Load(); n != 1 {
				t.Errorf("%s: %d requests, want 1: no redirect is followed", c.name, n)
			}
		})
	}
}

// Where nobody has answered the error is the cause itself, whatever it has in
// common with the request: the host's ID may be a part of the relay's name.
func TestDial_NoConnectionTellsWhy(t *testing.T) {
	cause := &net.DNSError{Err: "no such host", Name: "machine-1.invalid", IsNotFound: true}
	_, err := transport.Dial(t.Context(), "ws://machine-1.invalid/v2/control?hostId=machine-1&token=machine-1.invalid", &transport.DialOptions{
		Header: http.Header{"Host": {"machine-1.invalid"}},
		Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
			return nil, cause
		}},
	})
	if !errors.Is(err, cause) || !strings.Contains(err.Error(), cause.Error()) {
		t.Errorf("Dial: %v, want it to wrap and tell %q", err, cause)
	}
}

// A token is in the query or in a header, and errors end up in logs.
func TestDial_ErrorsTellNoSecrets(t *testing.T) {
	answer := func(s string) func(net.Conn) {
		return func(c net.Conn) {
			buf := make([]byte, 4096)
			n, _ := c.Read(buf)
			if s == "" {
				s = string(buf[:n])
			}
			_, _ = io.WriteString(c, s)
			_ = c.Close()
		}
	}
	for _, c := range []struct {
		name  string
		url   string
		serve func(net.Conn) // nil: nobody listens
	}{
		{"nobody listens", "ws://relay:80/?token=query-secret", nil},
		{"closes", "ws://relay:80/?token=query-secret", func(c net.Conn) { c.Close() }},
		{"echoes the request", "ws://relay:80/?token=query-secret", answer("")},
		{"echoes the header", "ws://relay:80/?token=query-secret", answer("Bearer header-secret\r\n\r\n")},
		{"echoes the token", "ws://relay:80/?token=query-secret", answer("query-secret\r\n\r\n")},
		{"a bad upgrade", "ws://relay:80/?token=query-secret", answer("HTTP/1.1 101 OK\r\nUpgrade: query-secret\r\nConnection: Upgrade\r\n\r\n")},
		{"a bad accept", "ws://relay:80/?token=query-secret", answer("HTTP/1.1 101 OK\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: header-secret\r\n\r\n")},
		{"quotes another secret", "ws://relay:80/?token=query-secret", answer("other-secret\r\n\r\n")},
		{"quotes it in a header", "ws://relay:80/?token=query-secret", answer("HTTP/1.1 101 OK\r\nother-secret\r\n\r\n")},
		{"a bad scheme", "gopher://relay:80/?token=query-secret", nil},
		{"a bad URL", "ws://relay:80/%zz?token=query-secret", nil},
		{"a bad host", "ws://query-secret:x/?token=query-secret", nil},
		{"a password", "ws://user:query-secret@relay:80/", nil},
		{"a bad header", "ws://relay:80/?token=query-secret", nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			var network memnet.Network
			if c.serve != nil {
				l, err := network.Listen("relay:80")
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				go func() {
					if nc, err := l.Accept(); err == nil {
						c.serve(nc)
						nc.Close()
					}
				}()
			}
			header := http.Header{"Authorization": {"Bearer header-secret"}}
			if c.name == "a bad header" {
				header.Set("X-Token", "header-secret\x00")
			}
			_, err := transport.Dial(t.Context(), c.url, &transport.DialOptions{
				Transport: &http.Transport{DialContext: network.DialContext},
				Header:    header,
			})
			if err == nil {
				t.Fatalf("%s: Dial succeeded", c.name)
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: the error tells a secret: %v", c.name, err)
			}
			for e := err; e != nil; e = errors.Unwrap(e) {
				if strings.Contains(e.Error(), "secret") {
					t.Errorf("%s: an error inside tells a secret: %v", c.name, e)
				}
			}
		})
	}
}

// A server that sends back what it was sent, as it came or decoded, does not get
// it into the error.
func TestDial_HandshakeErrorQuotesNoCredentials(t *testing.T) {
	for _, c := range []struct{ name, url, said string }{
		{"a parameter", "ws://relay:80/?a=1&token=sec%2Bret-token&b=2", "sec+ret-token"},
		{"a parameter as it was escaped", "ws://relay:80/?a=1&token=sec%2Bret-token&b=2", "sec%2Bret-token"},
		{"a parameter that cannot be parsed", "ws://relay:80/?a=1&token=secret;token%zz&b=2", "secret;token%zz"},
		{"credentials of the URL", "ws://user:pass%2Bword@relay:80/", "Basic dXNlcjpwYXNzK3dvcmQ="},
		{"a password of the URL", "ws://user:pass%2Bword@relay:80/", "pass+word"},
		{"a header", "ws://relay:80/", "header-secret"},
	} {
		synctest.Test(t, func(t *testing.T) {
			sent := ""
			s := newMemServer(t, &http.Server{}, nil, func(http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					sent = r.Header.Get("Authorization")
					w.WriteHeader(http.StatusUnauthorized)
					_, _ = io.WriteString(w, `{"error":{"message":"bad `+c.said+`"}}`)
				})
			})
			o := &transport.DialOptions{Transport: &http.Transport{DialContext: s.network.DialContext}}
			if c.name == "a header" {
				o.Header = http.Header{"Authorization": {"Bearer header-secret"}}
			}
			_, err := transport.Dial(t.Context(), c.url, o)
			if err == nil || strings.Contains(err.Error(), c.said) {
				t.Errorf("%s: Dial: %v, want an error without %q", c.name, err, c.said)
			}
			if strings.HasPrefix(c.said, "Basic") && sent != c.said {
				t.Errorf("%s: sent as %q, want %q", c.name, sent, c.said)
			}
		})
	}
}

// A close reason that quotes what the dial sent, also if it had no room for all
// of it, is replaced: it ends in errors, and so in logs. Any other stays.
func TestDial_CloseReasonTellsNoSecrets(t *testing.T) {
	const token = "header-secret-0123456789"
	long := token + strings.Repeat("x", 200)
	for _, c := range []struct{ name, header, reason, want string }{
		{"of the server's own", token, "no such host", "no such host"},
		{"the header", token, "unknown: Bearer " + token, ""},
		{"the token", token, token + " is unknown", ""},
		{"the query", token, "what is token=query-secret", ""},
		{"a value of the query", token, "query-secret is unknown", ""},
		{"as much of the token as there is room for", long, "unknown token " + long, ""},
		{"less than is a secret", token, "no header", "no header"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newMemServer(t, &http.Server{}, nil, nil)
			conn, err := transport.Dial(t.Context(), "ws://relay:80/?token=query-secret", &transport.DialOptions{
				Transport: &http.Transport{DialContext: s.network.DialContext},
				Header:    http.Header{"Authorization": {"Bearer " + c.header}},
			})
			if err != nil {
				t.Fatal(err)
			}
			defer conn.CloseNow()
			s.accept(t).Close(transport.CloseForbidden, c.reason)
			_, _, err = conn.Reader()
			var ce *transport.CloseError
			if !errors.As(err, &ce) || ce.Code != transport.CloseForbidden {
				t.Fatalf("%s: the connection ended with %v, want 4403", c.name, err)
			}
			if strings.Contains(err.Error(), "secret") || ce.Reason == "" || c.want != "" && ce.Reason != c.want {
				t.Errorf("%s: the reason is %q, want %q or a placeholder", c.name, ce.Reason, c.want)
			}
		})
	}
}

// Whatever a server does or leaves undone, HandshakeTimeout is the end of it
// (fault 6).
func TestDial_HandshakeTimeout(t *testing.T) {
	for _, c := range []struct{ name, scheme, answer string }{
		{"says nothing", "ws", ""},
		{"says nothing to a TLS client", "wss", ""},
		{"stops in the status line", "ws", "HTTP/1.1 10"},
		{"stops in the headers", "ws", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: web"},
		{"refuses without an end", "ws", "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 100\r\n\r\n{"},
	} {
		synctest.Test(t, func(t *testing.T) {
			var network memnet.Network
			l, err := network.Listen("relay:80")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			go func() {
				nc, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = nc.Read(make([]byte, 4096))
				_, _ = io.WriteString(nc, c.answer)
				_, _ = io.Copy(io.Discard, nc)
				_ = nc.Close()
			}()
			began := time.Now()
			_, err = transport.Dial(t.Context(), c.scheme+"://relay:80/", &transport.DialOptions{
				Transport:        &http.Transport{DialContext: network.DialContext},
				HandshakeTimeout: 3 * time.Second,
			})
			var he *transport.HandshakeError
			if !errors.Is(err, context.DeadlineExceeded) && !errors.As(err, &he) {
				t.Errorf("%s: Dial: %v, want context.DeadlineExceeded", c.name, err)
			}
			if d := time.Since(began); d != 3*time.Second {
				t.Errorf("%s: Dial returned after %v, want the HandshakeTimeout of 3s", c.name, d)
			}
		})
	}
}

func TestDial_HandshakeTimeoutBoundsTheConnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		_, err := transport.Dial(t.Context(), "ws://relay:80/", &transport.DialOptions{
			Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}},
		})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Dial: %v, want context.DeadlineExceeded", err)
		}
		if d := time.Since(began); d != 10*time.Second {
			t.Errorf("Dial returned after %v, want 10s, the default HandshakeTimeout", d)
		}
	})
}

func TestDial_Cancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var network memnet.Network
		l, err := network.Listen("relay:80")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		_, err = transport.Dial(ctx, "ws://relay:80/", &transport.DialOptions{
			Transport: &http.Transport{DialContext: network.DialContext},
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Dial: %v, want context.Canceled", err)
		}
	})
}

// What a server says in one breath with its 101 is not lost (fault 18).
func TestDial_KeepsWhatCameWithTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		banner := strings.Repeat("SSH-2.0-", 2000)
		s := newMemServer(t, &http.Server{}, nil, nil)
		go func() {
			c := s.accept(t)
			_ = c.Write(transport.Text, []byte(banner))
			_ = c.Write(transport.Text, []byte("second"))
		}()
		// A connection that hands over the 101 together with what follows.
		tr := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := s.network.DialContext(ctx, network, addr)
			return &lumpyConn{Conn: c}, err
		}}
		a, err := transport.Dial(t.Context(), "ws://relay:80/", &transport.DialOptions{Transport: tr})
		if err != nil {
			t.Fatal(err)
		}
		defer endConn(a)
		wantMessage(t, a, banner)
		wantMessage(t, a, "second")
	})
}

// lumpyConn waits before it reads, so that much comes at once.
type lumpyConn struct{ net.Conn }

func (c *lumpyConn) Read(p []byte) (int, error) {
	time.Sleep(time.Second)
	return c.Conn.Read(p)
}

// tls.Conn.Close can wait seconds for a peer that does not read. CloseNow must
// not, whether or not a Write is blocked, nor Close beyond CloseTimeout.
func TestDial_CloseOverTLSWaitsForNoAlert(t *testing.T) {
	certs := httptest.NewTLSServer(nil)
	certs.Close()
	client := certs.Client().Transport.(*http.Transport).TLSClientConfig
	for _, c := range []struct {
		name    string
		close   func(transport.Conn)
		blocked bool
		want    time.Duration
	}{
		{"CloseNow", transport.Conn.CloseNow, false, 0},
		{"CloseNow with a blocked Write", transport.Conn.CloseNow, true, 0},
		{"Close with a blocked Write", func(c transport.Conn) { c.Close(1000, "") }, true, time.Second},
	} {
		for _, side := range []string{"client", "server"} {
			synctest.Test(t, func(t *testing.T) {
				var network memnet.Network
				l, err := network.Listen("example.com:80")
				if err != nil {
					t.Fatal(err)
				}
				a, b, stop := pairOver(t, transport.Options{}, tls.NewListener(l, certs.TLS), &http.Transport{
					DialContext: network.DialContext, TLSClientConfig: client,
				}, "https://example.com:80")
				defer stop()
				if side == "server" {
					a, b = b, a
				}
				_ = b // reads nothing
				written := make(chan error, 1)
				if c.blocked {
					go func() { written <- a.Write(transport.Binary, make([]byte, 1<<20)) }()
					synctest.Wait()
					if !a.Writing() {
						t.Fatal("the Write should be blocked by now")
					}
				}
				began := time.Now()
				c.close(a)
				<-a.Done()
				if d := time.Since(began); d != c.want {
					t.Errorf("%s, %s: over after %v, want %v", c.name, side, d, c.want)
				}
				if c.blocked {
					if err := <-written; err == nil {
						t.Errorf("%s, %s: the blocked Write succeeded", c.name, side)
					}
				}
			})
		}
	}
}

// stuckConn is a connection whose peer reads nothing, as TLS sees it: a write
// ends only with its deadline.
type stuckConn struct {
	net.Conn
	stuck    atomic.Bool
	deadline atomic.Pointer[time.Time]
}

func (c *stuckConn) SetWriteDeadline(t time.Time) error {
	c.deadline.Store(&t)
	return c.Conn.SetWriteDeadline(t)
}

func (c *stuckConn) Write(p []byte) (int, error) {
	if c.stuck.Load() {
		if d := c.deadline.Load(); d != nil {
			time.Sleep(time.Until(*d))
		}
		return 0, os.ErrDeadlineExceeded
	}
	return c.Conn.Write(p)
}

// tls.Conn.Close gives its alert five seconds, if nobody is writing.
func TestDial_CloseNowOverTLSToAPeerThatReadsNothing(t *testing.T) {
	certs := httptest.NewTLSServer(nil)
	certs.Close()
	synctest.Test(t, func(t *testing.T) {
		var network memnet.Network
		l, err := network.Listen("example.com:80")
		if err != nil {
			t.Fatal(err)
		}
		var stuck *stuckConn
		a, _, stop := pairOver(t, transport.Options{}, tls.NewListener(l, certs.TLS), &http.Transport{
			TLSClientConfig: certs.Client().Transport.(*http.Transport).TLSClientConfig,
			DialContext: func(ctx context.Context, n, addr string) (net.Conn, error) {
				c, err := network.DialContext(ctx, n, addr)
				stuck = &stuckConn{Conn: c}
				return stuck, err
			},
		}, "https://example.com:80")
		defer stop()
		stuck.stuck.Store(true)
		began := time.Now()
		a.CloseNow()
		<-a.Done()
		if d := time.Since(began); d != 0 {
			t.Errorf("CloseNow took %v, want no time", d)
		}
	})
}

var errCable = errors.New("cable cut")

// deafConn fails to write from some time on, while its reads wait.
type deafConn struct {
	net.Conn
	deaf atomic.Bool
}

func (c *deafConn) Write(p []byte) (int, error) {
	if c.deaf.Load() {
		return 0, errCable
	}
	return c.Conn.Write(p)
}

// After a write has failed, reading goes on for WriteTimeout: what the peer
// has sent before it went is still to be had, its close frame above all.
func TestDial_ReadsOnAfterAFailedWrite(t *testing.T) {
	for _, says := range []string{"something and why it closes", "nothing"} {
		synctest.Test(t, func(t *testing.T) {
			var network memnet.Network
			l, err := network.Listen("relay:80")
			if err != nil {
				t.Fatal(err)
			}
			var nc *deafConn
			a, b, stop := pairOver(t, transport.Options{WriteTimeout: time.Minute}, l, &http.Transport{
				DialContext: func(ctx context.Context, n, addr string) (net.Conn, error) {
					c, err := network.DialContext(ctx, n, addr)
					nc = &deafConn{Conn: c}
					return nc, err
				},
			}, "ws://relay:80")
			defer stop()
			nc.deaf.Store(true)
			if err := a.Write(transport.Text, []byte("x")); !errors.Is(err, errCable) || transport.CloseCodeOf(err) != transport.CloseAbnormal {
				t.Errorf("Write: %v, want CloseAbnormal with its cause", err)
			}
			began := time.Now()
			if says == "nothing" {
				_, _, err := a.Reader()
				if !errors.Is(err, errCable) || transport.CloseCodeOf(err) != transport.CloseAbnormal {
					t.Errorf("Reader: %v, want CloseAbnormal with the cause", err)
				}
				if d := time.Since(began); d != time.Minute {
					t.Errorf("Reader returned after %v, want the WriteTimeout of 1m", d)
				}
				return
			}
			time.Sleep(time.Minute - time.Nanosecond)
			write(t, b, "last words")
			b.Close(transport.CloseReplaced, "newer")
			wantMessage(t, a, "last words")
			if _, _, err := a.Reader(); transport.CloseCodeOf(err) != transport.CloseReplaced {
				t.Errorf("Reader: %v, want the peer's 4409", err)
			}
		})
	}
}
