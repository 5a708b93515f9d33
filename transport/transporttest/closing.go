package transporttest

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/dialback/dialback/transport"
)

var closeCases = append([]testCase{
	{name: "DataArrivesBeforeTheClose", run: dataArrivesBeforeTheClose},
	{name: "CrossingCloses", run: crossingCloses},
	{name: "OnlyTheFirstCloseCounts", run: onlyTheFirstCloseCounts},
	{name: "CloseNowIsAbnormal", run: closeNowIsAbnormal},
	{name: "CloseNowFreesEverybody", fakeTime: true, options: transport.Options{ReadLimit: -1}, run: closeNowFreesEverybody},
	{name: "PeersCloseFreesABlockedWrite", fakeTime: true, options: transport.Options{ReadLimit: -1}, run: peersCloseFreesABlockedWrite},
	{name: "SilentPeerHasCloseTimeout", fakeTime: true, options: transport.Options{CloseTimeout: 3 * time.Second}, run: silentPeerHasCloseTimeout},
	{name: "CloseIsBoundedWhileAWriteIsBlocked", fakeTime: true, options: transport.Options{CloseTimeout: 3 * time.Second, ReadLimit: -1}, run: closeIsBoundedWhileAWriteIsBlocked},
	{name: "CloseInTheMiddleOfAMessage", run: func(t *testing.T, a, b transport.Conn) { closeInTheMiddle(t, a, b, 10) }},
	{name: "CloseInTheMiddleOfALargeMessage", run: func(t *testing.T, a, b transport.Conn) { closeInTheMiddle(t, a, b, 50_000) }},
	{name: "CloseWhileAFragmentIsBlocked", fakeTime: true, options: transport.Options{ReadLimit: -1}, run: closeWhileAFragmentIsBlocked},
	{name: "MessageCutBetweenFragmentsIsNotWhole", run: messageCutBetweenFragments},
}, codeCases()...)

// codeCases are the codes and reasons that Close is called with, and what the
// peer gets to see (fault 24).
func codeCases() []testCase {
	long := strings.Repeat("ä", 100)
	var cases []testCase
	for _, c := range []struct {
		name       string
		code       transport.CloseCode
		reason     string
		wantCode   transport.CloseCode
		wantReason string
	}{
		{"Normal", 1000, "", 1000, ""},
		{"GoingAway", 1001, "bye", 1001, "bye"},
		{"Internal", 1011, "broken", 1011, "broken"},
		{"Restart", 1012, "draining", 1012, "draining"},
		{"Library", 3000, "library", 3000, "library"},
		{"Replaced", 4409, "a newer socket", 4409, "a newer socket"},
		{"Last", 4999, "last", 4999, "last"},
		{"NoStatusHasNoReason", 1005, "dropped", 1005, ""},
		{"AbnormalCannotBeSent", 1006, "abnormal", 1011, "abnormal"},
		{"TLSCannotBeSent", 1015, "", 1011, ""},
		{"UnknownCannotBeSent", 2999, "", 1011, ""},
		{"LongReasonIsCutAtARune", 4000, long, 4000, long[:122]},
		{"ReasonIsMadeUTF8", 4000, "a\xffb", 4000, "a\uFFFDb"},
	} {
		cases = append(cases, testCase{name: "CloseCode" + c.name, run: func(t *testing.T, a, b transport.Conn) {
			ra, rb := startRead(a), startRead(b)
			a.Close(c.code, c.reason)
			_, err := rb.wait()
			wantEnd(t, "the peer", err, c.wantCode, c.wantReason, true)
			<-b.Done()
			wantEnd(t, "the peer's Write", b.Write(transport.Text, nil), c.wantCode, c.wantReason, true)
			_, err = ra.wait()
			wantEnd(t, "the closing end", err, c.wantCode, c.wantReason, false)
			<-a.Done()
		}})
	}
	return cases
}

func dataArrivesBeforeTheClose(t *testing.T, a, b transport.Conn) {
	for _, s := range []string{"one", "two", "three"} {
		if err := a.Write(transport.Text, []byte(s)); err != nil {
			t.Fatal(err)
		}
	}
	a.Close(transport.CloseNormal, "")
	for _, s := range []string{"one", "two", "three"} {
		wantMessage(t, b, transport.Text, []byte(s))
	}
	_, _, err := b.Reader()
	wantEnd(t, "the peer", err, transport.CloseNormal, "", true)
	<-a.Done()
	<-b.Done()
}

func crossingCloses(t *testing.T, a, b transport.Conn) {
	a.Close(4001, "a")
	b.Close(4002, "b")
	_, _, err := a.Reader()
	wantEnd(t, "a", err, 4001, "a", false)
	_, _, err = b.Reader()
	wantEnd(t, "b", err, 4002, "b", false)
	<-a.Done()
	<-b.Done()
}

func onlyTheFirstCloseCounts(t *testing.T, a, b transport.Conn) {
	rb := startRead(b)
	a.Close(4401, "first")
	a.Close(transport.CloseNormal, "second")
	a.CloseNow()
	_, err := rb.wait()
	wantEnd(t, "the peer", err, 4401, "first", true)
	<-a.Done()
	b.Close(transport.CloseNormal, "late")
	_, _, err = b.Reader()
	wantEnd(t, "the peer after a late Close", err, 4401, "first", true)
}

func closeNowIsAbnormal(t *testing.T, a, b transport.Conn) {
	ra, rb := startRead(a), startRead(b)
	a.CloseNow()
	_, err := ra.wait()
	wantEnd(t, "the end that cut", err, transport.CloseAbnormal, "", false)
	_, err = rb.wait()
	wantEnd(t, "the peer", err, transport.CloseAbnormal, "", true)
	<-a.Done()
	<-b.Done()
	wantEnd(t, "Write after the end", a.Write(transport.Text, nil), transport.CloseAbnormal, "", false)
	_, err = a.Writer(transport.Text)
	wantEnd(t, "Writer after the end", err, transport.CloseAbnormal, "", false)
	wantEnd(t, "Ping after the end", a.Ping(t.Context()), transport.CloseAbnormal, "", false)
}

func closeNowFreesEverybody(t *testing.T, a, b transport.Conn) {
	began := time.Now()
	reader, writer := startRead(a), startBlocked(a)
	settle()
	waiter := start(func() (struct{}, error) { return struct{}{}, a.Write(transport.Text, nil) })
	ping := start(func() (struct{}, error) { return struct{}{}, a.Ping(t.Context()) })
	settle()
	a.CloseNow()
	_, err := reader.wait()
	wantEnd(t, "Reader", err, transport.CloseAbnormal, "", false)
	_, err = writer.wait()
	wantEnd(t, "the blocked Write", err, transport.CloseAbnormal, "", false)
	_, err = waiter.wait()
	wantEnd(t, "the Write that waits for it", err, transport.CloseAbnormal, "", false)
	_, err = ping.wait()
	wantEnd(t, "Ping", err, transport.CloseAbnormal, "", false)
	<-a.Done()
	if d := time.Since(began); d != 0 {
		t.Errorf("CloseNow took %v to free everybody, want no time", d)
	}
	_, err = startRead(b).wait()
	wantEnd(t, "the peer", err, transport.CloseAbnormal, "", true)
}

// A writer that is paused by back-pressure ends when the connection does
// (fault 30).
func peersCloseFreesABlockedWrite(t *testing.T, a, b transport.Conn) {
	reader, writer := startRead(a), startBlocked(a)
	settle()
	if writer.returned() {
		t.Fatal("the Write should be blocked by now")
	}
	b.CloseNow()
	_, err := writer.wait()
	if code := transport.CloseCodeOf(err); code != transport.CloseAbnormal {
		t.Errorf("the blocked Write: %v, want CloseAbnormal", err)
	}
	_, err = reader.wait()
	wantEnd(t, "Reader", err, transport.CloseAbnormal, "", true)
	<-a.Done()
}

func silentPeerHasCloseTimeout(t *testing.T, a, b transport.Conn) {
	ra := startRead(a)
	a.Close(4408, "stale")
	time.Sleep(3*time.Second - time.Nanosecond)
	settle()
	if done(a) {
		t.Error("the connection was cut before CloseTimeout")
	}
	time.Sleep(time.Nanosecond)
	settle()
	if !done(a) {
		t.Error("the connection is not over at CloseTimeout")
	}
	_, err := ra.wait()
	wantEnd(t, "Reader", err, 4408, "stale", false)
	_, _, err = b.Reader()
	wantEnd(t, "the peer that reads late", err, 4408, "stale", true)
}

func closeIsBoundedWhileAWriteIsBlocked(t *testing.T, a, b transport.Conn) {
	reader, writer := startRead(a), startBlocked(a)
	settle()
	a.Close(4408, "stale")
	time.Sleep(3*time.Second - time.Nanosecond)
	settle()
	if done(a) || writer.returned() {
		t.Error("the connection was cut before CloseTimeout")
	}
	time.Sleep(time.Nanosecond)
	settle()
	if !done(a) {
		t.Error("the connection is not over at CloseTimeout")
	}
	_, err := writer.wait()
	wantEnd(t, "the blocked Write", err, 4408, "stale", false)
	_, err = reader.wait()
	wantEnd(t, "Reader", err, 4408, "stale", false)
	_, err = startRead(b).wait()
	wantEnd(t, "the peer", err, transport.CloseAbnormal, "", true)
}

// The peer of a message that is given up learns why, and does not take the
// part for the whole.
func closeInTheMiddle(t *testing.T, a, b transport.Conn, part int) {
	rb := startRead(b)
	w, err := a.Writer(transport.Binary)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(make([]byte, part)); err != nil {
		t.Fatal(err)
	}
	a.Close(4410, "gave up")
	n, err := rb.wait()
	if n != 0 {
		t.Error("an unfinished message was delivered as a whole one")
	}
	wantEnd(t, "the peer", err, 4410, "gave up", true)
	<-a.Done()
	if _, err := w.Write(make([]byte, 10)); err == nil {
		t.Error("the writer took a fragment after the end")
	}
	if err := w.Close(); err == nil {
		t.Error("the writer ended its message after the end of the connection")
	}
}

func closeWhileAFragmentIsBlocked(t *testing.T, a, b transport.Conn) {
	w, err := a.Writer(transport.Binary)
	if err != nil {
		t.Fatal(err)
	}
	writer := start(func() (int, error) { return w.Write(make([]byte, 1<<20+1)) })
	settle()
	a.Close(4410, "gave up")
	settle()
	n, err := startRead(b).wait()
	if n != 0 {
		t.Error("an unfinished message was delivered as a whole one")
	}
	wantEnd(t, "the peer", err, 4410, "gave up", true)
	_, _ = writer.wait() // whether it got through is left open
	<-a.Done()
}

func messageCutBetweenFragments(t *testing.T, a, b transport.Conn) {
	w, err := a.Writer(transport.Binary)
	if err != nil {
		t.Fatal(err)
	}
	sent := start(func() (struct{}, error) {
		for range 3 {
			if _, err := w.Write(make([]byte, 20_000)); err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, nil
	})
	_, r, err := b.Reader()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sent.wait(); err != nil {
		t.Fatal(err)
	}
	a.CloseNow()
	n, err := io.Copy(io.Discard, r)
	if err == nil {
		t.Fatalf("a message of which %d bytes came before the connection was lost looks whole", n)
	}
	wantEnd(t, "the peer", err, transport.CloseAbnormal, "", true)
}
