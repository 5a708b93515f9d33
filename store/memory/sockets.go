package memory

import (
	"bytes"
	"context"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/dialback/dialback/store"
)

// socketList is the records of one host's client and dial sockets.
type socketList struct {
	hostID string
	slot   int       // in the ring
	items  []*socket // ordered by ID
	first  int64     // no item expires earlier
}

type socket struct {
	att     store.Attachment
	expires int64
}

func (l *socketList) place() *int { return &l.slot }

// PutSockets implements store.Sockets.
func (s *Store) PutSockets(ctx context.Context, as []store.Attachment, ttl time.Duration) error {
	if err := store.CheckPutSockets(as, ttl); err != nil {
		return err
	}
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	now := s.now()
	s.sweepLocked(now, sweepPerWrite+len(as))
	for i := range as {
		l := s.sockets[as[i].HostID]
		if l == nil {
			l = &socketList{hostID: as[i].HostID, first: math.MaxInt64}
			s.sockets[l.hostID] = l
			s.listRing.add(l)
		}
		l.put(as[i], add(now.mono, ttl), now)
	}
	return nil
}

// DropSockets implements store.Sockets.
func (s *Store) DropSockets(ctx context.Context, refs []store.SocketRef) error {
	if err := store.CheckDropSockets(refs); err != nil {
		return err
	}
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	for _, ref := range refs {
		l := s.sockets[ref.HostID]
		if l == nil {
			continue
		}
		if i, found := l.find(ref.ID); found {
			l.items = slices.Delete(l.items, i, i+1)
		}
		if len(l.items) == 0 {
			s.dropListLocked(l)
		}
	}
	s.sweepLocked(s.now(), sweepPerWrite)
	return nil
}

// Sockets implements store.Sockets.
func (s *Store) Sockets(ctx context.Context, hostID, after string, limit int) ([]store.Attachment, error) {
	if err := store.CheckSockets(hostID, after, limit); err != nil {
		return nil, err
	}
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	l := s.sockets[hostID]
	if l == nil {
		return nil, nil
	}
	if l.expire(s.now()) {
		s.dropListLocked(l)
		return nil, nil
	}
	i, found := l.find(after)
	if found {
		i++
	}
	items := l.items[i:]
	items = items[:min(limit, len(items))]
	as := make([]store.Attachment, len(items))
	for i, it := range items {
		as[i] = it.att
		as[i].Meta = bytes.Clone(it.att.Meta)
	}
	return as, nil
}

func (s *Store) dropListLocked(l *socketList) {
	delete(s.sockets, l.hostID)
	s.listRing.remove(l)
}

// put takes a, whose Meta it copies, in place of the record of that ID.
func (l *socketList) put(a store.Attachment, expires int64, now moment) {
	l.expire(now)
	a.Meta = bytes.Clone(a.Meta)
	a.ConnectedAt = instant(a.ConnectedAt.UnixMicro())
	a.LastPing = instant(now.wall)
	it := &socket{att: a, expires: expires}
	if i, found := l.find(a.ID); found {
		l.items[i] = it
	} else {
		l.items = slices.Insert(l.items, i, it)
	}
	l.first = min(l.first, expires)
}

// find returns the place of id, or where it would be.
func (l *socketList) find(id string) (int, bool) {
	return slices.BinarySearchFunc(l.items, id, func(it *socket, id string) int {
		return strings.Compare(it.att.ID, id)
	})
}

// expire drops the records whose time has come and reports whether none is
// left.
func (l *socketList) expire(now moment) bool {
	if now.mono >= l.first {
		l.items = slices.DeleteFunc(l.items, func(it *socket) bool { return now.mono >= it.expires })
		l.first = math.MaxInt64
		for _, it := range l.items {
			l.first = min(l.first, it.expires)
		}
	}
	return len(l.items) == 0
}
