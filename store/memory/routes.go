package memory

import (
	"context"
	"time"

	"github.com/dialback/dialback/store"
)

// Claim implements store.Routes.
func (s *Store) Claim(ctx context.Context, a store.Attachment, ttl time.Duration) (store.Claimed, error) {
	if err := store.CheckClaim(a, ttl); err != nil {
		return store.Claimed{}, err
	}
	if err := s.lock(ctx); err != nil {
		return store.Claimed{}, err
	}
	defer s.mu.Unlock()
	now := s.now()
	s.sweepLocked(now, sweepPerWrite)
	return s.hostLocked(a.HostID, now).claim(&a, ttl, now)
}

// Current implements store.Routes.
func (s *Store) Current(ctx context.Context, hostID string) (store.Attachment, error) {
	if err := store.CheckCurrent(hostID); err != nil {
		return store.Attachment{}, err
	}
	if err := s.lock(ctx); err != nil {
		return store.Attachment{}, err
	}
	defer s.mu.Unlock()
	if h := s.hosts[hostID]; h != nil {
		if r := h.standing(s.now()); r != nil {
			return h.attachment(r), nil
		}
	}
	return store.Attachment{}, store.ErrNotFound
}

// Ping implements store.Routes. The whole batch is one change.
func (s *Store) Ping(ctx context.Context, as []store.Attachment, ttl time.Duration) ([]bool, error) {
	if err := store.CheckPing(as, ttl); err != nil {
		return nil, err
	}
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	now := s.now()
	s.sweepLocked(now, sweepPerWrite)
	current := make([]bool, len(as))
	for i := range as {
		current[i] = s.hostLocked(as[i].HostID, now).ping(&as[i], ttl, now)
	}
	return current, nil
}

// Retire implements store.Routes.
func (s *Store) Retire(ctx context.Context, ref store.Ref, reason store.Reason) error {
	if err := store.CheckRetire(ref, reason); err != nil {
		return err
	}
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	now := s.now()
	s.sweepLocked(now, sweepPerWrite)
	s.hostLocked(ref.HostID, now).retire(ref, reason, now)
	return nil
}

// Detach implements store.Routes.
func (s *Store) Detach(ctx context.Context, ref store.Ref) error {
	return s.Retire(ctx, ref, store.ReasonGone)
}

// LastSeen implements store.Routes.
func (s *Store) LastSeen(ctx context.Context, hostIDs []string) (map[string]store.Seen, error) {
	if err := store.CheckLastSeen(hostIDs); err != nil {
		return nil, err
	}
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	now := s.now()
	seen := make(map[string]store.Seen, len(hostIDs))
	for _, id := range hostIDs {
		if h := s.hosts[id]; h != nil && !h.empty(now) {
			seen[id] = h.seen(now)
		}
	}
	return seen, nil
}

// hostLocked returns the host of that ID, a new one if none is remembered. The
// caller writes to it: each of claim, ping and retire leaves something that
// stands in a new host, so that none is left empty for longer than the lock.
func (s *Store) hostLocked(id string, now moment) *host {
	h := s.hosts[id]
	if h != nil && !h.empty(now) {
		return h
	}
	if h != nil {
		s.dropHostLocked(h)
	}
	h = &host{id: id}
	s.hosts[id] = h
	s.hostRing.add(h)
	return h
}

func (s *Store) dropHostLocked(h *host) {
	delete(s.hosts, h.id)
	s.hostRing.remove(h)
}
