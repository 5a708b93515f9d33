package store

import "time"

// Node is the record of one relay process.
type Node struct {
	ID          string
	URL         string    // where other nodes reach it; empty if they cannot
	Incarnation string    // a UUID per process start
	StartedAt   time.Time // orders the incarnations of an ID, to the microsecond
	Draining    bool

	// Beat counts the renewals of this incarnation's lease: one more than those
	// of which KeepNode has said that they succeeded. A Store that has a lower
	// number than the one before has lost what was written last.
	Beat uint64
}
