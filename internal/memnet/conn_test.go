package memnet_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/nettest"

	"github.com/dialback/dialback/internal/memnet"
)

const bufferSize = 64 << 10

func TestPipe_IsANetConn(t *testing.T) {
	nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
		a, b := memnet.Pipe()
		return a, b, func() { a.Close(); b.Close() }, nil
	})
}

// async is a call that may block, made inside a bubble.
type async struct {
	done chan struct{}
	n    int
	err  error
}

// run starts f and returns once everything in the bubble waits.
func run(f func() (int, error)) *async {
	a := &async{done: make(chan struct{})}
	go func() {
		defer close(a.done)
		a.n, a.err = f()
	}()
	synctest.Wait()
	return a
}

func (a *async) wantBlocked(t *testing.T, why string) {
	t.Helper()
	synctest.Wait()
	select {
	case <-a.done:
		t.Fatalf("returned (%d, %v), want it to wait: %s", a.n, a.err, why)
	default:
	}
}

func (a *async) want(t *testing.T, n int, err error, why string) {
	t.Helper()
	synctest.Wait()
	select {
	case <-a.done:
	default:
		t.Fatalf("still waits, want (%d, %v): %s", n, err, why)
	}
	if a.n != n || !errors.Is(a.err, err) {
		t.Fatalf("returned (%d, %v), want (%d, %v): %s", a.n, a.err, n, err, why)
	}
}

func read(c net.Conn, size int) func() (int, error) {
	return func() (int, error) { return c.Read(make([]byte, size)) }
}

func write(c net.Conn, size int) func() (int, error) {
	return func() (int, error) { return c.Write(make([]byte, size)) }
}

// bubble runs a test on the two ends of a pipe, inside a bubble.
func bubble(t *testing.T, test func(t *testing.T, a, b *memnet.Conn)) {
	synctest.Test(t, func(t *testing.T) {
		a, b := memnet.Pipe()
		defer a.Close()
		defer b.Close()
		test(t, a, b)
	})
}

func TestConn_WriteWaitsOnlyForRoom(t *testing.T) {
	bubble(t, func(t *testing.T, a, b *memnet.Conn) {
		run(write(a, bufferSize)).want(t, bufferSize, nil, "the buffer holds 64 KiB and nobody reads")
		w := run(write(a, 10))
		w.wantBlocked(t, "the buffer is full")
		run(read(b, 4)).want(t, 4, nil, "bytes are there")
		w.wantBlocked(t, "there is room for 4 of 10 bytes")
		run(read(b, bufferSize)).want(t, bufferSize, nil, "4 more bytes came in")
		w.want(t, 10, nil, "all bytes are in the buffer")
	})
}

func TestConn_ConcurrentWritesStayInOnePiece(t *testing.T) {
	bubble(t, func(t *testing.T, a, b *memnet.Conn) {
		const size = 3 * bufferSize
		for _, letter := range []byte("xyz") {
			go a.Write(bytes.Repeat([]byte{letter}, size))
		}
		got := make([]byte, 3*size)
		if _, err := io.ReadFull(b, got); err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			piece := got[i*size : (i+1)*size]
			if n := bytes.Count(piece, piece[:1]); n != size {
				t.Errorf("write %d is mixed with another: %d of %d bytes are its own", i, n, size)
			}
		}
	})
}

func TestConn_Deadlines(t *testing.T) {
	bubble(t, func(t *testing.T, a, b *memnet.Conn) {
		run(write(a, bufferSize)).want(t, bufferSize, nil, "the buffer is empty")
		start := time.Now()
		a.SetDeadline(start.Add(5 * time.Second))
		r, w := run(read(a, 1)), run(write(a, 1))

		time.Sleep(5*time.Second - time.Nanosecond)
		r.wantBlocked(t, "the deadline has not come")
		w.wantBlocked(t, "the deadline has not come")
		time.Sleep(time.Nanosecond)
		r.want(t, 0, os.ErrDeadlineExceeded, "5 s have passed")
		w.want(t, 0, os.ErrDeadlineExceeded, "5 s have passed")

		a.SetDeadline(time.Time{})
		r = run(read(a, 1))
		r.wantBlocked(t, "the deadline was lifted")
		a.SetReadDeadline(time.Now())
		r.want(t, 0, os.ErrDeadlineExceeded, "a deadline that is set wakes a blocked call")
		run(read(b, 1)).want(t, 1, nil, "the deadlines of one end are not the other's")
	})
}

func TestConn_WriteDeadlineTellsHowMuchWasTaken(t *testing.T) {
	bubble(t, func(t *testing.T, a, b *memnet.Conn) {
		a.SetWriteDeadline(time.Now().Add(time.Second))
		w := run(write(a, bufferSize+1))
		time.Sleep(time.Second)
		w.want(t, bufferSize, os.ErrDeadlineExceeded, "one byte did not fit")
	})
}

func TestConn_Close(t *testing.T) {
	bubble(t, func(t *testing.T, a, b *memnet.Conn) {
		run(write(a, bufferSize)).want(t, bufferSize, nil, "the buffer is empty")
		r, w := run(read(a, 1)), run(write(a, 1))
		a.Close()
		r.want(t, 0, net.ErrClosed, "Close wakes the Read of its own end")
		w.want(t, 0, net.ErrClosed, "Close wakes the Write of its own end")

		run(write(b, 1)).want(t, 0, syscall.EPIPE, "the other end is closed")
		run(read(b, 2*bufferSize)).want(t, bufferSize, nil, "what was written before Close arrives")
		run(read(b, 1)).want(t, 0, io.EOF, "then the end")

		if err := a.Close(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("second Close = %v, want net.ErrClosed", err)
		}
		if err := a.SetDeadline(time.Now()); !errors.Is(err, net.ErrClosed) {
			t.Errorf("SetDeadline after Close = %v, want net.ErrClosed", err)
		}
	})
}

func TestConn_CloseWakesTheOtherEnd(t *testing.T) {
	bubble(t, func(t *testing.T, a, b *memnet.Conn) {
		run(write(b, bufferSize)).want(t, bufferSize, nil, "the buffer is empty")
		r, w := run(read(b, 1)), run(write(b, 1))
		a.Close()
		r.want(t, 0, io.EOF, "the other end is closed")
		w.want(t, 0, syscall.EPIPE, "nobody will make room any more")
	})
}

func TestConn_CloseWriteIsHalfClose(t *testing.T) {
	bubble(t, func(t *testing.T, a, b *memnet.Conn) {
		run(write(a, 3)).want(t, 3, nil, "the buffer is empty")
		if err := a.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		run(write(a, 1)).want(t, 0, syscall.EPIPE, "this direction has ended")
		run(read(b, 9)).want(t, 3, nil, "bytes before the end")
		run(read(b, 9)).want(t, 0, io.EOF, "the end")
		run(write(b, 2)).want(t, 2, nil, "the other direction goes on")
		run(read(a, 9)).want(t, 2, nil, "the other direction goes on")
	})
}

func TestConn_FreezeIsABlackhole(t *testing.T) {
	bubble(t, func(t *testing.T, a, b *memnet.Conn) {
		run(write(a, 5)).want(t, 5, nil, "the buffer is empty")
		a.Freeze()
		r := run(read(b, 9))
		r.wantBlocked(t, "bytes under way wait")
		run(write(b, bufferSize)).want(t, bufferSize, nil, "writes succeed until the buffer is full")
		w := run(write(b, 1))
		w.wantBlocked(t, "the buffer is full")

		a.Close()
		r.wantBlocked(t, "no FIN gets through")
		w.wantBlocked(t, "no RST gets through")

		b.Thaw()
		r.want(t, 5, nil, "what has waited arrives")
		w.want(t, 0, syscall.EPIPE, "the other end had closed meanwhile")
		run(read(b, 9)).want(t, 0, io.EOF, "the FIN arrives after the bytes")
	})
}

func TestConn_FrozenEndsCanStillGiveUp(t *testing.T) {
	bubble(t, func(t *testing.T, a, b *memnet.Conn) {
		a.Freeze()
		a.SetReadDeadline(time.Now().Add(time.Second))
		ra, rb := run(read(a, 1)), run(read(b, 1))
		time.Sleep(time.Second)
		ra.want(t, 0, os.ErrDeadlineExceeded, "a deadline needs no network")
		b.Close()
		rb.want(t, 0, net.ErrClosed, "Close needs no network")
	})
}

func TestConn_CutFailsBothEndsAtOnce(t *testing.T) {
	for _, frozen := range []bool{false, true} {
		bubble(t, func(t *testing.T, a, b *memnet.Conn) {
			run(write(a, bufferSize)).want(t, bufferSize, nil, "the buffer is empty")
			if frozen {
				a.Freeze()
			}
			r, w := run(read(a, 1)), run(write(a, 1))
			b.Cut()
			r.want(t, 0, syscall.ECONNRESET, "a cut fails a blocked Read")
			w.want(t, 0, syscall.ECONNRESET, "a cut fails a blocked Write")
			run(read(b, 1)).want(t, 0, syscall.ECONNRESET, "bytes that were not read are lost")
			run(write(b, 1)).want(t, 0, syscall.ECONNRESET, "a cut is for both ends")
			if err := a.Close(); err != nil {
				t.Errorf("Close after Cut = %v, want nil", err)
			}
			run(read(a, 1)).want(t, 0, net.ErrClosed, "Close of one's own end comes first")
		})
	}
}

func TestConn_CloseWithoutLingeringCuts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := memnet.Pipe()
		if err := a.SetLinger(0); err != nil {
			t.Fatal(err)
		}
		run(write(a, 10)).want(t, 10, nil, "there is room")
		a.Close()
		run(read(b, 10)).want(t, 0, syscall.ECONNRESET, "what was not read is lost")
		run(read(a, 10)).want(t, 0, net.ErrClosed, "this end is closed")
	})
}

func TestConn_FreezeWritesIsOneDirection(t *testing.T) {
	bubble(t, func(t *testing.T, a, b *memnet.Conn) {
		a.FreezeWrites()
		run(write(a, 5)).want(t, 5, nil, "the buffer is empty")
		r := run(read(b, 9))
		r.wantBlocked(t, "what this end writes does not arrive")
		run(write(b, 3)).want(t, 3, nil, "the buffer is empty")
		run(read(a, 9)).want(t, 3, nil, "the other direction goes on")

		a.CloseWrite()
		r.wantBlocked(t, "its end waits behind its bytes")
		b.Thaw()
		r.want(t, 5, nil, "what has waited arrives")
		run(read(b, 9)).want(t, 0, io.EOF, "then the end")
	})
}

func TestConn_DelayedBytesKeepTheirOrder(t *testing.T) {
	bubble(t, func(t *testing.T, a, b *memnet.Conn) {
		a.SetDelay(10 * time.Millisecond)
		run(write(a, 5)).want(t, 5, nil, "a delay is not the writer's")
		a.SetDelay(0)
		run(write(a, 2)).want(t, 2, nil, "a delay is not the writer's")
		a.CloseWrite()
		r := run(read(b, 9))
		time.Sleep(10*time.Millisecond - time.Nanosecond)
		r.wantBlocked(t, "10 ms have not passed")
		time.Sleep(time.Nanosecond)
		r.want(t, 7, nil, "what was written later, without a delay, has not overtaken")
		run(read(b, 9)).want(t, 0, io.EOF, "the end comes after the bytes")
	})
}

func TestConn_DelayedEnd(t *testing.T) {
	bubble(t, func(t *testing.T, a, b *memnet.Conn) {
		a.SetDelay(time.Second)
		run(write(a, 1)).want(t, 1, nil, "a delay is not the writer's")
		b.SetReadDeadline(time.Now().Add(time.Second / 2))
		r := run(read(b, 9))
		time.Sleep(time.Second / 2)
		r.want(t, 0, os.ErrDeadlineExceeded, "a deadline comes before what arrives later")
		b.SetReadDeadline(time.Time{})
		a.Close()
		time.Sleep(time.Second / 2)
		run(read(b, 9)).want(t, 1, nil, "a second has passed")
		r = run(read(b, 9))
		r.wantBlocked(t, "the end is under way")
		time.Sleep(time.Second / 2)
		r.want(t, 0, io.EOF, "a second has passed since Close")
	})
}
