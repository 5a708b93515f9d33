package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dialback/dialback/agent"
	"github.com/dialback/dialback/transport"
)

// What a token opened ends with it: 4401 tells the client to get a new one.
func TestExpiry(t *testing.T) { synctest.Test(t, testExpiry) }
func testExpiry(t *testing.T) {
	w := newBubbleWorld(t)
	defer w.close()
	raw := agent.Raw(func(_ context.Context, s *agent.Stream) { _, _ = io.Copy(s, s) })
	defer w.runHost("laptop", map[string]agent.Handler{"": agent.HTTP(site()), "raw": raw})()

	tok := tokenFor(time.Minute, roleClient, "laptop")
	begun := time.Now()
	stream := w.open("http://example.test/relay/connect/laptop?service=raw", "Authorization", "Bearer "+tok)
	sc := transport.NewStreamConn(stream)
	defer sc.Close()
	time.Sleep(time.Minute - time.Nanosecond)
	if _, err := io.WriteString(sc, "x"); err != nil {
		t.Errorf("write before the end of the token: %v", err)
	}
	if n, err := sc.Read(make([]byte, 1)); n != 1 || err != nil {
		t.Errorf("read before the end of the token: %v, want the echo", err)
	}
	_, err := sc.Read(make([]byte, 1))
	if got := transport.CloseCodeOf(err); got != transport.CloseUnauthorized {
		t.Errorf("stream ended with %v, want close code 4401", err)
	}
	if lasted := time.Since(begun); lasted != time.Minute {
		t.Errorf("stream ended after %v, want it with its token, after 1m", lasted)
	}
	if status, body := w.get("http://laptop.example.test/", "Authorization", "Bearer "+tok); status != 401 {
		t.Errorf("page with the expired token: %d %s, want 401", status, body)
	}
}

// A host whose token ends is told so, and comes back with a new one.
func TestExpiry_Host(t *testing.T) { synctest.Test(t, testExpiryHost) }
func testExpiryHost(t *testing.T) {
	w := newBubbleWorld(t)
	defer w.close()
	stop := w.runHost("laptop", map[string]agent.Handler{"": agent.HTTP(site())}) // tokens of an hour
	time.Sleep(time.Hour + 10*time.Second)
	status, body := w.get("http://laptop.example.test/", "Authorization", "Bearer "+token(roleClient, "laptop"))
	if status != 200 {
		t.Errorf("page after the host's first token has ended: %d %s, want 200", status, body)
	}
	stop()
	if n := strings.Count(w.log.String(), "path=/relay/v2/control"); n != 2 {
		t.Errorf("the host opened %d control sockets in an hour, want 2: one for each token", n)
	}
}

// The server's ReadTimeout and WriteTimeout are for its own routes.
func TestTimeoutsDoNotHurtStreams(t *testing.T) { synctest.Test(t, testTimeoutsDoNotHurtStreams) }
func testTimeoutsDoNotHurtStreams(t *testing.T) {
	w := newBubbleWorld(t)
	defer w.close()
	slow := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/echo" {
			echo(rw, r)
			return
		}
		p, err := io.ReadAll(r.Body)
		fmt.Fprintf(rw, "%d bytes, %v\n", len(p), err)
		for range 3 {
			_ = http.NewResponseController(rw).Flush()
			time.Sleep(time.Minute)
			fmt.Fprintln(rw, "a minute later")
		}
	})
	defer w.runHost("laptop", map[string]agent.Handler{"": agent.HTTP(slow)})()
	tok := tokenFor(24*time.Hour, roleClient, "laptop")

	conn := w.open("http://laptop.example.test/echo?token=" + tok)
	defer conn.CloseNow()
	if _, err := read(conn); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Hour)
	wantEcho(t, conn, "after an hour")

	upload := &slowReader{pieces: 10, pause: 10 * time.Second}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://laptop.example.test/", upload)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+tok)
	resp, err := w.transport().RoundTrip(req)
	if err != nil {
		t.Fatalf("slow upload: %v", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	want := "10 bytes, <nil>\n" + strings.Repeat("a minute later\n", 3)
	if string(body) != want || err != nil {
		t.Errorf("slow upload and slow answer: %q, %v, want %q", body, err, want)
	}
}

// slowReader is a body that comes in pieces of one byte.
type slowReader struct {
	pieces int
	pause  time.Duration
}

func (r *slowReader) Read(p []byte) (int, error) {
	if r.pieces == 0 {
		return 0, io.EOF
	}
	r.pieces--
	time.Sleep(r.pause)
	return copy(p, "x"), nil
}

// SIGTERM: not ready at once, streams finish, nothing new, and a clean end.
func TestDrain(t *testing.T) { synctest.Test(t, testDrain) }
func testDrain(t *testing.T) {
	w := newBubbleWorld(t)
	stop := w.runHost("laptop", map[string]agent.Handler{"": agent.HTTP(site())})
	defer stop()
	auth := []string{"Authorization", "Bearer " + token(roleClient, "laptop")}
	conn := w.open("http://laptop.example.test/echo", auth...)
	defer conn.CloseNow()
	if _, err := read(conn); err != nil {
		t.Fatal(err)
	}

	w.drain()
	synctest.Wait()
	if status, _ := w.get("http://example.test/ready"); status != 503 {
		t.Errorf("ready is %d after SIGTERM, want 503", status)
	}
	if status, body := w.get("http://laptop.example.test/", auth...); status != 200 {
		t.Errorf("new request just after SIGTERM: %d %s, want 200: load balancers need time to notice", status, body)
	}
	time.Sleep(6 * time.Second) // DrainNotice is 5 s
	if status, _ := w.get("http://laptop.example.test/", auth...); status != 503 {
		t.Errorf("new request 6 s after SIGTERM: %d, want 503", status)
	}
	time.Sleep(10 * time.Second)
	wantEcho(t, conn, "still here")
	select {
	case err := <-w.ended:
		t.Fatalf("the server ended (%v) while a stream was open", err)
	default:
	}
	conn.Close(transport.CloseNormal, "")
	if _, err := read(conn); transport.CloseCodeOf(err) != transport.CloseNormal {
		t.Errorf("the stream ended with %v, want the close handshake", err)
	}
	if err := <-w.ended; err != nil {
		t.Errorf("run: %v, want a clean end once the stream is over", err)
	}
	if _, err := w.dial(t.Context(), "tcp", "example.test:80"); err == nil {
		t.Error("the server still listens after its end")
	}
	w.wantNoToken()
}

// A stream that does not end is cut when the time is over.
func TestDrain_Timeout(t *testing.T) { synctest.Test(t, testDrainTimeout) }
func testDrainTimeout(t *testing.T) {
	w := newBubbleWorld(t)
	raw := agent.Raw(func(_ context.Context, s *agent.Stream) { _, _ = io.Copy(s, s) })
	defer w.runHost("laptop", map[string]agent.Handler{"": raw})()
	sc := net.Conn(transport.NewStreamConn(w.open("http://example.test/relay/connect/laptop", "Authorization", "Bearer "+token(roleClient, "laptop"))))
	defer sc.Close()
	if _, err := io.WriteString(sc, "x"); err != nil {
		t.Fatal(err)
	}
	if _, err := sc.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	w.drain()
	begun := time.Now()
	_, err := sc.Read(make([]byte, 1))
	if got := transport.CloseCodeOf(err); got != transport.CloseRestart || time.Since(begun) != drainTimeout {
		t.Errorf("stream ended with %v after %v, want close code 1012 after %v", err, time.Since(begun), drainTimeout)
	}
	if err := <-w.ended; err != nil {
		t.Errorf("run: %v, want a clean end", err)
	}
	if !strings.Contains(w.log.String(), "streams were cut") {
		t.Error("the log does not say that streams were cut")
	}
}
