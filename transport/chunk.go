package transport

import "sync"

// chunkSize is the size of the buffers of a StreamConn, and of the largest
// message that it sends, in bytes.
const chunkSize = 32 << 10

// chunk is a buffer on its way between a StreamConn and its Conn.
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
