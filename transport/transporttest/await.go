package transporttest

import (
	"testing"

	"github.com/dialback/dialback/transport"
)

var awaitCases = []testCase{
	{name: "AwaitLosesNothing", run: awaitLosesNothing},
	{name: "AwaitEndsWithTheConnection", run: awaitEndsWithTheConnection},
	{name: "AwaitDoesNotDelayClose", fakeTime: true, run: awaitDoesNotDelayClose},
	{name: "AwaitAnswersPings", run: awaitAnswersPings},
}

// startAwaiting is startRead that waits in Await.
func startAwaiting(c transport.Conn) *async[int] {
	return start(func() (int, error) {
		for n := 0; ; n++ {
			c.Await()
			if _, err := readMessage(c); err != nil {
				return n, err
			}
		}
	})
}

func awaitLosesNothing(t *testing.T, a, b transport.Conn) {
	reader := startAwaiting(b)
	const n = 100
	for i := range n {
		if err := a.Write(transport.Text, make([]byte, i)); err != nil {
			t.Fatal(err)
		}
	}
	a.Close(transport.CloseNormal, "")
	got, err := reader.wait()
	wantEnd(t, "the reader", err, transport.CloseNormal, "", true)
	if got != n {
		t.Errorf("a reader that awaits got %d messages of %d", got, n)
	}
}

func awaitEndsWithTheConnection(t *testing.T, a, b transport.Conn) {
	ra, rb := startAwaiting(a), startAwaiting(b)
	a.CloseNow()
	_, err := ra.wait()
	wantEnd(t, "the end that cut", err, transport.CloseAbnormal, "", false)
	_, err = rb.wait()
	wantEnd(t, "the peer", err, transport.CloseAbnormal, "", true)
	a.Await() // returns at once
	b.Await()
	<-a.Done()
	<-b.Done()
}

// Close must find the peer's close frame although somebody waits in Await, and
// not only when CloseTimeout is over.
func awaitDoesNotDelayClose(t *testing.T, a, b transport.Conn) {
	ra, rb := startAwaiting(a), startAwaiting(b)
	settle()
	a.Close(4001, "bye")
	settle()
	if !done(a) || !done(b) {
		t.Errorf("Close while both ends await took time: done %v and %v, want both at once", done(a), done(b))
	}
	_, err := ra.wait()
	wantEnd(t, "the closing end", err, 4001, "bye", false)
	_, err = rb.wait()
	wantEnd(t, "the peer", err, 4001, "bye", true)
}

func awaitAnswersPings(t *testing.T, a, b transport.Conn) {
	ra, rb := startAwaiting(a), startAwaiting(b)
	for range 3 {
		if err := a.Ping(t.Context()); err != nil {
			t.Fatalf("Ping of an end that awaits: %v", err)
		}
	}
	a.CloseNow()
	_, _ = ra.wait()
	_, _ = rb.wait()
}
