package redis_test

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/dialback/dialback/store"
	"github.com/dialback/dialback/store/redis"
)

// replyOf makes a reply, as a Redis client gives it, of any bytes: a list of
// things of which each begins with a byte that says what it is.
func replyOf(b []byte, depth int) (reply []any, rest []byte) {
	for len(b) > 0 {
		kind, n := b[0]%5, 0
		if b = b[1:]; len(b) > 0 {
			n = min(int(b[0]), len(b)-1)
			b = b[1:]
		}
		switch kind {
		case 0:
			reply = append(reply, nil)
		case 1:
			reply = append(reply, int64(n))
		case 2:
			reply = append(reply, string(b[:n]))
			b = b[n:]
		case 3:
			if depth < 4 {
				var list []any
				list, b = replyOf(b, depth+1)
				reply = append(reply, list)
			}
		case 4:
			return reply, b // the end of a list
		}
	}
	return reply, nil
}

func entry(s string) string { return "\x02" + string(rune(len(s))) + s }

// FuzzReplies: whatever is in the server under this package's keys, a reply is
// understood or is an error, which is not one of the contract's.
func FuzzReplies(f *testing.F) {
	row := entry("id") + entry("s1") + entry("gen") + entry("17") + entry("at") + entry("1764451200000001")
	f.Add([]byte(row))
	f.Add([]byte("\x03\x00" + row + "\x04\x00\x03\x00" + row))
	f.Add([]byte(entry("1764451200000001 2:id2:s1")))
	f.Add([]byte(entry("gen") + entry("99999999999999999999")))
	f.Add([]byte("\x00\x00\x01\x05"))
	f.Fuzz(func(t *testing.T, b []byte) {
		list, _ := replyOf(b, 0)
		replies := []any{list, list == nil}
		if len(list) == 1 {
			replies = append(replies, list[0])
		}
		for _, reply := range replies {
			for i, err := range redis.Parse(reply) {
				if err != nil && !errors.Is(err, redis.ErrReply) && !(i == 0 && errors.Is(err, store.ErrRetired)) {
					t.Errorf("%#v read as reply %d: %v", reply, i, err)
				}
			}
		}
	})
}

// FuzzFields: a record comes back as it was given, whatever its strings are.
func FuzzFields(f *testing.F) {
	f.Add("id", "node", "inst", "meta", uint64(3), int64(1764451200000001), 3)
	f.Add("", "gen", "\x00", "a b", uint64(1<<53-1), int64(-1), 0)
	f.Fuzz(func(t *testing.T, id, node, instance, meta string, seq uint64, at int64, proto int) {
		a := store.Attachment{ID: id, HostID: "h", NodeID: node, Incarnation: node, Role: store.RoleHost, Instance: instance, Seq: seq, Proto: proto, ConnectedAt: time.UnixMicro(at).UTC(), StreamID: id}
		if meta != "" {
			a.Meta = []byte(meta)
		}
		got, err := redis.ParseFields("h", redis.Fields(&a))
		if err != nil || !reflect.DeepEqual(got, a) {
			t.Errorf("%+v came back as %+v, %v", a, got, err)
		}
	})
}
