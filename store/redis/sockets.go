package redis

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dialback/dialback/store"
)

// maxRecords is how many records one script writes, removes or reads, so that
// it holds the server up for no longer than a millisecond.
const maxRecords = 200

// PutSockets implements store.Sockets. It is one script for each host, or for
// each 200 records of a host.
func (s *Store) PutSockets(ctx context.Context, as []store.Attachment, ttl time.Duration) error {
	if err := store.CheckPutSockets(as, ttl); err != nil {
		return err
	}
	if err := s.ready(ctx); err != nil {
		return err
	}
	hosts := newGroups()
	for i := range as {
		hosts.add(as[i].HostID, as[i].ID, pack(fields(&as[i])))
	}
	return s.doGroups(ctx, "put sockets", putScript, hosts, 2*maxRecords, millis(ttl))
}

// DropSockets implements store.Sockets. It is one script for each host, or for
// each 200 records of a host.
func (s *Store) DropSockets(ctx context.Context, refs []store.SocketRef) error {
	if err := store.CheckDropSockets(refs); err != nil {
		return err
	}
	if err := s.ready(ctx); err != nil {
		return err
	}
	hosts := newGroups()
	for _, ref := range refs {
		hosts.add(ref.HostID, ref.ID)
	}
	return s.doGroups(ctx, "drop sockets", dropScript, hosts, maxRecords)
}

// Sockets implements store.Sockets. It reads the IDs of all the host's records
// and then the records of the page; what is dropped between is left out.
func (s *Store) Sockets(ctx context.Context, hostID, after string, limit int) ([]store.Attachment, error) {
	if err := store.CheckSockets(hostID, after, limit); err != nil {
		return nil, err
	}
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	keys := s.keys.sockets(hostID)
	replies, err := s.do(ctx, "sockets", command{listScript, keys[1:], nil})
	if err != nil {
		return nil, err
	}
	ids, err := stringsOf(replies[0])
	if err != nil {
		return nil, fmt.Errorf("redis: sockets: %w", err)
	}
	ids = slices.DeleteFunc(ids, func(id string) bool { return id <= after })
	slices.Sort(ids)

	var as []store.Attachment
	for len(ids) > 0 && len(as) < limit {
		n := min(len(ids), limit-len(as), maxRecords)
		replies, err := s.do(ctx, "sockets", command{recordsScript, keys[:1], anys(ids[:n])})
		if err != nil {
			return nil, err
		}
		if as, err = appendRecords(as, hostID, replies[0]); err != nil {
			return nil, fmt.Errorf("redis: sockets: %w", err)
		}
		ids = ids[n:]
	}
	return as, nil
}

// appendRecords reads what put wrote: the time in microseconds, a space and the
// packed fields. Records that are gone are nil.
func appendRecords(as []store.Attachment, hostID string, reply any) ([]store.Attachment, error) {
	records, ok := reply.([]any)
	if !ok {
		return nil, errReply
	}
	for _, r := range records {
		record, ok := r.(string)
		if !ok {
			continue
		}
		ping, packed, _ := strings.Cut(record, " ")
		kv, err := unpack(packed)
		if err != nil {
			return nil, err
		}
		a, err := parseFields(hostID, append(kv, "ping", ping))
		if err != nil {
			return nil, err
		}
		as = append(as, a)
	}
	return as, nil
}

// groups collects arguments by host, in the order in which they came.
type groups struct {
	hosts []string
	args  map[string][]any
}

func newGroups() *groups { return &groups{args: make(map[string][]any)} }

func (g *groups) add(hostID string, args ...any) {
	if g.args[hostID] == nil {
		g.hosts = append(g.hosts, hostID)
	}
	g.args[hostID] = append(g.args[hostID], args...)
}

// doGroups runs a script for each host with first and the host's arguments,
// size of them at a time.
func (s *Store) doGroups(ctx context.Context, what string, sc script, hosts *groups, size int, first ...any) error {
	var commands []command
	for _, id := range hosts.hosts {
		for args := range slices.Chunk(hosts.args[id], size) {
			commands = append(commands, command{sc, s.keys.sockets(id), append(slices.Clip(first), args...)})
		}
	}
	for batch := range slices.Chunk(commands, maxBatch) {
		if _, err := s.do(ctx, what, batch...); err != nil {
			return err
		}
	}
	return nil
}
