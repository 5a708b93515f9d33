package relay

import (
	"context"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// replayBody is the body of a request that may be sent twice. What is read of it
// is kept until there is an answer, limit bytes at most; a longer one cannot be
// sent again.
type replayBody struct {
	// Immutable.
	src   io.Reader
	limit int
	count *atomic.Int64 // what all of them keep, in bytes

	// Guarded by mu. Never held while src is read: one goroutine reads.
	mu   sync.Mutex
	kept []byte
	at   int   // what of kept is read again begins here
	err  error // of src; comes behind kept
	over bool  // nothing is kept any more
}

func (b *replayBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	if n := copy(p, b.kept[b.at:]); n > 0 || b.err != nil {
		b.at += n
		err := b.err
		if b.at < len(b.kept) {
			err = nil
		}
		b.mu.Unlock()
		return n, err
	}
	b.mu.Unlock()
	n, err := b.src.Read(p)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
	switch {
	case b.over:
	case len(b.kept)+n > b.limit:
		b.forgetLocked()
	default:
		b.kept = append(b.kept, p[:n]...)
		b.at = len(b.kept)
		b.count.Add(int64(n))
	}
	return n, err
}

// again has what was read of the body be read again, if it was kept.
func (b *replayBody) again() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.at = 0
	return !b.over
}

// forget: the request will not be sent again.
func (b *replayBody) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forgetLocked()
}

func (b *replayBody) forgetLocked() {
	if b.over {
		return
	}
	b.over = true
	b.count.Add(-int64(len(b.kept)))
	b.kept, b.at = b.kept[b.at:], 0 // what is being read again still is
}

// keepBody prepares a request that may be sent twice for that; the func that it
// returns ends it.
func (out *outbound) keepBody(limit int, count *atomic.Int64) (forget func()) {
	if out.body == nil || limit == 0 || !out.mayRepeat() {
		return func() {}
	}
	out.replay = &replayBody{src: out.body, limit: limit, count: count}
	out.body = out.replay
	return out.replay.forget
}

// rewind makes a request whose attempt has failed ready for another one. It
// waits for limit until nobody reads the body any more: a client that pauses in
// its body for longer is told of the failure. It reports whether the request can
// be sent again; what was read of its body may not have been kept.
func (out *outbound) rewind(ctx context.Context, limit time.Duration) bool {
	if out.upload.done == nil {
		return true // nothing was read
	}
	if !out.awaitUpload(ctx, limit) {
		return false
	}
	if out.replay == nil || out.upload.failed() != nil || !out.replay.again() {
		return false
	}
	out.upload = upload{}
	return true
}
