package redis_test

import (
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/dialback/dialback/internal/redistest"
	"github.com/dialback/dialback/store"
	"github.com/dialback/dialback/store/redis"
)

// settings is what Open promises of each kind of client.
type settings struct {
	heedsContext            bool
	retries                 int
	dial, read, write, pool time.Duration
}

func settingsOf(t *testing.T, c goredis.UniversalClient) (settings, string) {
	t.Helper()
	switch c := c.(type) {
	case *goredis.Client:
		o := c.Options()
		return settings{o.ContextTimeoutEnabled, o.MaxRetries, o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout}, "server " + o.Addr
	case *goredis.ClusterClient:
		o := c.Options()
		// Of a Cluster -1 is kept until its members are dialed.
		return settings{o.ContextTimeoutEnabled, o.MaxRetries + 1, o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout},
			"cluster " + strings.Join(o.Addrs, " ")
	}
	t.Fatalf("Open returned %T", c)
	return settings{}, ""
}

func TestOpen(t *testing.T) {
	const half = 500 * time.Millisecond
	standard := settings{true, 0, time.Second, half, half, half}
	slow := standard
	slow.read, slow.pool = 2*time.Second, 3*time.Second
	tests := []struct {
		url, kind string
		want      settings
		why       string
	}{
		{"redis://:secret@localhost:1234/3", "server localhost:1234", standard, "a server"},
		{"rediss://localhost", "server localhost:6379", standard, "with TLS"},
		{"unix:///tmp/redis.sock?db=1", "server /tmp/redis.sock", standard, "on a unix socket"},
		{"redis://h:1?read_timeout=2s&pool_timeout=3s", "server h:1", slow, "the URL's timeouts win"},
		{"redis://h:1?max_retries=5", "server h:1", standard, "retries are the caller's"},
		{"redis://s:26379?master_name=m&addr=t:26379", "server FailoverClient", standard, "a master by Sentinels"},
		{"redis://a:1?addr=b:2&addr=c:3", "cluster a:1 b:2 c:3", standard, "a Cluster"},
	}
	for _, tt := range tests {
		c, err := redis.Open(tt.url)
		if err != nil {
			t.Errorf("Open(%q) = %v, want no error: %s", tt.url, err, tt.why)
			continue
		}
		if got, kind := settingsOf(t, c); got != tt.want || kind != tt.kind {
			t.Errorf("Open(%q) = %s, %+v\nwant %s, %+v: %s", tt.url, kind, got, tt.kind, tt.want, tt.why)
		}
		_ = c.Close()
	}
}

func TestOpen_Refuses(t *testing.T) {
	tests := []struct{ url, why string }{
		{"localhost:6379", "no scheme"},
		{"http://localhost", "another scheme"},
		{"redis://user:secret@local host", "not a URL"},
		{"redis://localhost?no_such_option=1", "an option that go-redis does not know"},
		{"redis://a:1?addr=b:2&read_only=true", "reads from replicas"},
		{"redis://a:1?addr=b:2&route_by_latency=true", "reads from replicas"},
		{"redis://a:1?master_name=m&route_randomly=true", "reads from replicas"},
		{"redis://a:1?master_name=m&replica_only=true", "reads from replicas"},
	}
	for _, tt := range tests {
		c, err := redis.Open(tt.url)
		if err == nil {
			_ = c.Close()
			t.Errorf("Open(%q) = no error, want one: %s", tt.url, tt.why)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("Open(%q) = %v; an error names no password", tt.url, err)
		}
	}
}

func TestOpen_Works(t *testing.T) {
	server := redistest.Start(t)
	cluster := redistest.StartCluster(t, 3)
	for _, url := range []string{"unix://" + server.Addr, cluster.URL()} {
		c, err := redis.Open(url)
		if err != nil {
			t.Fatal(err)
		}
		s := redis.New(c, nil)
		if _, err := s.Claim(t.Context(), attachment("h", "s"), time.Minute); err != nil {
			t.Errorf("%s: Claim = %v, want no error", url, err)
		}
		_ = s.Close()
		if err := c.Ping(t.Context()).Err(); err != nil {
			t.Errorf("%s: Ping = %v after Close of the Store, which does not close the client", url, err)
		}
		_ = c.Close()
	}
}

func attachment(hostID, id string) store.Attachment {
	return store.Attachment{ID: id, HostID: hostID, NodeID: "n", Incarnation: "i", Role: store.RoleHost}
}
