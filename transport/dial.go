package transport

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// DialOptions configure Dial.
type DialOptions struct {
	Options
	Header       http.Header // of the handshake request; Host overrides that of the URL
	Subprotocols []string    // offered in this order
	// Transport makes the connection; nil means one of our own with
	// ProxyFromEnvironment. Either way it is HTTP/1.1.
	Transport *http.Transport
	// HandshakeTimeout bounds DNS, connect, TLS and upgrade together. Zero
	// means 10 seconds, negative no limit but ctx.
	HandshakeTimeout time.Duration
}

// HandshakeError is a dial that the server answered with something else than
// an upgrade.
type HandshakeError struct {
	Status     int
	RetryAfter time.Duration // of the Retry-After header; zero if none
	Code       string        // error.code of the JSON body; empty if none
	Message    string        // error.message of the JSON body
}

// Error tells the status and what the server said about it.
func (e *HandshakeError) Error() string {
	s := fmt.Sprintf("transport: the server answered %d instead of an upgrade", e.Status)
	if e.Code != "" {
		s += " (" + e.Code + ")"
	}
	if e.Message != "" {
		s += ": " + e.Message
	}
	return s
}

// Dial connects to a ws:, wss:, http: or https: URL; o may be nil. It follows
// no redirect. ctx and HandshakeTimeout bound the handshake and have no effect
// once Dial has returned. The connection is the caller's to close.
//
// The error is a *HandshakeError if the server answered with something else
// than an upgrade; else it wraps the cause. Its text contains neither the
// query of the URL nor the value of a header: those carry credentials.
func Dial(ctx context.Context, rawURL string, o *DialOptions) (Conn, error) {
	if o == nil {
		o = &DialOptions{}
	}
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, errors.New("transport: dial: the URL cannot be parsed")
	}
	timeout := o.HandshakeTimeout
	if timeout == 0 {
		timeout = defaultHandshakeTimeout
	}
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}

	c := newWSConn(&o.Options)
	h := &handshake{base: o.Transport, conn: c}
	if h.base == nil {
		h.base = defaultTransport()
	}
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: h.gotConn})
	ws, _, err := websocket.Dial(ctx, rawURL, &websocket.DialOptions{
		HTTPClient:      &http.Client{Transport: h, CheckRedirect: noRedirect},
		HTTPHeader:      o.Header,
		Host:            o.Header.Get("Host"),
		Subprotocols:    o.Subprotocols,
		CompressionMode: websocket.CompressionDisabled,
		OnPingReceived:  c.onPing,
		OnPongReceived:  c.onPong,
	})
	if err != nil {
		return nil, h.failure(err, u, o.Header)
	}
	c.start(ws)
	return c, nil
}

// defaultTransport is for dials that bring no Transport. It keeps no idle
// connections: a refused handshake leaves nothing behind.
var defaultTransport = sync.OnceValue(func() *http.Transport {
	return &http.Transport{
		Proxy:             http.ProxyFromEnvironment,
		DialContext:       (&net.Dialer{}).DialContext,
		DisableKeepAlives: true,
	}
})

func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// handshake is the RoundTripper of one Dial. It puts conn's rawConn between
// the WebSocket library and the network.
type handshake struct {
	base *http.Transport
	conn *wsConn

	// Owned by the goroutine that dials.
	nc     net.Conn // of the connection that the request went out on
	answer *HandshakeError
}

func (h *handshake) gotConn(i httptrace.GotConnInfo) { h.nc = i.Conn }

// RoundTrip implements http.RoundTripper.
func (h *handshake) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := h.base.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		h.answer = readAnswer(resp)
		// http.Client would parse it, and quote it in an error.
		resp.Header.Del("Location")
		return resp, nil
	}
	if h.nc == nil {
		_ = resp.Body.Close()
		return nil, errors.New("the transport does not tell its connection")
	}
	c := h.conn
	c.raw = newRawConn(h.nc, resp.Body, true, c.opts.WriteTimeout, c.writeBroke)
	resp.Body = c.raw
	return resp, nil
}

// maxAnswer bounds what is read of the body of a refused handshake, in bytes.
const maxAnswer = 4 << 10

// readAnswer makes a HandshakeError of an answer, and reads its body.
func readAnswer(resp *http.Response) *HandshakeError {
	e := &HandshakeError{Status: resp.StatusCode, RetryAfter: retryAfter(resp.Header.Get("Retry-After"))}
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	_ = resp.Body.Close()
	resp.Body = http.NoBody
	var j struct {
		Error struct{ Code, Message string }
	}
	if json.Unmarshal(body, &j) == nil {
		e.Code, e.Message = j.Error.Code, j.Error.Message
	}
	return e
}

// retryAfter parses a Retry-After header, in seconds or as a date.
func retryAfter(s string) time.Duration {
	const most = 24 * time.Hour
	if n, err := strconv.ParseUint(s, 10, 32); err == nil {
		return min(time.Duration(n)*time.Second, most)
	}
	if t, err := http.ParseTime(s); err == nil {
		return min(max(time.Until(t), 0), most)
	}
	return 0
}

// failure is the error of a dial that failed with err.
func (h *handshake) failure(err error, u *url.URL, header http.Header) error {
	if a := h.answer; a != nil {
		a.Code, a.Message = scrub(a.Code, u, header), scrub(a.Message, u, header)
		return a
	}
	var ue *url.Error
	if errors.As(err, &ue) { // its text has the URL
		err = ue.Err
	}
	text := err.Error()
	if scrub(text, u, header) != text {
		err = errors.New("the server's answer cannot be read")
	}
	return fmt.Errorf("transport: dial %s: %w", u.Host, err)
}

// scrub returns s, or a placeholder if s quotes what may be a secret: a server
// can send back whatever it was sent.
func scrub(s string, u *url.URL, header http.Header) string {
	const hidden = "(not shown, since it quotes the request)"
	if u.RawQuery != "" && strings.Contains(s, u.RawQuery) {
		return hidden
	}
	for _, values := range u.Query() {
		for _, v := range values {
			if len(v) >= 8 && strings.Contains(s, v) {
				return hidden
			}
		}
	}
	for _, values := range header {
		for _, v := range values {
			for part := range strings.FieldsSeq(v) {
				if len(part) >= 8 && strings.Contains(s, part) {
					return hidden
				}
			}
		}
	}
	return s
}
