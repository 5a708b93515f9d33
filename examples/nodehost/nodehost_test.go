// Package nodehost tests a host that is written in another language: it has no
// Go code of its own.
package nodehost

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"go.uber.org/goleak"

	"github.com/dialback/dialback/internal/tooltest"
	"github.com/dialback/dialback/relay"
	"github.com/dialback/dialback/store/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const hostID = "box"

// startRelay runs a relay and returns its URL.
func startRelay(t *testing.T) string {
	t.Helper()
	srv, err := relay.New(relay.Config{Store: memory.New(), AuthorizeHost: withToken, AuthorizeClient: relay.AllowAll})
	if err != nil {
		t.Fatal(err)
	}
	hs := httptest.NewServer(srv)
	t.Cleanup(func() { srv.Close(); hs.Close() })
	return hs.URL
}

const token = "t0ken"

func withToken(_ context.Context, r *http.Request, _ string) (relay.Identity, error) {
	if relay.Credential(r) != token {
		return relay.Identity{}, relay.ErrUnauthorized
	}
	return relay.Identity{}, nil
}

// startHost runs host.mjs until the test ends, and waits until the relay has
// confirmed it.
func startHost(t *testing.T, relayURL string, service http.Handler) {
	t.Helper()
	node := tooltest.Need(t, "node", "https://nodejs.org")
	if _, err := os.Stat("node_modules/ws"); err != nil {
		tooltest.Missing(t, "node_modules/ws", "npm install in examples/nodehost")
	}
	local := httptest.NewServer(service)
	t.Cleanup(local.Close)
	cmd := exec.Command(node, "host.mjs", "--relay", relayURL, "--id", hostID, "--to", local.URL, "--token", token)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	attached := make(chan string, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		line, _ := bufio.NewReader(stdout).ReadString('\n')
		attached <- line
		_, _ = io.Copy(io.Discard, stdout)
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-done
		if t.Failed() {
			t.Logf("host.mjs: %s", &stderr)
		}
	})
	select {
	case line := <-attached:
		if strings.TrimSpace(line) != "attached as "+hostID {
			t.Fatalf("host.mjs printed %q, want that it is attached", line)
		}
	case <-time.After(time.Minute):
		t.Fatal("host.mjs is not attached after a minute")
	}
}

// client is an HTTP client that keeps nothing.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// A body of 3 MiB goes there and back, in pieces of 256 KiB at most.
func TestHTTP(t *testing.T) {
	relayURL := startRelay(t)
	startHost(t, relayURL, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Request", r.Method+" "+r.RequestURI)
		w.Header().Set("X-Custom", r.Header.Get("X-Custom"))
		w.WriteHeader(http.StatusCreated)
		_, _ = io.Copy(w, r.Body)
	}))
	body := make([]byte, 3<<20)
	_, _ = rand.NewChaCha8([32]byte{3}).Read(body)
	for name, src := range map[string]io.Reader{
		"of a known length": bytes.NewReader(body),
		"chunked":           io.MultiReader(bytes.NewReader(body)),
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, relayURL+"/hosts/"+hostID+"/a%2Fb?c=%20&d", src)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Custom", "zwölf")
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || !bytes.Equal(got, body) {
			t.Errorf("body %s: %d of %d bytes back, equal: %v, %v", name, len(got), len(body), bytes.Equal(got, body), err)
		}
		if resp.StatusCode != http.StatusCreated || resp.Header.Get("X-Request") != "POST /a%2Fb?c=%20&d" || resp.Header.Get("X-Custom") != "zwölf" {
			t.Errorf("answer %s, %v: want 201, the path to the letter and the header's bytes", resp.Status, resp.Header)
		}
	}
}

func TestHTTP_NoBody(t *testing.T) {
	relayURL := startRelay(t)
	startHost(t, relayURL, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/empty" {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		fmt.Fprintf(w, "%s %d", r.Method, r.ContentLength)
	}))
	for path, want := range map[string]string{"/": "200 OK GET 0", "/empty": "204 No Content "} {
		resp, err := client.Get(relayURL + "/hosts/" + hostID + path)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if s := resp.Status + " " + string(got); s != want || err != nil {
			t.Errorf("GET %s: %q, %v, want %q", path, s, err, want)
		}
	}
}

// Text stays text, binary stays binary, the host may speak first, and the
// service's close code and reason arrive.
func TestWebSocket(t *testing.T) {
	relayURL := startRelay(t)
	startHost(t, relayURL, http.HandlerFunc(serveEcho))
	ctx := t.Context()
	ws, _, err := websocket.Dial(ctx, relayURL+"/hosts/"+hostID+"/echo?a=%2F", &websocket.DialOptions{HTTPClient: client})
	if err != nil {
		t.Fatal(err)
	}
	defer ws.CloseNow()
	if typ, p, err := ws.Read(ctx); typ != websocket.MessageText || string(p) != "hello from /echo?a=%2F" || err != nil {
		t.Errorf("first message: %v %q, %v, want the greeting of the host", typ, p, err)
	}
	for _, m := range []struct {
		typ  websocket.MessageType
		data []byte
	}{
		{websocket.MessageText, []byte("tëxt")},
		{websocket.MessageBinary, []byte{0, 1, 0xff}},
		{websocket.MessageText, nil},
		{websocket.MessageBinary, bytes.Repeat([]byte("x"), 20<<10)},
	} {
		if err := ws.Write(ctx, m.typ, m.data); err != nil {
			t.Fatal(err)
		}
		if typ, p, err := ws.Read(ctx); typ != m.typ || !bytes.Equal(p, m.data) || err != nil {
			t.Errorf("echo of %d bytes of %v: %v, %d bytes, %v", len(m.data), m.typ, typ, len(p), err)
		}
	}
	if err := ws.Write(ctx, websocket.MessageText, []byte("close")); err != nil {
		t.Fatal(err)
	}
	_, _, err = ws.Read(ctx)
	if code := websocket.CloseStatus(err); code != 4321 || !strings.Contains(err.Error(), "as asked") {
		t.Errorf("end: %v, want close code 4321 and the reason of the service", err)
	}
}

// serveEcho speaks first, echoes messages, and closes when it is told to.
func serveEcho(w http.ResponseWriter, r *http.Request) {
	ws, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer func() { _ = ws.CloseNow() }()
	ctx := r.Context()
	err = ws.Write(ctx, websocket.MessageText, []byte("hello from "+r.RequestURI))
	for err == nil {
		var typ websocket.MessageType
		var p []byte
		if typ, p, err = ws.Read(ctx); err != nil {
			return
		}
		if string(p) == "close" {
			_ = ws.Close(4321, "as asked")
			return
		}
		err = ws.Write(ctx, typ, p)
	}
}

// A service that breaks off before it answers is told at once.
func TestHTTP_ServiceBreaksOff(t *testing.T) {
	relayURL := startRelay(t)
	startHost(t, relayURL, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		panic(http.ErrAbortHandler)
	}))
	resp, err := client.Get(relayURL + "/hosts/" + hostID + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if code := resp.Header.Get("Dialback-Error"); resp.StatusCode != http.StatusBadGateway || code != "stream_closed" {
		t.Errorf("answer %s, %q, want 502 stream_closed", resp.Status, code)
	}
}
