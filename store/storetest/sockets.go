package storetest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dialback/dialback/store"
)

var socketCases = []testCase{
	{name: "PutSocketsIsVisibleOnEveryNode", run: putSocketsIsVisible},
	{name: "PutSocketsAgainReplacesTheRecord", run: putSocketsAgain},
	{name: "SocketsAreOrderedAndPaged", run: socketsArePaged},
	{name: "SocketsOfAnUnknownHostAreNone", run: socketsOfNobody},
	{name: "ASocketRecordExpiresAtItsDeadline", run: socketExpires, timed: true},
	{name: "PutSocketsAgainMakesTheTTLRunAnew", run: socketRefresh, timed: true},
	{name: "DropSocketsRemovesRecords", run: dropSockets},
	{name: "SocketRecordsAreIndependentOfTheHostsRow", run: socketsAreIndependent},
	{name: "SocketRecordsOfAnotherHostAreNotTouched", run: socketsOfAnotherHost},
}

func (e *env) put(s store.Store, as ...store.Attachment) {
	e.Helper()
	if err := s.PutSockets(e.ctx, as, e.far); err != nil {
		e.Fatalf("PutSockets = %v, want no error", err)
	}
}

// wantSockets wants the host's records, as B sees them, to have these IDs.
func (e *env) wantSockets(hostID, after string, limit int, rule string, want ...string) []store.Attachment {
	e.Helper()
	as, err := e.B.Sockets(e.ctx, hostID, after, limit)
	if err != nil {
		e.Fatalf("Sockets(%s) = %v, want no error", hostID, err)
	}
	var got []string
	for _, a := range as {
		got = append(got, a.ID)
	}
	if !slices.Equal(got, want) {
		e.Fatalf("Sockets(%s, after %q, limit %d) = %q, want %q: %s", hostID, after, limit, got, want, rule)
	}
	return as
}

func putSocketsIsVisible(e *env) {
	client := streamSocket(store.RoleClient, "h", "c")
	dial := streamSocket(store.RoleDial, "h", "d")
	e.put(e.A, client, dial)
	got := e.wantSockets("h", "", 10, "when PutSockets returns every node sees the records", "c", "d")
	for i, want := range []store.Attachment{client, dial} {
		if got[i].LastPing.IsZero() {
			e.Fatalf("LastPing of a socket's record is zero; PutSockets sets it by the Store's clock")
		}
		want.LastPing = got[i].LastPing
		e.wantSame(got[i], want, "Sockets returns records as they were put")
	}
}

func putSocketsAgain(e *env) {
	a := streamSocket(store.RoleClient, "h", "c")
	e.put(e.A, a)
	a.StreamID, a.Meta = "another", []byte("new")
	e.put(e.B, a)
	got := e.wantSockets("h", "", 10, "one record per ID", "c")
	a.LastPing = got[0].LastPing
	e.wantSame(got[0], a, "the record that was put last counts")
}

func socketsArePaged(e *env) {
	ids := []string{"z", "B", "a", "b:2", "b", "é", "b 1", "10", "9"}
	for _, id := range ids {
		e.put(e.A, streamSocket(store.RoleDial, "h", id))
	}
	slices.Sort(ids)
	e.wantSockets("h", "", 100, "records are ordered by ID, byte by byte", ids...)
	after := ""
	for i := 0; i < len(ids); i += 4 {
		page := ids[i:min(i+4, len(ids))]
		e.wantSockets("h", after, 4, "a page has limit records at most and begins above after", page...)
		after = page[len(page)-1]
	}
	e.wantSockets("h", after, 4, "nothing is above the last one")
	e.wantSockets("h", "aa", 2, "after need not be the ID of a record", "b", "b 1")
}

func socketsOfNobody(e *env) {
	e.wantSockets("h", "", 10, "no records are an empty list and no error")
}

func socketExpires(e *env) {
	ttl := 4 * e.Tick
	e.put(e.A, streamSocket(store.RoleClient, "h", "stays"))
	if err := e.A.PutSockets(e.ctx, []store.Attachment{streamSocket(store.RoleDial, "h", "goes")}, ttl); err != nil {
		e.Fatalf("PutSockets = %v, want no error", err)
	}
	e.advanceWithin(ttl)
	e.wantSockets("h", "", 10, "its ttl has not run out", "goes", "stays")
	e.advanceToEnd(ttl)
	e.wantSockets("h", "", 10, "each record expires ttl after it was last put", "stays")
}

func socketRefresh(e *env) {
	ttl := 6 * e.Tick
	as := []store.Attachment{streamSocket(store.RoleClient, "h", "c")}
	for range 4 {
		if err := e.A.PutSockets(e.ctx, as, ttl); err != nil {
			e.Fatalf("PutSockets = %v, want no error", err)
		}
		e.advanceWithin(ttl)
		e.wantSockets("h", "", 10, "putting a record again makes its ttl run anew", "c")
	}
	e.advanceToEnd(ttl)
	e.wantSockets("h", "", 10, "its ttl has run out")
}

func dropSockets(e *env) {
	a, b, c := streamSocket(store.RoleClient, "h", "a"), streamSocket(store.RoleDial, "h", "b"), streamSocket(store.RoleClient, "g", "c")
	e.put(e.A, a, b, c)
	absent := store.SocketRef{HostID: "nobody", ID: "x"}
	refs := []store.SocketRef{a.SocketRef(), absent, {HostID: "h", ID: "x"}, c.SocketRef()}
	for range 2 {
		if err := e.A.DropSockets(e.ctx, refs); err != nil {
			e.Fatalf("DropSockets = %v, want nil: absent records are passed over", err)
		}
		e.wantSockets("h", "", 10, "only what is named is dropped", "b")
		e.wantSockets("g", "", 10, "only what is named is dropped")
	}
	if err := e.A.DropSockets(e.ctx, nil); err != nil {
		e.Fatalf("DropSockets of nothing = %v, want nil", err)
	}
	e.put(e.A)
}

func socketsAreIndependent(e *env) {
	e.put(e.A, streamSocket(store.RoleClient, "h", "c"))
	e.wantNone("h", "a client's record is no attachment of the host")
	if s, ok := e.seen("h"); ok {
		e.Fatalf("LastSeen = %+v after PutSockets; only control sockets count", s)
	}
	e.attach(socket("h", "first"))
	second := e.attach(socket("h", "second"))
	e.retire(e.A, second.Ref(), store.ReasonStale)
	e.wantSockets("h", "", 10, "streams outlive control sockets, and so do their records", "c")
}

func socketsOfAnotherHost(e *env) {
	for i := range 20 {
		host := fmt.Sprint("h", strings.Repeat("1", i))
		e.put(e.A, streamSocket(store.RoleClient, host, host+" c"), streamSocket(store.RoleDial, host, "same"))
	}
	if err := e.A.DropSockets(e.ctx, []store.SocketRef{{HostID: "h", ID: "same"}}); err != nil {
		e.Fatalf("DropSockets = %v, want no error", err)
	}
	e.wantSockets("h", "", 10, "its record was dropped", "h c")
	e.wantSockets("h1", "", 10, "another host's record of the same ID was not", "h1 c", "same")
	e.wantSockets("h11", "", 10, "another host's record of the same ID was not", "h11 c", "same")
}
