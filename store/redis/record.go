package redis

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dialback/dialback/store"
)

// errReply is a reply that none of the scripts gives: other data than this
// package's under the same keys.
var errReply = errors.New("reply not understood")

// fields lists what the Store keeps of a as it was given, as names and values.
// What is empty is left out.
func fields(a *store.Attachment) []string {
	kv := make([]string, 0, 20)
	add := func(name, value string) {
		if value != "" {
			kv = append(kv, name, value)
		}
	}
	add("id", a.ID)
	add("node", a.NodeID)
	add("inc", a.Incarnation)
	add("inst", a.Instance)
	add("stream", a.StreamID)
	add("meta", string(a.Meta))
	add("at", formatTime(a.ConnectedAt))
	if a.Seq != 0 {
		add("seq", strconv.FormatUint(a.Seq, 10))
	}
	if a.Proto != 0 {
		add("proto", strconv.Itoa(a.Proto))
	}
	if a.Role != store.RoleHost {
		add("role", string(a.Role))
	}
	return kv
}

// parseFields is the reverse of fields. It passes over names that it does not
// know, so that older nodes read what newer ones write.
func parseFields(hostID string, kv []string) (store.Attachment, error) {
	a := store.Attachment{HostID: hostID, Role: store.RoleHost}
	var p parser
	for i := 0; i+1 < len(kv); i += 2 {
		switch name, value := kv[i], kv[i+1]; name {
		case "id":
			a.ID = value
		case "node":
			a.NodeID = value
		case "inc":
			a.Incarnation = value
		case "inst":
			a.Instance = value
		case "stream":
			a.StreamID = value
		case "meta":
			a.Meta = []byte(value)
		case "role":
			a.Role = store.Role(value)
		case "at":
			a.ConnectedAt = p.time(value)
		case "ping":
			a.LastPing = p.time(value)
		case "seq":
			a.Seq = p.uint(value)
		case "gen":
			a.Generation = p.uint(value)
		case "proto":
			a.Proto = p.int(value)
		}
	}
	return a, p.err
}

// formatTime writes t in microseconds since 1970; the zero Time is empty.
func formatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return strconv.FormatInt(t.UnixMicro(), 10)
}

// parser reads numbers and keeps the first error.
type parser struct{ err error }

func (p *parser) uint(s string) uint64 {
	n, err := strconv.ParseUint(s, 10, 64)
	p.fail(err)
	return n
}

func (p *parser) int(s string) int {
	n, err := strconv.Atoi(s)
	p.fail(err)
	return n
}

// time is the reverse of formatTime.
func (p *parser) time(s string) time.Time {
	if s == "" {
		return time.Time{}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	p.fail(err)
	return time.UnixMicro(n).UTC()
}

func (p *parser) fail(err error) {
	if p.err == nil && err != nil {
		p.err = fmt.Errorf("%w: %v", errReply, err)
	}
}

// pack joins strings of any bytes into one: each as its length, a colon and
// itself. It is for records that are the value of one field.
func pack(ss []string) string {
	var b strings.Builder
	for _, s := range ss {
		b.WriteString(strconv.Itoa(len(s)))
		b.WriteByte(':')
		b.WriteString(s)
	}
	return b.String()
}

// unpack is the reverse of pack.
func unpack(packed string) ([]string, error) {
	var ss []string
	for packed != "" {
		size, rest, ok := strings.Cut(packed, ":")
		n, err := strconv.Atoi(size)
		if !ok || err != nil || n < 0 || n > len(rest) {
			return nil, fmt.Errorf("%w: a record is damaged", errReply)
		}
		ss = append(ss, rest[:n])
		packed = rest[n:]
	}
	return ss, nil
}

// stringsOf takes a reply as a list of strings.
func stringsOf(reply any) ([]string, error) {
	list, ok := reply.([]any)
	if !ok {
		return nil, fmt.Errorf("%w: %T, want a list", errReply, reply)
	}
	ss := make([]string, len(list))
	for i, v := range list {
		if ss[i], ok = v.(string); !ok {
			return nil, fmt.Errorf("%w: a list with %T, want strings", errReply, v)
		}
	}
	return ss, nil
}

func anys(ss []string) []any {
	as := make([]any, len(ss))
	for i, s := range ss {
		as[i] = s
	}
	return as
}
