package transport_test

import (
	"bytes"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dialback/dialback/transport"
)

// Until 32 KiB wait for Read, in however many messages, the StreamConn answers
// pings; and what has come is there after the end of the connection as well.
func TestStreamConn_ReadsAhead(t *testing.T) {
	for name, pair := range map[string]makePair{"Pipe": pipePair, "WebSocket": memPair} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b, stop := pair(t, transport.Options{})
				defer stop()
				s := transport.NewStreamConn(b)
				go a.Reader() // for the pongs
				var sent []byte
				for i := range 300 {
					p := bytes.Repeat([]byte{byte(i)}, 100)
					if err := a.Write(transport.Binary, p); err != nil {
						t.Fatal(err)
					}
					sent = append(sent, p...)
				}
				if err := a.Ping(t.Context()); err != nil || s.Full() {
					t.Errorf("with %d bytes unread: %v, full: %v", len(sent), err, s.Full())
				}
				a.CloseNow()
				time.Sleep(time.Second)
				got, err := io.ReadAll(s)
				if !bytes.Equal(got, sent) || err == nil {
					t.Errorf("%d of %d bytes, %v; want all, and an error behind them", len(got), len(sent), err)
				}
				s.Close()
			})
		})
	}
}

// More than that is left with the peer, until Read takes some.
func TestStreamConn_LeavesWithThePeerWhatIsNotRead(t *testing.T) {
	streamTest(t, transport.Options{}, func(t *testing.T, a, b *transport.StreamConn) {
		const size = 1 << 20
		go func() {
			a.Write(make([]byte, size))
			a.CloseWrite()
		}()
		synctest.Wait()
		if !b.Full() {
			t.Error("not full, although nobody reads")
		}
		if n, err := io.Copy(io.Discard, b); n != size || err != nil || b.Full() {
			t.Errorf("%d bytes, %v, full: %v", n, err, b.Full())
		}
	})
}
