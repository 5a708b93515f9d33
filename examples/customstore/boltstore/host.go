package boltstore

import (
	"bytes"
	"slices"
	"time"

	"github.com/dialback/dialback/store"
)

// host is all that is remembered of one host: a value of hostBucket. Its methods
// are the rules of the contract; they take the time as an argument and touch
// nothing else.
type host struct {
	// Current is the current attachment until Expires. After that it is only
	// remembered, for its generation and for LastSeen. Nil when retired.
	Current *store.Attachment
	Expires time.Time
	// Previous is the attachment that Current replaced, or, while there is no
	// Current, that Tombstone had replaced.
	Previous *store.Attachment
	// Tombstone is the newest attachment that was retired without a successor.
	// Its LastPing is zero if its row had been lost.
	Tombstone      *store.Attachment
	TombstoneUntil time.Time
	// RetiredIDs are those of the sockets that were retired last, the newest last.
	RetiredIDs []string
}

// standing returns the current attachment, or nil.
func (h *host) standing(now time.Time) *store.Attachment {
	if now.Before(h.Expires) {
		return h.Current
	}
	return nil
}

// tombstone returns the tombstone that stands, or nil.
func (h *host) tombstone(now time.Time) *store.Attachment {
	if now.Before(h.TombstoneUntil) {
		return h.Tombstone
	}
	return nil
}

// forget is when nothing of h is needed any more.
func (h *host) forget() time.Time {
	until := h.TombstoneUntil
	if end := h.Expires.Add(store.TombstoneTTL); h.Current != nil && end.After(until) {
		until = end
	}
	return until
}

// fence returns the highest generation that is remembered, 0 if none is.
func (h *host) fence(now time.Time) uint64 {
	var g uint64
	if h.Current != nil {
		g = h.Current.Generation
	}
	if t := h.tombstone(now); t != nil {
		g = max(g, t.Generation)
	}
	return g
}

// late says whether a, which is not current, may no longer be claimed.
func (h *host) late(a *store.Attachment, now time.Time) bool {
	if slices.Contains(h.RetiredIDs, a.ID) {
		return true
	}
	for _, known := range []*store.Attachment{h.Previous, h.tombstone(now)} {
		if known != nil && known.ID == a.ID {
			return true
		}
	}
	for _, known := range []*store.Attachment{h.standing(now), h.Previous, h.tombstone(now)} {
		if known != nil && a.Instance != "" && known.Instance == a.Instance && known.Seq > a.Seq {
			return true
		}
	}
	return false
}

// succeed puts a in place of what stood, which is retired by that, had it expired
// or not.
func (h *host) succeed(a *store.Attachment, now time.Time) {
	h.Previous = h.standing(now)
	if h.Current != nil && h.Current.ID != a.ID {
		h.remember(h.Current.ID)
	}
	h.Current = a
}

// remember keeps the ID of a socket that is retired now.
func (h *host) remember(id string) {
	h.RetiredIDs = append(h.RetiredIDs, id)
	h.RetiredIDs = h.RetiredIDs[max(0, len(h.RetiredIDs)-store.RetiredKept):]
}

func (h *host) claim(a *store.Attachment, ttl time.Duration, now time.Time) (store.Claimed, error) {
	current := h.standing(now)
	if current == nil || current.ID != a.ID {
		if h.late(a, now) {
			return store.Claimed{}, store.ErrRetired
		}
		a.Generation = max(uint64(max(now.UnixMicro(), 0)), h.fence(now)+1) // the clock may be before 1970
		a.LastPing = now
		h.succeed(a, now)
	}
	h.Expires = now.Add(ttl)

	c := store.Claimed{Current: own(h.Current)}
	if h.Previous != nil {
		c.Previous = own(h.Previous)
		c.Previous.Retired, c.Previous.RetiredReason = true, store.ReasonReplaced
	}
	return c, nil
}

func (h *host) ping(a *store.Attachment, ttl time.Duration, now time.Time) (current bool) {
	row, t := h.standing(now), h.tombstone(now)
	switch {
	case row != nil && row.Generation == a.Generation:
		if row.ID != a.ID {
			return false
		}
		row.LastPing = now
	case h.fence(now) > a.Generation, t != nil && t.Generation == a.Generation:
		return false
	default: // the row is lost
		a.LastPing = now
		if c := h.Current; c != nil && c.Ref() == a.Ref() {
			h.Current = a // and its previous one stays
		} else {
			h.succeed(a, now)
		}
	}
	h.Expires = now.Add(ttl)
	return true
}

// retire says whether it changed anything.
func (h *host) retire(ref store.Ref, reason store.Reason, now time.Time) bool {
	row, t := h.standing(now), h.tombstone(now)
	switch {
	case h.fence(now) > ref.Generation: // a successor, which is not touched
		return false
	case t != nil && t.Generation == ref.Generation: // retired before
		return false
	case row != nil && row.Generation == ref.Generation && row.ID != ref.ID: // another socket's
		return false
	}
	dead := &store.Attachment{ID: ref.ID, HostID: ref.HostID, Generation: ref.Generation}
	if c := h.Current; c != nil && c.Ref() == ref {
		dead.Instance, dead.Seq, dead.LastPing = c.Instance, c.Seq, c.LastPing
	} else {
		h.Previous = row // of an older generation: ref had replaced it
		if c != nil && c.ID != ref.ID {
			h.remember(c.ID)
		}
	}
	h.remember(ref.ID)
	dead.Retired, dead.RetiredReason = true, reason
	h.Tombstone, h.TombstoneUntil = dead, now.Add(store.TombstoneTTL)
	h.Current = nil
	return true
}

// seen is what LastSeen says of a host that is not forgotten.
func (h *host) seen(now time.Time) store.Seen {
	if a := h.standing(now); a != nil {
		return store.Seen{
			LastPing: a.LastPing, Attached: true,
			NodeID: a.NodeID, Incarnation: a.Incarnation, Generation: a.Generation,
		}
	}
	if t := h.tombstone(now); t != nil && t.Generation == h.fence(now) {
		return store.Seen{
			LastPing: t.LastPing, Generation: t.Generation, Reason: t.RetiredReason,
			LeftFor: max(store.TombstoneTTL-h.TombstoneUntil.Sub(now), 0), // the clock may have gone back
		}
	}
	a := h.Current // expired
	return store.Seen{LastPing: a.LastPing, Generation: a.Generation}
}

// own returns a copy that shares nothing with a.
func own(a *store.Attachment) store.Attachment {
	c := *a
	c.Meta = bytes.Clone(a.Meta)
	return c
}

// row returns a as it is stored: a copy, without what only the Store sets.
func row(a *store.Attachment) *store.Attachment {
	c := own(a)
	c.LastPing, c.Retired, c.RetiredReason = time.Time{}, false, ""
	c.ConnectedAt = c.ConnectedAt.UTC() // gob refuses some locations
	return &c
}
