package transport_test

import (
	"testing"

	"github.com/dialback/dialback/transport/transporttest"
)

func TestConn_Pipe(t *testing.T)         { transporttest.TestConn(t, pipePair) }
func TestConn_PipeInBubble(t *testing.T) { transporttest.TestConnBubble(t, pipePair) }
func TestConn_WebSocketInBubble(t *testing.T) {
	transporttest.TestConnBubble(t, memPair)
}
func TestConn_WebSocketOverTCP(t *testing.T) { transporttest.TestConn(t, tcpPair) }
