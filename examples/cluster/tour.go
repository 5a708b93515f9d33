package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// tour shows step by step what several nodes do.
type tour struct {
	out     io.Writer
	cluster *cluster
	client  *http.Client
	step    int
}

func (t *tour) run(ctx context.Context) error {
	// One connection for each call: so each may land on another node.
	t.client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for _, step := range []func(context.Context) error{
		t.start, t.attach, t.callThroughEach, t.steady, t.kill, t.restart, t.withoutRedis, t.redisIsBack,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	fmt.Fprintf(t.out, "\nThat is all. What a fleet needs beyond this stands in the README, under \"Several nodes\".\n")
	return nil
}

func (t *tour) start(ctx context.Context) error {
	c := t.cluster
	t.say("Three relay nodes run, each in a process of its own, and share a Redis that holds no payload.")
	for _, id := range []string{"a", "b", "c"} {
		n, err := c.startNode(ctx, id)
		if err != nil {
			return err
		}
		t.text("node %s: pid %d, %s", n.id, n.pid(), n.url)
	}
	if err := c.balance(); err != nil {
		return err
	}
	t.text("A balancer at %s gives each new connection to the next node, whatever it is for.", c.balancer.url)
	return nil
}

func (t *tour) attach(ctx context.Context) error {
	c := t.cluster
	t.say("Six hosts connect through the balancer and stay connected. They listen nowhere.")
	if err := c.startHosts(ctx, 6); err != nil {
		return err
	}
	t.tellHolders(ctx)
	return nil
}

func (t *tour) callThroughEach(ctx context.Context) error {
	c := t.cluster
	hostID := c.hosts[0].id
	t.say("A client may ask any node. The one that it asks has the host's node tell the host; the host dials")
	t.text("back through the balancer, and where it lands on another node, that one passes it on.")
	for _, n := range c.nodes {
		if call := t.get(ctx, n, hostID); !call.ok {
			return errors.New("a call failed that should not")
		}
	}
	return nil
}

func (t *tour) steady(ctx context.Context) error {
	t.say("Clients call all hosts, through the balancer, for two seconds.")
	return t.callAll(ctx, 2*time.Second)
}

func (t *tour) kill(ctx context.Context) error {
	c := t.cluster
	b := c.node("b")
	t.say("The clients go on, and node b is killed (SIGKILL to %d). It has no time to tell anybody.", b.pid())
	before := c.holders(ctx)
	l := t.load(ctx)
	if err := pause(ctx, time.Second); err != nil {
		return err
	}
	begun := time.Now()
	b.kill()
	moved := make(map[string]time.Duration)
	err := until(ctx, "the hosts of node b", func() bool {
		left := 0
		now := c.holders(ctx)
		for id, at := range before {
			switch {
			case at != b.id || moved[id] > 0:
			case now[id] != b.id:
				moved[id] = time.Since(begun)
			default:
				left++
			}
		}
		return left == 0
	})
	if err == nil {
		err = pause(ctx, 2*time.Second)
	}
	t.tellCalls(l.stop(), begun)
	if err != nil {
		return err
	}
	t.text("Its hosts saw their connections end, and connected again through the balancer:")
	now := c.holders(ctx)
	for _, id := range c.hostIDs() {
		if took, ok := moved[id]; ok {
			t.took(took, "%s went from node %s to node %s", id, before[id], now[id])
		}
	}
	return nil
}

func (t *tour) restart(ctx context.Context) error {
	c := t.cluster
	t.say("Node b starts again: the same name, another process, another port.")
	begun := time.Now()
	n, err := c.startNode(ctx, "b")
	if err != nil {
		return err
	}
	if err := c.balance(); err != nil {
		return err
	}
	t.note(begun, "node %s: pid %d, %s, is known to the others", n.id, n.pid(), n.url)
	t.text("Hosts stay where they are, and node b serves clients of all of them.")
	t.tellHolders(ctx)
	return t.callAll(ctx, 3*time.Second)
}

func (t *tour) withoutRedis(ctx context.Context) error {
	c := t.cluster
	at := c.holders(ctx)
	t.say("Redis is stopped. Each node goes on with the hosts that it holds. Clients call them there, for three seconds.")
	c.redis.kill()
	begun := time.Now()
	l := startLoad(ctx, t.client, c.hostIDs(), func(hostID string) string { return c.node(at[hostID]).url })
	err := pause(ctx, 3*time.Second)
	t.tellCalls(l.stop(), begun)
	if err != nil {
		return err
	}
	t.text("A node that does not hold a host cannot know who does, and says so at once:")
	hostID := c.hosts[0].id
	for _, n := range c.nodes {
		t.get(ctx, n, hostID)
	}
	return nil
}

func (t *tour) redisIsBack(ctx context.Context) error {
	c := t.cluster
	t.say("Redis starts again, and is empty. The nodes write what they hold.")
	begun := time.Now()
	if err := c.startRedis(ctx); err != nil {
		return err
	}
	err := until(ctx, "the nodes", func() bool {
		live, _ := c.store.Nodes(ctx)
		return len(live) == len(c.nodes) && len(c.holders(ctx)) == len(c.hosts)
	})
	if err != nil {
		return err
	}
	t.note(begun, "all is there again:")
	t.tellHolders(ctx)
	return t.callAll(ctx, 2*time.Second)
}

// callAll has clients call all hosts for d, and tells what became of it.
func (t *tour) callAll(ctx context.Context, d time.Duration) error {
	begun := time.Now()
	l := t.load(ctx)
	err := pause(ctx, d)
	t.tellCalls(l.stop(), begun)
	return err
}

// load is clients that call all hosts through the balancer.
func (t *tour) load(ctx context.Context) *load {
	return startLoad(ctx, t.client, t.cluster.hostIDs(), func(string) string { return t.cluster.balancer.url })
}

// get calls a host at a node and tells what came back.
func (t *tour) get(ctx context.Context, n *nodeProcess, hostID string) call {
	c := get(ctx, t.client, n.url, hostID)
	t.took(c.took, "GET /hosts/%s/ at node %s -> %s", hostID, n.id, c.what)
	return c
}

// tellHolders tells which node holds which hosts.
func (t *tour) tellHolders(ctx context.Context) {
	at := t.cluster.holders(ctx)
	for _, n := range t.cluster.nodes {
		var held []string
		for _, id := range t.cluster.hostIDs() {
			if at[id] == n.id {
				held = append(held, id)
			}
		}
		if held == nil {
			held = []string{"no host"}
		}
		t.text("node %s holds %s", n.id, strings.Join(held, ", "))
	}
}

// maxFailuresTold bounds the list of failed calls.
const maxFailuresTold = 12

// tellCalls tells how many calls there were, which failed, and how long after
// the moment since.
func (t *tour) tellCalls(calls []call, since time.Time) {
	var failed []call // as they ended
	var slowest time.Duration
	for _, c := range calls {
		if c.ok {
			slowest = max(slowest, c.took)
		} else {
			failed = append(failed, c)
		}
	}
	if len(failed) == 0 {
		t.text("%d calls, none failed. The slowest took %v.", len(calls), slowest.Round(time.Millisecond))
		return
	}
	last := failed[len(failed)-1].ended().Sub(since)
	t.text("%d calls, %d failed, the last of them after %v. The slowest of the others took %v.",
		len(calls), len(failed), last.Round(time.Millisecond), slowest.Round(time.Millisecond))
	for i, c := range failed {
		if i == maxFailuresTold {
			t.text("… and %d more.", len(failed)-i)
			break
		}
		t.took(c.ended().Sub(since), "%s: %s", c.hostID, c.what)
	}
}

// say begins a step.
func (t *tour) say(format string, args ...any) {
	t.step++
	fmt.Fprintf(t.out, "\n%d. %s\n", t.step, fmt.Sprintf(format, args...))
}

// text goes on with a step.
func (t *tour) text(format string, args ...any) {
	fmt.Fprintf(t.out, "   %s\n", fmt.Sprintf(format, args...))
}

// note tells what happened, and how long it took.
func (t *tour) note(begun time.Time, format string, args ...any) {
	t.took(time.Since(begun), format, args...)
}

func (t *tour) took(d time.Duration, format string, args ...any) {
	fmt.Fprintf(t.out, "   %8.1f ms  %s\n", float64(d.Microseconds())/1000, fmt.Sprintf(format, args...))
}
