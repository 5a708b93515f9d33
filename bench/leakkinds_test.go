package bench_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/dialback/dialback/relay"
	"github.com/dialback/dialback/transport"
)

// leakKind is one way in which a stream or an exchange lives and ends.
type leakKind struct {
	name string
	run  func(w *leakWorld, rng *rand.Rand) error // the error: it did not end as it should
}

var leakKinds = []leakKind{
	{"an exchange", (*leakWorld).getWhole},
	{"a POST", (*leakWorld).postWhole},
	{"an exchange whose client leaves at some moment", (*leakWorld).getLeaves},
	{"an exchange whose client leaves during the answer", (*leakWorld).getLeavesDuringAnswer},
	{"an exchange whose client leaves before the answer", (*leakWorld).getLeavesBeforeAnswer},
	{"a POST whose client breaks off", (*leakWorld).postBreaks},
	{"an exchange that the host breaks off", (*leakWorld).hostBreaksAnswer},
	{"a WebSocket whose client is cut off", (*leakWorld).webSocketCut},
	{"a stream", (*leakWorld).streamWhole},
	{"a stream whose client leaves at some moment", (*leakWorld).streamLeaves},
	{"a stream whose client is cut off", (*leakWorld).streamCut},
	{"a stream that the host breaks off", hostBreaksStream("cut")},
	{"a stream that the host breaks off at once", hostBreaksStream("mute")},
	{"a stream to a service that there is not", (*leakWorld).refused},
	{"a stream from inside the server", (*leakWorld).dialInside},
	{"an exchange from inside the server", (*leakWorld).getInside},
}

// size is mostly short, so that ten thousand streams are quick under the race
// detector, and sometimes longer than any buffer on the way.
func size(rng *rand.Rand) int {
	if rng.IntN(64) == 0 {
		return rng.IntN(256 << 10)
	}
	return rng.IntN(smallSize)
}

// soon is a moment at which a stream may be anywhere.
func soon(rng *rand.Rand) time.Duration {
	return time.Duration(rng.Int64N(int64(5 * time.Millisecond)))
}

func (w *leakWorld) request(ctx context.Context, method, path string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, w.url+"/hosts/"+leakHost+path, body)
	if err != nil {
		return nil, err
	}
	return w.client.Do(req)
}

// whole checks an answer of which nothing may be missing.
func whole(resp *http.Response, err error, want []byte) error {
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return fmt.Errorf("truncated after %d of %d bytes: %w", len(got), len(want), err)
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("status %d: %.200q", resp.StatusCode, got)
	case !bytes.Equal(got, want):
		return fmt.Errorf("got %d bytes that are not the %d that were sent", len(got), len(want))
	}
	return nil
}

func (w *leakWorld) getWhole(*rand.Rand) error {
	ctx, cancel := leakContext()
	defer cancel()
	resp, err := w.request(ctx, http.MethodGet, "/small", nil)
	return whole(resp, err, pattern[:smallSize])
}

func (w *leakWorld) postWhole(rng *rand.Rand) error {
	ctx, cancel := leakContext()
	defer cancel()
	body := pattern[:size(rng)]
	resp, err := w.request(ctx, http.MethodPost, "/echo", bytes.NewReader(body))
	return whole(resp, err, body)
}

// left checks that an exchange whose client left ended for that reason, if it
// did not end well before.
func left(ctx context.Context, resp *http.Response, err error) error {
	if err == nil {
		_, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	if err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

func (w *leakWorld) getLeaves(rng *rand.Rand) error {
	ctx, cancel := context.WithTimeout(context.Background(), soon(rng))
	defer cancel()
	resp, err := w.request(ctx, http.MethodGet, "/small", nil)
	return left(ctx, resp, err)
}

func (w *leakWorld) getLeavesBeforeAnswer(rng *rand.Rand) error {
	ctx, cancel := context.WithTimeout(context.Background(), soon(rng))
	defer cancel()
	resp, err := w.request(ctx, http.MethodGet, "/never", nil)
	if err := left(ctx, resp, err); err != nil {
		return err
	}
	if ctx.Err() == nil {
		return errors.New("a service that never answers did")
	}
	return nil
}

func (w *leakWorld) getLeavesDuringAnswer(rng *rand.Rand) error {
	ctx, cancel := leakContext()
	defer cancel()
	n, service := size(rng), "/stalling"
	if n > smallSize {
		service = "/endless"
	}
	resp, err := w.request(ctx, http.MethodGet, service, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.CopyN(io.Discard, resp.Body, int64(n))
	return err
}

func (w *leakWorld) postBreaks(rng *rand.Rand) error {
	ctx, cancel := leakContext()
	defer cancel()
	broken := errors.New("the client's body broke")
	body := io.MultiReader(bytes.NewReader(pattern[:size(rng)]), failingReader{broken})
	resp, err := w.request(ctx, http.MethodPost, "/echo", body)
	if err == nil {
		resp.Body.Close()
		return fmt.Errorf("a POST that broke off was answered with %d", resp.StatusCode)
	}
	if !errors.Is(err, broken) {
		return err
	}
	return nil
}

type failingReader struct{ err error }

func (r failingReader) Read([]byte) (int, error) { return 0, r.err }

func (w *leakWorld) hostBreaksAnswer(*rand.Rand) error {
	ctx, cancel := leakContext()
	defer cancel()
	resp, err := w.request(ctx, http.MethodGet, "/half", nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	// The break may overtake the answer's head; then the relay says so.
	if ctx.Err() != nil || err == nil && resp.StatusCode != http.StatusBadGateway {
		return fmt.Errorf("an answer of which half is missing ended with status %d after %d bytes: %v", resp.StatusCode, n, err)
	}
	return nil
}

func (w *leakWorld) dial(ctx context.Context, path string) (transport.Conn, error) {
	return transport.Dial(ctx, w.url+path, &transport.DialOptions{Options: transport.Options{ReadLimit: -1}})
}

func (w *leakWorld) connect(ctx context.Context, service string) (transport.Conn, error) {
	return w.dial(ctx, "/connect/"+leakHost+"?service="+service)
}

func (w *leakWorld) webSocketCut(rng *rand.Rand) error {
	ctx, cancel := leakContext()
	defer cancel()
	c, err := w.dial(ctx, "/hosts/"+leakHost+"/ws/echo")
	if err != nil {
		return err
	}
	defer c.CloseNow()
	want := pattern[:size(rng)]
	if err := c.Write(transport.Binary, want); err != nil {
		return err
	}
	got, err := readMessage(c, make([]byte, len(want)+1))
	if err == nil && !bytes.Equal(got, want) {
		err = errors.New("the echo is not what was sent")
	}
	return err
}

// echo sends some bytes, half closes, and checks that they come back.
func echo(c halfCloser, rng *rand.Rand) error {
	want := pattern[:size(rng)]
	if _, err := c.Write(want); err != nil {
		return err
	}
	if err := c.CloseWrite(); err != nil {
		return err
	}
	got, err := io.ReadAll(c)
	if err == nil && !bytes.Equal(got, want) {
		err = fmt.Errorf("%d bytes came back of %d", len(got), len(want))
	}
	return err
}

type halfCloser interface {
	io.ReadWriter
	CloseWrite() error
}

func (w *leakWorld) streamWhole(rng *rand.Rand) error {
	ctx, cancel := leakContext()
	defer cancel()
	c, err := w.connect(ctx, "echo")
	if err != nil {
		return err
	}
	s := transport.NewStreamConn(c)
	defer s.Close()
	return echo(s, rng)
}

// streamLeaves leaves during the handshake, during the dial, or later.
func (w *leakWorld) streamLeaves(rng *rand.Rand) error {
	ctx, cancel := context.WithTimeout(context.Background(), soon(rng))
	defer cancel()
	c, err := w.connect(ctx, "echo")
	if err != nil {
		if ctx.Err() == nil {
			return err
		}
		return nil
	}
	<-ctx.Done()
	c.Close(transport.CloseGoingAway, "")
	return nil
}

func (w *leakWorld) streamCut(rng *rand.Rand) error {
	ctx, cancel := leakContext()
	defer cancel()
	c, err := w.connect(ctx, "echo")
	if err != nil {
		return err
	}
	defer c.CloseNow()
	if rng.IntN(2) == 0 {
		return nil // before the host has dialed
	}
	if err := c.Write(transport.Binary, pattern[:64]); err != nil {
		return err
	}
	_, err = readMessage(c, make([]byte, chunkSize))
	return err
}

// hostBreaksStream checks that the client learns of the host's own words.
func hostBreaksStream(service string) func(*leakWorld, *rand.Rand) error {
	return func(w *leakWorld, _ *rand.Rand) error {
		ctx, cancel := leakContext()
		defer cancel()
		c, err := w.connect(ctx, service)
		if err != nil {
			return err
		}
		_ = c.Write(transport.Binary, []byte{0}) // may come too late
		return closedWith(c, transport.CloseInternal, service)
	}
}

func (w *leakWorld) refused(*rand.Rand) error {
	ctx, cancel := leakContext()
	defer cancel()
	c, err := w.connect(ctx, "nothing")
	if err != nil {
		return err
	}
	return closedWith(c, transport.CloseRefused, "")
}

// closedWith checks that the relay closes c with that code and, unless it is
// empty, that reason.
func closedWith(c transport.Conn, code transport.CloseCode, reason string) error {
	defer c.CloseNow()
	cut := time.AfterFunc(20*time.Second, c.CloseNow)
	defer cut.Stop()
	_, _, err := c.Reader()
	var ce *transport.CloseError
	if !errors.As(err, &ce) || !ce.Remote || ce.Code != code || reason != "" && ce.Reason != reason {
		return fmt.Errorf("ended with %v, want %d %s", err, code, reason)
	}
	return nil
}

func (w *leakWorld) dialInside(rng *rand.Rand) error {
	ctx, cancel := leakContext()
	defer cancel()
	c, err := w.relay.Dial(ctx, leakHost, relay.Target{Service: "echo"})
	if err != nil {
		return err
	}
	defer c.Close()
	if rng.IntN(2) == 0 {
		return nil
	}
	return echo(c.(halfCloser), rng)
}

func (w *leakWorld) getInside(*rand.Rand) error {
	ctx, cancel := leakContext()
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://host/small", nil)
	if err != nil {
		return err
	}
	resp, err := w.relay.RoundTripper(leakHost, relay.Target{}).RoundTrip(req)
	return whole(resp, err, pattern[:smallSize])
}
