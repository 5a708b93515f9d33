package relay_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dialback/dialback/relaytest"
	"github.com/dialback/dialback/transport"
)

// upgraded is a client's connection to host h after the 101 of a WebSocket, by
// hand: what comes on it is not read unless the test does.
func upgraded(t *testing.T, s *relaytest.Server) (net.Conn, *bufio.Reader) {
	t.Helper()
	c, err := s.Transport().DialContext(context.Background(), "tcp", "relay.test:80")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(c, "GET /hosts/h/ws HTTP/1.1\r\nHost: relay.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
	br := bufio.NewReaderSize(c, 1024)
	if resp, err := http.ReadResponse(br, nil); err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("the upgrade: %v %v, want 101", resp, err)
	}
	return c, br
}

// A client that is revoked while nothing more fits into its connection is not
// told why, and no byte of it reaches the host while the relay tries.
func TestRevoke_UpgradeWhoseClientTakesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		got := make(chan time.Time, 1000)
		s.StartAgent("h", handler(func(w http.ResponseWriter, r *http.Request) {
			c, err := transport.Accept(w, r, nil)
			if err != nil {
				t.Error(err)
				return
			}
			c.Write(transport.Binary, make([]byte, 64<<10-4)) // the client's buffer, with the frame's header
			for {
				_, r, err := c.Reader()
				if err != nil {
					break
				}
				io.Copy(io.Discard, r)
				got <- time.Now()
			}
			<-c.Done()
		}), nil)
		client, _ := upgraded(t, s)
		defer client.Close()
		synctest.Wait()
		go func() {
			for { // a frame of one byte each second
				if _, err := client.Write([]byte{0x82, 0x81, 0, 0, 0, 0, 'x'}); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		}()
		time.Sleep(10*time.Second + time.Millisecond)
		revoked := time.Now()
		if err := s.Relay.Revoke(context.Background(), "h", "stolen"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second) // CloseTimeout is 1 second
		if len(got) == 0 {
			t.Error("no byte of the client reached the host before the revoke")
		}
		for range len(got) {
			if at := <-got; at.After(revoked) {
				t.Errorf("a byte of the client reached the host %v after the revoke", at.Sub(revoked))
			}
		}
		settled(t, s, "CloseTimeout after the revoke")
	})
}

// A host that has ended its data socket with 1000 takes nothing more. Its client
// reads to the end, and does not keep the stream if it stays after that.
func TestUpgrade_HostThatHasEndedIsLeft(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		s.StartAgent("h", handler(func(w http.ResponseWriter, r *http.Request) {
			c, err := transport.Accept(w, r, nil)
			if err != nil {
				t.Error(err)
				return
			}
			c.Write(transport.Text, []byte("bye"))
			c.CloseNow()
			<-c.Done()
		}), nil)
		client, br := upgraded(t, s)
		defer client.Close()
		time.Sleep(5*time.Minute - time.Second) // StallTimeout
		if b, err := io.ReadAll(br); string(b) != "\x81\x03bye" || err != nil {
			t.Errorf("a client that is slow to read: %q, %v; want all that its host has sent", b, err)
		}
		time.Sleep(2 * time.Second)
		settled(t, s, "StallTimeout after the host has ended")
	})
}
