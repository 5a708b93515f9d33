package relay_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dialback/dialback/internal/memnet"
	"github.com/dialback/dialback/relay"
	"github.com/dialback/dialback/relaytest"
	"github.com/dialback/dialback/store/storetest"
)

// http2Server is a relay that speaks HTTP/2 without TLS, a client of it that
// speaks nothing else, and an agent "h" that serves f.
func http2Server(t *testing.T, f func(w http.ResponseWriter, r *http.Request)) (*relaytest.Server, *http.Client) {
	t.Helper()
	return http2ServerWith(t, f, relaytest.Options{})
}

func http2ServerWith(t *testing.T, f func(w http.ResponseWriter, r *http.Request), o relaytest.Options) (*relaytest.Server, *http.Client) {
	t.Helper()
	both, only := new(http.Protocols), new(http.Protocols)
	both.SetHTTP1(true) // agents
	both.SetUnencryptedHTTP2(true)
	only.SetUnencryptedHTTP2(true)
	set := o.HTTP
	o.HTTP = func(hs *http.Server) {
		hs.Protocols = both
		if set != nil {
			set(hs)
		}
	}
	s := relaytest.NewServer(t, &o)
	s.StartAgent("h", handler(f), nil)
	tr := s.Transport()
	tr.Protocols = only
	t.Cleanup(tr.CloseIdleConnections)
	return s, &http.Client{Transport: tr}
}

// http2Do sends a request whose body, if any, has no length.
func http2Do(t *testing.T, s *relaytest.Server, client *http.Client, body io.Reader) *http.Response {
	t.Helper()
	method := http.MethodGet
	if body != nil {
		method = http.MethodPost
	}
	req, _ := http.NewRequest(method, s.URL+"/hosts/h/x", body)
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if resp.ProtoMajor != 2 {
		t.Fatalf("the answer is %s, want HTTP/2", resp.Proto)
	}
	return resp
}

// Events are not held back, and a stream may be quiet for longer than
// StallTimeout: nothing waits to be written then.
func TestHTTP2_Events(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const quiet = 6 * time.Minute // StallTimeout is 5
		s, client := http2Server(t, func(w http.ResponseWriter, r *http.Request) {
			for i := range 3 {
				fmt.Fprintf(w, "data: %d\n\n", i)
				w.(http.Flusher).Flush()
				time.Sleep(quiet)
			}
		})
		resp := http2Do(t, s, client, nil)
		began := time.Now()
		buf := make([]byte, 100)
		for i := range 3 {
			n, err := resp.Body.Read(buf)
			if want := fmt.Sprintf("data: %d\n\n", i); string(buf[:n]) != want || err != nil {
				t.Fatalf("event %d: %q, %v", i, buf[:n], err)
			}
			if took := time.Since(began); took != time.Duration(i)*quiet {
				t.Fatalf("event %d came after %v", i, took)
			}
		}
		if n, err := resp.Body.Read(buf); n != 0 || err != io.EOF {
			t.Fatalf("the end: %q, %v", buf[:n], err)
		}
		settled(t, s, "after the last event")
	})
}

// A client that reads no more of an answer keeps its stream for StallTimeout.
func TestHTTP2_ClientThatReadsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, client := http2Server(t, func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, strings.Repeat("x", 16<<20)) // more than the window of a stream
		})
		resp := http2Do(t, s, client, nil)
		time.Sleep(6 * time.Minute)
		settled(t, s, "StallTimeout in which nothing could be written")
		if n, err := io.Copy(io.Discard, resp.Body); err == nil {
			t.Errorf("the answer was cut and looks complete: %d bytes", n)
		}
	})
}

// A client that takes nothing off its connection, which a deadline of net/http's
// does not end here, is cut by the server's WriteByteTimeout.
func TestHTTP2_ConnectionThatTakesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, client := http2ServerWith(t, func(w http.ResponseWriter, r *http.Request) {
			w.(http.Flusher).Flush()
			time.Sleep(time.Second)
			io.WriteString(w, strings.Repeat("x", 1<<20))
		}, relaytest.Options{HTTP: func(hs *http.Server) {
			hs.HTTP2 = &http.HTTP2Config{WriteByteTimeout: 5 * time.Minute}
		}})
		tr := client.Transport.(*http.Transport)
		dial := tr.DialContext
		var conn *memnet.Conn
		tr.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := dial(ctx, network, addr)
			conn, _ = c.(*memnet.Conn)
			return c, err
		}
		resp := http2Do(t, s, client, nil)
		defer resp.Body.Close()
		conn.Freeze()
		time.Sleep(11 * time.Minute) // net/http begins anew once after a part of a write
		settled(t, s, "WriteByteTimeout in which nothing could be written")
		conn.Cut()
	})
}

// Nobody takes a part of an answer for the whole.
func TestHTTP2_TruncatedAnswerIsAnError(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, client := http2Server(t, func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, "a part")
			w.(http.Flusher).Flush()
			time.Sleep(time.Second)
			panic(http.ErrAbortHandler)
		})
		resp := http2Do(t, s, client, nil)
		if b, err := io.ReadAll(resp.Body); err == nil {
			t.Errorf("a truncated answer looks complete: %q", b)
		}
		settled(t, s, "after a truncated answer")
	})
}

// A client that gives its request up gives it up at the host, and keeps its
// connection.
func TestHTTP2_ClientLeavesMidStream(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ended := make(chan struct{}, 2)
		s, client := http2Server(t, func(w http.ResponseWriter, r *http.Request) {
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			ended <- struct{}{}
		})
		other := http2Do(t, s, client, nil)
		ctx, cancel := context.WithCancel(context.Background())
		req, _ := http.NewRequestWithContext(ctx, "GET", s.URL+"/hosts/h/x", nil)
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		resp.Body.Close()
		<-ended
		synctest.Wait()
		if st := s.Relay.Stats(); st.Streams != 1 {
			t.Errorf("%d streams are left, want the other one", st.Streams)
		}
		other.Body.Close()
		<-ended
		settled(t, s, "after both have left")
	})
}

// Trailers pass, announced or not.
func TestHTTP2_Trailers(t *testing.T) {
	for _, announced := range []bool{true, false} {
		t.Run(fmt.Sprint("announced ", announced), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s, client := http2Server(t, func(w http.ResponseWriter, r *http.Request) {
					name := http.TrailerPrefix + "X-Sum"
					if announced {
						name = "X-Sum"
						w.Header().Set("Trailer", name)
					}
					io.WriteString(w, "body")
					w.(http.Flusher).Flush()
					w.Header().Set(name, "42")
				})
				resp := http2Do(t, s, client, nil)
				if b, err := io.ReadAll(resp.Body); string(b) != "body" || err != nil || resp.Trailer.Get("X-Sum") != "42" {
					t.Errorf("%q, %v, trailer %v", b, err, resp.Trailer)
				}
			})
		})
	}
}

// Both directions at once: the answer begins while the request goes on.
func TestHTTP2_FullDuplex(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, client := http2Server(t, func(w http.ResponseWriter, r *http.Request) {
			w.(http.Flusher).Flush()
			buf := make([]byte, 100)
			for {
				n, err := r.Body.Read(buf)
				w.Write(buf[:n])
				w.(http.Flusher).Flush()
				if err != nil {
					return
				}
			}
		})
		pr, pw := io.Pipe()
		resp := http2Do(t, s, client, pr)
		buf := make([]byte, 100)
		for i := range 5 {
			want := fmt.Sprint("part ", i)
			io.WriteString(pw, want)
			n, err := resp.Body.Read(buf)
			if string(buf[:n]) != want || err != nil {
				t.Fatalf("part %d: %q, %v", i, buf[:n], err)
			}
		}
		pw.Close()
		if b, err := io.ReadAll(resp.Body); len(b) > 0 || err != nil {
			t.Errorf("the end: %q, %v", b, err)
		}
		settled(t, s, "after both directions")
	})
}

// A client that waits for 100 Continue gets one, and what the host says before
// its answer.
func TestHTTP2_Continue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, client := http2Server(t, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(103)
			io.Copy(w, r.Body)
		})
		client.Transport.(*http.Transport).ExpectContinueTimeout = time.Hour
		continued, hints := 0, 0
		ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{
			Got100Continue: func() { continued++ },
			Got1xxResponse: func(code int, _ textproto.MIMEHeader) error {
				if code == 103 {
					hints++
				}
				return nil
			},
		})
		req, _ := http.NewRequestWithContext(ctx, "POST", s.URL+"/hosts/h/x", strings.NewReader("body"))
		req.Header.Set("Expect", "100-continue")
		began := time.Now()
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		if string(b) != "body" || err != nil || continued != 1 || hints != 1 || time.Since(began) > time.Minute {
			t.Errorf("%q, %v after %v, with %d times 100 and %d times 103; want one of each", b, err, time.Since(began), continued, hints)
		}
	})
}

// The server's own ReadTimeout and WriteTimeout, which are timers of a stream
// here, cut neither an exchange nor an answer of the relay's own.
func TestHTTP2_ImmuneToTheEmbeddersTimeouts(t *testing.T) {
	for name, set := range impatient {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var slow *storetest.Faulty
				s, client := http2ServerWith(t, func(w http.ResponseWriter, r *http.Request) {
					time.Sleep(5 * time.Second)
					io.WriteString(w, "true")
				}, relaytest.Options{HTTP: set, Config: func(c *relay.Config) {
					slow = storetest.NewFaulty(c.Store)
					c.Store, c.StoreTimeout, c.AuthorizeClient = slow, 5*time.Second, slowly
				}})
				slow.Set("LastSeen", storetest.Fault{Delay: 2 * time.Second})
				for _, path := range []string{"/hosts/h/x", "/hosts/h/_whoowns", "/presence?hostIds=h"} {
					resp, err := client.Get(s.URL + path)
					if err != nil {
						t.Errorf("%s: %v", path, err)
						continue
					}
					b, err := io.ReadAll(resp.Body)
					resp.Body.Close()
					if resp.StatusCode != 200 || !strings.Contains(string(b), "true") || err != nil {
						t.Errorf("%s: %d %q, %v", path, resp.StatusCode, b, err)
					}
				}
			})
		})
	}
}
