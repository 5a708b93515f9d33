package transport

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
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

// Dial connects to a ws:, wss:, http: or https: URL; o may be nil. It follows
// no redirect. ctx and HandshakeTimeout bound the handshake and have no effect
// once Dial has returned. The connection is the caller's to close.
//
// The error is a *HandshakeError if the server answered with something else
// than an upgrade; else it wraps the cause. Its text contains neither the
// query of the URL, nor its user and password, nor the value of a header:
// those carry credentials. What o.Transport's own functions say is wrapped as
// it is. Where the reason of the server's close frame has one of them, the
// CloseError has a placeholder instead.
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
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if timeout > 0 {
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}

	c := newWSConn(&o.Options)
	c.request = &request{url: u, header: o.Header.Clone()}
	h := newHandshake(ctx, c, o.Transport)
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: h.gotConn})
	ws, _, err := websocket.Dial(ctx, rawURL, &websocket.DialOptions{
		HTTPClient:      &http.Client{Transport: h, CheckRedirect: noRedirect},
		HTTPHeader:      o.Header,
		Host:            o.Header.Get("Host"),
		Subprotocols:    o.Subprotocols,
		CompressionMode: websocket.CompressionDisabled,
	})
	if err != nil {
		return nil, h.failure(err, u, o.Header)
	}
	if !h.release() {
		c.raw.cutOff(ctx.Err())
		return nil, h.failure(ctx.Err(), u, o.Header)
	}
	c.subprotocol = ws.Subprotocol()
	h.network.release(ws)
	return c, nil
}

func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// request is what a dial has sent that its peer must not have quoted.
type request struct {
	url    *url.URL
	header http.Header
}

// scrub returns the reason of a close frame, or a placeholder if it quotes the
// request. A reason has little room (see CutReason), so a token may be in it up
// to where it was cut.
func (r *request) scrub(reason string) string {
	return scrub(r.complete(reason), r.url, r.header)
}

// complete returns the reason with the rest of a header's value that it ends in.
func (r *request) complete(reason string) string {
	for _, values := range r.header {
		for _, v := range values {
			for part := range strings.FieldsSeq(v) {
				for n := min(len(part), len(reason)); n >= minSecret; n-- {
					if strings.HasSuffix(reason, part[:n]) {
						return reason + part[n:]
					}
				}
			}
		}
	}
	return reason
}
