package bench_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"testing"
	"time"

	"github.com/dialback/dialback/transport"
)

// dialWS opens a WebSocket with a bound.
func dialWS(url string) (transport.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return transport.Dial(ctx, url, &transport.DialOptions{Options: transport.Options{ReadLimit: -1, WriteTimeout: 10 * time.Second}})
}

// turnLimit bounds a turn, far above what it takes: what hangs is a failure.
const turnLimit = 20 * time.Second

// bound cuts c after turnLimit, unless stop is called before.
func bound(c transport.Conn) (stop func() bool) { return time.AfterFunc(turnLimit, c.CloseNow).Stop }

// hangUp closes c, waits until it is over, and returns err.
func hangUp(c transport.Conn, err error) error {
	if err != nil {
		c.CloseNow()
	} else {
		c.Close(transport.CloseNormal, "")
	}
	<-c.Done()
	return err
}

// readMessage reads a message that is shorter than buf.
func readMessage(c transport.Conn, buf []byte) ([]byte, error) {
	_, r, err := c.Reader()
	if err != nil {
		return nil, err
	}
	switch n, err := io.ReadFull(r, buf); err {
	case io.EOF, io.ErrUnexpectedEOF:
		return buf[:n], nil
	case nil:
		return nil, fmt.Errorf("a message of %d bytes or more", len(buf))
	default:
		return nil, err
	}
}

// closedNormally reports whether err is the peer's clean close.
func closedNormally(err error) bool {
	var ce *transport.CloseError
	return errors.As(err, &ce) && ce.Remote && ce.Code == transport.CloseNormal
}

// BenchmarkEcho is the round trip of 64 bytes on an open WebSocket.
func BenchmarkEcho(b *testing.B) {
	eachHost(b, func(b *testing.B, g *rig, relay *path) {
		conns := make(map[*path]transport.Conn)
		defer func() {
			for _, c := range conns {
				_ = hangUp(c, nil)
			}
		}()
		for _, p := range []*path{g.direct, g.hop, relay} {
			c, err := dialWS(p.url + "/ws/echo")
			if err != nil {
				b.Fatalf("%s: %v", p.name, err)
			}
			conns[p] = c
		}
		compare(b, g, relay, "µs", func(p *path) (float64, error) { return echoTime(conns[p]) })
	})
}

// echoTime is the median round trip of one turn, in microseconds.
func echoTime(c transport.Conn) (float64, error) {
	defer bound(c)()
	var times []float64
	want, buf := pattern[:echoSize], make([]byte, echoSize+1)
	for began, end := time.Now(), time.Now().Add(turnTime); began.Before(end); {
		if err := c.Write(transport.Binary, want); err != nil {
			return 0, err
		}
		got, err := readMessage(c, buf)
		if err != nil {
			return 0, err
		}
		if !bytes.Equal(got, want) {
			return 0, fmt.Errorf("echo: %x came back as %x", want, got)
		}
		now := time.Now()
		times = append(times, float64(now.Sub(began).Nanoseconds())/1e3)
		began = now
	}
	return median(times), nil
}

// BenchmarkOpen is the time from nothing to the first byte of a new stream: a
// WebSocket to a service that speaks first, for the relay /connect.
func BenchmarkOpen(b *testing.B) {
	eachHost(b, func(b *testing.B, g *rig, relay *path) {
		compare(b, g, relay, "µs", openTime)
	})
}

// openTime is the median set-up time of one turn, in microseconds.
func openTime(p *path) (float64, error) {
	var times []float64
	for end := time.Now().Add(turnTime); time.Now().Before(end); {
		took, err := openOnce(p)
		if err != nil {
			return 0, err
		}
		times = append(times, float64(took.Nanoseconds())/1e3)
	}
	return median(times), nil
}

// openOnce is the set-up time of one stream.
func openOnce(p *path) (took time.Duration, err error) {
	began := time.Now()
	c, err := dialWS(p.greeting)
	if err != nil {
		return 0, err
	}
	stop := bound(c)
	got, err := readMessage(c, make([]byte, len(greeting)+1))
	stop()
	took = time.Since(began)
	if err == nil && string(got) != greeting {
		err = fmt.Errorf("greeted with %q", got)
	}
	return took, hangUp(c, err)
}

// BenchmarkBulk is 32 MiB in messages of 32 KiB over a new WebSocket.
func BenchmarkBulk(b *testing.B) {
	for _, d := range []struct {
		name, service string
		run           func(transport.Conn) error
	}{
		{"up", "/ws/sink", sendBulk},
		{"down", "/ws/flood", receiveBulk},
	} {
		b.Run(d.name, func(b *testing.B) {
			eachHost(b, func(b *testing.B, g *rig, relay *path) {
				compare(b, g, relay, "MB/s", func(p *path) (float64, error) {
					c, err := dialWS(p.url + d.service)
					if err != nil {
						return 0, err
					}
					defer bound(c)()
					began := time.Now()
					err = d.run(c)
					took := time.Since(began)
					return bulkSize / 1e6 / took.Seconds(), hangUp(c, err)
				})
			})
		})
	}
}

// sendBulk ends when the service has all and says so.
func sendBulk(c transport.Conn) error {
	for range bulkSize / chunkSize {
		if err := c.Write(transport.Binary, pattern[:chunkSize]); err != nil {
			return err
		}
	}
	if err := c.Write(transport.Text, []byte("end")); err != nil {
		return err
	}
	got, err := readMessage(c, make([]byte, 32))
	if err == nil && string(got) != strconv.Itoa(bulkSize) {
		err = fmt.Errorf("%q of %d bytes arrived", got, bulkSize)
	}
	return err
}

// receiveBulk ends with the service's clean close.
func receiveBulk(c transport.Conn) error {
	if err := c.Write(transport.Text, []byte("go")); err != nil {
		return err
	}
	buf := make([]byte, chunkSize+1)
	for n := 0; ; n++ {
		got, err := readMessage(c, buf)
		switch {
		case n == bulkSize/chunkSize && closedNormally(err):
			return nil
		case err != nil:
			return fmt.Errorf("after %d of %d messages: %w", n, bulkSize/chunkSize, err)
		case !bytes.Equal(got, pattern[:chunkSize]):
			return fmt.Errorf("message %d is not what was sent", n)
		}
	}
}
