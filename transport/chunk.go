package transport

import "sync"

// chunkSize is how many bytes a chunk holds: with its two numbers it is 32 KiB.
const chunkSize = 32<<10 - 16

// chunk is a pooled buffer: bytes on their way between a StreamConn and its
// Conn.
type chunk struct {
	buf  [chunkSize]byte
	from int // first byte that is not read
	to   int
}

var chunks = sync.Pool{New: func() any { return new(chunk) }}

func newChunk() *chunk {
	c := chunks.Get().(*chunk)
	c.from, c.to = 0, 0
	return c
}
