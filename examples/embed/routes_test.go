package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dialback/dialback/agent"
	"github.com/dialback/dialback/transport"
)

// The host gets path and query to the letter, who its client is, and nothing
// that is secret.
func TestRoutes_Hosts(t *testing.T) {
	w := newWorld(t)
	defer w.close()
	defer w.runHost("laptop", map[string]agent.Handler{"": agent.HTTP(site())})()
	tok := token(roleClient, "laptop")
	for _, base := range []string{"http://laptop.example.test", "http://LAPTOP.example.test.:8080", "http://example.test/relay/hosts/laptop"} {
		status, body := w.get(base+"/a%2Fb//../c?x=%20&token="+tok+"&y", "X-User", "mallory", "Cookie", "theme=dark")
		want := "/a%2Fb//../c?x=%20&y\nuser alice\nauthorization \ncookies theme=dark"
		if status != 200 || body != want {
			t.Errorf("GET %s: %d\n%s\nwant\n%s", base, status, body, want)
		}
	}
}

func TestRoutes_WebSocket(t *testing.T) {
	w := newWorld(t)
	defer w.close()
	defer w.runHost("laptop", map[string]agent.Handler{"": agent.HTTP(site())})()
	conn := w.open("http://laptop.example.test/echo?a=1&token=" + token(roleClient, "laptop"))
	defer conn.CloseNow()
	if got, err := read(conn); got != "for /echo?a=1" || err != nil {
		t.Errorf("first message %q, %v, want the host's words for /echo?a=1", got, err)
	}
	wantEcho(t, conn, "hello")
}

func TestRoutes_Own(t *testing.T) {
	w := newWorld(t)
	defer w.close()
	for url, want := range map[string]string{
		"http://example.test/":             "200 the server that was here before",
		"http://example.test/ready":        "200 ready",
		"http://example.test/nosuch":       "404 404 page not found",
		"http://example.test/relay/health": `200 {"ok":true`,
		"http://other.test/":               "200 the server that was here before",
		"http://a.b.example.test/":         "200 the server that was here before",
	} {
		status, body := w.get(url)
		if got := fmt.Sprintf("%d %s", status, body); !strings.HasPrefix(got, want) {
			t.Errorf("GET %s: %s, want %s", url, got, want)
		}
	}
}

// A deployed v2 host knows the origin of its relay only.
func TestRoutes_V2HostAtTheRoot(t *testing.T) {
	w := newWorld(t)
	defer w.close()
	control := w.open("http://example.test/v2/control?hostId=old", "Authorization", "Bearer "+token(roleHost, "old"))
	defer control.CloseNow()
	if err := control.Write(transport.Text, transport.Encode(transport.Ping{})); err != nil {
		t.Fatal(err)
	}
	if got, err := read(control); got != `{"type":"pong"}` || err != nil {
		t.Fatalf("answer to the first ping: %q, %v, want a pong", got, err)
	}
	served := make(chan error, 1)
	go func() { served <- serveV2(w, control) }()
	status, body := w.get("http://old.example.test/page", "Authorization", "Bearer "+token(roleClient, "old"))
	if status != 200 || body != "GET /page" {
		t.Errorf("page of a v2 host: %d %q, want 200 and what it was asked", status, body)
	}
	if err := <-served; err != nil {
		t.Errorf("v2 host: %v", err)
	}
}

// serveV2 answers one exchange as a v2 host does.
func serveV2(w *world, control transport.Conn) error {
	message, err := read(control)
	if err != nil {
		return err
	}
	frame, err := transport.Decode([]byte(message))
	if err != nil {
		return err
	}
	dial := frame.(transport.StreamDial)
	data := w.open("http://example.test/v2/dial?hostId=old&ticket=" + dial.Ticket)
	defer data.CloseNow()
	if message, err = read(data); err != nil {
		return err
	}
	if frame, err = transport.Decode([]byte(message)); err != nil {
		return err
	}
	req := frame.(transport.HTTPRequest)
	if _, err = read(data); err != nil { // http:end
		return err
	}
	_ = data.Write(transport.Text, transport.Encode(transport.HTTPResponse{Status: 200}))
	_ = data.Write(transport.Binary, []byte(req.Method+" "+req.Path))
	_ = data.Write(transport.Text, transport.Encode(transport.HTTPEnd{}))
	if _, err = read(data); transport.CloseCodeOf(err) != transport.CloseNormal {
		return err
	}
	return nil
}

func TestSubdomain(t *testing.T) {
	for host, want := range map[string]string{
		"laptop.example.test":      "laptop",
		"laptop.example.test:8080": "laptop",
		"LapTop.Example.Test.":     "laptop",
		"example.test":             "",
		"example.test:80":          "",
		".example.test":            "",
		"a.b.example.test":         "",
		"laptopexample.test":       "",
		"laptop.example.test.evil": "",
		"127.0.0.1:80":             "",
		"[::1]:80":                 "",
		"":                         "",
	} {
		got, ok := subdomain(host, "example.test")
		if !ok {
			got = ""
		}
		if got != want {
			t.Errorf("subdomain(%q) = %q, want %q", host, got, want)
		}
	}
}
