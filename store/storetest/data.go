package storetest

import (
	"bytes"
	"fmt"

	"github.com/dialback/dialback/store"
)

var dataCases = []testCase{
	{name: "MetaRoundTripsByteByByte", run: metaRoundTrips},
	{name: "ArgumentsAreNotKept", run: argumentsAreNotKept},
	{name: "ResultsAreTheCallersOwn", run: resultsAreTheCallersOwn},
	{name: "ArgumentsAreNotModified", run: argumentsAreNotModified},
}

func metaRoundTrips(e *env) {
	meta := make([]byte, store.MaxMetaLen)
	for i := range meta {
		meta[i] = byte(i)
	}
	for _, n := range []int{0, 1, store.MaxMetaLen} {
		a := socket("h", fmt.Sprint("s", n))
		a.Meta = meta[:n]
		e.attach(a)
		if got := e.currentOn(e.B, "h", a.ID, "it was claimed").Meta; !bytes.Equal(got, meta[:n]) {
			e.Fatalf("Meta = %x, want %x: any bytes up to 1 KiB come back as they were", got, meta[:n])
		}
	}
}

func argumentsAreNotKept(e *env) {
	const rule = "the caller may change its arguments after the call"
	a := socket("h", "s")
	current := e.attach(a)
	a.Meta[0] = '!'
	current.Meta[0] = '?'
	e.wantMeta(e.currentOn(e.B, "h", "s", rule), "meta of s", rule)

	lost := generated(socket("lost", "s"), current.Generation)
	e.wantPing(e.A, lost, true, "nothing stands")
	lost.Meta[0] = '!'
	e.wantMeta(e.currentOn(e.B, "lost", "s", rule), "meta of s", rule)

	as := []store.Attachment{streamSocket(store.RoleClient, "h", "c")}
	e.put(e.A, as...)
	as[0].Meta[0] = '!'
	as[0].StreamID = "changed"
	got := e.wantSockets("h", "", 10, rule, "c")[0]
	e.wantMeta(got, "meta of c", rule)
	if got.StreamID != "stream of c" {
		e.Fatalf("StreamID = %q, want %q: %s", got.StreamID, "stream of c", rule)
	}
}

func resultsAreTheCallersOwn(e *env) {
	const rule = "the caller may change results without changing what the Store holds"
	e.attach(socket("h", "first"))
	e.claim(e.A, socket("h", "second"), e.far)
	for range 2 {
		a := e.currentOn(e.A, "h", "second", rule)
		e.wantMeta(a, "meta of second", rule)
		a.Meta[0] = '!'
		c := e.claim(e.A, socket("h", "second"), e.far)
		e.wantMeta(c.Current, "meta of second", rule)
		e.wantMeta(c.Previous, "meta of first", rule)
		c.Current.Meta[0], c.Previous.Meta[0] = '!', '!'
	}

	e.put(e.A, streamSocket(store.RoleClient, "h", "c"), streamSocket(store.RoleDial, "h", "d"))
	e.keep(e.A, nodeOf("n", "1"), e.far, true, "no lease stood")
	for range 2 {
		as := e.wantSockets("h", "", 10, rule, "c", "d")
		e.wantMeta(as[0], "meta of c", rule)
		as[0].Meta[0] = '!'
		as[0], as[1] = as[1], store.Attachment{}

		e.wantNodes(rule, nodeOf("n", "1"))
		ns, err := e.B.Nodes(e.ctx)
		if err != nil {
			e.Fatalf("Nodes = %v, want no error", err)
		}
		ns[0] = store.Node{}

		seen, err := e.B.LastSeen(e.ctx, []string{"h"})
		if err != nil || !seen["h"].Attached {
			e.Fatalf("LastSeen = %v, %v, want attached: %s", seen, err, rule)
		}
		clear(seen)
	}
}

func argumentsAreNotModified(e *env) {
	const rule = "arguments are not modified"
	current := e.attach(socket("h", "s"))
	as := []store.Attachment{current, generated(socket("lost", "s"), current.Generation)}
	e.tick()
	e.ping(e.A, e.far, as...)
	e.wantSame(as[0], current, rule)
	e.wantSame(as[1], generated(socket("lost", "s"), current.Generation), rule)

	cs := []store.Attachment{streamSocket(store.RoleClient, "h", "z"), streamSocket(store.RoleDial, "h", "a")}
	e.put(e.A, cs...)
	e.wantSame(cs[0], streamSocket(store.RoleClient, "h", "z"), rule)
	e.wantSame(cs[1], streamSocket(store.RoleDial, "h", "a"), rule)

	ids := []string{"z", "h", "a"}
	if _, err := e.A.LastSeen(e.ctx, ids); err != nil {
		e.Fatalf("LastSeen = %v, want no error", err)
	}
	if ids[0] != "z" || ids[1] != "h" || ids[2] != "a" {
		e.Fatalf("LastSeen left its argument as %q: %s", ids, rule)
	}
}

func (e *env) wantMeta(a store.Attachment, want, rule string) {
	e.Helper()
	if string(a.Meta) != want {
		e.Fatalf("Meta of %q = %q, want %q: %s", a.ID, a.Meta, want, rule)
	}
}
