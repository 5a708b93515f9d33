package transport

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// MaxControlFrame is the largest control frame that a peer may send, in bytes.
const MaxControlFrame = 64 << 10

// Frame is one of the control frames of this package. The types of this
// package are the only ones; a pointer to one is a Frame too.
type Frame interface {
	frameType() string
	encode(e *encoder)
}

// The control frames; see PROTOCOL.md. Strings are UTF-8; bytes that are not
// become U+FFFD on the way.
type (
	// Ping asks for a Pong in the same words: Op says {"op":"ping"} instead of
	// {"type":"ping"}. Host to relay.
	Ping struct{ Op bool }
	// Pong answers a Ping in its own words. It says that the relay would route
	// to this socket. Relay to host.
	Pong struct{ Op bool }

	// StreamDial tells the host to dial back. Relay to host. The fields of
	// proto 3 are left out when they are zero, as for a v2 host.
	StreamDial struct {
		Ticket     string // required
		Kind       string // required: KindWS, KindHTTP, KindTCP, KindSpare, or one of a later version
		Path       string
		Query      string // without "?"
		Generation uint64 // proto 3 from here on; of the attachment that is to dial
		Stream     string
		Service    string // empty is the default service
		Proto      string // ProtoHTTP, ProtoRaw
	}

	// Refuse says that the host cannot or will not dial back. Host to relay.
	// Without a ticket it is the first frame of a tcp data socket.
	//
	// Encode and Decode clean it: a Status other than 403, 404, 429 and 503 is
	// 502, and Reason is without control characters and cut to 123 bytes at a
	// rune, so that it fits into a close frame.
	Refuse struct {
		Ticket string
		Status int
		Reason string
	}

	// Ack says that the host has read the dial. Host to relay.
	Ack struct{ Ticket string }
	// Cancel says that the client left, so that the host need not dial. Relay
	// to host.
	Cancel struct{ Ticket string }

	// Hello is the first frame on a proto-3 control socket, once it is the
	// host's current one. It counts as a Pong. Relay to host.
	Hello struct {
		Node       string // may be empty
		Generation uint64 // required
	}
	// Drain asks the host to connect anew, after that many milliseconds, before
	// this socket is closed. Relay to host.
	Drain struct{ ReconnectAfterMs int64 }

	// Opened is the first frame of a tcp data socket: the service is reached.
	// On a spare it answers StreamOpen. Host to relay.
	Opened struct{}
	// StreamOpen is the first frame on a spare, and makes it a tcp data socket:
	// the bytes that follow are the client's. Relay to host.
	StreamOpen struct {
		Stream  string // required: the host opens no stream twice
		Service string // empty is the default service
		Proto   string // required: ProtoHTTP, ProtoRaw
	}
	// EOF half-closes a byte stream. Both ways.
	EOF struct{}

	// HTTPRequest begins the v2 exchange on a data socket. Relay to host.
	//
	// The values of Headers, here and in HTTPResponse, are bytes as in an HTTP
	// message; in JSON each byte is one code point, as in fetch. Neither names
	// nor values are checked. Decode gives nil for no headers.
	HTTPRequest struct {
		Method  string // required
		Path    string // required: path and query as sent
		Headers map[string]string
	}
	// HTTPResponse answers an HTTPRequest. Host to relay.
	HTTPResponse struct {
		Status  int // required, 100 to 999
		Headers map[string]string
	}
	// HTTPEnd ends the body of an HTTPRequest or HTTPResponse. Both ways.
	HTTPEnd struct{}
)

// The kinds of StreamDial.
const (
	KindWS    = "ws"    // v2: the host dials the service's WebSocket
	KindHTTP  = "http"  // v2: one HTTP exchange in frames
	KindTCP   = "tcp"   // a byte stream
	KindSpare = "spare" // a data socket in advance: StreamOpen says what it becomes
)

// The protocols of a byte stream.
const (
	ProtoHTTP = "http" // the agent terminates HTTP
	ProtoRaw  = "raw"  // bytes are for the service as they are
)

// ReasonAlreadyOpen is the reason of a Refuse by a host that has opened the
// stream already: over a spare, or by a dial beside it.
const ReasonAlreadyOpen = "already-open"

var (
	// ErrUnknownFrame: not a frame that this version knows; ignore it.
	ErrUnknownFrame = errors.New("transport: unknown frame")
	// ErrMalformed: a known frame that breaks its rules; ignore it too.
	ErrMalformed = errors.New("transport: malformed frame")
)

// Encode renders f as JSON text. It checks nothing: a frame without what it
// requires is one that Decode rejects, and a large one may be larger than
// MaxControlFrame.
func Encode(f Frame) []byte {
	e := &encoder{buf: make([]byte, 0, 256)}
	f.encode(e)
	return e.finish()
}

// ReadFrame waits for the next message of c and decodes it. The error is that of
// c, or one of Decode; a message that is not text is ErrUnknownFrame. It is a
// Reader of c while it waits.
func ReadFrame(c Conn) (Frame, error) {
	t, r, err := c.Reader()
	if err != nil {
		return nil, err
	}
	p, err := io.ReadAll(io.LimitReader(r, MaxControlFrame+1))
	if err != nil {
		return nil, err
	}
	if t != Text {
		return nil, ErrUnknownFrame
	}
	return Decode(p)
}

// Decode parses one frame, which is then a value of one of the types of this
// package. p is not retained.
//
// Members of other names are ignored. A type that is not known, and a text
// that is no JSON object with a type, is ErrUnknownFrame. The error wraps
// ErrMalformed if a known frame lacks what it requires or has a member of a
// wrong type, if a member that the protocol knows appears twice, if p is larger
// than MaxControlFrame, or if it is nested too deep. Null is the same as
// absent. Names are compared to the letter: {"Type":"ping"} has no type.
func Decode(p []byte) (Frame, error) {
	if len(p) > MaxControlFrame {
		return nil, fmt.Errorf("%w: larger than %d bytes", ErrMalformed, MaxControlFrame)
	}
	if nestedTooDeep(p) {
		return nil, fmt.Errorf("%w: nested too deep", ErrMalformed)
	}
	p = bytes.TrimLeft(p, " \t\r\n")
	if len(p) == 0 || p[0] != '{' || !json.Valid(p) {
		return nil, ErrUnknownFrame
	}
	var d decoder
	if err := d.collect(p); err != nil {
		return nil, err
	}
	f := d.frame()
	if d.err != nil {
		return nil, d.err
	}
	if f == nil {
		return nil, ErrUnknownFrame
	}
	return f, nil
}

// frame makes the frame of the collected members; nil if its type is unknown.
func (d *decoder) frame() Frame {
	name, op := d.name()
	switch name {
	case "ping":
		return Ping{Op: op}
	case "pong":
		return Pong{Op: op}
	}
	if op {
		return nil // only these two have a second spelling
	}
	switch name {
	case "stream:dial":
		return StreamDial{
			Ticket: d.required("ticket"), Kind: d.required("kind"),
			Path: d.optional("path"), Query: d.optional("query"),
			Generation: d.uint("generation", false),
			Stream:     d.optional("stream"), Service: d.optional("service"), Proto: d.optional("proto"),
		}
	case "stream:refuse":
		return Refuse{Ticket: d.optional("ticket"), Status: d.refusal("status"), Reason: d.optional("reason")}.clean()
	case "stream:ack":
		return Ack{Ticket: d.required("ticket")}
	case "stream:cancel":
		return Cancel{Ticket: d.required("ticket")}
	case "hello":
		return Hello{Node: d.optional("node"), Generation: d.uint("generation", true)}
	case "drain":
		return Drain{ReconnectAfterMs: d.millis("reconnectAfterMs")}
	case "stream:opened":
		return Opened{}
	case "stream:open":
		return StreamOpen{Stream: d.required("stream"), Service: d.optional("service"), Proto: d.required("proto")}
	case "stream:eof":
		return EOF{}
	case "http:request":
		return HTTPRequest{Method: d.required("method"), Path: d.required("path"), Headers: d.headers("headers")}
	case "http:response":
		return HTTPResponse{Status: d.status("status"), Headers: d.headers("headers")}
	case "http:end":
		return HTTPEnd{}
	}
	return nil
}

func (Ping) frameType() string         { return "ping" }
func (Pong) frameType() string         { return "pong" }
func (StreamDial) frameType() string   { return "stream:dial" }
func (Refuse) frameType() string       { return "stream:refuse" }
func (Ack) frameType() string          { return "stream:ack" }
func (Cancel) frameType() string       { return "stream:cancel" }
func (Hello) frameType() string        { return "hello" }
func (Drain) frameType() string        { return "drain" }
func (Opened) frameType() string       { return "stream:opened" }
func (StreamOpen) frameType() string   { return "stream:open" }
func (EOF) frameType() string          { return "stream:eof" }
func (HTTPRequest) frameType() string  { return "http:request" }
func (HTTPResponse) frameType() string { return "http:response" }
func (HTTPEnd) frameType() string      { return "http:end" }

func (f Ping) encode(e *encoder)   { e.begin(f, f.Op) }
func (f Pong) encode(e *encoder)   { e.begin(f, f.Op) }
func (f Opened) encode(e *encoder) { e.begin(f, false) }
func (f EOF) encode(e *encoder)    { e.begin(f, false) }

func (f StreamDial) encode(e *encoder) {
	e.begin(f, false)
	e.str("ticket", f.Ticket)
	e.str("kind", f.Kind)
	e.str("path", f.Path)
	e.str("query", f.Query)
	if f.Generation != 0 {
		e.uint("generation", f.Generation)
	}
	e.strUnlessEmpty("stream", f.Stream)
	e.strUnlessEmpty("service", f.Service)
	e.strUnlessEmpty("proto", f.Proto)
}

func (f Refuse) encode(e *encoder) {
	e.begin(f, false)
	f = f.clean()
	e.strUnlessEmpty("ticket", f.Ticket)
	e.uint("status", uint64(f.Status))
	e.str("reason", f.Reason)
}

func (f Ack) encode(e *encoder) {
	e.begin(f, false)
	e.str("ticket", f.Ticket)
}

func (f Cancel) encode(e *encoder) {
	e.begin(f, false)
	e.str("ticket", f.Ticket)
}

func (f Hello) encode(e *encoder) {
	e.begin(f, false)
	e.str("node", f.Node)
	e.uint("generation", f.Generation)
}

func (f Drain) encode(e *encoder) {
	e.begin(f, false)
	e.uint("reconnectAfterMs", uint64(max(0, f.ReconnectAfterMs)))
}

func (f StreamOpen) encode(e *encoder) {
	e.begin(f, false)
	e.str("stream", f.Stream)
	e.strUnlessEmpty("service", f.Service)
	e.str("proto", f.Proto)
}

func (f HTTPRequest) encode(e *encoder) {
	e.begin(f, false)
	e.str("method", f.Method)
	e.str("path", f.Path)
	e.headers("headers", f.Headers)
}

func (f HTTPResponse) encode(e *encoder) {
	e.begin(f, false)
	e.uint("status", uint64(max(0, f.Status)))
	e.headers("headers", f.Headers)
}

func (f HTTPEnd) encode(e *encoder) { e.begin(f, false) }
