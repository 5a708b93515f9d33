package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTour(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), &out, "127.0.0.1:0", false); err != nil {
		t.Fatal(err)
	}
	// In this order.
	rest := out.String()
	for _, want := range []string{
		`1\. A relay listens on http://127\.0\.0\.1:\d+\.`,
		`2\. A host, "laptop"`, `ms  the relay has confirmed it`,
		`3\. `, `ms  GET /hosts/laptop/ -> 200 OK: \d+ bytes, titled "Hello from the first laptop"`,
		`4\. `, `ms  "hello" there and back`, `ms  "hello again" there and back`,
		`5\. `, `ms  the second laptop is online`, `ms  GET /hosts/laptop/ -> 200 OK: \d+ bytes, titled "Hello from the second laptop"`,
		`6\. `, `ms  GET /hosts/laptop/ -> 503 Service Unavailable: {"error":{"code":"host_(offline|gone)","message":"[^"]+"}}`, // gone: the request met it on its way out
		`That is all\.`,
	} {
		at := regexp.MustCompile(want).FindStringIndex(rest)
		if at == nil {
			t.Fatalf("the tour does not say %q where it should:\n%s", want, &out)
		}
		rest = rest[at[1]:]
	}
}

func TestTour_Interrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := run(ctx, io.Discard, "127.0.0.1:0", false); err == nil {
		t.Error("a tour that was interrupted ended without an error")
	}
}

// With --serve a browser gets the page, and the page its echo.
func TestServe(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, w := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, w, "127.0.0.1:0", true) }()

	line := make([]byte, 200)
	n, err := r.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	url := regexp.MustCompile(`http://\S+/hosts/laptop/`).FindString(string(line[:n]))
	network := &http.Transport{}
	defer network.CloseIdleConnections()
	client := &http.Client{Transport: network}
	resp, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	page, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(page), "<title>Hello from laptop</title>") {
		t.Errorf("page: %s, %v, %s", resp.Status, err, page)
	}
	// As the page does it, with the Origin that a browser sends.
	origin := strings.TrimSuffix(url, "/hosts/laptop/")
	ws, _, err := websocket.Dial(ctx, url+"echo", &websocket.DialOptions{HTTPClient: client, HTTPHeader: http.Header{"Origin": {origin}}})
	if err != nil {
		t.Fatal(err)
	}
	defer ws.CloseNow()
	if err := ws.Write(ctx, websocket.MessageText, []byte("ping")); err != nil {
		t.Fatal(err)
	}
	if _, back, err := ws.Read(ctx); string(back) != "ping" || err != nil {
		t.Errorf("echo %q, %v, want ping", back, err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("interrupted with --serve: %v, want a clean end", err)
	}
}

// What a closed lid loses is lost without a trace.
func TestLid(t *testing.T) {
	r, err := startRelay("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer r.stop()
	lid := newLid()
	conn, err := lid.transport().DialContext(t.Context(), "tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	lid.close()
	if n, err := conn.Write([]byte("lost")); n != 4 || err != nil {
		t.Errorf("write with a closed lid: %d, %v, want no sign that it is lost", n, err)
	}
	read := make(chan error, 1)
	go func() { _, err := conn.Read(make([]byte, 1)); read <- err }()
	conn.Close()
	if err := <-read; err == nil || errors.Is(err, io.EOF) {
		t.Errorf("read after Close: %v, want an error", err)
	}
}
