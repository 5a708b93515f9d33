package transport

import "time"

// The defaults of Options and DialOptions.
const (
	defaultReadLimit        = 64 << 10
	defaultWriteTimeout     = 5 * time.Minute
	defaultCloseTimeout     = time.Second
	defaultHandshakeTimeout = 10 * time.Second
)

// Options are common to Accept, Dial and Pipe. The zero value is usable.
type Options struct {
	// ReadLimit bounds one incoming message, in bytes; a larger one closes
	// the connection with 1009. Zero means 64 KiB, negative no limit.
	ReadLimit int64
	// WriteTimeout cuts the connection when a write makes no progress for so
	// long. Zero means 5 minutes, negative no limit.
	WriteTimeout time.Duration
	// CloseTimeout is what Close gives the peer to read all that was sent to
	// it, the close frame too, and to answer. Where much may be on its way to
	// a slow peer, and must arrive, it should be as long as WriteTimeout. Zero
	// means 1 second.
	CloseTimeout time.Duration
	// BufferSize is the size in bytes of the buffer through which a connection
	// reads the headers of frames, and frames that fit. It is held for as long
	// as the connection lives. Zero means 4 KiB; a relay's control sockets,
	// which are idle most of their life, use less.
	BufferSize int
}

// withDefaults returns a copy of o, which may be nil, with every field set.
func (o *Options) withDefaults() Options {
	var c Options
	if o != nil {
		c = *o
	}
	if c.ReadLimit == 0 {
		c.ReadLimit = defaultReadLimit
	}
	if c.WriteTimeout == 0 {
		c.WriteTimeout = defaultWriteTimeout
	}
	if c.CloseTimeout <= 0 {
		c.CloseTimeout = defaultCloseTimeout
	}
	if c.BufferSize <= 0 {
		c.BufferSize = 4 << 10
	}
	return c
}

// slowCloseTimeout is the CloseTimeout of a close that may have much data
// before it. o has its defaults.
func (o *Options) slowCloseTimeout() time.Duration {
	if o.WriteTimeout < 0 {
		return defaultWriteTimeout
	}
	return o.WriteTimeout
}
