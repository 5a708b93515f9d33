package agent_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dialback/dialback/agent"
	"github.com/dialback/dialback/transport"
)

const upgradeRequest = "GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"

// upgraded runs an agent whose service upgrades to what h does with the
// connection, and returns the client's end, from which the 101 was read.
func upgraded(t *testing.T, early string, h func(rw *bufio.ReadWriter, conn halfCloser)) (*transport.StreamConn, *bufio.Reader) {
	t.Helper()
	c := forward(t, "http://local:80", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "echo" || r.Header.Get("Connection") != "Upgrade" {
			t.Errorf("the service got %v", r.Header)
		}
		conn, brw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		h(brw, conn.(halfCloser))
	})
	conn, _ := dialStream(c)(t.Context(), "", "")
	t.Cleanup(func() { conn.Close() })
	if _, err := io.WriteString(conn, upgradeRequest+early); err != nil {
		t.Fatal(err)
	}
	br := bufio.NewReader(conn)
	res, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatal(err)
	}
	if res.StatusCode != 101 || fmt.Sprint(res.Header) != "map[Connection:[Upgrade] Sec-X:[y] Upgrade:[echo]]" {
		t.Errorf("answer %d %v", res.StatusCode, res.Header)
	}
	return conn.(*transport.StreamConn), br
}

type halfCloser interface {
	io.ReadWriteCloser
	CloseWrite() error
}

const switching = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\nSec-X: y\r\n\r\n"

// Bytes that come right behind the handshake, from either side, are not lost
// (golang/go#80875).
func TestUpgrade_EarlyBytes(t *testing.T) { synctest.Test(t, testUpgradeEarlyBytes) }
func testUpgradeEarlyBytes(t *testing.T) {
	conn, br := upgraded(t, "early bird", func(rw *bufio.ReadWriter, conn halfCloser) {
		_, _ = io.WriteString(conn, switching+"banner")
		_, _ = io.Copy(conn, rw)
		_ = conn.CloseWrite()
	})
	buf := make([]byte, len("bannerearly bird"))
	if _, err := io.ReadFull(br, buf); err != nil || string(buf) != "bannerearly bird" {
		t.Errorf("after the 101: %q, %v", buf, err)
	}
	_ = conn.CloseWrite()
	if rest, err := io.ReadAll(br); len(rest) > 0 || err != nil {
		t.Errorf("then %q, %v; want a clean end", rest, err)
	}
	<-conn.Conn().Done()
}

func TestUpgrade_LargeBothWays(t *testing.T) { synctest.Test(t, testUpgradeLargeBothWays) }
func testUpgradeLargeBothWays(t *testing.T) {
	conn, br := upgraded(t, "", func(rw *bufio.ReadWriter, conn halfCloser) {
		_, _ = io.WriteString(conn, switching)
		_, _ = io.Copy(conn, rw)
		_ = conn.CloseWrite()
	})
	want := strings.Repeat("0123456789abcdef", 100_000)
	go func() {
		_, _ = io.WriteString(conn, want)
		_ = conn.CloseWrite()
	}()
	got, err := io.ReadAll(br)
	if string(got) != want || err != nil {
		t.Errorf("%d bytes came back, %v; want %d", len(got), err, len(want))
	}
}

// A service that half-closes still reads, for as long as the client likes.
func TestUpgrade_HalfClose(t *testing.T) { synctest.Test(t, testUpgradeHalfClose) }
func testUpgradeHalfClose(t *testing.T) {
	got := make(chan string, 1)
	conn, br := upgraded(t, "", func(rw *bufio.ReadWriter, conn halfCloser) {
		_, _ = io.WriteString(conn, switching+"bye")
		_ = conn.CloseWrite()
		p, _ := io.ReadAll(rw)
		got <- string(p)
	})
	if p, err := io.ReadAll(br); string(p) != "bye" || err != nil {
		t.Errorf("%q, %v", p, err)
	}
	time.Sleep(time.Hour)
	_, _ = io.WriteString(conn, "late")
	_ = conn.CloseWrite()
	if p := <-got; p != "late" {
		t.Errorf("the service got %q", p)
	}
}

// A service that breaks is not a clean end.
func TestUpgrade_ServiceBreaks(t *testing.T) { synctest.Test(t, testUpgradeServiceBreaks) }
func testUpgradeServiceBreaks(t *testing.T) {
	_, br := upgraded(t, "", func(rw *bufio.ReadWriter, conn halfCloser) {
		_, _ = io.WriteString(conn, switching)
		time.Sleep(time.Second)
		conn.(interface{ Cut() }).Cut()
	})
	_, err := io.ReadAll(br)
	var ce *transport.CloseError
	if !errors.As(err, &ce) || ce.Code != transport.CloseInternal {
		t.Errorf("the stream ended with %v, want 1011", err)
	}
}

func TestUpgrade_ClientLeaves(t *testing.T) { synctest.Test(t, testUpgradeClientLeaves) }
func testUpgradeClientLeaves(t *testing.T) {
	gone := make(chan time.Time, 1)
	conn, _ := upgraded(t, "", func(rw *bufio.ReadWriter, conn halfCloser) {
		_, _ = io.WriteString(conn, switching)
		_, _ = io.Copy(io.Discard, rw)
		gone <- time.Now()
	})
	left := time.Now()
	conn.Conn().CloseNow()
	if d := receive(t, gone, "the end at the service").Sub(left); d > time.Second {
		t.Errorf("the service's connection ended %v after the client left", d)
	}
}

// A service that does not upgrade answers as usual.
func TestUpgrade_Declined(t *testing.T) { synctest.Test(t, testUpgradeDeclined) }
func testUpgradeDeclined(t *testing.T) {
	c := forward(t, "http://local:80", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Why", "no")
		w.WriteHeader(426)
		fmt.Fprint(w, "declined")
	})
	res, b := raw(t, c, upgradeRequest)
	if res.StatusCode != 426 || b != "declined" || res.Header.Get("X-Why") != "no" {
		t.Errorf("%d %v %q", res.StatusCode, res.Header, b)
	}
}

// A service that switches to what nobody asked for is no service.
func TestUpgrade_NotAskedFor(t *testing.T) { synctest.Test(t, testUpgradeNotAskedFor) }
func testUpgradeNotAskedFor(t *testing.T) {
	c := forward(t, "http://local:80", func(w http.ResponseWriter, r *http.Request) {
		conn, _, _ := http.NewResponseController(w).Hijack()
		defer conn.Close()
		_, _ = io.WriteString(conn, switching)
		_, _ = io.Copy(io.Discard, conn)
	})
	for _, request := range []string{"GET / HTTP/1.1\r\nHost: x\r\n\r\n", strings.Replace(upgradeRequest, "echo", "other", 1)} {
		if res, b := raw(t, c, request); res.StatusCode != 502 || res.Header.Get("Dialback-Error") == "" {
			t.Errorf("%d %v %q", res.StatusCode, res.Header, b)
		}
	}
}

// A service takes one of the protocols that a client offers, or several layers
// of them (RFC 9110, section 7.8), and no other.
func TestUpgrade_OneOfAList(t *testing.T) {
	for _, tt := range []struct {
		offer, pick string
		want        int
	}{
		{"echo/2, echo", "echo", 101},
		{"echo/2, echo", "Echo/2", 101},
		{"echo/2,\techo", "echo/2, echo", 101},
		{"echo/2, echo", "echo/1", 502},
		{"echo/2", "echo", 502},
		{"echo", "echo, other", 502},
		{"echo, ", "", 502},
		{"echo", "echo" + strings.Repeat(", echo", 7), 101},
		{"echo", "echo" + strings.Repeat(", echo", 8), 502},
		{",", ",", 502},
	} {
		t.Run(tt.offer+" "+tt.pick, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newFakeRelay(t)
				d := rawService(t, r, "HTTP/1.1 101 x\r\nConnection: Upgrade\r\nUpgrade: "+tt.pick+"\r\n\r\n")
				c := serving(t, r, agent.ForwardHTTPWith("http://local:80", agent.HTTPOptions{DialContext: d.dial}))
				res, _ := raw(t, c, "GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: "+tt.offer+"\r\n\r\n")
				if res.StatusCode != tt.want {
					t.Errorf("answer %d, want %d", res.StatusCode, tt.want)
				}
				if got := res.Header.Get("Upgrade"); tt.want == 101 && got != tt.pick {
					t.Errorf("the client is told of %q, want %q", got, tt.pick)
				}
			})
		})
	}
}
