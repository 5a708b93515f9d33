package agent

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/dialback/dialback/transport"
)

// TCPOptions configure ForwardTCPWith.
type TCPOptions struct {
	// DialContext dials the service. Nil means net.Dialer's, by TCP. The
	// stream of a call that fails, panics, returns no connection or takes
	// longer than Config.DialTimeout is refused; up to 100 calls that were
	// given up and have not returned are left behind.
	DialContext func(ctx context.Context, network, addr string) (net.Conn, error)
}

// ForwardTCP is a raw service: each stream is spliced to a TCP connection of
// its own to addr, "127.0.0.1:22". Either side may speak first, and half
// closes are passed on. A connection that the service resets ends its stream
// with 1011; one that ends cleanly, with 1000. A stream that ends without a
// clean close resets the connection, so that the service takes no truncated
// input for a whole one; of a *tls.Conn of TCPOptions.DialContext, the TCP
// connection below. What is not TCP cannot be reset and is closed, a Unix
// socket for one: TLS over it ends without close_notify, and else its service
// sees a clean end.
func ForwardTCP(addr string) Handler { return ForwardTCPWith(addr, TCPOptions{}) }

// ForwardTCPWith is ForwardTCP with options.
func ForwardTCPWith(addr string, o TCPOptions) Handler {
	return &tcpHandler{addr: addr, dial: o.DialContext}
}

type tcpHandler struct {
	addr string
	dial dialFunc // nil: net.Dialer's
}

func (h *tcpHandler) check() error {
	if _, port, err := net.SplitHostPort(h.addr); err != nil || port == "" || strings.Contains(port, "/") {
		return fmt.Errorf("%q is not host:port", h.addr)
	}
	return nil
}

func (h *tcpHandler) proto() string { return transport.ProtoRaw }

func (h *tcpHandler) start(e env) service {
	return &tcpService{addr: h.addr, dial: e.dialer(h.dial), timeout: e.dialTimeout, grace: e.closeTimeout}
}

type tcpService struct {
	addr    string
	dial    dialFunc
	timeout time.Duration
	grace   time.Duration
}

func (s *tcpService) stop() {}

func (s *tcpService) open(ctx context.Context, info StreamInfo) (endpoint, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	conn, err := s.dial(ctx, "tcp", s.addr)
	if err != nil {
		return nil, serviceDown(info.Service, err)
	}
	return &tcpEndpoint{conn: conn, grace: s.grace}, nil
}

type tcpEndpoint struct {
	conn  net.Conn
	grace time.Duration
}

func (e *tcpEndpoint) abandon() { _ = e.conn.Close() }

func (e *tcpEndpoint) serve(s *dataSocket) {
	newSplice(&byteStream{dataSocket: s}, e.conn, e.grace).run()
}
