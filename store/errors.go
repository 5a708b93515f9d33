package store

import "errors"

// The errors that mean something. Any other error of a Store, those of the
// context aside, is an outage with an unknown outcome.
var (
	// ErrNotFound: there is no such record, it has expired, or it is retired.
	ErrNotFound = errors.New("store: not found")
	// ErrRetired: the caller's socket or incarnation has been superseded and
	// can never be current again.
	ErrRetired = errors.New("store: retired")
	// ErrClosed: the Store was closed.
	ErrClosed = errors.New("store: closed")
	// ErrInvalid: an argument breaks the contract (empty or oversized ID, ttl
	// that is not positive). Errors wrap it and say which. Nothing has changed.
	ErrInvalid = errors.New("store: invalid argument")
)
