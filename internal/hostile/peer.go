package hostile

import (
	"bufio"
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// Opcodes of RFC 6455, section 5.2.
const (
	Text   = 0x1
	Binary = 0x2
	Close  = 0x8
	opPing = 0x9
	opPong = 0xA
)

// writeTimeout bounds a write to somebody who does not read.
const writeTimeout = time.Second

// Handshake is the header of a valid upgrade, without the empty line.
const Handshake = "Host: relay.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
	"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"

// Peer is one end of a WebSocket that sends what it is told to, and reads in
// the background. Its methods may be called concurrently.
type Peer struct {
	// Immutable after start.
	conn   net.Conn
	br     *bufio.Reader
	masked bool // it is a client: what it sends is masked
	onText func([]byte)
	done   chan struct{} // closed when the other end has ended

	mu     sync.Mutex // held for a write
	muted  bool
	code   int // of the close frame that came; 0 while none has
	reason string
	bytes  int // of payload that came
}

// Dial sends a request, whose last empty line is added, on conn, and reads the
// answer. Unless that is a 101 the peer is nil, and conn is closed when the
// answer's body was read. onText gets each text message that comes, in the
// reader's goroutine; it may be nil.
func Dial(conn net.Conn, request string, onText func([]byte)) (*Peer, *http.Response, error) {
	_ = conn.SetDeadline(time.Now().Add(10 * time.Minute))
	if _, err := io.WriteString(conn, request+"\r\n"); err != nil {
		_ = conn.Close()
		return nil, nil, err
	}
	br := bufio.NewReader(conn)
	resp, err := http.ReadResponse(br, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
		}
		_ = conn.Close()
		return nil, resp, err
	}
	_ = conn.SetDeadline(time.Time{})
	return start(conn, br, true, onText), resp, nil
}

// Accept answers a valid upgrade.
func Accept(w http.ResponseWriter, r *http.Request, onText func([]byte)) (*Peer, error) {
	conn, brw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, err
	}
	sum := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	answer := "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: " +
		base64.StdEncoding.EncodeToString(sum[:]) + "\r\n\r\n"
	if _, err := io.WriteString(conn, answer); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return start(conn, brw.Reader, false, onText), nil
}

func start(conn net.Conn, br *bufio.Reader, masked bool, onText func([]byte)) *Peer {
	p := &Peer{conn: conn, br: br, masked: masked, onText: onText, done: make(chan struct{})}
	go p.read()
	return p
}

// read takes frames until the connection ends.
func (p *Peer) read() {
	defer close(p.done)
	for {
		opcode, payload, err := p.frame()
		if err != nil {
			return
		}
		switch opcode {
		case Text:
			if p.onText != nil {
				p.onText(payload)
			}
		case opPing:
			if !p.isMuted() {
				p.Send(opPong, payload)
			}
		case Close:
			p.closed(payload)
			if !p.isMuted() {
				p.Send(Close, payload)
			}
		}
	}
}

// maxFrame is more than anybody sends in one frame.
const maxFrame = 1 << 20

var errFrame = errors.New("hostile: a frame that nobody sends")

// frame reads one frame.
func (p *Peer) frame() (opcode byte, payload []byte, err error) {
	var h [10]byte
	if _, err := io.ReadFull(p.br, h[:2]); err != nil {
		return 0, nil, err
	}
	n := uint64(h[1] & 0x7F)
	switch n {
	case 126:
		_, err = io.ReadFull(p.br, h[2:4])
		n = uint64(binary.BigEndian.Uint16(h[2:4]))
	case 127:
		_, err = io.ReadFull(p.br, h[2:10])
		n = binary.BigEndian.Uint64(h[2:10])
	}
	if err != nil {
		return 0, nil, err
	}
	if n > maxFrame {
		return 0, nil, errFrame
	}
	var key [4]byte
	if h[1]&0x80 != 0 {
		if _, err := io.ReadFull(p.br, key[:]); err != nil {
			return 0, nil, err
		}
	}
	payload = make([]byte, n)
	if _, err := io.ReadFull(p.br, payload); err != nil {
		return 0, nil, err
	}
	for i := range payload {
		payload[i] ^= key[i%4]
	}
	p.mu.Lock()
	p.bytes += len(payload)
	p.mu.Unlock()
	return h[0] & 0xF, payload, nil
}

// Masked is a final frame of that opcode as a client sends it.
func Masked(opcode byte, payload []byte) []byte { return frame(opcode, payload, true) }

func frame(opcode byte, payload []byte, masked bool) []byte {
	b := []byte{0x80 | opcode, 0}
	switch n := len(payload); {
	case n < 126:
		b[1] = byte(n)
	case n < 1<<16:
		b[1] = 126
		b = binary.BigEndian.AppendUint16(b, uint16(n))
	default:
		b[1] = 127
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	if masked {
		b[1] |= 0x80
		b = append(b, 0, 0, 0, 0) // a key that changes nothing
	}
	return append(b, payload...)
}

// Send sends one frame, and Raw any bytes, as far as the other end takes them.
func (p *Peer) Send(opcode byte, payload []byte) { p.Raw(frame(opcode, payload, p.masked)) }

// Raw sends bytes.
func (p *Peer) Raw(b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	_, _ = p.conn.Write(b)
}

// SendClose sends a close frame with any code and reason.
func (p *Peer) SendClose(code uint16, reason []byte) {
	p.Send(Close, append(binary.BigEndian.AppendUint16(nil, code), reason...))
}

// Mute keeps the peer from answering pings and close frames.
func (p *Peer) Mute() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.muted = true
}

func (p *Peer) isMuted() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.muted
}

func (p *Peer) closed(payload []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.code = 1005
	if len(payload) >= 2 {
		p.code, p.reason = int(binary.BigEndian.Uint16(payload)), string(payload[2:])
	}
}

// Closed returns the code and reason of the close frame that came; zero if none
// has.
func (p *Peer) Closed() (code int, reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.code, p.reason
}

// Received returns how many bytes of payload have come.
func (p *Peer) Received() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bytes
}

// Done is closed when the other end has ended.
func (p *Peer) Done() <-chan struct{} { return p.done }

// Close closes the connection without a word, and waits for the reader.
func (p *Peer) Close() {
	_ = p.conn.Close()
	<-p.done
}

// Upgraded is the client's end of a connection whose 101 has been read.
func Upgraded(conn net.Conn, br *bufio.Reader) *Peer { return start(conn, br, true, nil) }

// Conn is the connection beneath.
func (p *Peer) Conn() net.Conn { return p.conn }
