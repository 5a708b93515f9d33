package main

import (
	"strings"
	"testing"
	"time"

	"github.com/dialback/dialback/agent"
	"github.com/dialback/dialback/transport"
)

func TestAuth(t *testing.T) {
	w := newWorld(t)
	defer w.close()
	defer w.runHost("laptop", map[string]agent.Handler{"": agent.HTTP(site())})()
	good := token(roleClient, "laptop", "phone")
	tests := []struct {
		name  string
		token string
		want  int
		code  transport.CloseCode
		why   string
	}{
		{"no token", "", 401, transport.CloseUnauthorized, "a token is required"},
		{"good token", good, 200, 0, ""},
		{"good token for more hosts than one", token(roleClient, "phone", "laptop"), 200, 0, ""},
		{"expired token", tokenFor(-time.Second, roleClient, "laptop"), 401, transport.CloseUnauthorized, "the token has expired"},
		{"signed with another key", claims{Role: roleClient, Hosts: []string{"laptop"}, Expires: 1 << 40}.sign([]byte("x")), 401, transport.CloseUnauthorized, "the token is not valid"},
		{"changed token", "e30" + good[3:], 401, transport.CloseUnauthorized, "the token is not valid"},
		{"no token at all", "abc", 401, transport.CloseUnauthorized, "the token is not valid"},
		{"token for another host", token(roleClient, "phone"), 403, transport.CloseForbidden, "the token is not for this"},
		{"token of a host", token(roleHost, "laptop"), 403, transport.CloseForbidden, "the token is not for this"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			headers := []string{"Authorization", "Bearer " + tt.token}
			if tt.token == "" {
				headers = nil
			}
			status, body := w.get("http://laptop.example.test/", headers...)
			if status != tt.want || !strings.Contains(body, tt.why) {
				t.Errorf("page: %d %s, want %d and the reason %q", status, body, tt.want, tt.why)
			}
			// A browser cannot read a refused handshake, so the WebSocket opens
			// and is closed with a code.
			conn := w.open("http://laptop.example.test/echo", headers...)
			defer conn.CloseNow()
			_, err := read(conn)
			if tt.code == 0 {
				if err != nil {
					t.Errorf("WebSocket: %v, want the first words of the host", err)
				}
			} else if got := transport.CloseCodeOf(err); got != tt.code {
				t.Errorf("WebSocket: %v, want close code %d", err, tt.code)
			}
		})
	}
}

func TestAuth_Host(t *testing.T) {
	w := newWorld(t)
	defer w.close()
	for _, tt := range []struct {
		token string
		want  transport.CloseCode
	}{
		{"", transport.CloseUnauthorized},
		{token(roleClient, "laptop"), transport.CloseForbidden},
		{token(roleHost, "phone"), transport.CloseForbidden},
	} {
		headers := []string{"Dialback-Authorization", "Bearer " + tt.token}
		if tt.token == "" {
			headers = nil
		}
		conn := w.open("http://example.test/relay/v2/control?hostId=laptop", headers...)
		if _, err := read(conn); transport.CloseCodeOf(err) != tt.want {
			t.Errorf("control socket with token %q: %v, want close code %d", tt.token, err, tt.want)
		}
		conn.CloseNow()
	}
}

// A browser is let in by its session. Another site's page, which has the
// browser's cookie but no token, opens no WebSocket.
func TestAuth_Session(t *testing.T) {
	w := newWorld(t)
	defer w.close()
	defer w.runHost("laptop", map[string]agent.Handler{"": agent.HTTP(site())})()
	cookie := "theme=dark; " + sessionCookie + "=" + token(roleClient, "laptop")
	status, body := w.get("http://laptop.example.test/", "Cookie", cookie)
	if status != 200 || !strings.HasSuffix(body, "cookies theme=dark") {
		t.Errorf("page by session: %d %s, want 200, and only the cookie that is not private", status, body)
	}
	for origin, want := range map[string]transport.CloseCode{"http://laptop.example.test": 0, "https://evil.test": transport.CloseForbidden} {
		conn := w.open("http://laptop.example.test/echo", "Cookie", cookie, "Origin", origin)
		_, err := read(conn)
		if want == 0 && err != nil || want != 0 && transport.CloseCodeOf(err) != want {
			t.Errorf("WebSocket by session from %s: %v, want close code %d", origin, err, want)
		}
		conn.CloseNow()
	}
}

func TestToken(t *testing.T) {
	c := claims{Subject: "alice", Role: roleClient, Hosts: []string{"a", "b"}, Expires: 42}
	signed := c.sign(testKey)
	got, err := verify(testKey, signed)
	if err != nil || got.Subject != "alice" || !got.allow(roleClient, "b") || got.allow(roleHost, "b") || got.allow(roleClient, "c") || got.expiresAt() != time.Unix(42, 0) {
		t.Errorf("verify(sign(%+v)) = %+v, %v", c, got, err)
	}
	body, sum, _ := strings.Cut(signed, ".")
	for _, bad := range []string{"", ".", body, body + ".", body + "." + sum + "x", body + "x." + sum, "." + sum, "!." + sum, body + ".!"} {
		if c, err := verify(testKey, bad); err == nil {
			t.Errorf("verify(%q) = %+v, want an error", bad, c)
		}
	}
}
