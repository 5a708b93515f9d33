package redistest

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"

	goredis "github.com/redis/go-redis/v9"
)

// Replicated is a master with one replica and a Sentinel, on loopback. It ends
// with the test.
type Replicated struct {
	Master, Replica, Sentinel *Server

	client *goredis.Client // of the Sentinel
}

// masterName is what the Sentinel calls the master.
const masterName = "dialback"

// StartReplicated starts them and returns when the Sentinel knows the replica,
// which is in step with the master. The Sentinel makes it the master when the
// master has been silent for half a second.
func StartReplicated(tb testing.TB) *Replicated {
	tb.Helper()
	r := &Replicated{}
	r.Master = startTCP(tb)
	host, port, err := net.SplitHostPort(r.Master.Addr)
	if err != nil {
		tb.Fatal(err)
	}
	r.Replica = startTCP(tb, r.Master.ReplicaOf()...)

	conf := filepath.Join(tb.TempDir(), "sentinel.conf")
	text := fmt.Sprintf("sentinel monitor %[1]s %[2]s %[3]s 1\n"+
		"sentinel down-after-milliseconds %[1]s 500\n"+
		"sentinel failover-timeout %[1]s 5000\n", masterName, host, port)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	r.Sentinel = startTCPFrom(tb, conf, "--sentinel")

	r.client = r.Sentinel.Client(tb)
	known := func() bool {
		replicas, err := r.client.Do(tb.Context(), "SENTINEL", "REPLICAS", masterName).Slice()
		return err == nil && len(replicas) == 1
	}
	if !r.Sentinel.waitFor(tb, known) {
		tb.Fatalf("no replica is known:\n%s\n%s", r.Sentinel.output(), r.Replica.output())
	}
	r.Sync(tb)
	return r
}

// Current returns the master and the replica as the Sentinel sees them now.
func (r *Replicated) Current(tb testing.TB) (master, replica *Server) {
	tb.Helper()
	addr, err := r.client.Do(tb.Context(), "SENTINEL", "GET-MASTER-ADDR-BY-NAME", masterName).StringSlice()
	if err != nil || len(addr) != 2 {
		tb.Fatalf("the Sentinel says %v of the master, %v", addr, err)
	}
	if net.JoinHostPort(addr[0], addr[1]) == r.Replica.Addr {
		return r.Replica, r.Master
	}
	return r.Master, r.Replica
}

// ReplicaOf is what makes a server that is restarted a replica of s.
func (s *Server) ReplicaOf() []string {
	host, port, _ := net.SplitHostPort(s.Addr)
	return []string{"--replicaof", host + " " + port, "--repl-diskless-sync-delay", "0"}
}

// Sync waits until the replica has all that was written to the master before.
func (r *Replicated) Sync(tb testing.TB) {
	tb.Helper()
	conn := r.Master.Client(tb).Conn() // WAIT is about the writes of its connection
	defer func() { _ = conn.Close() }()
	if err := conn.Set(tb.Context(), "redistest", "sync", 0).Err(); err != nil {
		tb.Fatal(err)
	}
	n, err := conn.Wait(tb.Context(), 1, startTimeout).Result()
	if err != nil || n != 1 {
		tb.Fatalf("WAIT = %d replicas, %v, want 1\n%s", n, err, r.Replica.output())
	}
}

// URL returns the address of the Sentinel as go-redis' ParseFailoverURL reads
// it.
func (r *Replicated) URL() string {
	return "redis://" + r.Sentinel.Addr + "?master_name=" + masterName
}

func startTCP(tb testing.TB, args ...string) *Server {
	tb.Helper()
	return startTCPFrom(tb, "", args...)
}

// startTCPFrom starts a server on a loopback port, with a configuration file if
// conf is not empty. A port that was free may be taken before the server has
// it; then another one is tried.
func startTCPFrom(tb testing.TB, conf string, args ...string) *Server {
	tb.Helper()
	const attempts = 5
	var output string
	for range attempts {
		port := freePort(tb)
		where := []string{"--bind", "127.0.0.1", "--port", port}
		if conf != "" {
			where = slices.Insert(where, 0, conf)
		}
		s := start(tb, "tcp", net.JoinHostPort("127.0.0.1", port), where, args...)
		if s.answers(tb) {
			return s
		}
		output = s.output()
	}
	tb.Fatalf("redis-server does not answer:\n%s", output)
	return nil
}
