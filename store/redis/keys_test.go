package redis_test

import (
	"strings"
	"testing"

	"github.com/dialback/dialback/store/redis"
)

func TestKeys_OneTagPerID(t *testing.T) {
	tests := []struct {
		id, tag, why string
	}{
		{"laptop", "laptop", "plain IDs are readable in redis-cli"},
		{"a:b/c d", "a:b/c d", "only braces and percent signs matter"},
		{"{", "%7B", "a brace in a tag would move where it begins"},
		{"}", "%7D", "a brace in a tag would end it, here as an empty one"},
		{"a}b{c", "a%7Db%7Bc", "braces anywhere"},
		{"%7B", "%257B", "what looks escaped is not the same ID"},
		{"\x00\xff", "\x00\xff", "any bytes"},
	}
	for _, prefix := range []string{"dialback:", "{mine}:", "{", "}{"} {
		s := redis.New(nil, &redis.Options{Prefix: prefix})
		for _, tt := range tests {
			host, node := s.KeysOf(tt.id, tt.id)
			for _, key := range append(host, node...) {
				if got := hashTag(key); got != tt.tag {
					t.Errorf("prefix %q: key %q has the tag %q, want %q: %s", prefix, key, got, tt.tag, tt.why)
				}
			}
		}
	}
}

// hashTag returns what a Cluster hashes of a key.
func hashTag(key string) string {
	_, rest, ok := strings.Cut(key, "{")
	tag, _, closed := strings.Cut(rest, "}")
	if !ok || !closed || tag == "" {
		return key
	}
	return tag
}

func FuzzEscape(f *testing.F) {
	f.Add("{", "%7B")
	f.Add("%", "%25")
	f.Add("a}", "a")
	f.Fuzz(func(t *testing.T, a, b string) {
		ea, eb := redis.Escape(a), redis.Escape(b)
		if (a == b) != (ea == eb) {
			t.Errorf("%q and %q escape to %q and %q; different IDs never collide", a, b, ea, eb)
		}
		if strings.ContainsAny(ea, "{}") {
			t.Errorf("%q escapes to %q, which has a brace", a, ea)
		}
	})
}

func FuzzPack(f *testing.F) {
	f.Add("id", "a:b")
	f.Add("", "12:")
	f.Fuzz(func(t *testing.T, a, b string) {
		got, err := redis.Unpack(redis.Pack([]string{a, b}))
		if err != nil || len(got) != 2 || got[0] != a || got[1] != b {
			t.Errorf("%q, %q came back as %q, %v", a, b, got, err)
		}
		_, _ = redis.Unpack(a) // an error or not, but no panic
	})
}
