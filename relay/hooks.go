package relay

import (
	"sync"
	"sync/atomic"

	"github.com/dialback/dialback/store"
)

// Hooks observe a Server. Each may be nil. They are called synchronously from
// the goroutine in which the thing happened, with no lock held, concurrently
// with each other; they must not block, or they delay what they observe.
type Hooks struct {
	// HostAttached: a control socket became its host's current one, here.
	HostAttached func(a store.Attachment)
	// HostDetached: a control socket on this node ended or was retired.
	HostDetached func(a store.Attachment, why store.Reason)
	// HostFlapping: two processes fight for one host ID; once a minute.
	HostFlapping func(hostID string, replacements int)
	// StreamOpened and StreamClosed frame every stream and exchange.
	StreamOpened func(info StreamInfo)
	StreamClosed func(info StreamInfo)
	// Failed: an open, an exchange or a stream failed with err, one of this
	// package's errors.
	Failed func(hostID string, err error)
}

// StreamInfo describes a stream or an exchange.
type StreamInfo struct {
	ID      string
	HostID  string
	Service string
	Subject string // of the client's Identity
}

// Stats are counters and gauges of a Server, read at one moment.
type Stats struct {
	Hosts        int               // control sockets attached to this node
	Streams      int               // streams and exchanges under way
	PendingDials int               // tickets that wait for a dial-back
	Dials        uint64            // stream:dial frames sent
	DialBacks    uint64            // dial-backs accepted
	Hops         uint64            // dial-backs handed to the node that waits for them
	Replays      uint64            // requests sent again, on a fresh stream
	ReplayBytes  int64             // of request bodies, kept while their requests may be sent again
	Spares       int               // data sockets that wait for a stream
	SpareOpens   uint64            // streams that were opened on one
	Pings        uint64            // pings of hosts
	Pongs        uint64            // of them answered
	Replaced     uint64            // control sockets retired by a newer one
	Stale        uint64            // control sockets retired for their silence
	Ignored      uint64            // control frames dropped: malformed, binary, unknown
	Failures     map[string]uint64 // by the code of the JSON body
}

// counters are the atomics behind Stats.
type counters struct {
	dials, dialBacks, hops, replays, pings, pongs, replaced, stale, ignored, spareOpens atomic.Uint64
	hosts, streams, hopping, spares, replayBytes                                        atomic.Int64

	failures sync.Map // code -> *atomic.Uint64
}

func (c *counters) failed(code string) {
	n, ok := c.failures.Load(code)
	if !ok {
		n, _ = c.failures.LoadOrStore(code, new(atomic.Uint64))
	}
	n.(*atomic.Uint64).Add(1)
}

// Stats reads the counters.
func (s *Server) Stats() Stats {
	c := &s.stats
	st := Stats{
		Hosts: int(c.hosts.Load()), Streams: int(c.streams.Load()), PendingDials: s.tickets.len(),
		Dials: c.dials.Load(), DialBacks: c.dialBacks.Load(), Hops: c.hops.Load(), Replays: c.replays.Load(),
		ReplayBytes: c.replayBytes.Load(), Spares: int(c.spares.Load()), SpareOpens: c.spareOpens.Load(), Pings: c.pings.Load(), Pongs: c.pongs.Load(),
		Replaced: c.replaced.Load(), Stale: c.stale.Load(), Ignored: c.ignored.Load(), Failures: map[string]uint64{},
	}
	c.failures.Range(func(k, v any) bool {
		st.Failures[k.(string)] = v.(*atomic.Uint64).Load()
		return true
	})
	return st
}
