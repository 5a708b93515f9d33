package agent

import (
	"bytes"
	"errors"
	"io"
)

var errChunk = errors.New("agent: a chunk is malformed")

// maxChunkExcess bounds what a chunked body may have beside its data, as
// net/http does: 16 bytes a chunk and twice the data are not counted.
const maxChunkExcess = 16 << 10

// chunkReader decodes a chunked body (RFC 9112, section 7.1) up to its last
// chunk; the trailer section stays in src. net/http's fills the caller's buffer
// up to the end of a chunk and keeps back meanwhile what has come; this one
// does not wait while it has bytes.
type chunkReader struct {
	src    *source
	left   uint64 // of the chunk
	within bool   // the line end behind the chunk is still to come
	excess int64
	err    error
}

// Read implements io.Reader. io.EOF is the last chunk.
func (c *chunkReader) Read(p []byte) (n int, err error) {
	for n < len(p) && c.err == nil {
		switch {
		case c.left == 0 && n > 0 && !c.lineBuffered(), c.left > 0 && n > 0 && c.src.Buffered() == 0:
			return n, nil
		case c.left == 0:
			c.err = c.next()
		default:
			k, err := c.src.Read(p[n:min(uint64(len(p)), uint64(n)+c.left)])
			n += k
			c.left -= uint64(k)
			c.err = notEOF(err)
		}
	}
	return n, c.err
}

// next reads up to the data of the next chunk.
func (c *chunkReader) next() error {
	if c.within {
		var end [2]byte
		if _, err := io.ReadFull(c.src, end[:]); err != nil {
			return notEOF(err)
		}
		if string(end[:]) != "\r\n" {
			return errChunk
		}
		c.within = false
	}
	line, err := c.src.ReadSlice('\n')
	if err != nil {
		return notEOF(err)
	}
	size, ok := chunkSize(line)
	if !ok {
		return errChunk
	}
	c.excess = max(0, c.excess+int64(len(line))-16-2*int64(min(size, 1<<40)))
	switch {
	case c.excess > maxChunkExcess:
		return errChunk
	case size == 0:
		return io.EOF
	}
	c.left, c.within = size, true
	return nil
}

// chunkSize parses the line before a chunk. Extensions are for this hop only.
func chunkSize(line []byte) (size uint64, ok bool) {
	line, ok = bytes.CutSuffix(line, []byte("\r\n"))
	if !ok || !isFieldValue(line) {
		return 0, false
	}
	line, _, _ = bytes.Cut(bytes.TrimRight(line, " \t"), []byte{';'})
	if len(line) == 0 || len(line) > 15 {
		return 0, false
	}
	for _, c := range line {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		size = size<<4 | uint64(c)
	}
	return size, true
}

// lineBuffered reports whether next need not wait.
func (c *chunkReader) lineBuffered() bool {
	return bytes.IndexByte(c.lines(), '\n') >= 0
}

// lines is what has come behind the chunk and its line end.
func (c *chunkReader) lines() []byte {
	p, _ := c.src.Peek(c.src.Buffered())
	if c.within {
		p = p[min(len(p), len("\r\n")):]
	}
	return p
}

// ready reports whether there are bytes, or the end behind the trailers, without
// waiting.
func (c *chunkReader) ready() bool {
	if c.left > 0 {
		return c.src.Buffered() > 0
	}
	p := c.lines()
	i := bytes.IndexByte(p, '\n')
	if size, ok := chunkSize(p[:i+1]); ok && size == 0 {
		return trailersEnd(p[i+1:], 0) > 0
	}
	return i >= 0 && i+1 < len(p)
}
