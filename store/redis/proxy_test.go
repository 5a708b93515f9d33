package redis_test

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/dialback/dialback/internal/redistest"
)

// lossyProxy passes bytes between clients and a server until it is told to
// lose a reply.
type lossyProxy struct {
	// Immutable after newLossyProxy.
	server   *redistest.Server
	listener net.Listener

	lose    atomic.Int64 // counts down to the reply that is lost
	running sync.WaitGroup
}

func newLossyProxy(t *testing.T, s *redistest.Server) *lossyProxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &lossyProxy{server: s, listener: l}
	p.running.Go(p.accept)
	t.Cleanup(func() {
		_ = l.Close()
		p.running.Wait()
	})
	return p
}

// client returns a client that goes through the proxy.
func (p *lossyProxy) client(t *testing.T, maxRetries int) *goredis.Client {
	t.Helper()
	c := goredis.NewClient(&goredis.Options{Addr: p.listener.Addr().String(), MaxRetries: maxRetries})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// loseReply makes the proxy swallow the n-th reply from now and end the
// connection. It counts round trips if each is one reply, on a connection that
// is open already.
func (p *lossyProxy) loseReply(n int64) { p.lose.Store(n) }

// lost says whether the reply has been lost.
func (p *lossyProxy) lost() bool { return p.lose.Load() <= 0 }

func (p *lossyProxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial(p.server.Network, p.server.Addr)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.running.Go(func() { p.toServer(client, server) })
		p.running.Go(func() { p.toClient(client, server) })
	}
}

func (p *lossyProxy) toServer(client, server net.Conn) {
	copyUntil(server, client, func() bool { return false })
}

func (p *lossyProxy) toClient(client, server net.Conn) {
	copyUntil(client, server, func() bool { return p.lose.Add(-1) == 0 })
}

// copyUntil copies what it reads at once until a side ends or stop says so, and
// closes both.
func copyUntil(dst, src net.Conn, stop func() bool) {
	defer func() { _ = dst.Close() }()
	defer func() { _ = src.Close() }()
	buf := make([]byte, 64<<10)
	for {
		n, err := src.Read(buf)
		if err != nil || stop() {
			return
		}
		if _, err := dst.Write(buf[:n]); err != nil {
			return
		}
	}
}
