package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/dialback/dialback/store"
	"github.com/dialback/dialback/store/redis"
)

// cluster is all that runs: Redis, three nodes, the balancer and the hosts.
type cluster struct {
	dir      string
	key      string // shared by the nodes
	redis    *process
	store    store.Store // what the nodes share, to look at
	closers  []func()    // of what is behind store
	nodes    []*nodeProcess
	balancer *balancer
	hosts    []*host
}

// newCluster starts Redis only.
func newCluster(ctx context.Context) (_ *cluster, err error) {
	c := &cluster{key: rand.Text()}
	defer func() {
		if err != nil {
			c.stop()
		}
	}()
	// Not below the working directory: the path of a unix socket is short.
	if c.dir, err = os.MkdirTemp("", "cluster"); err != nil {
		return nil, err
	}
	if err := c.startRedis(ctx); err != nil {
		return nil, err
	}
	client, err := redis.Open(c.redisURL())
	if err != nil {
		return nil, err
	}
	st := redis.New(client, nil)
	c.store = st
	c.closers = []func(){func() { st.Close() }, func() { client.Close() }}
	return c, until(ctx, "Redis", func() bool { _, err := st.Nodes(ctx); return err == nil })
}

func (c *cluster) redisURL() string { return "unix://" + redisSocket(c.dir) }

func (c *cluster) startRedis(ctx context.Context) (err error) {
	c.redis, err = startRedis(ctx, c.dir)
	return err
}

// startNode starts a node, in the place of the one with that ID if there was
// one, and waits until the Store knows it.
func (c *cluster) startNode(ctx context.Context, id string) (*nodeProcess, error) {
	n, err := startNode(ctx, id, c.redisURL(), c.key)
	if err != nil {
		return nil, err
	}
	placed := false
	for i := range c.nodes {
		if c.nodes[i].id == id {
			c.nodes[i], placed = n, true
		}
	}
	if !placed {
		c.nodes = append(c.nodes, n)
	}
	return n, until(ctx, "node "+id, func() bool {
		live, _ := c.store.Nodes(ctx)
		for _, l := range live {
			if l.URL == n.url {
				return true
			}
		}
		return false
	})
}

// balance starts the balancer, or gives it the nodes as they are now.
func (c *cluster) balance() (err error) {
	if c.balancer == nil {
		if c.balancer, err = startBalancer(); err != nil {
			return err
		}
	}
	var addrs []string
	for _, n := range c.nodes {
		addrs = append(addrs, strings.TrimPrefix(n.url, "http://"))
	}
	c.balancer.use(addrs)
	return nil
}

func (c *cluster) startHosts(ctx context.Context, count int) error {
	for i := range count {
		h, err := startHost(ctx, c.balancer.url, fmt.Sprintf("host-%d", i+1))
		if err != nil {
			return err
		}
		c.hosts = append(c.hosts, h)
	}
	return nil
}

func (c *cluster) hostIDs() []string {
	ids := make([]string, len(c.hosts))
	for i, h := range c.hosts {
		ids[i] = h.id
	}
	return ids
}

// node returns the node of that ID, or nil.
func (c *cluster) node(id string) *nodeProcess {
	for _, n := range c.nodes {
		if n.id == id {
			return n
		}
	}
	return nil
}

// holders asks the Store which node holds each host: its ID, by host ID. Hosts
// that none holds are left out.
func (c *cluster) holders(ctx context.Context) map[string]string {
	seen, _ := c.store.LastSeen(ctx, c.hostIDs()) // empty while Redis is gone
	at := make(map[string]string)
	for id, s := range seen {
		if s.Attached {
			at[id] = s.NodeID
		}
	}
	return at
}

// stop ends everything, in the order of a good deploy: hosts, nodes, Redis.
func (c *cluster) stop() {
	for _, h := range c.hosts {
		h.stop()
	}
	for _, n := range c.nodes {
		n.stop()
	}
	if c.balancer != nil {
		c.balancer.stop()
	}
	for _, end := range c.closers {
		end()
	}
	if c.redis != nil {
		c.redis.kill()
	}
	if c.dir != "" {
		os.RemoveAll(c.dir)
	}
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
