package agent

import "time"

const (
	// maxStreamID bounds the ID of a stream, in bytes.
	maxStreamID = 128
	// maxOpenings bounds how many openings are remembered: 15 MiB at most.
	maxOpenings = 1 << 16
)

// openings remembers for a while which streams were opened, so that none is
// opened twice: the relay may send a stream:open on a spare and, when no answer
// comes, a dial of the same stream beside it.
//
// A dial of a stream that an earlier dial has opened is not refused: the relay
// repeats a dial only when nothing was sent on the one before.
//
// When there is no room for more, a spare that may be too late for its stream
// opens none, and the relay dials instead.
type openings struct {
	byID map[string]openedBy
	// keep is for how long an opening is remembered: longer than a relay can
	// still open that stream. A stream:open may be on its way to a spare for as
	// long as the spare waits. Immutable.
	keep time.Duration
	// order holds the openings from the oldest on, to forget them in turn.
	order []openedID
	// forgotten counts the openings by dials that were not remembered. A
	// stream:open that such a dial has overtaken is one on a spare that was
	// dialed for before.
	forgotten uint64
}

type openedBy uint8

const (
	openedByDial openedBy = iota + 1
	openedBySpare
)

type openedID struct {
	id string
	at time.Time
}

// newOpenings remembers for as long as a spare waits, and a minute more.
func newOpenings(spareTimeout time.Duration) openings {
	return openings{keep: spareTimeout + time.Minute}
}

// mayBeOpen reports whether the stream was opened, as far as is known: a spare
// that was dialed for when forgotten was this must not open it.
func (o *openings) mayBeOpen(id string, forgotten uint64, now time.Time) bool {
	o.forget(now)
	return o.byID[id] != 0 || o.forgotten != forgotten || len(o.order) >= maxOpenings
}

// onSpare reports whether the stream was opened on a spare.
func (o *openings) onSpare(id string, now time.Time) bool {
	o.forget(now)
	return o.byID[id] == openedBySpare
}

// bySpare notes that the stream was opened on a spare.
func (o *openings) bySpare(id string, now time.Time) { o.note(id, openedBySpare, now) }

// byDial notes that the stream was opened by a dial, unless it was opened on a
// spare, which it reports.
func (o *openings) byDial(id string, now time.Time) bool {
	if o.onSpare(id, now) {
		return false
	}
	switch {
	case o.byID[id] != 0:
	case len(o.order) >= maxOpenings:
		o.forgotten++
	default:
		o.note(id, openedByDial, now)
	}
	return true
}

func (o *openings) note(id string, by openedBy, now time.Time) {
	if !guardOpenedOnce || id == "" { // old relays do not name streams
		return
	}
	if o.byID == nil {
		o.byID = make(map[string]openedBy)
	}
	o.byID[id] = by
	o.order = append(o.order, openedID{id, now})
}

// forget drops what is older than keep.
func (o *openings) forget(now time.Time) {
	n := 0
	for n < len(o.order) && now.Sub(o.order[n].at) >= o.keep {
		delete(o.byID, o.order[n].id)
		n++
	}
	o.order = o.order[n:]
	if len(o.order) == 0 {
		o.order, o.byID = nil, nil
	}
}
