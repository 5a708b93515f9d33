package relay_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/dialback/dialback/relaytest"
	"github.com/dialback/dialback/transport"
)

// A host may agree to an upgrade before the request's body has come: the body and
// what follows it arrive in their order. A client that never sends it gets a 502.
func TestUpgrade_AgreedBeforeTheBody(t *testing.T) {
	for _, sends := range []bool{true, false} {
		bubble(t, func(t *testing.T) {
			s := server(t, nil)
			got := make(chan string, 1)
			s.MustConnect("h", relaytest.HostConfig{Proto: 3, OnDial: func(h *relaytest.Host, d transport.StreamDial) {
				c, err := h.Open(d)
				if err != nil {
					return
				}
				br := bufio.NewReader(c)
				if _, err := http.ReadRequest(br); err != nil {
					return
				}
				io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n")
				b, _ := io.ReadAll(br)
				c.Close()
				got <- string(b)
			}})
			c, err := s.Transport().DialContext(context.Background(), "tcp", "relay.test:80")
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(c, "POST /hosts/h/ HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: other\r\nContent-Length: 4\r\n\r\n")
			time.Sleep(time.Second)
			want, status := "", http.StatusBadGateway
			if sends {
				fmt.Fprint(c, "body")
				want, status = "bodyafter", http.StatusSwitchingProtocols
			}
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil || resp.StatusCode != status {
				t.Fatal(resp, err)
			}
			fmt.Fprint(c, "after")
			c.Close()
			if b := <-got; b != want {
				t.Errorf("sends %v: the host got %q, want %q", sends, b, want)
			}
			settled(t, s, "after the upgrade")
		})
	}
}
