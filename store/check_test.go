package store_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dialback/dialback/store"
)

func TestCheck_Limits(t *testing.T) {
	longest := strings.Repeat("x", store.MaxIDLen)
	host := func(change func(*store.Attachment)) store.Attachment {
		a := store.Attachment{ID: "s", HostID: "h", Role: store.RoleHost, Generation: 1}
		change(&a)
		return a
	}
	claim := func(change func(*store.Attachment)) error { return store.CheckClaim(host(change), time.Second) }
	ping := func(change func(*store.Attachment)) error {
		return store.CheckPing([]store.Attachment{host(change)}, time.Second)
	}
	same := func(*store.Attachment) {}
	tests := []struct {
		name string
		err  error
		ok   bool
		why  string
	}{
		{"bare attachment", claim(same), true, "only the IDs of host and socket are required"},
		{"longest host ID", claim(func(a *store.Attachment) { a.HostID = longest }), true, "256 bytes are allowed"},
		{"longer host ID", claim(func(a *store.Attachment) { a.HostID = longest + "x" }), false, "257 are not"},
		{"bytes, not letters", claim(func(a *store.Attachment) { a.ID = strings.Repeat("é", 129) }), false, "258 bytes"},
		{"largest meta", claim(func(a *store.Attachment) { a.Meta = make([]byte, 1024) }), true, "1 KiB is allowed"},
		{"larger meta", claim(func(a *store.Attachment) { a.Meta = make([]byte, 1025) }), false, "more is not"},
		{"largest seq", claim(func(a *store.Attachment) { a.Seq = 1<<53 - 1 }), true, "a double holds it"},
		{"larger seq", claim(func(a *store.Attachment) { a.Seq = 1 << 53 }), false, "its successor is not told apart"},
		{"no generation to claim", claim(func(a *store.Attachment) { a.Generation = 0 }), true, "the Store gives it"},
		{"no generation to ping", ping(func(a *store.Attachment) { a.Generation = 0 }), false, "it was never claimed"},
		{"largest generation", ping(func(a *store.Attachment) { a.Generation = store.MaxGeneration }), true, "a double holds it"},
		{"shortest ttl", store.CheckClaim(host(same), 1), true, "it is rounded up"},
		{"no ttl", store.CheckClaim(host(same), 0), false, "it would be for ever, or never"},
		{"no ttl for nothing", store.CheckPing(nil, 0), false, "the ttl is checked also without attachments"},
		{"nothing", store.CheckPing(nil, 1), true, "an empty batch is no mistake"},
		{"no after", store.CheckSockets("h", "", 1), true, "the first page"},
		{"no role", store.CheckPutSockets([]store.Attachment{host(func(a *store.Attachment) { a.Role = "" })}, 1), false, "client or dial"},
		{"any reason", store.CheckRetire(host(same).Ref(), "operator"), true, "an embedder may have its own"},
	}
	for _, tt := range tests {
		if (tt.err == nil) != tt.ok || tt.err != nil && !errors.Is(tt.err, store.ErrInvalid) {
			t.Errorf("%s: %v, want ok %v: %s", tt.name, tt.err, tt.ok, tt.why)
		}
	}
}

func TestAttachment_Refs(t *testing.T) {
	a := store.Attachment{ID: "s", HostID: "h", Generation: 7, NodeID: "n"}
	if got, want := a.Ref(), (store.Ref{HostID: "h", ID: "s", Generation: 7}); got != want {
		t.Errorf("Ref = %+v, want %+v", got, want)
	}
	if got, want := a.SocketRef(), (store.SocketRef{HostID: "h", ID: "s"}); got != want {
		t.Errorf("SocketRef = %+v, want %+v", got, want)
	}
}
