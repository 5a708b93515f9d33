package agent_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dialback/dialback/agent"
	"github.com/dialback/dialback/internal/tooltest"
	"github.com/dialback/dialback/relay"
	"github.com/dialback/dialback/store/memory"
)

// nodeService starts Node's own HTTP server and returns its URL. A zero
// keepAlive is Node's default; silent keeps it from announcing what it is.
func nodeService(t *testing.T, keepAlive time.Duration, silent bool) string {
	t.Helper()
	args := []string{filepath.Join("testdata", "service.js"), fmt.Sprint(keepAlive.Milliseconds()), "0"}
	if silent {
		args[2] = "1"
	}
	cmd := exec.Command(tooltest.Need(t, "node", "apt-get install nodejs"), args...)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close() // the service ends then
		_ = cmd.Wait()
	})
	port, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("the Node service says no port: %v", err)
	}
	return "http://127.0.0.1:" + strings.TrimSpace(port)
}

// realRelay serves a relay on loopback TCP.
func realRelay(t *testing.T) (url string) {
	t.Helper()
	srv, err := relay.New(relay.Config{Store: memory.New(), AuthorizeHost: relay.AllowAll, AuthorizeClient: relay.AllowAll})
	if err != nil {
		t.Fatal(err)
	}
	ts := httptest.NewServer(srv)
	t.Cleanup(func() {
		srv.Close()
		ts.Close()
	})
	return ts.URL
}

// forwarding runs an agent that forwards to target, and waits until it is
// online.
func forwarding(t *testing.T, relayURL, hostID, target string) {
	t.Helper()
	online := make(chan struct{})
	once := sync.OnceFunc(func() { close(online) })
	run(t, agent.Config{
		RelayURL: relayURL, HostID: hostID,
		Services: map[string]agent.Handler{"": agent.ForwardHTTP(target)},
		Hooks:    agent.Hooks{Online: func(agent.Online) { once() }},
	})
	select {
	case <-online:
	case <-time.After(time.Minute):
		t.Fatalf("agent of %s is not online", hostID)
	}
}

// poster is a client that posts at a steady rhythm.
type poster struct {
	client *http.Client
	url    string
	name   string
	every  time.Duration
	rounds int
	// offset shifts each pause, so that some post a little before the service
	// closes and some a little after.
	offset time.Duration
}

// run posts from start on and tells of every post that was not answered as the
// first of its body.
func (p *poster) run(t *testing.T, start time.Time) {
	for i := range p.rounds {
		// Counted from the last answer, as the service counts.
		if i > 0 {
			start = time.Now().Add(p.every + p.offset)
		}
		time.Sleep(time.Until(start))
		id := fmt.Sprintf("%s-%d", p.name, i)
		res, err := p.client.Post(p.url, "text/plain", strings.NewReader(id))
		if err != nil {
			t.Errorf("%s: %v", id, err)
			continue
		}
		b, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil || res.StatusCode != http.StatusOK || string(b) != "1" {
			t.Errorf("%s: answered %d %q, %v; want 200 and executed once", id, res.StatusCode, b, err)
		}
	}
}

// Report C, with the service that was in it: Node's HTTP server closes idle
// connections after 5 seconds unless it is told otherwise, and POSTs at that
// very rhythm must not meet the close. It takes the real time, because the
// service is a real process.
func TestReportC_NodeServiceAtEveryCadence(t *testing.T) {
	t.Parallel()
	const (
		length  = 15 * time.Second
		clients = 5
	)
	relayURL := realRelay(t)
	var posters []*poster
	for _, s := range []struct {
		name      string
		keepAlive time.Duration
		silent    bool
	}{
		{"default", 0, false},
		{"default-silent", 0, true},
		{"1s", time.Second, false},
		{"1s-silent", time.Second, true},
	} {
		target := nodeService(t, s.keepAlive, s.silent)
		for _, every := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 5 * time.Second, 6 * time.Second} {
			// A host for each rhythm: connections of others would be used in
			// between, and never be idle for so long.
			hostID := fmt.Sprintf("%s-%v", s.name, every)
			forwarding(t, relayURL, hostID, target)
			for i := range clients {
				posters = append(posters, &poster{
					client: &http.Client{Transport: &http.Transport{DisableCompression: true}},
					url:    relayURL + "/hosts/" + hostID + "/",
					name:   fmt.Sprintf("%s-%d", hostID, i),
					every:  every,
					rounds: int(length/every) + 1,
					offset: time.Duration(i-clients/2) * 2 * time.Millisecond,
				})
			}
		}
	}
	var wg sync.WaitGroup
	start := time.Now().Add(100 * time.Millisecond)
	for _, p := range posters {
		wg.Go(func() { p.run(t, start) })
	}
	wg.Wait()
	for _, p := range posters {
		p.client.CloseIdleConnections()
	}
}
