//go:build linux

package clustertest

import (
	"testing"
	"time"

	"github.com/dialback/dialback/internal/proctest"
	"github.com/dialback/dialback/transport"
)

// The same stop, and so long that the node's own time limits are over when it
// goes on. It may fail the caller, but must not take Redis for gone and serve
// what it remembers.
func TestFencing_NodeStopsForLong(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	stopped := w.nodes[0]
	older := connect(t, stopped.URL, "h", script{})
	before := getAsync(stopped.URL, "h", "/before")
	older.answer(stopped.URL, older.nextDial("before"), "old")
	await(t, before).want(t, "before", 200, "old /before")
	release := keepNews(stopped)

	held := stopped.store.Catch(proctest.HoldReply, inRedis("h"))
	late := getAsync(stopped.URL, "h", "/late")
	held.Await(t)
	stopped.Stop()
	newer := connect(t, w.nodes[1].URL, "h", script{})
	newer.serve(w.nodes[1].URL, "new")
	held.Release()
	const limits = 2 * time.Second // StoreTimeout is 1 s, and that of Redis half of it
	time.Sleep(limits)             // what is tested is that this time passes
	stopped.Resume()

	var r reply
	select {
	case d := <-older.dials:
		older.wantRefused("the late dial-back", stopped.URL, d)
		r = await(t, late)
	case r = <-late:
	}
	if r.status != 503 && r.body != "new /late" {
		t.Errorf("the caller: %v, want the answer of the newer socket, or 503", r)
	}
	release()
	older.wantClosed("the older socket, once its node knows", transport.CloseReplaced)
	proctest.Within(t, 10*time.Second, "all is well", func() bool { return get(stopped.URL, "h", "/").status == 200 })
	wantNew(t, w, "h", older)
}

// A node stands still and does not go on, and the host moves while a call is on
// its way to that node. The caller's node has been told of the move: it need not
// wait for the call's end, nor fail because of it.
func TestFencing_NodeStopsForGood(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	stopped, client := w.nodes[0], w.nodes[2]
	older := connect(t, stopped.URL, "h", script{})
	older.serve(stopped.URL, "old")
	get(client.URL, "h", "/").want(t, "before", 200, "old /")
	held := stopped.calls.Catch(proctest.HoldRequest, "/node/dial ")
	late := getAsync(client.URL, "h", "/late")
	held.Await(t)
	stopped.Stop()
	newer := connect(t, w.nodes[1].URL, "h", script{})
	newer.serve(w.nodes[1].URL, "new")
	await(t, late).want(t, "the caller", 200, "new /late")
	stopped.Resume()
}
