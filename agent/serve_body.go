package agent

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

const (
	// dropTime is how long the rest of a request's body is waited for behind
	// its answer, so that the stream can be used again; dropSize is how many
	// bytes of it are read.
	dropTime = 100 * time.Millisecond
	dropSize = 256 << 10
)

// servedBody is the body of a request that HTTP serves. With full duplex
// net/http 1.26 cannot read the rest that a handler leaves: it does so when it
// no longer expects the end of a body, and the next request panics
// (golang/go#68560). So drop reads it, and Close leaves it alone.
type servedBody struct {
	body    io.ReadCloser // immutable, as is expects
	expects bool          // the client waits for 100

	ended  atomic.Bool // was read to its end
	closed atomic.Bool
}

// ownBody puts a servedBody into r, or returns nil if there is no body to drop.
// The stream ends with a request whose client waits to be told to send the
// body: of one that was not told nobody knows what comes next.
func ownBody(w http.ResponseWriter, r *http.Request) *servedBody {
	if r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	b := &servedBody{body: r.Body, expects: r.Header.Get("Expect") != ""}
	r.Body = b
	if b.expects {
		w.Header().Set("Connection", "close")
	}
	return b
}

// Read implements io.Reader.
func (b *servedBody) Read(p []byte) (int, error) {
	if b.closed.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := b.body.Read(p)
	if err == io.EOF {
		b.ended.Store(true)
	}
	return n, err
}

// Close implements io.Closer. It reads nothing.
func (b *servedBody) Close() error {
	b.closed.Store(true)
	return nil
}

// drop sends the answer and gets rid of what the handler has left of the body.
// If that does not end soon, the stream ends behind the answer.
func (b *servedBody) drop(w http.ResponseWriter, r *http.Request) {
	stream, ok := r.Context().Value(streamInfoKey{}).(*Stream)
	if !ok || stream.hijacked.Load() || b.ended.Load() {
		return
	}
	b.closed.Store(true)
	rc := http.NewResponseController(w)
	_ = rc.Flush() // a client may wait for it before it sends more
	if !b.expects {
		_ = rc.SetReadDeadline(time.Now().Add(dropTime))
		if _, err := io.CopyN(io.Discard, b.body, dropSize); err == io.EOF {
			_ = rc.SetReadDeadline(time.Time{})
			return
		}
	}
	closeAfterAnswer(w)
	_ = rc.SetReadDeadline(time.Unix(1, 0)) // net/http reads on before it closes
}

// closeAfterAnswer tells net/http not to use the connection again: what is left
// of a body would be taken for the next request. Only a MaxBytesReader that has
// reached its limit can say so after the header is out.
func closeAfterAnswer(w http.ResponseWriter) {
	limited := http.MaxBytesReader(w, io.NopCloser(strings.NewReader("x")), 0)
	_, _ = limited.Read(make([]byte, 1))
}
