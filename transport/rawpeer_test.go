package transport_test

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// rawPeer is a WebSocket client that has every byte in its hand.
type rawPeer struct {
	net.Conn
	br *bufio.Reader
}

// rawHandshake is a valid upgrade request.
const rawHandshake = "GET /?token=secret HTTP/1.1\r\nHost: relay\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
	"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"

// newRawPeer does the handshake on nc; early follows it in the same write.
func newRawPeer(t *testing.T, nc net.Conn, early []byte) *rawPeer {
	t.Helper()
	if _, err := nc.Write(append([]byte(rawHandshake), early...)); err != nil {
		t.Fatal(err)
	}
	p := &rawPeer{nc, bufio.NewReader(nc)}
	resp, err := http.ReadResponse(p.br, nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("handshake answered %d", resp.StatusCode)
	}
	return p
}

// rawFrame is a frame as a client sends it: masked, with a key of zeros.
func rawFrame(fin bool, opcode byte, payload string) []byte {
	if fin {
		opcode |= 0x80
	}
	b := []byte{opcode}
	switch n := len(payload); {
	case n < 126:
		b = append(b, 0x80|byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, 0x80|126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, 0x80|127), uint64(n))
	}
	return append(append(b, 0, 0, 0, 0), payload...)
}

func (p *rawPeer) send(t *testing.T, frame []byte) {
	t.Helper()
	if _, err := p.Write(frame); err != nil {
		t.Fatal(err)
	}
}

// frame reads one frame, which must not be masked.
func (p *rawPeer) frame() (opcode byte, payload string, err error) {
	var h [2]byte
	if _, err := io.ReadFull(p.br, h[:]); err != nil {
		return 0, "", err
	}
	n := uint64(h[1])
	switch n {
	case 126:
		var x [2]byte
		_, err = io.ReadFull(p.br, x[:])
		n = uint64(binary.BigEndian.Uint16(x[:]))
	case 127:
		var x [8]byte
		_, err = io.ReadFull(p.br, x[:])
		n = binary.BigEndian.Uint64(x[:])
	}
	if err != nil {
		return 0, "", err
	}
	var s strings.Builder
	_, err = io.CopyN(&s, p.br, int64(n))
	return h[0], s.String(), err
}

func (p *rawPeer) wantFrame(t *testing.T, opcode byte, payload string) {
	t.Helper()
	op, got, err := p.frame()
	if err != nil {
		t.Fatalf("reading a frame: %v", err)
	}
	if op != opcode || got != payload {
		t.Fatalf("got frame %#x %.60q, want %#x %.60q", op, got, opcode, payload)
	}
}
