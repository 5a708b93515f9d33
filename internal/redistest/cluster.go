package redistest

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"
)

// hashSlots is how many a Cluster has.
const hashSlots = 16384

// Cluster is a Redis Cluster of masters without replicas, on loopback. Its slots
// are served also while others are not. It ends
// with the test.
type Cluster struct {
	Masters []*Server
}

// StartCluster starts a Cluster of n masters and returns when each of them
// serves all slots.
func StartCluster(tb testing.TB, n int) *Cluster {
	tb.Helper()
	c := &Cluster{}
	for range n {
		c.Masters = append(c.Masters, startTCP(tb, "--cluster-enabled", "yes",
			"--cluster-node-timeout", "2000", "--cluster-require-full-coverage", "no"))
	}
	for i, s := range c.Masters {
		c.join(tb, i, s.Client(tb))
	}
	for _, s := range c.Masters {
		client := s.Client(tb)
		if !s.waitFor(tb, func() bool { return joined(tb.Context(), client, n) }) {
			info, err := client.ClusterInfo(tb.Context()).Result()
			tb.Fatalf("no Cluster of %d: %s, %v\n%s", n, info, err, s.output())
		}
	}
	return c
}

// Client returns a client of the Cluster. It is closed when the test ends.
func (c *Cluster) Client(tb testing.TB) *goredis.ClusterClient {
	tb.Helper()
	client := goredis.NewClusterClient(&goredis.ClusterOptions{
		Addrs:                 c.addrs(),
		ContextTimeoutEnabled: true,
	})
	tb.Cleanup(func() { _ = client.Close() })
	return client
}

// URL returns the Cluster's address as go-redis' ParseClusterURL reads it.
func (c *Cluster) URL() string {
	addrs := c.addrs()
	return "redis://" + addrs[0] + "?addr=" + strings.Join(addrs[1:], "&addr=")
}

func (c *Cluster) addrs() []string {
	var addrs []string
	for _, s := range c.Masters {
		addrs = append(addrs, s.Addr)
	}
	return addrs
}

// join gives member i its share of the slots and makes it meet the first.
func (c *Cluster) join(tb testing.TB, i int, client *goredis.Client) {
	tb.Helper()
	ctx, n := tb.Context(), len(c.Masters)
	if err := client.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err(); err != nil {
		tb.Fatal(err)
	}
	if err := client.ClusterAddSlotsRange(ctx, i*hashSlots/n, (i+1)*hashSlots/n-1).Err(); err != nil {
		tb.Fatal(err)
	}
	host, port, err := net.SplitHostPort(c.Masters[0].Addr)
	if err != nil {
		tb.Fatal(err)
	}
	if err := client.ClusterMeet(ctx, host, port).Err(); err != nil {
		tb.Fatal(err)
	}
}

// joined says whether the member knows all n, and that they serve all slots.
func joined(ctx context.Context, client *goredis.Client, n int) bool {
	info, err := client.ClusterInfo(ctx).Result()
	if err != nil {
		return false
	}
	lines := strings.Split(info, "\r\n")
	for _, want := range []string{
		"cluster_state:ok",
		fmt.Sprint("cluster_known_nodes:", n),
		fmt.Sprint("cluster_size:", n),
		fmt.Sprint("cluster_slots_ok:", hashSlots),
	} {
		if !slices.Contains(lines, want) {
			return false
		}
	}
	return true
}

// freePort returns a port that is free, and so is the one 10,000 above it,
// which the members of a Cluster use among themselves.
func freePort(tb testing.TB) string {
	tb.Helper()
	const attempts = 100
	for range attempts {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			tb.Fatal(err)
		}
		port := l.Addr().(*net.TCPAddr).Port
		_ = l.Close() // the server takes it
		bus := port + 10_000
		if bus > 65_535 {
			continue
		}
		l, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(bus)))
		if err != nil {
			continue
		}
		_ = l.Close() // the server takes it
		return strconv.Itoa(port)
	}
	tb.Fatal("no two free ports that are 10,000 apart")
	return ""
}
