package relay_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dialback/dialback/agent"
	"github.com/dialback/dialback/relay"
	"github.com/dialback/dialback/relaytest"
	"github.com/dialback/dialback/store"
	"github.com/dialback/dialback/store/memory"
	"github.com/dialback/dialback/store/storetest"
	"github.com/dialback/dialback/transport"
)

const secret = "s3cr3t-token"

// token lets in who has the secret; cookie lets in who has a cookie.
func token(_ context.Context, r *http.Request, _ string) (relay.Identity, error) {
	if c, err := r.Cookie("login"); err == nil && c.Value == "yes" {
		return relay.Identity{Subject: "cookie"}, nil
	}
	switch relay.Credential(r) {
	case secret:
		return relay.Identity{Subject: "token"}, nil
	case "":
		return relay.Identity{}, relay.Deny(relay.ErrUnauthorized, "a token is required")
	}
	return relay.Identity{}, relay.Deny(relay.ErrForbidden, "wrong token")
}

// Nobody is let in unless the embedder says so.
func TestAuth_ZeroHooksRefuseEverybody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, func(c *relay.Config) { c.AuthorizeHost, c.AuthorizeClient = nil, nil })
		get(s, "/hosts/h/x").want(t, "a client", 403, "forbidden")
		if _, err := s.Connect("h", relaytest.HostConfig{}); transport.CloseCodeOf(err) != transport.CloseForbidden {
			t.Errorf("a host: %v, want 4403", err)
		}
	})
}

// Where a credential may stand, and that it goes no further; the rest of the
// query keeps its bytes.
func TestAuth_CredentialIsCutOut(t *testing.T) {
	tests := []struct {
		name   string
		query  string
		header http.Header
		saw    string // URI that the service sees
	}{
		{"own header", "?k=%20v", http.Header{"Dialback-Authorization": {"Bearer " + secret}}, "/x?k=%20v"},
		{"own header without a scheme", "", http.Header{"Dialback-Authorization": {secret}}, "/x"},
		{"bearer", "?k=v", http.Header{"Authorization": {"bearer " + secret}}, "/x?k=v"},
		{"query", "?token=" + secret, nil, "/x"},
		{"query, first", "?token=" + secret + "&k=%2F+&z", nil, "/x?k=%2F+&z"},
		{"query, between", "?a=1&token=" + secret + "&b=;", nil, "/x?a=1&b=;"},
		{"query, twice", "?token=" + secret + "&a&token=" + secret, nil, "/x?a"},
		{"query, escaped", "?%74oken=s3cr3t%2Dtoken&a", nil, "/x?a"},
		{"referer", "", http.Header{"Authorization": {"Bearer " + secret}, "Referer": {"http://relay.test/hosts/h/p?a=1&token=" + secret + "&b#f"}}, "/x"},
		{"referer, the second", "", http.Header{"Authorization": {"Bearer " + secret}, "Referer": {"http://relay.test/p", "http://relay.test/?token=" + secret}}, "/x"},
		{"query, headers with a scheme alone", "?a&token=" + secret, http.Header{"Authorization": {"Bearer "}, "Dialback-Authorization": {"bearer "}}, "/x?a"},
		{"query, headers without a token", "?a&token=" + secret, http.Header{"Authorization": {"Bearer \u00a0"}, "Dialback-Authorization": {"Bearer \u00a0"}}, "/x?a"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var log lockedBuffer
				s := server(t, func(c *relay.Config) {
					c.AuthorizeClient = token
					c.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
				})
				var saw string
				s.StartAgent("h", handler(func(w http.ResponseWriter, r *http.Request) {
					saw = fmt.Sprint(r.RequestURI, r.Header)
					io.WriteString(w, r.RequestURI+"|"+r.Header.Get("Referer"))
				}), nil)
				req, _ := http.NewRequest("GET", s.URL+"/hosts/h/x"+tt.query, nil)
				for k, v := range tt.header {
					req.Header[k] = v
				}
				resp, body, err := s.DoRequest(req)
				uri, referer, _ := strings.Cut(body, "|")
				if err != nil || resp.StatusCode != 200 || uri != tt.saw {
					t.Errorf("%v, the service saw %q, want %q; %v", resp, uri, tt.saw, err)
				}
				if tt.name == "referer" && referer != "http://relay.test/hosts/h/p?a=1&b#f" {
					t.Errorf("referer %q", referer)
				}
				if strings.Contains(saw, "s3cr3t") {
					t.Errorf("the token reached the service: %s", saw)
				}
				if strings.Contains(log.String(), "s3cr3t") {
					t.Errorf("the token is in the log: %s", log.String())
				}
			})
		})
	}
}

// What a page loads is let in by its cookie, and has the page's URL for a Referer:
// no token of the same host's goes to the host, whatever the hook found. Of a
// foreign page it is none of ours, unless it is the one that was used.
func TestAuth_RefererOfWhatAPageLoads(t *testing.T) {
	const page = "http://relay.test:80/hosts/h/?a&token=" + secret + "&%74oken=other&b#f"
	const foreign = "https://app.example/?token=theirs&a"
	tests := []struct{ name, cookie, token, referer, want string }{
		{"own page, by a cookie", "login=yes", "", page, "http://relay.test:80/hosts/h/?a&b#f"},
		{"own page, by a token", "", secret, page, "http://relay.test:80/hosts/h/?a&b#f"},
		{"no token in it", "login=yes", "", "http://relay.test:80/hosts/h/?#", "http://relay.test:80/hosts/h/?#"},
		{"a path alone", "login=yes", "", "/hosts/h/?token=" + secret, "/hosts/h/"},
		{"spelt otherwise", "login=yes", "", "HTTP://Relay.Test:80/?token=" + secret, "HTTP://Relay.Test:80/"},
		{"malformed", "login=yes", "", "http://relay.test:80/%zz?token=" + secret, "http://relay.test:80/%zz"},
		{"foreign page, by a cookie", "login=yes", "", foreign, foreign},
		{"foreign page, by a token", "", secret, foreign + "&token=" + secret, foreign},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := server(t, func(c *relay.Config) {
					c.PrivateCookies = []string{"login"}
					c.AuthorizeClient = func(ctx context.Context, r *http.Request, hostID string) (relay.Identity, error) {
						if relay.Credential(r) == secret {
							return relay.Identity{}, nil
						}
						return token(ctx, r, hostID)
					}
				})
				s.StartAgent("h", handler(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Referer()) }), nil)
				req, _ := http.NewRequest("GET", s.URL+"/hosts/h/app.js", nil)
				req.Header = http.Header{"Cookie": {tt.cookie}, "Dialback-Authorization": {tt.token}, "Referer": {tt.referer}}
				if resp, body, err := s.DoRequest(req); err != nil || resp.StatusCode != 200 || body != tt.want {
					t.Errorf("the service saw the Referer %q, want %q; %v %v", body, tt.want, resp, err)
				}
			})
		})
	}
}

// What no hook consumed is not the relay's: it goes to the host.
func TestAuth_UnusedCredentialStays(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		s.StartAgent("h", handler(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, r.RequestURI, " ", r.Header.Get("Authorization"), " ", r.Referer())
		}), nil)
		req, _ := http.NewRequest("GET", s.URL+"/hosts/h/x?token=theirs", nil)
		req.Header.Set("Authorization", "Bearer theirs")
		req.Header.Set("Referer", s.URL+"/?token=theirs")
		if _, body, _ := s.DoRequest(req); body != "/x?token=theirs Bearer theirs "+s.URL+"/?token=theirs" {
			t.Errorf("the service saw %q", body)
		}
	})
}

// An error that the hook has made up is an internal one, and no panic of net/http's
// about a status that there is not.
func TestAuth_RefusalWithoutAStatus(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, func(c *relay.Config) {
			c.AuthorizeClient = func(context.Context, *http.Request, string) (relay.Identity, error) {
				return relay.Identity{}, &relay.RefusedError{}
			}
		})
		get(s, "/hosts/h/x").want(t, "a RefusedError without a Status", 500, "internal")
	})
}

// A denied plain request gets a status, a denied WebSocket its close code.
func TestAuth_Denials(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, func(c *relay.Config) { c.AuthorizeHost, c.AuthorizeClient = token, token })
		for _, path := range []string{"/hosts/h/x", "/hosts/h/_whoowns"} {
			get(s, path).want(t, path, 401, "unauthorized")
			get(s, path+"?token=wrong").want(t, path, 403, "forbidden")
		}
		for _, path := range []string{"/hosts/h/x", "/connect/h", "/v2/control?hostId=h"} {
			for q, code := range map[string]transport.CloseCode{"": 4401, "token=wrong": 4403} {
				sep := "?"
				if strings.Contains(path, "?") {
					sep = "&"
				}
				conn, err := s.DialWS(context.Background(), path+sep+q, nil)
				if err != nil {
					t.Errorf("%s: a denied WebSocket is accepted, then closed: %v", path, err)
					continue
				}
				wantEnd(t, conn, path+" "+q, code, "token")
			}
		}
	})
}

// Another origin's page needs an explicit token; a cookie alone never does.
func TestAuth_ForeignOrigins(t *testing.T) {
	tests := []struct {
		origin, cookie, token string
		ok                    bool
	}{
		{"", "login=yes", "", true}, // no browser
		{"http://relay.test:80", "login=yes", "", true},
		{"https://evil.example", "login=yes", "", false},
		{"null", "login=yes", "", false},
		{"https://evil.example", "", secret, true},
		{"https://app.example", "login=yes", "", true},
	}
	for _, tt := range tests {
		bubble(t, func(t *testing.T) {
			s := server(t, func(c *relay.Config) {
				c.AuthorizeClient, c.AllowedOrigins = token, []string{"https://app.example"}
			})
			s.StartAgent("h", map[string]agent.Handler{"": echo()}, nil)
			h := http.Header{}
			for k, v := range map[string]string{"Origin": tt.origin, "Cookie": tt.cookie} {
				if v != "" {
					h.Set(k, v)
				}
			}
			path := "/connect/h"
			if tt.token != "" {
				path += "?token=" + tt.token
			}
			conn, err := s.DialWS(context.Background(), path, &transport.DialOptions{Header: h})
			if err != nil {
				t.Fatal(err)
			}
			c := transport.NewStreamConn(conn)
			c.CloseWrite()
			_, err = io.ReadAll(c)
			if tt.ok != (err == nil) || !tt.ok && transport.CloseCodeOf(err) != 4403 {
				t.Errorf("%+v: %v", tt, err)
			}
		})
	}
}

func TestAuth_HooksGetTheSubject(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var opened []relay.StreamInfo
		s := server(t, func(c *relay.Config) {
			c.AuthorizeClient = token
			c.Hooks.StreamOpened = func(i relay.StreamInfo) { opened = append(opened, i) }
		})
		s.StartAgent("h", map[string]agent.Handler{"": text("ok")}, nil)
		get(s, "/hosts/h/x?token="+secret).want(t, "with the token", 200, "ok")
		if len(opened) != 1 || opened[0].Subject != "token" || opened[0].HostID != "h" {
			t.Errorf("%+v", opened)
		}
	})
}

// A handler of the embedder's own is called for those who may reach the host, and
// knows who they are.
func TestAuthorized_HandlerGetsTheIdentity(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var s *relaytest.Server
		hostOf := func(r *http.Request) string { return strings.TrimPrefix(r.URL.Path, "/settings/") }
		settings := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			id, ok := relay.IdentityFrom(r.Context())
			fmt.Fprintf(w, "%s %v %s %q %s", hostOf(r), ok, id.Subject, r.URL.RawQuery, r.RequestURI)
		})
		s = relaytest.NewServer(t, &relaytest.Options{
			Config: func(c *relay.Config) { c.AuthorizeClient = token },
			Wrap: func(relayed http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if strings.HasPrefix(r.URL.Path, "/settings/") {
						s.Relay.Authorized(hostOf, settings).ServeHTTP(w, r)
						return
					}
					relayed.ServeHTTP(w, r)
				})
			},
		})
		get(s, "/settings/h?a&token="+secret+"&b").want(t, "with the token", 200, `h true token "a&b" /settings/h?a&b`)
		get(s, "/settings/h").want(t, "without a token", 401, "unauthorized")
		get(s, "/settings/a%20b?token="+secret).want(t, "no host ID", 400, "bad_request")
		if _, ok := relay.IdentityFrom(t.Context()); ok {
			t.Error("an Identity in a context of nobody's")
		}
	})
}

func TestAuth_MetaIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		size := 1 << 10
		st := memory.New()
		s := server(t, func(c *relay.Config) {
			c.Store = st
			c.AuthorizeHost = func(context.Context, *http.Request, string) (relay.Identity, error) {
				return relay.Identity{Meta: make([]byte, size)}, nil
			}
		})
		s.MustConnect("h", relaytest.HostConfig{})
		if a, err := st.Current(context.Background(), "h"); err != nil || len(a.Meta) != size {
			t.Errorf("stored %d bytes of Meta, %v", len(a.Meta), err)
		}
		size++
		if _, err := s.Connect("h2", relaytest.HostConfig{}); transport.CloseCodeOf(err) != transport.CloseInternal {
			t.Errorf("1 KiB and a byte: %v, want 1011", err)
		}
	})
}

func TestHostID_Grammar(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		for _, id := range []string{"a", "A.b_c:d@e~f-1", "..a", strings.Repeat("x", 128)} {
			get(s, "/hosts/"+id+"/x").want(t, id, 503, "host_offline")
		}
		for _, id := range []string{"a%20b", "a%2Fb", "%00", strings.Repeat("x", 129), "a+b", "%zz", "h%2Fadmin|", "h|%2F.."} {
			if r := rawGet(t, s, "/hosts/"+id+"/x"); !strings.Contains(r, "bad_request") && !strings.Contains(r, "400") {
				t.Errorf("%.20q: %.80q, want 400", id, r)
			}
		}
		get(s, "/hosts/h").want(t, "without a slash", 308, "")
		get(s, "/nothing").want(t, "no such route", 404, "")
	})
}

func TestPresence(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, func(c *relay.Config) {
			c.AuthorizeClient = func(_ context.Context, _ *http.Request, id string) (relay.Identity, error) {
				if id == "hidden" {
					return relay.Identity{}, relay.ErrForbidden
				}
				return relay.Identity{}, nil
			}
		})
		s.MustConnect("a", relaytest.HostConfig{})
		s.MustConnect("hidden", relaytest.HostConfig{})
		left := s.MustConnect("b", relaytest.HostConfig{})
		left.Vanish()
		time.Sleep(time.Second)
		r := get(s, "/presence?hostIds=a,b,never,hidden")
		r.want(t, "presence", 200, `"a":{"online":true,"lastSeenAt":`)
		r.want(t, "presence", 200, `"b":{"online":false,"lastSeenAt":`)
		r.want(t, "presence", 200, `"never":{"online":false}`)
		if strings.Contains(r.body, "hidden") {
			t.Errorf("a host that may not be seen is listed: %s", r.body)
		}
		get(s, "/presence").want(t, "no hosts", 400, "bad_request")
		get(s, "/presence?hostIds="+strings.Repeat("x,", 51)).want(t, "51 hosts", 400, "bad_request")
		get(s, "/hosts/a/_whoowns").want(t, "online", 200, `"online":true`)
		get(s, "/hosts/b/_whoowns").want(t, "offline", 503, "host_offline")
		get(s, "/hosts/hidden/_whoowns").want(t, "hidden", 403, "forbidden")
	})
}

func TestLimits_HostsPerNodeAndRate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, func(c *relay.Config) { c.MaxHosts = 2 })
		s.MustConnect("a", relaytest.HostConfig{})
		s.MustConnect("b", relaytest.HostConfig{})
		_, err := s.Connect("c", relaytest.HostConfig{})
		var he *transport.HandshakeError
		if !errors.As(err, &he) || he.Status != 503 || he.Code != "node_limit" || he.RetryAfter == 0 {
			t.Errorf("the third host: %v, want 503 node_limit", err)
		}
		s2 := server(t, func(c *relay.Config) { c.AcceptRate = 2 })
		for i := range 3 {
			_, err = s2.Connect(fmt.Sprint("h", i), relaytest.HostConfig{})
		}
		if !errors.As(err, &he) || he.Status != 503 || he.RetryAfter == 0 {
			t.Errorf("the third within a second: %v, want 503 with Retry-After", err)
		}
		time.Sleep(time.Second)
		s2.MustConnect("h3", relaytest.HostConfig{})
	})
}

// A host that comes back to a full node is no host more, even if its old socket
// is half-open; its place is never had twice, however many come at once.
func TestLimits_HostComesBackToAFullNode(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := storetest.NewFaulty(memory.New())
		s := server(t, func(c *relay.Config) { c.MaxHosts, c.Store = 2, st })
		full := func(why string) {
			t.Helper()
			synctest.Wait()
			if n := s.Relay.Stats().Hosts; n != 2 {
				t.Errorf("%s: %d hosts, want 2", why, n)
			}
			if _, err := s.Connect("another", relaytest.HostConfig{}); err == nil {
				t.Errorf("%s: another host was let in", why)
			}
		}
		s.MustConnect("a", relaytest.HostConfig{}).Freeze()
		s.MustConnect("b", relaytest.HostConfig{})
		full("two hosts")
		s.MustConnect("a", relaytest.HostConfig{OnDial: relaytest.AnswerText("back")})
		get(s, "/hosts/a/").want(t, "the host is back", 200, "back")
		full("after the return")
		time.Sleep(2 * time.Second) // CloseTimeout: the old socket has ended
		full("after the end of the old socket")

		st.Set("Claim", storetest.Fault{Delay: 500 * time.Millisecond})
		var wg sync.WaitGroup
		in := make(chan *relaytest.Host, 6)
		for _, id := range []string{"b", "c", "b", "c", "b", "c"} {
			wg.Go(func() {
				if h, err := s.Connect(id, relaytest.HostConfig{}); err == nil {
					in <- h
				}
			})
		}
		wg.Wait()
		if len(in) != 1 {
			t.Fatalf("%d sockets were let in at once, want one, of the host that is there", len(in))
		}
		full("after many at once")
		time.Sleep(2 * time.Second)
		(<-in).Close()
		time.Sleep(2 * time.Second)
		s.MustConnect("c", relaytest.HostConfig{})
		full("after one has left and another come")
	})
}

// A newcomer that ends before it has taken over leaves the place to the old socket.
func TestLimits_HostThatIsNotBackAfterAll(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := storetest.NewFaulty(memory.New())
		s := server(t, func(c *relay.Config) { c.MaxHosts, c.Store = 1, st })
		old := s.MustConnect("a", relaytest.HostConfig{})
		st.Set("Claim", storetest.Fault{Err: store.ErrRetired})
		for range 2 {
			if h, err := s.Connect("a", relaytest.HostConfig{}); err == nil {
				wantClosed(t, h, "the newcomer", transport.CloseReplaced)
			}
			time.Sleep(2 * time.Second)
			wantOpen(t, old, "the old socket")
			if n := s.Relay.Stats().Hosts; n != 1 {
				t.Errorf("%d hosts, want 1", n)
			}
			if _, err := s.Connect("b", relaytest.HostConfig{}); err == nil {
				t.Error("another host was let in")
			}
		}
	})
}

func TestLimits_StreamsPerHost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, func(c *relay.Config) { c.MaxStreams = 2 })
		h := s.MustConnect("h", relaytest.HostConfig{Proto: 3})
		connectTo(t, s, h)
		client, _ := connectTo(t, s, h)
		get(s, "/hosts/h/x").want(t, "the third", 429, "host_limit")
		conn := byConnect(t, s, "h")
		wantEnd(t, conn, "the third", transport.CloseLimit, "limit")
		client.Close()
		time.Sleep(time.Second)
		connectTo(t, s, h)
	})
}

// A host that reads nothing gets no endless queue: the control socket is
// retired when a frame has waited for 5 s.
func TestLimits_ControlSocketThatTakesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, func(c *relay.Config) { c.DialTimeout = time.Minute })
		h := s.MustConnect("h", relaytest.HostConfig{})
		h.Freeze()
		start := time.Now()
		path := "/hosts/h/" + strings.Repeat("x", 3000)
		replies := make(chan reply, 100)
		for range 100 {
			go func() { replies <- get(s, path) }()
		}
		for range 100 {
			(<-replies).want(t, "a host that takes no frames", 503, "host_gone")
		}
		if d := time.Since(start); d > 8*time.Second {
			t.Errorf("answered after %v, want 5 s and the grace", d)
		}
		settled(t, s, "after the socket was retired")
	})
}

// lockedBuffer is a log that may be read while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
