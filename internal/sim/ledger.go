package sim

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dialback/dialback/store"
	"github.com/dialback/dialback/store/memory"
)

// ledger is the Store that all nodes share, and the observer of what it names.
// Each call and what it has changed are one step. Its rules:
//
//   - compare-and-delete: a Retire or Detach changes nothing of a socket with a
//     newer generation.
//   - tombstone: a socket that was retired or detached is never named again, but
//     if the Store has lost that write.
//   - seq: no Claim takes a host from a socket of the same instance with a
//     higher seq.
//   - one name: generations of a host only grow, but if writes were lost.
//
// The other observers ask it when a socket was named last (see lastNamed): a
// socket is retired from the moment on at which the Store no longer names it.
type ledger struct {
	tr     *Trace
	jumped atomic.Int64 // of the Store's wall clock, nanoseconds

	// Guarded by mu.
	mu    sync.Mutex
	mem   *memory.Store
	hosts map[string]*hostTruth
	socks map[string]*sockTruth // by attachment ID
	byMet map[string]*sockTruth // by the address that AuthorizeHost put into Meta
	nodes map[string][]keptNode // by ID, the newest last
	lost  []loss
}

// hostTruth is what the Store has named for a host.
type hostTruth struct {
	now      *sockTruth // nil: nothing
	history  []naming
	newest   *sockTruth // that was claimed last
	reverted []lostClaim
}

// lostClaim is a time for which the Store had lost the claim of the newest socket;
// to is negative while it lasts.
type lostClaim struct {
	of       *sockTruth
	from, to time.Duration
}

type naming struct {
	of *sockTruth // nil: nothing
	at stamp
}

// sockTruth is one control socket that was claimed.
type sockTruth struct {
	att     store.Attachment
	until   stamp // when it was no longer named; counts while it is not now
	gone    stamp // when it was retired or detached; zero while it was not
	goneWhy store.Reason
	ended   bool // it was gone once, and the Store may have lost that
	claimed stamp
}

type keptNode struct {
	node  store.Node
	lease time.Duration
	at    stamp
}

// loss: what was written after since is lost, at at.
type loss struct{ since, at stamp }

func newLedger(tr *Trace) *ledger {
	l := &ledger{tr: tr, hosts: make(map[string]*hostTruth), socks: make(map[string]*sockTruth), byMet: make(map[string]*sockTruth), nodes: make(map[string][]keptNode)}
	l.mem = memory.NewWithClock(l.wall)
	return l
}

func (l *ledger) wall() time.Time { return time.Now().Add(time.Duration(l.jumped.Load())) }

func (l *ledger) hostLocked(id string) *hostTruth {
	h := l.hosts[id]
	if h == nil {
		h = &hostTruth{}
		l.hosts[id] = h
	}
	return h
}

// lookLocked notes what the Store names now.
func (l *ledger) lookLocked(hostID string) (was, is *sockTruth) {
	h := l.hostLocked(hostID)
	was = h.now
	if att, err := l.mem.Current(context.Background(), hostID); err == nil {
		is = l.socks[att.ID]
	}
	if was == is {
		return was, is
	}
	at := l.tr.log("store names %s of %s", nameOf(is), hostID)
	if was != nil {
		was.until = at
	}
	h.now = is
	if is == h.newest {
		h.restored(at.t)
	}
	h.history = append(h.history, naming{is, at})
	return was, is
}

// reverts reports whether the claim of the newest socket is lost now.
func (h *hostTruth) reverts() bool {
	n := len(h.reverted)
	return n > 0 && h.reverted[n-1].to < 0
}

// restored: at t the Store names the newest socket again, or is right to name
// another or none.
func (h *hostTruth) restored(t time.Duration) {
	if h.reverts() {
		h.reverted[len(h.reverted)-1].to = t
	}
}

func nameOf(s *sockTruth) string {
	if s == nil {
		return "no socket"
	}
	return s.name()
}

// name is a socket in the trace: its host, its node, the address that it came from.
func (s *sockTruth) name() string {
	return s.att.HostID + "@" + s.att.NodeID + "/" + string(s.att.Meta)
}

// lastNamed is when the socket was named last; ever is false if it never was,
// and now says that it still is.
func (l *ledger) lastNamed(s *sockTruth) (at stamp, now bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.hostLocked(s.att.HostID)
	l.lookLocked(s.att.HostID) // a row may have expired
	if h.now == s {
		return stamp{}, true
	}
	return s.until, false
}

// socket is the socket that came from an address, nil if it was not claimed.
func (l *ledger) socket(addr string) *sockTruth {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.byMet[addr]
}

// names reports whether the Store names anything for the host, and what.
func (l *ledger) names(hostID string) *sockTruth {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, is := l.lookLocked(hostID)
	return is
}

// changedWithin reports whether the host's naming changed between two times, or
// named nothing then, or a socket that has ended, or not the socket that was
// claimed last. The last is what a Store does that has lost a claim, until the
// node of that socket has it written again: at once when it is asked for the
// host, or when its next renewal tells it of the loss (see judgeLost).
func (l *ledger) changedWithin(hostID string, from, to time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lookLocked(hostID)
	for _, s := range l.hosts[hostID].reverted {
		if s.from <= to && (s.to < 0 || s.to >= from) {
			return true
		}
	}
	var before *sockTruth
	for _, n := range l.hosts[hostID].history {
		switch {
		case n.at.t < from:
			before = n.of
		case n.at.t <= to:
			return true
		}
	}
	return before == nil || before.ended || before != l.hosts[hostID].newest
}

// claim is Claim with its observation.
func (l *ledger) claim(ctx context.Context, a store.Attachment, ttl time.Duration) (store.Claimed, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before, _ := l.lookLocked(a.HostID)
	c, err := l.mem.Claim(ctx, a, ttl)
	if err != nil {
		l.tr.log("store: claim of %s@%s/%s seq %d: %v", a.HostID, a.NodeID, a.Meta, a.Seq, err)
		return c, err
	}
	s := l.socks[a.ID]
	if s == nil {
		s = &sockTruth{att: c.Current, claimed: l.tr.log("store: claim of %s@%s/%s seq %d", a.HostID, a.NodeID, a.Meta, a.Seq)}
		l.socks[a.ID] = s
		l.byMet[string(a.Meta)] = s
	}
	s.att = c.Current
	if h := l.hostLocked(a.HostID); h.newest != s {
		h.restored(l.tr.now().t)
		h.newest = s
	}
	if before != nil && before != s && before.att.Instance != "" && before.att.Instance == a.Instance && before.att.Seq > a.Seq {
		l.tr.violated("I1 seq", "a claim of seq %d has taken %s from %s of the same instance with seq %d", a.Seq, a.HostID, before.name(), before.att.Seq)
	}
	if before != nil && before != s && before.att.Generation >= c.Current.Generation {
		l.tr.violated("I1 generations grow", "%s got generation %d after %d", s.name(), c.Current.Generation, before.att.Generation)
	}
	l.lookLocked(a.HostID)
	return c, nil
}

// ping is Ping with its observation.
func (l *ledger) ping(ctx context.Context, as []store.Attachment, ttl time.Duration) ([]bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	current, err := l.mem.Ping(ctx, as, ttl)
	for i, a := range as {
		_, is := l.lookLocked(a.HostID)
		if s := l.socks[a.ID]; err == nil && current[i] && s != nil && s.gone.n != 0 && is == s {
			l.tr.violated("I7 tombstone", "a ping has brought %s back, which was retired (%s) at %.4fs", s.name(), s.goneWhy, s.gone.t.Seconds())
		}
	}
	return current, err
}

// storeRetirer is what ends a socket in the Store.
type storeRetirer interface {
	Retire(ctx context.Context, ref store.Ref, why store.Reason) error
	Detach(ctx context.Context, ref store.Ref) error
}

// retire is Retire and Detach with their observation.
func (l *ledger) retire(ref store.Ref, why store.Reason, do func(storeRetirer) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	before, _ := l.lookLocked(ref.HostID)
	err := do(l.mem)
	s := l.socks[ref.ID]
	l.tr.log("store: retire %s (%s): %v", nameOf(s), why, err)
	if err == nil && s != nil && s.gone.n == 0 && s.att.Generation == ref.Generation {
		s.gone, s.goneWhy, s.ended = l.tr.now(), why, true
		if h := l.hostLocked(ref.HostID); h.newest == s {
			h.restored(s.gone.t)
		}
	}
	_, after := l.lookLocked(ref.HostID)
	if before != nil && after != before && before.att.Generation > ref.Generation {
		l.tr.violated("I7 compare-and-delete", "the end of %s has taken %s out, which had replaced it", nameOf(s), before.name())
	}
	return err
}

// keepNode is KeepNode, remembered for a loss of writes.
func (l *ledger) keepNode(ctx context.Context, n store.Node, lease time.Duration) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	created, err := l.mem.KeepNode(ctx, n, lease)
	if err == nil {
		l.nodes[n.ID] = append(l.nodes[n.ID], keptNode{n, lease, l.tr.now()})
	}
	return created, err
}

// store is the memory store of now, for calls that need no observer.
func (l *ledger) store() *memory.Store {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mem
}

// lose makes the Store forget what was written in the last d, or everything: it
// is another Store, into which what stood then is written as the nodes write
// what was lost.
func (l *ledger) lose(d time.Duration, everything bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ctx := context.Background()
	now := l.tr.now()
	since := stamp{t: max(0, now.t-d)}
	l.mem.Close()
	l.mem = memory.NewWithClock(l.wall)
	if everything {
		since = stamp{t: -1}
	}
	for id, kept := range l.nodes {
		// What is lost is lost: a later loss does not bring it back. The others are
		// written in order, for each knows whom it has replaced.
		kept = slices.DeleteFunc(kept, func(n keptNode) bool { return n.at.t > since.t })
		for _, n := range kept {
			if left := n.lease - (now.t - n.at.t); left > 0 {
				l.mem.KeepNode(ctx, n.node, left)
			}
		}
		l.nodes[id] = kept
	}
	for id, h := range l.hosts {
		stood, known := h.at(since.t)
		if stood != nil {
			l.mem.Ping(ctx, []store.Attachment{stood.att}, 5*time.Minute)
		} else if known {
			l.retireAgainLocked(id, since.t)
		}
	}
	for _, s := range l.socks {
		if s.gone.n != 0 && s.gone.t > since.t {
			s.gone = stamp{}
		}
	}
	l.lost = append(l.lost, loss{since, now})
	for id, h := range l.hosts {
		l.lookLocked(id)
		if h.newest != nil && h.now != h.newest && !h.newest.ended && !h.reverts() {
			h.reverted = append(h.reverted, lostClaim{h.newest, now.t, -1})
		}
	}
}

// lostClaims lists what the Store has lost, with the ends so far.
func (l *ledger) lostClaims() []lostClaim {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.tr.now().t
	var all []lostClaim
	for id, h := range l.hosts {
		l.lookLocked(id)
		for _, c := range h.reverted {
			if c.to < 0 {
				c.to = now
			}
			all = append(all, c)
		}
	}
	return all
}

// at is what was named at time t; known is false if nothing had been yet.
func (h *hostTruth) at(t time.Duration) (of *sockTruth, known bool) {
	for _, n := range h.history {
		if n.at.t > t {
			break
		}
		of, known = n.of, true
	}
	return of, known
}

// retireAgainLocked writes the newest tombstone of a host that stood at t.
func (l *ledger) retireAgainLocked(hostID string, t time.Duration) {
	var newest *sockTruth
	for _, s := range l.socks {
		if s.att.HostID == hostID && s.gone.n != 0 && s.gone.t <= t && (newest == nil || s.att.Generation > newest.att.Generation) {
			newest = s
		}
	}
	if newest != nil {
		l.mem.Retire(context.Background(), newest.att.Ref(), newest.goneWhy)
	}
}

// lostSince reports whether writes were lost after a time.
func (l *ledger) lostSince(t time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.lost, func(x loss) bool { return x.at.t >= t })
}
