package transporttest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"testing"

	"github.com/dialback/dialback/transport"
)

var messageCases = []testCase{
	{name: "MessagesKeepTypeAndLength", options: transport.Options{ReadLimit: -1}, run: messagesKeepTypeAndLength},
	{name: "FragmentsAreOneMessage", run: fragmentsAreOneMessage},
	{name: "WriteWaitsForTheEndOfAMessage", fakeTime: true, run: writeWaitsForTheEndOfAMessage},
	{name: "LargeMessage", options: transport.Options{ReadLimit: -1}, run: largeMessage},
	{name: "ConcurrentWritesStayWhole", run: concurrentWritesStayWhole},
	{name: "ReadLimit", options: transport.Options{ReadLimit: 1000}, run: readLimit},
	// As good as none: nothing may be reckoned beyond it.
	{name: "LargestReadLimit", options: transport.Options{ReadLimit: math.MaxInt64}, run: fragmentsAreOneMessage},
	{name: "ReaderIsReadToItsEndFirst", run: readerIsReadToItsEndFirst},
	{name: "MisuseDoesNotEndTheConnection", run: misuseDoesNotEndTheConnection},
}

func messagesKeepTypeAndLength(t *testing.T, a, b transport.Conn) {
	for _, n := range []int{0, 1, 125, 126, 127, 4095, 4096, 4097, 65535, 65536, 65537, 200_000} {
		for _, kind := range []transport.MessageType{transport.Text, transport.Binary} {
			data := bytes.Repeat([]byte("dialback"), n/8+1)[:n]
			w := start(func() (struct{}, error) { return struct{}{}, a.Write(kind, data) })
			wantMessage(t, b, kind, data)
			if _, err := w.wait(); err != nil {
				t.Fatalf("Write of %d bytes: %v", n, err)
			}
		}
	}
}

func fragmentsAreOneMessage(t *testing.T, a, b transport.Conn) {
	w := start(func() (struct{}, error) {
		w, err := a.Writer(transport.Text)
		if err != nil {
			return struct{}{}, err
		}
		for _, part := range []string{"in ", "", "several ", "parts"} {
			if _, err := w.Write([]byte(part)); err != nil {
				return struct{}{}, err
			}
		}
		if err := w.Close(); err != nil {
			return struct{}{}, err
		}
		return struct{}{}, a.Write(transport.Binary, []byte("next"))
	})
	wantMessage(t, b, transport.Text, []byte("in several parts"))
	wantMessage(t, b, transport.Binary, []byte("next"))
	if _, err := w.wait(); err != nil {
		t.Fatal(err)
	}
}

func writeWaitsForTheEndOfAMessage(t *testing.T, a, b transport.Conn) {
	w, err := a.Writer(transport.Text)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("first ")); err != nil {
		t.Fatal(err)
	}
	other := start(func() (struct{}, error) { return struct{}{}, a.Write(transport.Text, []byte("second")) })
	settle()
	if other.returned() {
		t.Error("a Write went in between the fragments of a message")
	}
	if _, err := w.Write([]byte("message")); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	wantMessage(t, b, transport.Text, []byte("first message"))
	wantMessage(t, b, transport.Text, []byte("second"))
	if _, err := other.wait(); err != nil {
		t.Fatal(err)
	}
}

func largeMessage(t *testing.T, a, b transport.Conn) {
	data := make([]byte, 4<<20)
	for i := 0; i+4 <= len(data); i += 4 {
		binary.LittleEndian.PutUint32(data[i:], uint32(i)*2654435761)
	}
	w := start(func() (struct{}, error) { return struct{}{}, a.Write(transport.Binary, data) })
	wantMessage(t, b, transport.Binary, data)
	if _, err := w.wait(); err != nil {
		t.Fatal(err)
	}
}

func concurrentWritesStayWhole(t *testing.T, a, b transport.Conn) {
	const writers, each = 8, 50
	var calls []*async[struct{}]
	for i := range writers {
		calls = append(calls, start(func() (struct{}, error) {
			for j := range each {
				body := bytes.Repeat([]byte{byte(i)}, 1+i*700)
				m := fmt.Appendf(nil, "%d %d %s", i, j, body)
				if err := a.Write(transport.Binary, m); err != nil {
					return struct{}{}, err
				}
			}
			return struct{}{}, nil
		}))
	}
	var next [writers]int
	for range writers * each {
		m, err := readMessage(b)
		if err != nil {
			t.Fatal(err)
		}
		var i, j int
		var body string
		if _, err := fmt.Sscanf(string(m.data), "%d %d %s", &i, &j, &body); err != nil || i < 0 || i >= writers {
			t.Fatalf("message %.20q is not one that was written", m.data)
		}
		if j != next[i] {
			t.Fatalf("writer %d: message %d came where %d was due; one goroutine's writes keep their order", i, j, next[i])
		}
		next[i]++
		if want := string(bytes.Repeat([]byte{byte(i)}, 1+i*700)); body != want {
			t.Fatalf("writer %d: the body is mixed with another message", i)
		}
	}
	for _, c := range calls {
		if _, err := c.wait(); err != nil {
			t.Error(err)
		}
	}
}

func readLimit(t *testing.T, a, b transport.Conn) {
	fits := make([]byte, 1000)
	if err := a.Write(transport.Binary, fits); err != nil {
		t.Fatal(err)
	}
	wantMessage(t, b, transport.Binary, fits)

	sender := startRead(a)
	if err := a.Write(transport.Binary, make([]byte, 1001)); err != nil {
		t.Fatal(err)
	}
	_, err := readMessage(b)
	if code := transport.CloseCodeOf(err); code != transport.CloseTooBig {
		t.Errorf("reading a message above the ReadLimit: %v, want code 1009", err)
	}
	_, err = sender.wait()
	if code := transport.CloseCodeOf(err); code != transport.CloseTooBig {
		t.Errorf("the sender of a message above the ReadLimit got %v, want code 1009", err)
	}
	<-b.Done()
}

func readerIsReadToItsEndFirst(t *testing.T, a, b transport.Conn) {
	for range 2 {
		if err := a.Write(transport.Text, []byte("0123456789")); err != nil {
			t.Fatal(err)
		}
	}
	_, r, err := b.Reader()
	if err != nil {
		t.Fatal(err)
	}
	part := make([]byte, 4)
	if _, err := io.ReadFull(r, part); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.Reader(); err == nil {
		t.Fatal("Reader gave a message before the previous one was read to its end")
	}
	rest, err := io.ReadAll(r)
	if err != nil || string(rest) != "456789" {
		t.Fatalf("the rest of the message is %q, %v; the refused Reader has hurt it", rest, err)
	}
	if n, err := r.Read(part); n != 0 || err != io.EOF {
		t.Errorf("Read after the end: %d, %v, want 0, io.EOF", n, err)
	}
	wantMessage(t, b, transport.Text, []byte("0123456789"))
}

func misuseDoesNotEndTheConnection(t *testing.T, a, b transport.Conn) {
	if err := a.Write(0, nil); err == nil {
		t.Error("Write took a message of type 0")
	}
	if _, err := a.Writer(9); err == nil {
		t.Error("Writer took a message of type 9, which is a ping's")
	}
	w, err := a.Writer(transport.Text)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err == nil {
		t.Error("a writer could be closed twice")
	}
	if _, err := w.Write([]byte("late")); err == nil {
		t.Error("a closed writer took a fragment")
	}
	if err := a.Write(transport.Text, []byte("alive")); err != nil {
		t.Fatal(err)
	}
	wantMessage(t, b, transport.Text, nil)
	wantMessage(t, b, transport.Text, []byte("alive"))
}
