package transport_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/nettest"

	"github.com/dialback/dialback/transport"
)

type makePair = func(*testing.T, transport.Options) (a, b transport.Conn, stop func())

// What http.Serve and others rely on: deadlines that do something and hurt
// nothing (fault 32).
func TestStreamConn_IsNetConn(t *testing.T) {
	for name, pair := range map[string]makePair{"Pipe": pipePair, "TCP": tcpPair} {
		t.Run(name, func(t *testing.T) {
			nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) {
				a, b, stop := pair(t, transport.Options{})
				c1, c2 := transport.NewStreamConn(a), transport.NewStreamConn(b)
				return c1, c2, func() {
					c1.Close()
					c2.Close()
					stop()
				}, nil
			})
		})
	}
}

// streamTest runs f in a bubble, over a Pipe and over a WebSocket.
func streamTest(t *testing.T, o transport.Options, f func(t *testing.T, a, b *transport.StreamConn)) {
	t.Helper()
	for _, c := range []struct {
		name string
		pair makePair
	}{{"Pipe", pipePair}, {"WebSocket", memPair}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b, stop := c.pair(t, o)
				defer stop()
				f(t, transport.NewStreamConn(a), transport.NewStreamConn(b))
			})
		})
	}
}

// wantRead reads exactly want.
func wantRead(t *testing.T, c net.Conn, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(c, got); err != nil || string(got) != want {
		t.Fatalf("read %d bytes %.40q, %v, want %.40q", n, got[:n], err, want)
	}
}

func send(t *testing.T, c net.Conn, s string) {
	t.Helper()
	if n, err := io.WriteString(c, s); n != len(s) || err != nil {
		t.Fatalf("Write = %d, %v, want %d", n, err, len(s))
	}
}

// readEnd reads to the end of the stream.
func readEnd(c net.Conn) (string, error) {
	var b bytes.Buffer
	p := make([]byte, 4096)
	for {
		n, err := c.Read(p)
		b.Write(p[:n])
		if err != nil {
			return b.String(), err
		}
	}
}

func TestStreamConn_ReadDeadlineLosesNothing(t *testing.T) {
	streamTest(t, transport.Options{}, func(t *testing.T, a, b *transport.StreamConn) {
		began := time.Now()
		b.SetReadDeadline(began.Add(5 * time.Second))
		n, err := b.Read(make([]byte, 10))
		if n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("Read = %d, %v, want 0, os.ErrDeadlineExceeded", n, err)
		}
		if d := time.Since(began); d != 5*time.Second {
			t.Errorf("Read returned after %v, want 5s", d)
		}
		send(t, a, "late but whole")
		synctest.Wait()
		if n, err := b.Read(make([]byte, 10)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("Read after the deadline = %d, %v, want 0, os.ErrDeadlineExceeded though bytes wait", n, err)
		}
		b.SetReadDeadline(time.Time{})
		wantRead(t, b, "late but whole")
		time.Sleep(time.Hour)
		send(t, b, "the other way")
		wantRead(t, a, "the other way")
	})
}

// A deadline that is moved counts from where it was moved to, also for calls
// that wait already.
func TestStreamConn_DeadlineMoves(t *testing.T) {
	streamTest(t, transport.Options{}, func(t *testing.T, a, b *transport.StreamConn) {
		began := time.Now()
		b.SetReadDeadline(began.Add(time.Second))
		for i := range 5 {
			time.AfterFunc(time.Duration(i)*900*time.Millisecond, func() {
				b.SetReadDeadline(time.Now().Add(time.Second))
			})
		}
		if _, err := b.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("Read: %v, want os.ErrDeadlineExceeded", err)
		}
		if d := time.Since(began); d != 4600*time.Millisecond {
			t.Errorf("Read returned after %v, want 1s after the last move at 3.6s", d)
		}
		b.SetReadDeadline(time.Time{})
		b.SetReadDeadline(time.Now().Add(time.Second))
		b.SetReadDeadline(time.Time{})
		time.AfterFunc(time.Hour, func() { _, _ = a.Write([]byte("x")) })
		wantRead(t, b, "x")
	})
}

// Write says how many bytes it has taken; those arrive, and the stream goes on.
func TestStreamConn_WriteDeadlineLosesNothing(t *testing.T) {
	streamTest(t, transport.Options{}, func(t *testing.T, a, b *transport.StreamConn) {
		big := strings.Repeat("0123456789", 1<<20/10)
		began := time.Now()
		a.SetWriteDeadline(began.Add(5 * time.Second))
		n, err := io.WriteString(a, big)
		if n == 0 || n == len(big) || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("Write = %d, %v, want a part of %d and os.ErrDeadlineExceeded", n, err, len(big))
		}
		if d := time.Since(began); d != 5*time.Second {
			t.Errorf("Write returned after %v, want 5s", d)
		}
		if n, err := a.Write([]byte("x")); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("Write after the deadline = %d, %v, want 0, os.ErrDeadlineExceeded", n, err)
		}
		send(t, b, "the read side lives")
		wantRead(t, a, "the read side lives")
		a.SetWriteDeadline(time.Time{})
		go func() {
			_, _ = io.WriteString(a, "and on")
			_ = a.CloseWrite()
		}()
		got, err := readEnd(b)
		if want := big[:n] + "and on"; err != io.EOF || got != want {
			t.Errorf("the peer read %d bytes, %v, want the %d that were taken and what followed", len(got), err, n)
		}
	})
}

func TestStreamConn_HalfClose(t *testing.T) {
	streamTest(t, transport.Options{}, func(t *testing.T, a, b *transport.StreamConn) {
		send(t, a, "request")
		if err := a.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if err := a.CloseWrite(); err != nil {
			t.Errorf("CloseWrite again: %v, want nil", err)
		}
		if _, err := a.Write([]byte("x")); err == nil {
			t.Error("Write after CloseWrite succeeded")
		}
		got, err := readEnd(b)
		if got != "request" || err != io.EOF {
			t.Errorf("the peer read %q, %v, want the request and io.EOF", got, err)
		}
		time.Sleep(time.Hour)
		send(t, b, "response")
		b.CloseWrite()
		got, err = readEnd(a)
		if got != "response" || err != io.EOF {
			t.Errorf("read %q, %v, want the response and io.EOF", got, err)
		}
		a.Close()
		<-a.Conn().Done()
		<-b.Conn().Done()
		if _, err := b.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("Read after EOF and the close: %v, want io.EOF for good", err)
		}
	})
}

// A stream that was cut off must not look complete: only 1000 does.
func TestStreamConn_HowTheStreamEnds(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(a *transport.StreamConn)
		want transport.CloseCode // of the peer's Read; 0 for io.EOF
	}{
		{"Close", func(a *transport.StreamConn) { a.Close() }, 0},
		{"EOF and lost", func(a *transport.StreamConn) { a.CloseWrite(); synctest.Wait(); a.Conn().CloseNow() }, 0},
		{"CloseWith", func(a *transport.StreamConn) { a.CloseWith(4410, "gone") }, 4410},
		{"CloseWith 1001", func(a *transport.StreamConn) { a.CloseWith(1001, "") }, 1001},
		{"empty close", func(a *transport.StreamConn) { a.CloseWith(1005, "") }, 1005},
		{"lost", func(a *transport.StreamConn) { a.Conn().CloseNow() }, 1006},
	} {
		t.Run(c.name, func(t *testing.T) {
			streamTest(t, transport.Options{}, func(t *testing.T, a, b *transport.StreamConn) {
				send(t, a, "some bytes")
				synctest.Wait()
				c.end(a)
				got, err := readEnd(b)
				if got != "some bytes" {
					t.Errorf("read %q before the end, want what was sent", got)
				}
				if c.want == 0 && err != io.EOF {
					t.Errorf("the peer's Read: %v, want io.EOF", err)
				}
				if c.want != 0 && (errors.Is(err, io.EOF) || transport.CloseCodeOf(err) != c.want) {
					t.Errorf("the peer's Read: %v, want a *CloseError with %d", err, c.want)
				}
				<-b.Conn().Done()
				synctest.Wait()
				if _, err := b.Write([]byte("x")); err == nil || errors.Is(err, io.EOF) {
					t.Errorf("Write after the end: %v, want how the connection ended", err)
				}
			})
		})
	}
}

func TestStreamConn_WhatIsNoByteStream(t *testing.T) {
	for _, c := range []struct {
		name string
		send func(t *testing.T, a transport.Conn)
		read string // what is read before the error
		eof  bool   // io.EOF was due before the violation
		want transport.CloseCode
	}{
		{"a text message", func(t *testing.T, a transport.Conn) {
			write(t, a, "hello")
		}, "", false, 1003},
		{"another frame", func(t *testing.T, a transport.Conn) {
			write(t, a, string(transport.Encode(transport.Opened{})))
		}, "", false, 1003},
		{"a long text message", func(t *testing.T, a transport.Conn) {
			write(t, a, strings.Repeat(" ", 60<<10)+`{"type":"stream:eof"`)
		}, "", false, 1003},
		{"bytes after EOF", func(t *testing.T, a transport.Conn) {
			write(t, a, string(transport.Encode(transport.EOF{})))
			_ = a.Write(transport.Binary, []byte("more"))
		}, "", true, 1002},
		{"EOF twice", func(t *testing.T, a transport.Conn) {
			write(t, a, `{ "type" : "stream:eof", "later": 1 }`)
			write(t, a, string(transport.Encode(transport.EOF{})))
		}, "", true, 1002},
		{"a message above the limit", func(t *testing.T, a transport.Conn) {
			_ = a.Write(transport.Binary, make([]byte, 64<<10+1))
		}, strings.Repeat("\x00", 64<<10), false, 1009},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, bc, stop := memPair(t, transport.Options{})
				defer stop()
				b := transport.NewStreamConn(bc)
				c.send(t, a)
				got, err := readEnd(b)
				if got != c.read {
					t.Errorf("read %d bytes, want %d", len(got), len(c.read))
				}
				if c.eof {
					if err != io.EOF {
						t.Errorf("Read: %v, want io.EOF", err)
					}
				} else if transport.CloseCodeOf(err) != c.want {
					t.Errorf("Read: %v, want a *CloseError with %d", err, c.want)
				}
				_, _, err = a.Reader()
				if transport.CloseCodeOf(err) != c.want {
					t.Errorf("the peer: %v, want %d", err, c.want)
				}
			})
		})
	}
}

func TestStreamConn_CloseWakesEverybody(t *testing.T) {
	for _, how := range []func(*transport.StreamConn){
		func(c *transport.StreamConn) { c.Close() },
		func(c *transport.StreamConn) { c.CloseWith(4410, "") },
	} {
		streamTest(t, transport.Options{}, func(t *testing.T, a, b *transport.StreamConn) {
			began := time.Now()
			errs := make(chan error, 4)
			for range 2 {
				go func() {
					_, err := a.Read(make([]byte, 1))
					errs <- err
				}()
				go func() {
					_, err := a.Write(make([]byte, 1<<20))
					errs <- err
				}()
			}
			synctest.Wait()
			how(a)
			for range 4 {
				if err := <-errs; !errors.Is(err, net.ErrClosed) {
					t.Errorf("a blocked call: %v, want net.ErrClosed", err)
				}
			}
			if d := time.Since(began); d != 0 {
				t.Errorf("the blocked calls were woken after %v", d)
			}
			if _, err := a.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
				t.Errorf("Read after Close: %v, want net.ErrClosed", err)
			}
			if _, err := a.Write(nil); !errors.Is(err, net.ErrClosed) {
				t.Errorf("Write after Close: %v, want net.ErrClosed", err)
			}
			if err := a.SetDeadline(time.Now()); !errors.Is(err, net.ErrClosed) {
				t.Errorf("SetDeadline after Close: %v, want net.ErrClosed", err)
			}
			if err := a.CloseWrite(); !errors.Is(err, net.ErrClosed) {
				t.Errorf("CloseWrite after Close: %v, want net.ErrClosed", err)
			}
			_ = b
		})
	}
}

// Close waits for nothing, and what was written before it still arrives.
func TestStreamConn_CloseSendsWhatWasWritten(t *testing.T) {
	streamTest(t, transport.Options{}, func(t *testing.T, a, b *transport.StreamConn) {
		a.SetWriteDeadline(time.Now().Add(time.Second))
		n, _ := a.Write(make([]byte, 1<<20)) // as much as goes in
		began := time.Now()
		a.Close()
		if d := time.Since(began); d != 0 {
			t.Errorf("Close took %v", d)
		}
		time.Sleep(time.Minute) // the peer is slow
		got, err := readEnd(b)
		if len(got) != n || err != io.EOF {
			t.Errorf("the peer read %d bytes, %v, want the %d that Write took and io.EOF", len(got), err, n)
		}
		<-a.Conn().Done()
	})
}

// What a slow peer has before the close frame may take it longer than
// CloseTimeout. To cut then could make TCP drop the rest of it.
func TestStreamConn_CloseGivesASlowPeerItsTime(t *testing.T) {
	o := transport.Options{CloseTimeout: time.Second, WriteTimeout: time.Minute}
	streamTest(t, o, func(t *testing.T, a, b *transport.StreamConn) {
		body := strings.Repeat("x", 96<<10)
		send(t, a, body)
		a.Close()
		for i := range 96 {
			time.Sleep(time.Second)
			synctest.Wait()
			if i < 24 && isDone(a.Conn()) { // b reads two chunks ahead
				t.Fatal("the connection was cut while the peer was still reading")
			}
			wantRead(t, b, body[:1<<10])
		}
		if _, err := b.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("Read: %v, want io.EOF", err)
		}
		<-a.Conn().Done()
	})
	streamTest(t, o, func(t *testing.T, a, b *transport.StreamConn) {
		send(t, a, "x")
		send(t, b, strings.Repeat("x", 48<<10))
		_, c := b.Conn(), a.Conn()
		a.Close()
		synctest.Wait()
		began := time.Now()
		c.CloseNow() // hastens it
		<-c.Done()
		if d := time.Since(began); d > time.Second {
			t.Errorf("CloseNow after Close took %v, want CloseTimeout at most", d)
		}
	})
}

func isDone(c transport.Conn) bool {
	select {
	case <-c.Done():
		return true
	default:
		return false
	}
}

// A peer that never reads ends a closed stream at WriteTimeout, or at
// CloseTimeout if it is not to be clean.
func TestStreamConn_CloseIsBounded(t *testing.T) {
	o := transport.Options{WriteTimeout: time.Minute, CloseTimeout: 2 * time.Second}
	streamTest(t, o, func(t *testing.T, a, b *transport.StreamConn) {
		began := time.Now()
		go a.Write(make([]byte, 1<<20))
		synctest.Wait()
		a.Close()
		<-a.Conn().Done()
		if d := time.Since(began); d != time.Minute {
			t.Errorf("the stream was over after %v, want the WriteTimeout of 1m", d)
		}
		_, err := readEnd(b)
		if transport.CloseCodeOf(err) != transport.CloseAbnormal || errors.Is(err, io.EOF) {
			t.Errorf("the peer's Read: %v, want CloseAbnormal", err)
		}
	})
	streamTest(t, o, func(t *testing.T, a, b *transport.StreamConn) {
		began := time.Now()
		go a.Write(make([]byte, 1<<20))
		synctest.Wait()
		a.Close()
		a.CloseWith(4410, "gave up") // no longer clean
		<-a.Conn().Done()
		if d := time.Since(began); d != 2*time.Second {
			t.Errorf("the stream was over after %v, want the CloseTimeout of 2s", d)
		}
		_, err := readEnd(b)
		if err == nil || errors.Is(err, io.EOF) {
			t.Errorf("the peer's Read: %v, want an end that is not clean", err)
		}
	})
}

// A writer that is paused by back-pressure ends when the connection dies
// (fault 30).
func TestStreamConn_LostConnectionFreesABlockedWrite(t *testing.T) {
	streamTest(t, transport.Options{}, func(t *testing.T, a, b *transport.StreamConn) {
		began := time.Now()
		written := make(chan error, 1)
		go func() {
			_, err := a.Write(make([]byte, 1<<20))
			written <- err
		}()
		synctest.Wait()
		b.Conn().CloseNow()
		if err := <-written; transport.CloseCodeOf(err) != transport.CloseAbnormal {
			t.Errorf("the blocked Write: %v, want a *CloseError with 1006", err)
		}
		if d := time.Since(began); d != 0 {
			t.Errorf("the blocked Write returned after %v", d)
		}
	})
}

// What Read does not take the peer cannot send, beyond a few buffers.
func TestStreamConn_BackPressure(t *testing.T) {
	streamTest(t, transport.Options{}, func(t *testing.T, a, b *transport.StreamConn) {
		a.SetWriteDeadline(time.Now().Add(time.Second))
		n, err := a.Write(make([]byte, 8<<20))
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("Write: %v, want os.ErrDeadlineExceeded", err)
		}
		if n > 512<<10 {
			t.Errorf("%d bytes went in without anybody reading", n)
		}
		_ = b
	})
}

// A stream that nobody reads or writes answers pings, which tell a live host
// from a dead one.
func TestStreamConn_IdleAnswersPings(t *testing.T) {
	streamTest(t, transport.Options{}, func(t *testing.T, a, b *transport.StreamConn) {
		for _, c := range []*transport.StreamConn{a, b} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if err := c.Conn().Ping(ctx); err != nil {
				t.Errorf("Ping: %v", err)
			}
			cancel()
		}
	})
}

// A peer may send one message without end: each fragment is there to read
// when it comes.
func TestStreamConn_FragmentsAreReadAsTheyCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ac, bc := transport.Pipe(nil)
		defer endConn(ac)
		defer endConn(bc)
		b := transport.NewStreamConn(bc)
		w, err := ac.Writer(transport.Binary)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range []string{"first", "second"} {
			if _, err := io.WriteString(w, s); err != nil {
				t.Fatal(err)
			}
			wantRead(t, b, s)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestStreamConn_Addresses(t *testing.T) {
	a, b := transport.Pipe(nil)
	defer endConn(a)
	defer endConn(b)
	s := transport.NewStreamConn(a)
	if s.Conn() != a {
		t.Error("Conn is not what NewStreamConn was given")
	}
	if got := s.RemoteAddr(); got.String() != a.RemoteAddr() || got.Network() != "websocket" {
		t.Errorf("RemoteAddr = %v (%s), want the Conn's %q", got, got.Network(), a.RemoteAddr())
	}
	if s.LocalAddr() == nil {
		t.Error("LocalAddr is nil")
	}
}
