package agent

import (
	"bytes"
	"net"
	"strings"
)

var errUpgrade = headError("it switches to a protocol that was not asked for")

// switchProtocols passes a 101 on, and copies bytes until both sides have
// ended.
func (x *exchange) switchProtocols() bool {
	s, h, c := x.s, &x.s.answer, x.local
	if x.up != nil && x.up.wait() != nil {
		return x.broken()
	}
	b := appendStatus(x.buf, h)
	b = append(append(append(b, "Connection: Upgrade\r\nUpgrade: "...), h.upgrade...), "\r\n"...)
	b = append(h.appendFields(b), "\r\n"...)
	_, _ = c.in.Discard(x.headLen)
	s.unwatch()
	if _, err := s.Write(b); err != nil || !s.hold(nil) {
		return x.broken()
	}
	newSplice(&upgradedStream{s}, &upgradedConn{c}, s.svc.closeTimeout).run()
	return false
}

// upgradedStream is the stream of an upgrade. It yields first what came
// together with the request.
type upgradedStream struct{ *httpStream }

func (s *upgradedStream) Read(p []byte) (int, error) {
	if s.in.Buffered() > 0 {
		return s.in.Read(p)
	}
	return s.httpStream.Read(p)
}

// upgradedConn is the connection to the service of an upgrade. It yields first
// what came together with the 101.
type upgradedConn struct{ *localConn }

func (c *upgradedConn) Read(p []byte) (int, error) {
	if c.in.Buffered() > 0 {
		return c.in.Read(p)
	}
	return c.Conn.Read(p)
}

// Close cuts the connection.
func (c *upgradedConn) Close() error {
	c.close()
	return nil
}

// CloseWrite passes a half close on, if the connection can do that.
func (c *upgradedConn) CloseWrite() error {
	if cw, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return cw.CloseWrite()
	}
	return nil
}

// SetLinger is that of the socket, if there is one.
func (c *upgradedConn) SetLinger(sec int) error {
	if t, ok := transportOf(c.Conn).(*net.TCPConn); ok {
		return t.SetLinger(sec)
	}
	return nil
}

// maxLayers bounds the protocols that a service may pick: each is compared with
// all that are offered.
const maxLayers = 8

// offers reports whether a list of protocols offers all those that a service has
// picked, and it has picked one.
func offers(offer string, pick []byte) bool {
	if bytes.Count(pick, []byte{','}) >= maxLayers {
		return false
	}
	some := false
	for p := range strings.SplitSeq(string(pick), ",") {
		if p = strings.Trim(p, " \t"); p == "" {
			continue
		}
		if some = hasProtocol(offer, p); !some {
			return false
		}
	}
	return some
}

func hasProtocol(offer, name string) bool {
	for o := range strings.SplitSeq(offer, ",") {
		if strings.EqualFold(strings.Trim(o, " \t"), name) {
			return true
		}
	}
	return false
}
