package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/coder/websocket"
)

// tour shows step by step what a relay does.
type tour struct {
	out    io.Writer
	relay  *relayServer
	client *http.Client
	step   int
}

func (t *tour) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	network := &http.Transport{}
	defer network.CloseIdleConnections()
	t.client = &http.Client{Transport: network}

	t.say("A relay listens on %s. It is an http.Handler in this process.", t.relay.url)

	t.say("A host, %q, connects to the relay and stays connected. It listens nowhere.", hostID)
	lid := newLid()
	begun := time.Now()
	first, err := startHost(ctx, t.relay.url, "the first laptop", lid.transport())
	if err != nil {
		return err
	}
	defer first.stop()
	t.note(begun, "the relay has confirmed it")

	t.say("A client asks the relay for the host's page. The relay tells the host, the host dials back.")
	if err := t.fetch(ctx); err != nil {
		return err
	}

	t.say("A client opens a WebSocket to the host, on the same way.")
	if err := t.echo(ctx); err != nil {
		return err
	}

	t.say("The laptop's lid is closed: its connections are dead, and nobody has been told.")
	lid.close()
	t.text("A second laptop takes over the name. No request goes to the dead connection, or waits for it.")
	begun = time.Now()
	second, err := startHost(ctx, t.relay.url, "the second laptop", nil)
	if err != nil {
		return err
	}
	defer second.stop()
	t.note(begun, "the second laptop is online")
	if err := t.fetch(ctx); err != nil {
		return err
	}

	t.say("The second laptop leaves. A request waits 2 s, should the host come back, and then says why it fails.")
	second.stop()
	if err := t.fetch(ctx); err != nil {
		return err
	}
	fmt.Fprintf(t.out, "\nThat is all. With --serve this stays up, for your browser.\n")
	return nil
}

// fetch gets the host's page through the relay.
func (t *tour) fetch(ctx context.Context) error {
	begun := time.Now()
	url := t.relay.url + "/hosts/" + hostID + "/"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := t.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	what := strings.TrimSpace(string(body))
	if resp.StatusCode == http.StatusOK {
		what = fmt.Sprintf("%d bytes, titled %q", len(body), title(what))
	}
	t.note(begun, "GET /hosts/%s/ -> %s: %s", hostID, resp.Status, what)
	return nil
}

// echo sends a message to the host and waits for it to come back.
func (t *tour) echo(ctx context.Context) error {
	begun := time.Now()
	ws, _, err := websocket.Dial(ctx, t.relay.url+"/hosts/"+hostID+"/echo", &websocket.DialOptions{HTTPClient: t.client})
	if err != nil {
		return err
	}
	defer ws.CloseNow()
	t.note(begun, "open")
	for _, message := range []string{"hello", "hello again"} {
		begun := time.Now()
		if err := ws.Write(ctx, websocket.MessageText, []byte(message)); err != nil {
			return err
		}
		_, back, err := ws.Read(ctx)
		if err != nil {
			return err
		}
		if string(back) != message {
			return errors.New("the echo is not what was sent")
		}
		t.note(begun, "%q there and back", back)
	}
	return ws.Close(websocket.StatusNormalClosure, "")
}

// title is what stands in a page's <title>.
func title(page string) string {
	_, rest, _ := strings.Cut(page, "<title>")
	title, _, _ := strings.Cut(rest, "</title>")
	return title
}

// say begins a step.
func (t *tour) say(format string, args ...any) {
	t.step++
	fmt.Fprintf(t.out, "\n%d. %s\n", t.step, fmt.Sprintf(format, args...))
}

// text goes on with a step.
func (t *tour) text(s string) { fmt.Fprintf(t.out, "   %s\n", s) }

// note tells what happened, and how long it took.
func (t *tour) note(begun time.Time, format string, args ...any) {
	took := time.Since(begun)
	fmt.Fprintf(t.out, "   %8.1f ms  %s\n", float64(took.Microseconds())/1000, fmt.Sprintf(format, args...))
}
