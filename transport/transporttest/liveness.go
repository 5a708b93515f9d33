package transporttest

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dialback/dialback/transport"
)

// settle returns once everything in the bubble waits.
func settle() { synctest.Wait() }

var livenessCases = []testCase{
	{name: "Ping", run: ping},
	{name: "PingWithoutAnswerEndsWithItsContext", fakeTime: true, run: pingWithoutAnswer},
	{name: "PingWithAnEndedContext", run: pingWithAnEndedContext},
	{name: "ReceivedGrowsWithWhateverComes", run: receivedGrows},
	{name: "PingDuringABlockedWriteKillsNothing", fakeTime: true, options: transport.Options{ReadLimit: -1}, run: pingDuringABlockedWrite},
	{name: "OwnPingWaitsForNoWrite", fakeTime: true, options: transport.Options{ReadLimit: -1}, run: ownPingWaitsForNoWrite},
	{name: "ManyPings", run: manyPings},
	{name: "StalledWriteIsCutAtWriteTimeout", fakeTime: true, options: transport.Options{ReadLimit: -1, WriteTimeout: 7 * time.Second}, run: stalledWriteIsCut},
	{name: "SlowReaderIsNotCut", fakeTime: true, options: transport.Options{ReadLimit: -1, WriteTimeout: 7 * time.Second}, run: slowReaderIsNotCut},
	{name: "Writing", fakeTime: true, options: transport.Options{ReadLimit: -1}, run: writing},
}

func ping(t *testing.T, a, b transport.Conn) {
	startRead(a)
	startRead(b)
	for range 3 {
		if err := a.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func manyPings(t *testing.T, a, b transport.Conn) {
	startRead(a)
	startRead(b)
	var calls []*async[struct{}]
	for i := range 50 {
		c := a
		if i%2 == 1 {
			c = b
		}
		calls = append(calls,
			start(func() (struct{}, error) { return struct{}{}, c.Ping(t.Context()) }),
			start(func() (struct{}, error) { return struct{}{}, c.Write(transport.Binary, make([]byte, 5000)) }))
	}
	for _, c := range calls {
		if _, err := c.wait(); err != nil {
			t.Error(err)
		}
	}
}

func pingWithoutAnswer(t *testing.T, a, b transport.Conn) {
	startRead(a)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	began := time.Now()
	err := a.Ping(ctx) // b does not read
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Ping to a peer that does not read: %v, want context.DeadlineExceeded", err)
	}
	if d := time.Since(began); d != time.Minute {
		t.Errorf("Ping returned after %v, want its context's %v", d, time.Minute)
	}
	wantAlive(t, a, b)
}

// wantAlive checks that a message from a reaches b, and that pings pass. a is
// being read.
func wantAlive(t *testing.T, a, b transport.Conn) {
	t.Helper()
	if err := a.Write(transport.Text, []byte("alive")); err != nil {
		t.Fatalf("the connection has died: %v", err)
	}
	wantMessage(t, b, transport.Text, []byte("alive"))
	startRead(b)
	if err := a.Ping(t.Context()); err != nil {
		t.Fatalf("the connection has died: %v", err)
	}
}

func pingWithAnEndedContext(t *testing.T, a, b transport.Conn) {
	startRead(a)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := a.Ping(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Ping with an ended context: %v, want context.Canceled", err)
	}
	wantAlive(t, a, b)
}

// Messages, pings and pongs are signs of life.
func receivedGrows(t *testing.T, a, b transport.Conn) {
	grown := func(what string, c transport.Conn, before int64) {
		t.Helper()
		if now := c.Received(); now <= before {
			t.Errorf("after %s Received went from %d to %d", what, before, now)
		}
	}
	began := a.Received()
	if err := b.Write(transport.Text, []byte("x")); err != nil {
		t.Fatal(err)
	}
	wantMessage(t, a, transport.Text, []byte("x"))
	grown("a message", a, began)
	startRead(a)
	startRead(b)
	beforeA, beforeB := a.Received(), b.Received()
	if err := a.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	grown("a pong", a, beforeA)
	grown("a ping", b, beforeB)
}

// A ping that arrives while a write to the same peer is blocked once killed
// the read side after five seconds (fault 31). Its pong goes out as soon as
// the write is through.
func pingDuringABlockedWrite(t *testing.T, a, b transport.Conn) {
	ra, writer := startRead(a), startBlocked(a)
	settle()
	if !a.Writing() {
		t.Fatal("the Write should be blocked by now")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ping := start(func() (struct{}, error) { return struct{}{}, b.Ping(ctx) })
	time.Sleep(6 * time.Second)
	settle()
	if ra.returned() {
		_, err := ra.wait()
		t.Fatalf("the read side died: %v", err)
	}
	if err := b.Write(transport.Text, []byte("still read")); err != nil {
		t.Fatal(err)
	}
	m, err := readMessage(b)
	if err != nil || len(m.data) != bigMessage {
		t.Fatalf("the blocked message arrived with %d bytes, %v", len(m.data), err)
	}
	if _, err := writer.wait(); err != nil {
		t.Fatalf("the blocked Write: %v", err)
	}
	startRead(b)
	if _, err := ping.wait(); err != nil {
		t.Fatalf("the pong did not follow the blocked write: %v", err)
	}
	a.Close(transport.CloseNormal, "")
	if n, _ := ra.wait(); n > 1 {
		t.Errorf("read %d messages, want 1 at most", n)
	}
}

func ownPingWaitsForNoWrite(t *testing.T, a, b transport.Conn) {
	startRead(a)
	writer := startBlocked(a)
	settle()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	began := time.Now()
	err := a.Ping(ctx)
	if d := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || d != 10*time.Second {
		t.Errorf("Ping behind a blocked write: %v after %v, want context.DeadlineExceeded after 10s", err, d)
	}
	m, err := readMessage(b)
	if err != nil || len(m.data) != bigMessage {
		t.Fatalf("the blocked message arrived with %d bytes, %v", len(m.data), err)
	}
	if _, err := writer.wait(); err != nil {
		t.Fatalf("the blocked Write: %v", err)
	}
	wantAlive(t, a, b)
}

func stalledWriteIsCut(t *testing.T, a, b transport.Conn) {
	began := time.Now()
	ra, writer := startRead(a), startBlocked(a)
	_, err := writer.wait()
	wantEnd(t, "the stalled Write", err, transport.CloseAbnormal, "", false)
	if !errors.Is(err, transport.ErrStalled) {
		t.Errorf("the stalled Write: %v, want ErrStalled", err)
	}
	if d := time.Since(began); d != 7*time.Second {
		t.Errorf("the stalled Write was cut after %v, want the WriteTimeout of 7s", d)
	}
	if _, err = ra.wait(); !errors.Is(err, transport.ErrStalled) {
		t.Errorf("Reader after a stalled write: %v, want ErrStalled", err)
	}
	<-a.Done()
	_, err = startRead(b).wait()
	wantEnd(t, "the peer", err, transport.CloseAbnormal, "", true)
}

func slowReaderIsNotCut(t *testing.T, a, b transport.Conn) {
	startRead(a)
	const size = 1 << 20
	writer := start(func() (struct{}, error) { return struct{}{}, a.Write(transport.Binary, make([]byte, size)) })
	_, r, err := b.Reader()
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 16<<10)
	total := 0
	for {
		time.Sleep(time.Second) // 64 KiB take 4 s of the 7
		n, err := io.ReadFull(r, buf)
		total += n
		if err != nil {
			if total != size {
				t.Fatalf("read %d bytes of %d: %v", total, size, err)
			}
			break
		}
	}
	if _, err := writer.wait(); err != nil {
		t.Errorf("a write that made progress: %v", err)
	}
}

func writing(t *testing.T, a, b transport.Conn) {
	startRead(a)
	settle()
	if a.Writing() {
		t.Error("Writing before anything was written")
	}
	writer := startBlocked(a)
	settle()
	if !a.Writing() {
		t.Error("not Writing while a Write waits for the peer")
	}
	if _, err := readMessage(b); err != nil {
		t.Fatal(err)
	}
	if _, err := writer.wait(); err != nil {
		t.Fatal(err)
	}
	settle()
	if a.Writing() {
		t.Error("Writing after the Write has returned")
	}
}
