package boltstore

import (
	"context"
	"slices"
	"time"

	"go.etcd.io/bbolt"

	"github.com/dialback/dialback/store"
)

// loadHost returns what is remembered of a host: nothing yet, if it is new.
func loadHost(tx *bbolt.Tx, hostID string, now time.Time) (h *host, known bool, err error) {
	h = new(host)
	known, err = get(tx, hostBucket, []byte(hostID), now, h)
	return h, known, err
}

func (h *host) save(tx *bbolt.Tx, hostID string) error {
	return put(tx, hostBucket, []byte(hostID), h.forget(), h)
}

// Claim implements store.Routes.
func (s *Store) Claim(ctx context.Context, a store.Attachment, ttl time.Duration) (store.Claimed, error) {
	if err := store.CheckClaim(a, ttl); err != nil {
		return store.Claimed{}, err
	}
	attachment := row(&a)
	return update(ctx, s, func(tx *bbolt.Tx) (store.Claimed, error) {
		now := time.Now()
		h, _, err := loadHost(tx, attachment.HostID, now)
		if err != nil {
			return store.Claimed{}, err
		}
		c, err := h.claim(attachment, ttl, now)
		if err != nil {
			return store.Claimed{}, err
		}
		return c, h.save(tx, attachment.HostID)
	})
}

// Current implements store.Routes.
func (s *Store) Current(ctx context.Context, hostID string) (store.Attachment, error) {
	if err := store.CheckCurrent(hostID); err != nil {
		return store.Attachment{}, err
	}
	return view(ctx, s, func(tx *bbolt.Tx) (store.Attachment, error) {
		now := time.Now()
		h, _, err := loadHost(tx, hostID, now)
		if err != nil {
			return store.Attachment{}, err
		}
		a := h.standing(now)
		if a == nil {
			return store.Attachment{}, store.ErrNotFound
		}
		return *a, nil
	})
}

// Ping implements store.Routes. The whole batch is one transaction.
func (s *Store) Ping(ctx context.Context, as []store.Attachment, ttl time.Duration) ([]bool, error) {
	if err := store.CheckPing(as, ttl); err != nil {
		return nil, err
	}
	rows := make([]*store.Attachment, len(as))
	for i := range as {
		rows[i] = row(&as[i])
	}
	return update(ctx, s, func(tx *bbolt.Tx) ([]bool, error) {
		now := time.Now()
		current := make([]bool, len(rows))
		for i, a := range rows {
			h, _, err := loadHost(tx, a.HostID, now)
			if err != nil {
				return nil, err
			}
			if !h.ping(a, ttl, now) {
				continue
			}
			current[i] = true
			if err := h.save(tx, a.HostID); err != nil {
				return nil, err
			}
		}
		return current, nil
	})
}

// Retire implements store.Routes.
func (s *Store) Retire(ctx context.Context, ref store.Ref, reason store.Reason) error {
	if err := store.CheckRetire(ref, reason); err != nil {
		return err
	}
	_, err := update(ctx, s, func(tx *bbolt.Tx) (struct{}, error) {
		now := time.Now()
		h, _, err := loadHost(tx, ref.HostID, now)
		if err == nil && h.retire(ref, reason, now) {
			err = h.save(tx, ref.HostID)
		}
		return struct{}{}, err
	})
	return err
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
	ids := slices.Clone(hostIDs)
	return view(ctx, s, func(tx *bbolt.Tx) (map[string]store.Seen, error) {
		now := time.Now()
		seen := make(map[string]store.Seen, len(ids))
		for _, id := range ids {
			h, known, err := loadHost(tx, id, now)
			if err != nil {
				return nil, err
			}
			if known {
				seen[id] = h.seen(now)
			}
		}
		return seen, nil
	})
}
