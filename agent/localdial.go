package agent

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
)

// maxHung bounds the calls of one service's DialContext that were given up and
// have not returned.
const maxHung = 100

var (
	errDialsHang  = errors.New("agent: earlier calls of DialContext have not returned")
	errDialExited = errors.New("agent: DialContext ended its goroutine")
	errNoConn     = errors.New("agent: DialContext returned no connection")
)

type dialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

// localDialer calls the embedder's DialContext, which may hang, panic, end its
// goroutine or return nothing. A call that does not heed the end of its context
// is given up.
type localDialer struct {
	// Immutable.
	call  dialFunc
	log   *slog.Logger
	tasks *sync.WaitGroup // counts the calls

	hung atomic.Int32 // calls that were given up and have not returned
}

// dialer is call as a service can use it; nil is net.Dialer's.
func (e env) dialer(call dialFunc) dialFunc {
	if call == nil {
		call = (&net.Dialer{}).DialContext
	}
	d := &localDialer{call: call, log: e.log, tasks: e.tasks}
	return d.dial
}

type localDialed struct {
	conn     net.Conn
	err      error
	panicked any
}

// dial returns when ctx ends, at the latest. A panic of the call is one of dial.
func (d *localDialer) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if d.hung.Load() >= maxHung {
		return nil, errDialsHang
	}
	result := make(chan localDialed)
	d.tasks.Add(1)
	go d.run(ctx, network, addr, result)
	select {
	case r := <-result:
		if r.panicked != nil {
			panic(r.panicked)
		}
		return r.conn, r.err
	case <-ctx.Done():
		d.hung.Add(1) // until run has noticed
		return nil, ctx.Err()
	}
}

// run makes one call. Nobody receives the result of one that was given up.
func (d *localDialer) run(ctx context.Context, network, addr string, result chan<- localDialed) {
	defer d.tasks.Done()
	r := localDialed{err: errDialExited} // unless the call returns
	defer func() {
		r.panicked = recover()
		select {
		case result <- r:
			return
		case <-ctx.Done():
		}
		d.hung.Add(-1)
		if r.conn != nil {
			_ = r.conn.Close()
		}
		if r.panicked != nil {
			d.log.Error("DialContext panicked", "panic", r.panicked)
		}
	}()
	r.conn, r.err = d.call(ctx, network, addr)
	if r.conn == nil && r.err == nil {
		r.err = errNoConn
	}
}
