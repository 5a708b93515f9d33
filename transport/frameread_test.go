package transport_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/dialback/dialback/transport"
)

// Frames of every size and cut reach another implementation unharmed, and come
// back.
func TestFrames_WithAnotherImplementation(t *testing.T) {
	sizes := []int{0, 1, 2, 3, 4, 5, 7, 8, 125, 126, 127, 4081, 4082, 4096, 65520, 65521, 65535, 65536, 65537, 300_000}
	synctest.Test(t, func(t *testing.T) {
		s := newMemServer(t, &http.Server{}, &transport.AcceptOptions{Options: transport.Options{ReadLimit: -1}}, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		ws, _, err := websocket.Dial(ctx, "ws://relay:80/", &websocket.DialOptions{
			HTTPClient: &http.Client{Transport: &http.Transport{DialContext: s.network.DialContext}},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer ws.CloseNow()
		ws.SetReadLimit(-1)
		c := s.accept(t)
		go func() {
			for {
				typ, r, err := c.Reader()
				if err != nil {
					return
				}
				p, err := io.ReadAll(r)
				if err != nil {
					return
				}
				if len(p)%2 == 0 {
					c.Write(typ, p)
					continue
				}
				w, err := c.Writer(typ)
				if err != nil {
					return
				}
				for k := 0; k < len(p); k += 1000 {
					w.Write(p[k:min(k+1000, len(p))])
				}
				w.Close()
			}
		}()
		for _, n := range sizes {
			p := make([]byte, n)
			for i := range p {
				p[i] = byte(rand.Uint32())
			}
			if err := ws.Write(ctx, websocket.MessageBinary, p); err != nil {
				t.Fatalf("%d bytes: %v", n, err)
			}
			typ, got, err := ws.Read(ctx)
			if err != nil || typ != websocket.MessageBinary || !bytes.Equal(got, p) {
				t.Fatalf("%d bytes came back as %d of type %v, %v", n, len(got), typ, err)
			}
		}
		ws.Close(websocket.StatusNormalClosure, "")
		<-c.Done()
	})
}

// Of large frames that follow one another each comes in pieces that are as large
// as the reader wants, although headers are read through a small buffer.
func TestFrames_LargeFrameComesWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMemServer(t, &http.Server{}, nil, nil)
		p := s.rawPeer(t, nil)
		c := s.accept(t)
		for i := range 3 {
			p.send(t, rawFrame(true, 2, string(make([]byte, 30<<10))))
			synctest.Wait()
			_, r, err := c.Reader()
			if err != nil {
				t.Fatal(err)
			}
			n, err := r.Read(make([]byte, 64<<10))
			if i > 0 && (n != 30<<10 || err != io.EOF) {
				t.Errorf("frame %d: the first Read got %d bytes, %v, want the whole frame", i, n, err)
			}
			if _, err := io.Copy(io.Discard, r); err != nil {
				t.Fatal(err)
			}
		}
		c.CloseNow()
		<-c.Done()
	})
}

// What has come of a frame can be read while the rest has not, wherever the
// frame is cut: also where a buffer is full to its last byte.
func TestFrames_PartOfAFrameIsThereToRead(t *testing.T) {
	const header = 8 // of a masked frame of 10000 bytes
	frame := rawFrame(true, 2, string(make([]byte, 10_000)))
	for _, after := range []string{"nothing", "a small frame", "a large frame"} {
		for _, sent := range []int{header + 1, 4095, 4096, 4097} {
			synctest.Test(t, func(t *testing.T) {
				s := newMemServer(t, &http.Server{}, nil, nil)
				p := s.rawPeer(t, nil)
				c := s.accept(t)
				defer endConn(c)
				switch after {
				case "a small frame":
					p.send(t, rawFrame(true, 2, "x"))
					wantMessage(t, c, "x")
				case "a large frame":
					p.send(t, frame)
					wantMessage(t, c, string(make([]byte, 10_000)))
				}
				p.send(t, frame[:sent])
				stuck := time.AfterFunc(time.Minute, c.CloseNow)
				defer stuck.Stop()
				_, r, err := c.Reader()
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				for n := 0; n < sent-header; {
					k, err := r.Read(make([]byte, 32<<10))
					if d := time.Since(began); err != nil || d > 0 {
						t.Fatalf("after %s: %d bytes of a payload have come, and %d could be read within %v: %v", after, sent-header, n, d, err)
					}
					n += k
				}
			})
		}
	}
}

// FuzzFrameReader: whatever a peer sends, the reader ends with an error, holds
// to what a header says, and hands out no more than was sent.
func FuzzFrameReader(f *testing.F) {
	f.Add(rawFrame(true, 2, "hello"), false)
	f.Add(append(append(rawFrame(false, 1, "he"), rawFrame(true, 9, "ping")...), rawFrame(true, 0, "llo")...), false)
	f.Add(rawFrame(true, 8, "\x03\xe8bye"), false)
	f.Add([]byte{0x82, 3, 'a', 'b', 'c', 0x88, 0}, true)
	f.Add(binary.BigEndian.AppendUint64([]byte{0x82, 127}, 1<<63), true)
	f.Fuzz(func(t *testing.T, wire []byte, client bool) {
		total, controls := 0, 0
		err := transport.ReadFrames(wire, client, func(p []byte) { total += len(p) }, func(opcode byte, p []byte) {
			controls++
			if opcode < 8 || len(p) > 125 {
				t.Fatalf("control frame %#x of %d bytes", opcode, len(p))
			}
		})
		if err == nil || err == io.EOF {
			t.Fatalf("the end of the connection is %v", err)
		}
		if total+2*controls > len(wire) {
			t.Fatalf("%d bytes and %d control frames came of %d bytes", total, controls, len(wire))
		}
	})
}
