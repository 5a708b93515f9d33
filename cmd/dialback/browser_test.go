//go:build unix

package main_test

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/dialback/dialback/internal/proctest"
	"github.com/dialback/dialback/internal/tooltest"
)

//go:embed testdata/browser.html
var browserPage []byte

// TestBrowser loads a page through the relay into a real browser. The page's
// script opens WebSockets to its own host and to one that is offline, and
// writes what it saw into the page.
func TestBrowser(t *testing.T) {
	t.Parallel()
	chromium := tooltest.Need(t, "chromium", "apt-get install chromium")
	site := &browserSite{done: make(chan struct{})}
	local := httptest.NewServer(site)
	defer local.Close()
	_, relay := serveRelay(t)
	runHost(t, relay, "web", "--to", local.URL)

	// Site and browser wait for each other: neither for ever.
	ctx, cancel := context.WithTimeout(t.Context(), 2*proctest.Patience)
	defer cancel()
	defer context.AfterFunc(ctx, site.finish)()
	cmd := exec.CommandContext(ctx, chromium,
		"--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-default-apps",
		"--no-proxy-server", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
		"--user-data-dir="+t.TempDir(), "--dump-dom", relay+"/hosts/web/")
	cmd.WaitDelay = 5 * time.Second
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	dom, err := cmd.Output()
	if err != nil {
		t.Fatalf("chromium: %v\n%s", err, &stderr)
	}
	_, results, _ := strings.Cut(string(dom), `<pre id="results">`)
	results, _, _ = strings.Cut(results, "</pre>")
	want := strings.Join([]string{
		"echo: hello, tëxt, binary 0 1 255, last",
		"subprotocol: chat.v1",
		"close of the service: 4321 as asked true",
		"offline host: 1013 host offline",
		"post: 200 1048576 bytes to /length?a=%2F&amp;b",
		"offline page: 503 host_offline true",
		"event: first",
		"",
	}, "\n")
	if results != want {
		t.Errorf("the browser saw\n%s\nwant\n%s\nwhole page: %s", results, want, dom)
	}
}

// browserSite is the service behind the host.
type browserSite struct {
	once sync.Once
	done chan struct{} // closed when the page's script is done
}

func (s *browserSite) finish() { s.once.Do(func() { close(s.done) }) }

func (s *browserSite) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/":
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(browserPage)
	case "/echo":
		s.echo(w, r)
	case "/length":
		n, err := io.Copy(io.Discard, r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		fmt.Fprintf(w, "%d bytes to %s", n, r.RequestURI)
	case "/events":
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		_, _ = io.WriteString(w, "data: first\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	case "/done":
		s.finish()
	case "/held.svg":
		<-s.done
		w.Header().Set("Content-Type", "image/svg+xml")
		_, _ = io.WriteString(w, `<svg xmlns="http://www.w3.org/2000/svg"/>`)
	default:
		http.NotFound(w, r)
	}
}

// echo speaks first, echoes messages, and closes as it is asked to.
func (s *browserSite) echo(w http.ResponseWriter, r *http.Request) {
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"chat.v1"}, OriginPatterns: []string{"127.0.0.1:*"}})
	if err != nil {
		return
	}
	defer func() { _ = ws.CloseNow() }()
	ctx := r.Context()
	err = ws.Write(ctx, websocket.MessageText, []byte("hello"))
	for err == nil {
		var typ websocket.MessageType
		var p []byte
		if typ, p, err = ws.Read(ctx); err != nil {
			return
		}
		if string(p) == "close with 4321" {
			_ = ws.Close(4321, "as asked")
			return
		}
		err = ws.Write(ctx, typ, p)
	}
}
