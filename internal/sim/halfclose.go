package sim

import (
	"net/http/httptrace"
	"time"
)

// halfCloser ends a client's direction of its connection a while after it has
// got it, be its request whole by then or not. To net/http, and so to the relay,
// that client is gone.
type halfCloser struct {
	after time.Duration
	timer *time.Timer
}

func (h *halfCloser) got(info httptrace.GotConnInfo) {
	conn := info.Conn.(interface{ CloseWrite() error })
	h.timer = time.AfterFunc(h.after, func() { conn.CloseWrite() })
}

func (h *halfCloser) stop() {
	if h.timer != nil {
		h.timer.Stop()
	}
}
