//go:build unix

package main_test

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/dialback/dialback/internal/proctest"
	"github.com/dialback/dialback/transport"
)

func TestStatus(t *testing.T) {
	t.Parallel()
	_, relay := serveRelay(t)
	before := time.Now()
	host := runHost(t, relay, "h", "--to", "tcp://127.0.0.1:1")

	got := run(t, nil, "", "status", "--relay", relay, "--id", "h")
	if got.code != 0 || !strings.HasPrefix(got.stdout, "h: online, last seen ") || got.stderr != "" {
		t.Errorf("online host: %+v, want 0 and a line that says so", got)
	}
	ws := "ws" + strings.TrimPrefix(relay, "http") + "/"
	got = run(t, []string{"DIALBACK_RELAY=" + ws, "DIALBACK_ID=h", "DIALBACK_JSON=true"}, "", "status")
	var st struct {
		ID         string
		Online     bool
		LastSeenAt int64
	}
	if err := json.Unmarshal([]byte(got.stdout), &st); err != nil || got.code != 0 {
		t.Fatalf("status by variables: %+v, %v, want JSON and 0", got, err)
	}
	if seen := time.UnixMilli(st.LastSeenAt); st.ID != "h" || !st.Online || seen.Before(before.Add(-time.Millisecond)) || seen.After(time.Now().Add(time.Millisecond)) {
		t.Errorf("status --json: %+v, want h online, last seen since its start at %v", st, before)
	}

	host.Terminate()
	got = run(t, nil, "", "status", "--relay", relay, "--id", "h", "--json")
	if got.code != 1 || !strings.Contains(got.stdout, `"online":false`) || !strings.Contains(got.stdout, `"lastSeenAt":`) || !strings.Contains(got.stderr, "offline") {
		t.Errorf("host that has left: %+v, want 1, offline and when it was last seen", got)
	}
	got = run(t, nil, "", "status", "--relay", relay, "--id", "nobody")
	if got.code != 1 || got.stdout != "nobody: offline, never seen\n" {
		t.Errorf("unknown host: %+v, want 1 and never seen", got)
	}
}

func TestStatus_Denied(t *testing.T) {
	t.Parallel()
	_, relay := serveRelay(t, "--token", secret)
	for token, want := range map[string]string{"": "401: a token is required", "other-" + secret: "401: wrong token"} {
		got := run(t, []string{"DIALBACK_TOKEN=" + token}, "", "status", "--relay", relay, "--id", "h", "--json")
		if got.code != 1 || got.stdout != "" || !strings.Contains(got.stderr, want) {
			t.Errorf("token %q: %+v, want 1 and %q", token, got, want)
		}
	}
}

// What is no relay's answer is said to be none, and where it leads to gets no
// token.
func TestStatus_NoRelayThere(t *testing.T) {
	t.Parallel()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("a redirection was followed, with %v", r.Header)
	}))
	defer elsewhere.Close()
	for what, want := range map[string]string{
		"HTTP/1.1 307 Over There\r\nLocation: " + elsewhere.URL + "\r\nContent-Length: 0\r\n\r\n":      "307",
		"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nforever": "101",
	} {
		addr := proctest.Serve(t, func(c *net.TCPConn) {
			io.WriteString(c, what)
			io.Copy(io.Discard, c) // until it is closed
		})
		got := run(t, []string{"DIALBACK_TOKEN=" + secret}, "", "status", "--relay", "http://"+addr, "--id", "h")
		if got.code != 1 || !strings.Contains(got.stderr, want) {
			t.Errorf("%+v, want 1 and %q", got, want)
		}
	}
}

// With everything logged, no token is in the output of any process.
func TestTokenIsNeverPrinted(t *testing.T) {
	t.Parallel()
	debug := []string{"DIALBACK_LOG_LEVEL=debug", "DIALBACK_TOKEN=" + secret}
	srv := proctest.Dialback(t, debug, "serve", "--listen", "127.0.0.1:0")
	relay := strings.TrimPrefix(srv.Line(), "listening on ")
	host := proctest.Dialback(t, debug, "host", "--relay", relay, "--id", "h", "--to", "tcp://"+proctest.Serve(t, countInput))
	if l := host.Line(); !strings.HasPrefix(l, "online: ") {
		t.Fatalf("host printed %q, want online: the token lets it in", l)
	}
	wrong := proctest.Dialback(t, []string{"DIALBACK_LOG_LEVEL=debug", "DIALBACK_TOKEN=other-" + secret}, "host", "--relay", relay, "--id", "h", "--to", "tcp://127.0.0.1:1")
	if l := wrong.Line(); l != "offline: wrong token (4401)" {
		t.Errorf("host with a wrong token printed %q, want that", l)
	}
	outputs := map[string]string{}
	for name, args := range map[string][]string{
		"connect": {"connect", "--relay", relay, "--id", "h"},
		"status":  {"status", "--relay", relay, "--id", "h"},
	} {
		got := run(t, debug, "hello", args...)
		if got.code != 0 {
			t.Errorf("%s with the token: %+v, want 0", name, got)
		}
		outputs[name] = got.stdout + got.stderr
	}
	host.Terminate()
	srv.Kill()
	wrong.Kill()
	for name, p := range map[string]*proctest.Process{"serve": srv, "host": host, "denied host": wrong} {
		if p.Stderr.String() == "" {
			t.Errorf("%s logged nothing at level debug", name)
		}
		outputs[name] = p.Stdout.String() + p.Stderr.String()
	}
	for name, out := range outputs {
		if strings.Contains(out, secret) {
			t.Errorf("%s printed the token: %s", name, out)
		}
	}
}

// Nor is it when the relay sends it back: in an answer, as a close reason, or in
// what is no answer at all.
func TestTokenIsNeverPrinted_FromTheRelay(t *testing.T) {
	t.Parallel()
	got := func(r *http.Request) string { return r.Header.Get("Dialback-Authorization") }
	for name, h := range map[string]http.HandlerFunc{
		"error": func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, `{"error":{"code":"unauthorized","message":"no such token: `+got(r)+`"}}`)
		},
		"close reason": func(w http.ResponseWriter, r *http.Request) {
			if c, err := transport.Accept(w, r, nil); err == nil {
				c.Close(transport.CloseForbidden, got(r))
			}
		},
		"no HTTP": func(w http.ResponseWriter, r *http.Request) {
			if nc, _, err := http.NewResponseController(w).Hijack(); err == nil {
				_, _ = io.WriteString(nc, got(r)+"\r\n\r\n")
				_ = nc.Close()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := httptest.NewServer(h)
			defer srv.Close()
			env := []string{"DIALBACK_TOKEN=" + secret, "DIALBACK_LOG_LEVEL=debug", "DIALBACK_RELAY=" + srv.URL, "DIALBACK_ID=h"}
			outputs := map[string]string{}
			host := proctest.Dialback(t, env, "host", "--to", "tcp://127.0.0.1:1")
			if l := host.Line(); !strings.HasPrefix(l, "offline: ") {
				t.Errorf("host printed %q, want offline", l)
			}
			host.Terminate()
			outputs["host"] = host.Output()
			for _, command := range []string{"connect", "status"} {
				got := run(t, env, "", command)
				if got.code != 1 || got.stderr == "" {
					t.Errorf("%s: %+v, want 1 and why", command, got)
				}
				outputs[command] = got.stdout + got.stderr
			}
			for command, out := range outputs {
				if strings.Contains(out, secret) {
					t.Errorf("%s printed the token: %s", command, out)
				}
			}
		})
	}
}
