package memory

import (
	"slices"
	"time"

	"github.com/dialback/dialback/store"
)

// host is all that is remembered of one host. Its methods are the rules of
// fencing; they take the time as an argument and touch nothing else.
type host struct {
	id   string
	slot int // in the ring

	// cur is the current attachment until expires; from then on it is only
	// remembered, as the highest generation and for LastSeen. nil when retired.
	cur     *record
	expires int64
	// prev is the attachment that cur replaced, or that the tombstone's had
	// replaced while there is no cur.
	prev *record
	// tomb is the newest attachment that was retired with no successor.
	tomb *tombstone
	// retired are the IDs of the sockets that were retired last, the newest last.
	retired []string
}

// record is an attachment of role host, without what host knows.
type record struct {
	id, nodeID, incarnation string
	instance, meta          string
	seq, generation         uint64
	connectedAt, lastPing   int64 // microseconds
	proto                   int
}

type tombstone struct {
	id, instance    string
	seq, generation uint64
	lastPing        int64 // microseconds; noTime if not known
	until           int64
	reason          store.Reason
}

func (h *host) place() *int { return &h.slot }

// standing returns the current attachment, or nil.
func (h *host) standing(now moment) *record {
	if h.cur == nil || now.mono >= h.expires {
		return nil
	}
	return h.cur
}

// tombstone returns the tombstone that stands, or nil.
func (h *host) tombstone(now moment) *tombstone {
	if h.tomb == nil || now.mono >= h.tomb.until {
		return nil
	}
	return h.tomb
}

// empty reports whether all of h may be forgotten.
func (h *host) empty(now moment) bool {
	return h.tombstone(now) == nil &&
		(h.cur == nil || now.mono >= add(h.expires, store.TombstoneTTL))
}

// fence returns the highest generation that is remembered, 0 if none is.
func (h *host) fence(now moment) uint64 {
	var g uint64
	if h.cur != nil {
		g = h.cur.generation
	}
	if t := h.tombstone(now); t != nil {
		g = max(g, t.generation)
	}
	return g
}

// late reports whether a socket that is not the current one may no longer be
// claimed.
func (h *host) late(a *store.Attachment, now moment) bool {
	if slices.Contains(h.retired, a.ID) {
		return true
	}
	superseded := func(id, instance string, seq uint64) bool {
		return id == a.ID || guardSeq && a.Instance != "" && instance == a.Instance && seq > a.Seq
	}
	if r := h.standing(now); r != nil && superseded(r.id, r.instance, r.seq) {
		return true
	}
	if r := h.prev; r != nil && superseded(r.id, r.instance, r.seq) {
		return true
	}
	t := h.tombstone(now)
	return t != nil && superseded(t.id, t.instance, t.seq)
}

// succeed puts r in place of what stood, which is retired by that, had it expired
// or not.
func (h *host) succeed(r *record, now moment) {
	h.prev = h.standing(now)
	if h.cur != nil && h.cur.id != r.id {
		h.remember(h.cur.id)
	}
	h.cur = r
}

// remember keeps the ID of a socket that is retired now.
func (h *host) remember(id string) {
	if len(h.retired) >= store.RetiredKept {
		h.retired = slices.Delete(h.retired, 0, len(h.retired)-store.RetiredKept+1)
	}
	h.retired = append(h.retired, id)
}

func (h *host) claim(a *store.Attachment, ttl time.Duration, now moment) (store.Claimed, error) {
	cur := h.standing(now)
	if cur == nil || cur.id != a.ID {
		if h.late(a, now) {
			return store.Claimed{}, store.ErrRetired
		}
		generation := max(uint64(max(now.wall, 0)), h.fence(now)+1) // the clock may be before 1970
		h.succeed(newRecord(a, generation, now), now)
	}
	h.expires = add(now.mono, ttl)

	c := store.Claimed{Current: h.attachment(h.cur)}
	if h.prev != nil {
		c.Previous = h.attachment(h.prev)
		c.Previous.Retired = true
		c.Previous.RetiredReason = store.ReasonReplaced
	}
	return c, nil
}

func (h *host) ping(a *store.Attachment, ttl time.Duration, now moment) bool {
	cur := h.standing(now)
	switch {
	case cur != nil && cur.generation == a.Generation:
		if cur.id != a.ID {
			return false
		}
		cur.lastPing = now.wall
	case h.fence(now) > a.Generation:
		return false
	case guardTombstone && h.tombstone(now) != nil && h.tomb.generation == a.Generation:
		return false
	default: // the row is lost: it has expired, or it is an older one
		r := newRecord(a, a.Generation, now)
		if h.cur != nil && h.cur.id == a.ID && h.cur.generation == a.Generation {
			h.cur = r // and its previous one stays
		} else {
			h.succeed(r, now)
		}
	}
	h.expires = add(now.mono, ttl)
	return true
}

func (h *host) retire(ref store.Ref, reason store.Reason, now moment) {
	if guardCompareAndDelete && h.fence(now) > ref.Generation {
		return // a successor, which is not touched
	}
	if t := h.tombstone(now); t != nil && t.generation == ref.Generation {
		return // retired before
	}
	t := &tombstone{
		id:         ref.ID,
		generation: ref.Generation,
		lastPing:   noTime,
		until:      add(now.mono, store.TombstoneTTL),
		reason:     reason,
	}
	if r := h.cur; r != nil && r.id == ref.ID && r.generation == ref.Generation {
		t.instance, t.seq, t.lastPing = r.instance, r.seq, r.lastPing
	} else {
		cur := h.standing(now)
		if cur != nil && cur.generation == ref.Generation {
			return // another socket's
		}
		h.prev = cur // of an older generation: ref had replaced it
		if h.cur != nil && h.cur.id != ref.ID {
			h.remember(h.cur.id)
		}
	}
	h.remember(ref.ID)
	h.tomb = t
	h.cur = nil
}

// seen returns what LastSeen says. h must not be empty.
func (h *host) seen(now moment) store.Seen {
	if r := h.standing(now); r != nil {
		return store.Seen{
			LastPing:    instant(r.lastPing),
			Attached:    true,
			NodeID:      r.nodeID,
			Incarnation: r.incarnation,
			Generation:  r.generation,
		}
	}
	if t := h.tombstone(now); t != nil && t.generation == h.fence(now) {
		return store.Seen{
			LastPing:   instant(t.lastPing),
			Generation: t.generation,
			Reason:     t.reason,
			LeftFor:    store.TombstoneTTL - time.Duration(t.until-now.mono),
		}
	}
	return store.Seen{LastPing: instant(h.cur.lastPing), Generation: h.cur.generation}
}

// newRecord copies a; a.Meta is not retained.
func newRecord(a *store.Attachment, generation uint64, now moment) *record {
	return &record{
		id:          a.ID,
		nodeID:      a.NodeID,
		incarnation: a.Incarnation,
		instance:    a.Instance,
		meta:        string(a.Meta),
		seq:         a.Seq,
		generation:  generation,
		connectedAt: a.ConnectedAt.UnixMicro(),
		lastPing:    now.wall,
		proto:       a.Proto,
	}
}

// attachment returns r as the caller's own copy.
func (h *host) attachment(r *record) store.Attachment {
	a := store.Attachment{
		ID:          r.id,
		HostID:      h.id,
		NodeID:      r.nodeID,
		Incarnation: r.incarnation,
		Role:        store.RoleHost,
		Generation:  r.generation,
		Proto:       r.proto,
		Instance:    r.instance,
		Seq:         r.seq,
		ConnectedAt: instant(r.connectedAt),
		LastPing:    instant(r.lastPing),
	}
	if r.meta != "" {
		a.Meta = []byte(r.meta)
	}
	return a
}
