package memory

import (
	"math"
	"time"
)

// moment is one reading of the clock.
type moment struct {
	mono int64 // nanoseconds since the Store was made; deadlines are in these
	wall int64 // microseconds since 1970
}

func (s *Store) now() moment {
	return moment{mono: int64(time.Since(s.start)), wall: s.wall().UnixMicro()}
}

// add returns the deadline d after t; one too far away to count is never.
func add(t int64, d time.Duration) int64 {
	if t > math.MaxInt64-int64(d) {
		return math.MaxInt64
	}
	return t + int64(d)
}

// noTime is what the zero Time is in microseconds.
var noTime = time.Time{}.UnixMicro()

// instant is the reverse of Time.UnixMicro, for the zero Time as well.
func instant(micro int64) time.Time { return time.UnixMicro(micro).UTC() }
