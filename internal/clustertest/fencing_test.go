//go:build linux

package clustertest

import (
	"context"
	"testing"
	"time"

	"github.com/dialback/dialback/internal/proctest"
	"github.com/dialback/dialback/internal/redistest"
	"github.com/dialback/dialback/transport"
)

// inRedis is in every request to Redis about which socket of a host is current.
func inRedis(host string) string { return "host:{" + host + "}\r\n" }

// keepNews holds what the nodes tell each other of a claim: it must not be
// needed. The node where the claim is has nothing to be told.
func keepNews(nodes ...*node) (release func()) {
	var held []*proctest.Catch
	for _, n := range nodes {
		held = append(held, n.calls.Catch(proctest.HoldRequest, "/node/retire "), n.calls.Catch(proctest.HoldRequest, "/node/retired "))
	}
	return func() {
		for _, c := range held {
			c.Release()
		}
	}
}

// wantNew checks that every node knows the newer socket of a host, and no other.
func wantNew(t *testing.T, w *world, host string, older *scripted) {
	t.Helper()
	for _, n := range w.nodes {
		get(n.URL, host, "/after").want(t, "afterwards, through "+n.ID, 200, "new /after")
	}
	if n := len(older.dials); n > 0 {
		t.Errorf("the older socket got %d more dials", n)
	}
}

// A node stands still between its look-up and its write, and the host moves
// meanwhile. No check before a write can help: the late dial goes out on the
// older socket, and its dial-back is refused. The caller is answered by the
// newer one.
func TestFencing_NodeStopsBeforeItsWrite(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		client int // at which node; the older socket is at the first
		hold   func(w *world, host string) *proctest.Catch
		why    string
	}{
		{"client and host on one node", 0, func(w *world, host string) *proctest.Catch {
			return w.nodes[0].store.Catch(proctest.HoldReply, inRedis(host))
		}, "the node has asked Redis, and stops before it has read the answer"},
		{"client on another node", 2, func(w *world, host string) *proctest.Catch {
			return w.nodes[0].calls.Catch(proctest.HoldRequest, "/node/dial ")
		}, "the client's node has asked Redis, and the other stops before it has read the call"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 3)
			stopped, client := w.nodes[0], w.nodes[tt.client]
			older := connect(t, stopped.URL, "h", script{})
			before := getAsync(client.URL, "h", "/before")
			d := older.nextDial("before")
			older.answer(client.URL, d, "old")
			await(t, before).want(t, "before", 200, "old /before")
			release := keepNews(stopped, w.nodes[2])

			held := tt.hold(w, "h")
			late := getAsync(client.URL, "h", "/late")
			held.Await(t)
			stopped.Stop()
			newer := connect(t, w.nodes[1].URL, "h", script{})
			newer.serve(w.nodes[1].URL, "new")
			held.Release()
			stopped.Resume()

			d = older.nextDial("the late dial, which no check could prevent (" + tt.why + ")")
			older.wantRefused("the late dial-back", client.URL, d)
			await(t, late).want(t, "the caller", 200, "new /late")
			for _, n := range w.nodes {
				older.wantRefused("the late dial-back, again, at "+n.ID, n.URL, d)
			}
			release()
			older.wantClosed("the older socket, once its node knows", transport.CloseReplaced)
			wantNew(t, w, "h", older)
		})
	}
}

// An agent connects twice, and the claim of its first socket comes to Redis
// after that of the second.
func TestFencing_LateClaimOfAnOlderSocket(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	const instance = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
	held := w.nodes[0].store.Catch(proctest.HoldRequest, inRedis("h"))
	older := dialControl(t, w.nodes[0].URL, "h", script{instance, 1})
	held.Await(t)
	newer := connect(t, w.nodes[1].URL, "h", script{instance, 2})
	held.Release()
	older.wantClosed("a claim that comes too late", transport.CloseReplaced)
	for _, n := range w.nodes {
		r := getAsync(n.URL, "h", "/")
		newer.refuse(newer.nextDial("through "+n.ID), "by the newer one")
		await(t, r).wantCode(t, "through "+n.ID, 503, "refused", proctest.Patience)
	}
	if !newer.isOpen() {
		t.Errorf("the newer socket ended: %v", newer.err)
	}
}

// The reply to a claim is lost. Its repetition must get the same answer, or the
// socket before it is never retired (fault 41).
func TestFencing_LostReplyOfAClaim(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	older := connect(t, w.nodes[1].URL, "h", script{})
	older.serve(w.nodes[1].URL, "old")
	for _, n := range w.nodes { // from now on all know the older one's node
		get(n.URL, "h", "/").want(t, "before", 200, "old /")
	}
	lost := w.nodes[0].store.Catch(proctest.LoseReply, inRedis("h"))
	newer := connect(t, w.nodes[0].URL, "h", script{})
	newer.serve(w.nodes[2].URL, "new")
	lost.Await(t)
	// It pings no more, so nothing else can tell its node.
	older.wantClosed("the socket before a claim whose reply was lost", transport.CloseReplaced)
	wantNew(t, w, "h", older)
}

// Two masters give out generations to both sides of a split. The newest one
// wins, whichever master remains.
func TestFencing_TwoMasters(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		heal func(w *world, r *redistest.Replicated)
	}{
		{"the newer one remains", func(w *world, r *redistest.Replicated) {
			w.nodes[0].store.TurnTo(r.Replica.Network, r.Replica.Addr)
		}},
		{"the older one remains", func(w *world, r *redistest.Replicated) {
			for _, n := range w.nodes[1:] {
				n.store.TurnTo(r.Master.Network, r.Master.Addr)
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := redistest.StartReplicated(t)
			r.Sentinel.Stop() // the test decides
			w := newWorldOn(t, 3, r.Master)
			older := connect(t, w.nodes[0].URL, "h", script{})
			older.serve(w.nodes[0].URL, "old")
			r.Sync(t)

			// The split: the first node stays with the master, and nobody reaches it.
			w.nodes[0].calls.SetCut(true)
			if err := r.Replica.Client(t).ReplicaOf(t.Context(), "NO", "ONE").Err(); err != nil {
				t.Fatal(err)
			}
			for _, n := range w.nodes[1:] {
				n.store.TurnTo(r.Replica.Network, r.Replica.Addr)
			}
			newer := connectPatiently(t, w.nodes[1].URL, "h")
			newer.serve(w.nodes[1].URL, "new")
			get(w.nodes[0].URL, "h", "/").want(t, "split: the side of the older socket", 200, "old /")
			proctest.Within(t, 10*time.Second, "split: the side of the newer socket serves it", func() bool {
				return get(w.nodes[2].URL, "h", "/").body == "new /"
			})

			tt.heal(w, r)
			w.nodes[0].calls.SetCut(false)
			proctest.Within(t, 20*time.Second, "the older socket is retired", func() bool {
				older.ping()
				newer.ping()
				return !older.isOpen()
			})
			older.wantClosed("the socket of the older generation", transport.CloseReplaced)
			for _, n := range w.nodes {
				proctest.Within(t, 10*time.Second, "all is well at "+n.ID, func() bool { return get(n.URL, "h", "/").body == "new /" })
			}
			if !newer.isOpen() {
				t.Errorf("the newer socket ended: %v", newer.err)
			}
		})
	}
}

// A host was replaced, both of its processes live, and the client is on a third
// node. New calls go to the newer process; the older one keeps the stream that
// it has, and its tickets are worth nothing.
func TestFencing_BothProcessesLive(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	client := w.nodes[2]
	older := connect(t, w.nodes[0].URL, "h", script{})
	pending := getAsync(client.URL, "h", "/pending")
	ticket := older.nextDial("a call that is not answered")
	older.serve(w.nodes[0].URL, "old")
	ctx, cancel := context.WithTimeout(t.Context(), proctest.Patience)
	defer cancel()
	stream, err := open(ctx, client.URL, "h")
	if err != nil {
		t.Fatal(err)
	}
	defer stream.close()

	newer := connect(t, w.nodes[1].URL, "h", script{})
	newer.serve(w.nodes[1].URL, "new")
	await(t, pending).want(t, "a call that the older process did not answer", 200, "new /pending")
	for range 20 {
		get(client.URL, "h", "/").want(t, "after the replacement", 200, "new /")
		if err := stream.echo(ctx, "still here"); err != nil {
			t.Fatalf("the stream of the older process: %v; a replaced socket ends no stream", err)
		}
	}
	for _, n := range w.nodes {
		older.wantRefused("a ticket of the older process", n.URL, ticket)
	}
	older.wantClosed("the older socket", transport.CloseReplaced)
	wantNew(t, w, "h", older)
}
