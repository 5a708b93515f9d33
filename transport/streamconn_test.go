package transport_test

import (
	"net"
	"testing"

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
