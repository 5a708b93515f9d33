package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dialback/dialback/agent"
)

// program is a running relay of this example.
type program struct {
	url   string
	stop  context.CancelFunc
	ended chan error
}

func start(t *testing.T, file string) *program {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	p := &program{stop: stop, ended: make(chan error, 1)}
	r, w := io.Pipe()
	go func() {
		err := run(ctx, w, file, "127.0.0.1:0")
		w.CloseWithError(io.EOF)
		p.ended <- err
	}()
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		t.Fatalf("the relay has not started: %v", <-p.ended)
	}
	p.url = strings.TrimPrefix(strings.TrimSpace(line), "listening on ")
	return p
}

// end stops the relay, which must go without an error.
func (p *program) end(t *testing.T) {
	t.Helper()
	p.stop()
	if err := <-p.ended; err != nil {
		t.Errorf("the relay ended with %v", err)
	}
}

type presence struct {
	Online     bool
	LastSeenAt int64
}

func (p *program) presence(t *testing.T, hostID string) presence {
	t.Helper()
	resp, err := http.Get(p.url + "/presence?hostIds=" + hostID)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var answer struct{ Hosts map[string]presence }
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		t.Fatalf("presence: %s, %v", resp.Status, err)
	}
	return answer.Hosts[hostID]
}

// What the file is for: the next process knows the hosts of the one before.
func TestRelay_RemembersHostsAcrossRestarts(t *testing.T) {
	file := filepath.Join(t.TempDir(), "relay.db")
	first := start(t, file)
	defer first.stop()
	begun := time.Now()
	online := make(chan struct{}, 1)
	a, err := agent.New(agent.Config{
		RelayURL: first.url,
		HostID:   "laptop",
		Services: map[string]agent.Handler{"": agent.HTTP(http.NotFoundHandler())},
		Hooks:    agent.Hooks{Online: func(agent.Online) { online <- struct{}{} }},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	left := make(chan error, 1)
	go func() { left <- a.Run(ctx) }()
	<-online
	if got := first.presence(t, "laptop"); !got.Online {
		t.Errorf("presence of a host that is online = %+v", got)
	}
	cancel()
	<-left
	first.end(t)

	second := start(t, file)
	defer second.stop()
	got := second.presence(t, "laptop")
	if got.Online || got.LastSeenAt < begun.UnixMilli() {
		t.Errorf("presence in the next process = %+v, want offline, seen since %d", got, begun.UnixMilli())
	}
	second.end(t)
}
