package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dialback/dialback/store"
)

var keyCases = []testCase{
	{name: "AnyHostIDRoundTripsAndNoneCollide", run: hostIDsRoundTrip},
	{name: "AnySocketIDRoundTripsAndNoneCollide", run: socketIDsRoundTrip},
	{name: "AnyNodeIDRoundTripsAndNoneCollide", run: nodeIDsRoundTrip},
	{name: "AnyOtherIDRoundTrips", run: otherIDsRoundTrip},
	{name: "InvalidArgumentsChangeNothing", run: invalidArguments},
}

// oddIDs are those that escape badly, and pairs that a careless escape or
// join makes equal. They are ordered by nothing.
func oddIDs() []string {
	ids := []string{
		"a", "A", "a ", " a", " ", "a:", ":a", "a:b", "a::b", "a:b:c", ":", "::",
		"/", "a/b", "a//b", "../a", "a/../b", ".", "..",
		"{", "}", "{}", "{a}", "a{b}c", "}{", "{a", "a}", "{{a}}",
		"%", "%41", "%7B", "%7Ba%7D", "%25", "a%3Ab", "\\", "\\x41", "a\\:b",
		"*", "?", "[a]", "h*", "'", "\"", "`", "$a", "#", "&", "=", "+", ",", ";", "|", "~",
		"\x00", "a\x00", "a\x00b", "\n", "a\nb", "\r\n", "\t", "\x7f", "\xff", "a\xc3", "\xc3\x28",
		"é", "e\u0301", "ü", "日本語", "🐢", "\u200b", "\ufeffa", "ı", "İ",
		"0", "00", "1", "01", "1.0", "1e0", "-1", "nil", "null", "true", "_", "__proto__",
	}
	long := strings.Repeat("x", store.MaxIDLen-1)
	return append(ids, long, long+"x", long+"y", strings.Repeat("{", store.MaxIDLen), strings.Repeat("é", store.MaxIDLen/2))
}

const keyRule = "any non-empty string of up to 256 bytes is an ID, and different ones never collide"

func hostIDsRoundTrip(e *env) {
	ids := oddIDs()
	want := make([]store.Attachment, len(ids))
	for i, id := range ids {
		want[i] = e.attach(socket(id, "s"))
	}
	for i, id := range ids {
		e.wantSame(e.currentOn(e.B, id, "s", keyRule), want[i], keyRule)
	}
	for i, current := range e.ping(e.B, e.far, want...) {
		if !current {
			e.Fatalf("Ping says that host %q is retired: %s", ids[i], keyRule)
		}
	}
	seen, err := e.B.LastSeen(e.ctx, ids)
	if err != nil || len(seen) != len(ids) {
		e.Fatalf("LastSeen = %d hosts, %v, want %d: %s", len(seen), err, len(ids), keyRule)
	}
	for i, id := range ids {
		if seen[id].Generation != want[i].Generation {
			e.Fatalf("LastSeen of %q = generation %d, want %d: %s", id, seen[id].Generation, want[i].Generation, keyRule)
		}
		e.detach(e.B, want[i].Ref())
		if i+1 < len(ids) {
			e.currentOn(e.A, ids[i+1], "s", keyRule)
		}
	}
}

func socketIDsRoundTrip(e *env) {
	ids := oddIDs()
	var as []store.Attachment
	for _, id := range ids {
		host, dial := socket("h", "s"), streamSocket(store.RoleDial, "h", "d")
		host.ID, dial.ID = id, id
		c := e.claim(e.A, host, e.far)
		if c.Current.ID != id {
			e.Fatalf("Claim of socket %q gave %q: %s", id, c.Current.ID, keyRule)
		}
		if n := len(as); n > 0 && c.Previous.ID != as[n-1].ID {
			e.Fatalf("Claim of socket %q retired %q, want %q: %s", id, c.Previous.ID, as[n-1].ID, keyRule)
		}
		as = append(as, dial)
	}
	e.put(e.A, as...)
	slices.Sort(ids)
	e.wantSockets("h", "", 2*len(ids), keyRule, ids...)
	for i, id := range ids {
		e.wantSockets("h", id, 1, "a page begins above after", ids[i+1:min(i+2, len(ids))]...)
	}
}

func nodeIDsRoundTrip(e *env) {
	ids := oddIDs()
	for _, id := range ids {
		e.keep(e.A, nodeOf(id, id), e.far, true, keyRule)
	}
	slices.Sort(ids)
	var want []store.Node
	for _, id := range ids {
		want = append(want, nodeOf(id, id))
	}
	e.wantNodes(keyRule, want...)
	for i, id := range ids {
		e.drop(e.B, id, id)
		e.wantNodes(keyRule, want[i+1:]...)
	}
}

func otherIDsRoundTrip(e *env) {
	for i, id := range oddIDs() {
		a := socket("h", fmt.Sprint("socket ", i))
		a.NodeID, a.Incarnation, a.Instance = id, id, id
		got := e.attach(a)
		a.Generation, a.LastPing = got.Generation, got.LastPing
		e.wantSame(e.currentOn(e.B, "h", a.ID, keyRule), a, keyRule)
	}
	bare := store.Attachment{ID: "bare", HostID: "h", Role: store.RoleHost}
	got := e.attach(bare)
	bare.Generation, bare.LastPing = got.Generation, got.LastPing
	e.wantSame(e.currentOn(e.B, "h", "bare", keyRule), bare, "what is empty stays empty, the zero Time is the zero Time")
}

func invalidArguments(e *env) {
	current := e.attach(socket("h", "s"))
	client := streamSocket(store.RoleClient, "h", "c")
	e.put(e.A, client)
	node := nodeOf("n", "1")
	e.keep(e.A, node, e.far, true, "no lease stood")

	for _, bad := range invalidCalls(current, client, node, e.far) {
		if err := bad.call(e.ctx, e.A); !errors.Is(err, store.ErrInvalid) {
			e.Errorf("%s = %v, want an error that wraps ErrInvalid", bad.name, err)
		}
	}
	e.wantSame(e.wantCurrent("h", "s", "it was claimed"), current, "a call with an invalid argument changes nothing")
	e.wantSockets("h", "", 10, "a call with an invalid argument changes nothing", "c")
	e.wantNodes("a call with an invalid argument changes nothing", node)
}

// call is one call of a Store.
type call struct {
	name string
	call func(context.Context, store.Store) error
}

func invalidCalls(host, client store.Attachment, node store.Node, ttl time.Duration) []call {
	long := strings.Repeat("x", store.MaxIDLen+1)
	with := func(a store.Attachment, change func(*store.Attachment)) store.Attachment {
		change(&a)
		return a
	}
	claim := func(name string, ttl time.Duration, change func(*store.Attachment)) call {
		return call{"Claim with " + name, func(ctx context.Context, s store.Store) error {
			_, err := s.Claim(ctx, with(host, change), ttl)
			return err
		}}
	}
	ping := func(name string, ttl time.Duration, change func(*store.Attachment)) call {
		return call{"Ping with " + name, func(ctx context.Context, s store.Store) error {
			_, err := s.Ping(ctx, []store.Attachment{host, with(host, change)}, ttl)
			return err
		}}
	}
	put := func(name string, ttl time.Duration, change func(*store.Attachment)) call {
		return call{"PutSockets with " + name, func(ctx context.Context, s store.Store) error {
			return s.PutSockets(ctx, []store.Attachment{client, with(client, change)}, ttl)
		}}
	}
	retire := func(name string, reason store.Reason, change func(*store.Attachment)) call {
		return call{"Retire with " + name, func(ctx context.Context, s store.Store) error {
			return s.Retire(ctx, with(host, change).Ref(), reason)
		}}
	}
	keep := func(name string, lease time.Duration, n store.Node) call {
		return call{"KeepNode with " + name, func(ctx context.Context, s store.Store) error {
			_, err := s.KeepNode(ctx, n, lease)
			return err
		}}
	}
	same := func(*store.Attachment) {}
	noHost := func(a *store.Attachment) { a.HostID = "" }
	noID := func(a *store.Attachment) { a.ID = "" }
	longHost := func(a *store.Attachment) { a.HostID = long }
	longID := func(a *store.Attachment) { a.ID = long }
	bigMeta := func(a *store.Attachment) { a.Meta = make([]byte, store.MaxMetaLen+1) }
	asDial := func(a *store.Attachment) { a.Role = store.RoleDial }
	noGeneration := func(a *store.Attachment) { a.Generation = 0 }

	return []call{
		claim("no host ID", ttl, noHost), claim("no socket ID", ttl, noID),
		claim("a long host ID", ttl, longHost), claim("a long socket ID", ttl, longID),
		claim("a long node ID", ttl, func(a *store.Attachment) { a.NodeID = long }),
		claim("a long incarnation", ttl, func(a *store.Attachment) { a.Incarnation = long }),
		claim("a long instance", ttl, func(a *store.Attachment) { a.Instance = long }),
		claim("a long stream ID", ttl, func(a *store.Attachment) { a.StreamID = long }),
		claim("a seq of 1<<53", ttl, func(a *store.Attachment) { a.Seq = 1 << 53 }),
		claim("a big meta", ttl, bigMeta), claim("another role", ttl, asDial),
		claim("ttl 0", 0, same), claim("a negative ttl", -time.Second, same),

		ping("no host ID", ttl, noHost), ping("no socket ID", ttl, noID),
		ping("a long host ID", ttl, longHost), ping("a big meta", ttl, bigMeta),
		ping("another role", ttl, asDial), ping("generation 0", ttl, noGeneration),
		ping("a generation of 1<<53", ttl, func(a *store.Attachment) { a.Generation = 1 << 53 }),
		ping("ttl 0", 0, same), ping("a negative ttl", -1, same),

		retire("no host ID", store.ReasonStale, noHost), retire("no socket ID", store.ReasonStale, noID),
		retire("a long socket ID", store.ReasonStale, longID), retire("generation 0", store.ReasonStale, noGeneration),
		retire("no reason", "", same),
		{"Detach with no socket ID", func(ctx context.Context, s store.Store) error { return s.Detach(ctx, with(host, noID).Ref()) }},
		{"Detach with generation 0", func(ctx context.Context, s store.Store) error { return s.Detach(ctx, with(host, noGeneration).Ref()) }},

		{"Current with no host ID", func(ctx context.Context, s store.Store) error { _, err := s.Current(ctx, ""); return err }},
		{"Current with a long host ID", func(ctx context.Context, s store.Store) error { _, err := s.Current(ctx, long); return err }},
		{"LastSeen with no host ID", func(ctx context.Context, s store.Store) error {
			_, err := s.LastSeen(ctx, []string{"h", ""})
			return err
		}},

		put("no host ID", ttl, noHost), put("no socket ID", ttl, noID), put("a long socket ID", ttl, longID),
		put("a big meta", ttl, bigMeta), put("ttl 0", 0, same), put("a negative ttl", -1, same),
		put("role host", ttl, func(a *store.Attachment) { a.Role = store.RoleHost }),
		put("no role", ttl, func(a *store.Attachment) { a.Role = "" }),
		{"DropSockets with no socket ID", func(ctx context.Context, s store.Store) error {
			return s.DropSockets(ctx, []store.SocketRef{client.SocketRef(), {HostID: "h"}})
		}},
		{"DropSockets with no host ID", func(ctx context.Context, s store.Store) error {
			return s.DropSockets(ctx, []store.SocketRef{{ID: client.ID}})
		}},
		{"Sockets with no host ID", func(ctx context.Context, s store.Store) error { _, err := s.Sockets(ctx, "", "", 1); return err }},
		{"Sockets with limit 0", func(ctx context.Context, s store.Store) error { _, err := s.Sockets(ctx, "h", "", 0); return err }},
		{"Sockets with a long after", func(ctx context.Context, s store.Store) error { _, err := s.Sockets(ctx, "h", long, 1); return err }},

		keep("no ID", ttl, store.Node{Incarnation: "2"}), keep("no incarnation", ttl, store.Node{ID: "n"}),
		keep("a long ID", ttl, nodeOf(long, "2")), keep("a long incarnation", ttl, nodeOf("n", long)),
		keep("lease 0", 0, nodeOf("n", "2")), keep("a negative lease", -1, nodeOf("n", "2")),
		{"DropNode with no ID", func(ctx context.Context, s store.Store) error { return s.DropNode(ctx, "", node.Incarnation) }},
		{"DropNode with no incarnation", func(ctx context.Context, s store.Store) error { return s.DropNode(ctx, node.ID, "") }},
	}
}
