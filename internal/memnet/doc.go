// Package memnet is a buffered in-memory network for tests: connections and
// listeners that behave as TCP does, and that can be frozen, delayed and cut.
//
// It works inside synctest bubbles: a blocked call waits on channels and timers
// only, which is durably blocking, and there is no goroutine of its own. A
// connection belongs to the bubble in which its calls block; the two ends must
// not be used from different bubbles.
//
// Where it is gentler than TCP: bytes that were written before Close always
// arrive, even when the closing end leaves bytes unread, and a write to an end
// that has closed fails at once instead of at the second attempt.
package memnet
