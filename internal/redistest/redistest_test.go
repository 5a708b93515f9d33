package redistest_test

import (
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dialback/dialback/internal/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStart(t *testing.T) {
	s := redistest.Start(t, "--maxmemory", "64mb")
	if s.Network != "unix" {
		t.Errorf("Network = %q; a server of a test listens on no port", s.Network)
	}
	got, err := s.Client(t).ConfigGet(t.Context(), "maxmemory").Result()
	if err != nil || got["maxmemory"] != "67108864" {
		t.Errorf("maxmemory = %v, %v; args are added to the command line", got, err)
	}
	s.Stop()
	s.Stop()
	if conn, err := net.Dial(s.Network, s.Addr); err == nil {
		_ = conn.Close()
		t.Error("the server listens after Stop")
	}
}

func TestServer_Restart(t *testing.T) {
	s := redistest.Start(t)
	if err := s.Client(t).Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	s.Stop()
	s.Restart(t, "--maxmemory", "64mb")
	c := s.Client(t)
	for c.Ping(t.Context()).Err() != nil {
		time.Sleep(10 * time.Millisecond)
	}
	if n, err := c.DBSize(t.Context()).Result(); n != 0 || err != nil {
		t.Errorf("a server that was restarted has %d keys, %v; want it empty", n, err)
	}
	if got, err := c.ConfigGet(t.Context(), "maxmemory").Result(); err != nil || got["maxmemory"] != "67108864" {
		t.Errorf("maxmemory = %v, %v; args are those of Restart", got, err)
	}
}

func TestServer_Freeze(t *testing.T) {
	s := redistest.Start(t)
	c := s.Client(t)
	s.Freeze(t)
	answered := make(chan error, 1)
	go func() { answered <- c.Ping(t.Context()).Err() }()
	select {
	case err := <-answered:
		t.Errorf("Ping of a frozen server = %v, want none before it is thawed", err)
	case <-time.After(50 * time.Millisecond):
	}
	s.Thaw(t)
	if err := <-answered; err != nil {
		t.Errorf("Ping = %v after Thaw, want the answer that it waited for", err)
	}
}

func TestStartCluster(t *testing.T) {
	c := redistest.StartCluster(t, 3)
	masters := make(map[string]bool)
	for _, key := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		if err := c.Client(t).Set(t.Context(), key, key, 0).Err(); err != nil {
			t.Errorf("Set = %v; every slot is served", err)
		}
		node, err := c.Client(t).MasterForKey(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		masters[node.Options().Addr] = true
	}
	if len(masters) != 3 {
		t.Errorf("keys are on %d masters, want 3", len(masters))
	}
}

func TestStartReplicated(t *testing.T) {
	r := redistest.StartReplicated(t)
	if err := r.Master.Client(t).Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	r.Sync(t)
	if got, err := r.Replica.Client(t).Get(t.Context(), "k").Result(); err != nil || got != "v" {
		t.Errorf("Get from the replica = %q, %v, want what the master had at Sync", got, err)
	}
	if master, replica := r.Current(t); master != r.Master || replica != r.Replica {
		t.Errorf("Current = %v and %v, want what they were started as", master, replica)
	}
}
