package agent

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

const (
	// maxHead bounds the head of a request and of an answer, and a trailer
	// section, in bytes.
	maxHead = 1 << 20
	// sourceSize is that of a source's buffer, in bytes, unless a head has
	// made it grow.
	sourceSize = 4 << 10
)

var errHeadTooLarge = errors.New("agent: the head of a message is larger than 1 MiB")

// source is what HTTP/1 messages are read from. Its buffer grows with a head
// that does not fit, so that a head is always one piece of memory.
type source struct {
	*bufio.Reader
	src io.Reader
}

func newSource(src io.Reader) source { return source{bufio.NewReaderSize(src, sourceSize), src} }

// peekHead waits for a head, and returns it up to its empty line without taking
// it. io.EOF is an end before its first byte.
func (s *source) peekHead() ([]byte, error) { return s.peek(headEnd) }

// peekTrailers is peekHead for a trailer section, which may be empty.
func (s *source) peekTrailers() ([]byte, error) { return s.peek(trailersEnd) }

// hasTrailers reports whether peekTrailers need not wait.
func (s *source) hasTrailers() bool {
	p, _ := s.Peek(s.Buffered())
	return trailersEnd(p, 0) > 0
}

// peek waits until end finds one in what has come.
func (s *source) peek(end func(p []byte, from int) int) ([]byte, error) {
	for from := 0; ; {
		p, _ := s.Peek(s.Buffered())
		if n := end(p, from); n > 0 {
			return p[:n], nil
		}
		if len(p) >= maxHead {
			return nil, errHeadTooLarge
		}
		from = max(0, len(p)-2)
		if len(p) == s.Size() {
			s.Reader = bufio.NewReaderSize(io.MultiReader(bytes.NewReader(bytes.Clone(p)), s.src), 2*len(p))
		}
		if _, err := s.Peek(len(p) + 1); err != nil {
			if err == io.EOF && len(p) > 0 {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
}

// shrink gives a buffer back that has grown, if nothing is in it.
func (s *source) shrink() {
	if s.Size() > sourceSize && s.Buffered() == 0 {
		*s = newSource(s.src)
	}
}

// headEnd is the length of the head that p begins with, or 0 if its end is not
// in p[from:].
func headEnd(p []byte, from int) int {
	for {
		i := bytes.IndexByte(p[from:], '\n')
		if i < 0 {
			return 0
		}
		from += i + 1
		switch rest := p[from:]; {
		case len(rest) > 0 && rest[0] == '\n':
			return from + 1
		case len(rest) > 1 && rest[0] == '\r' && rest[1] == '\n':
			return from + 2
		}
	}
}

// trailersEnd is headEnd for a trailer section. Like the lines of chunks those
// of trailers do not end with a bare line feed.
func trailersEnd(p []byte, from int) int {
	if bytes.HasPrefix(p, []byte("\r\n")) {
		return len("\r\n")
	}
	from = max(0, from-1)
	i := bytes.Index(p[from:], []byte("\r\n\r\n"))
	if i < 0 {
		return 0
	}
	return from + i + len("\r\n\r\n")
}

// body is the body of one message.
type body struct {
	src     *source
	left    int64 // what is to come; negative when it ends with the connection
	chunks  *chunkReader
	trailer *head // of a chunked body, once it has been read
}

// newBody is the body that h announces; of an answer, which may be one that
// ends with its connection.
func newBody(src *source, h *head, answer bool) body {
	switch {
	case h.chunked:
		return body{src: src, chunks: &chunkReader{src: src}}
	case h.length >= 0:
		return body{src: src, left: h.length}
	case answer:
		return body{src: src, left: -1}
	}
	return body{src: src}
}

// empty reports whether there is no body.
func (b *body) empty() bool { return b.chunks == nil && b.left == 0 }

// known reports whether the length of the body is.
func (b *body) known() bool { return b.chunks == nil && b.left >= 0 }

// read reads up to len(p) bytes. It waits only while it has none. io.EOF, which
// may come together with bytes, is the end of the body as it should be, and
// that of a chunked one comes behind its trailers; io.ErrUnexpectedEOF is any
// other.
func (b *body) read(p []byte) (int, error) {
	switch {
	case b.chunks != nil:
		n, err := b.chunks.Read(p)
		switch {
		case err != io.EOF:
		case n > 0 && !b.src.hasTrailers():
			err = nil // it comes again
		default:
			err = b.readTrailers()
		}
		return n, err
	case b.left < 0:
		return b.src.Read(p)
	case b.left == 0:
		return 0, io.EOF
	}
	n, err := b.src.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	switch {
	case b.left == 0:
		err = io.EOF
	case err == io.EOF:
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// readTrailers returns io.EOF.
func (b *body) readTrailers() error {
	p, err := b.src.peekTrailers()
	if err != nil {
		return notEOF(err)
	}
	if len(p) > len("\r\n") {
		b.trailer = new(head)
		if err := b.trailer.parseTrailers(bytes.Clone(p)); err != nil {
			return err
		}
	}
	_, _ = b.src.Discard(len(p))
	return io.EOF
}

// ready reports whether read has bytes without waiting.
func (b *body) ready() bool {
	if b.chunks != nil {
		return b.chunks.ready()
	}
	return b.src.Buffered() > 0
}

// notEOF makes an end that came too early an error.
func notEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
