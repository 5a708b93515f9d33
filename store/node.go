package store

import "time"

// Node is the record of one relay process.
type Node struct {
	ID          string
	URL         string // where other nodes reach it; empty if they cannot
	Incarnation string // a UUID per process start
	StartedAt   time.Time
	Draining    bool
}
