package relay_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dialback/dialback/agent"
	"github.com/dialback/dialback/relay"
	"github.com/dialback/dialback/relaytest"
	"github.com/dialback/dialback/transport"
)

// longer than StallTimeout: what lasts for so long is not taken for dead.
const longer = 8 * time.Minute

// raw is a byte stream service.
func raw(serve func(st *agent.Stream)) map[string]agent.Handler {
	return map[string]agent.Handler{"": agent.Raw(func(_ context.Context, st *agent.Stream) { serve(st) })}
}

// Bytes that the embedding program does not read for a while are there when it
// does, also if they are so many that no pong gets past them, and what it writes
// meanwhile goes out.
func TestKeepalive_DialedStreamThatIsNotRead(t *testing.T) {
	for _, size := range []int{5, 80 << 10} {
		bubble(t, func(t *testing.T) {
			s := server(t, nil)
			got := make(chan int64, 1)
			s.StartAgent("h", raw(func(st *agent.Stream) {
				go io.WriteString(st, strings.Repeat("w", size))
				n, _ := io.Copy(io.Discard, st)
				got <- n
			}), nil)
			c, err := s.Relay.Dial(context.Background(), "h", relay.Target{})
			if err != nil {
				t.Fatal(err)
			}
			for range longer / time.Minute {
				if _, err := c.Write([]byte("x")); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
			}
			if _, err := io.ReadFull(c, make([]byte, size)); err != nil {
				t.Errorf("after %v: %v, want the %d bytes", longer, err, size)
			}
			c.Close()
			if n := <-got; n != int64(longer/time.Minute) {
				t.Errorf("the host got %d bytes, want %d", n, longer/time.Minute)
			}
		})
	}
}

// ticks writes each second.
func ticks(w io.Writer, flush func() error) error {
	for range longer / time.Second {
		if _, err := io.WriteString(w, "tick"); err != nil {
			return err
		}
		if err := flush(); err != nil {
			return err
		}
		time.Sleep(time.Second)
	}
	return nil
}

const ticked = int(longer/time.Second) * len("tick")

// A host that leaves bytes of its client unread, and so may answer no ping, but
// sends all the time, is alive.
func TestKeepalive_HostThatSendsAndDoesNotRead(t *testing.T) {
	for _, size := range []int{5, 80 << 10} {
		bubble(t, func(t *testing.T) {
			s := server(t, nil)
			s.StartAgent("h", raw(func(st *agent.Stream) {
				if err := ticks(st, func() error { return nil }); err == nil {
					st.Close()
				}
			}), nil)
			c := byConnect(t, s, "h")
			sc := transport.NewStreamConn(c)
			go sc.Write(make([]byte, size))
			if p, err := io.ReadAll(sc); len(p) != ticked || err != nil {
				t.Errorf("with %d bytes unread: %d bytes, %v, want %d", size, len(p), err, ticked)
			}
			sc.Close()
			<-c.Done()
		})
	}
}

// So is one whose handler streams its answer and leaves the request's body.
func TestKeepalive_AnswerToABodyThatIsNotRead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		s.StartAgent("h", handler(func(w http.ResponseWriter, r *http.Request) {
			ticks(w, http.NewResponseController(w).Flush)
		}), nil)
		resp, body, err := s.Do("POST", "/hosts/h/events", strings.NewReader(strings.Repeat("x", 48<<10)))
		if err != nil || len(body) != ticked {
			t.Errorf("%v, %d bytes, %v, want %d", resp, len(body), err, ticked)
		}
	})
}

// A client that sends all the time and reads nothing is alive as well.
func TestKeepalive_ClientThatSendsAndDoesNotRead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		got := make(chan int64, 1)
		s.StartAgent("h", raw(func(st *agent.Stream) {
			n, _ := io.Copy(io.Discard, st)
			got <- n
		}), nil)
		c := byConnect(t, s, "h")
		for range longer / time.Second {
			if err := c.Write(transport.Binary, []byte("tick")); err != nil {
				t.Error(err)
				break
			}
			time.Sleep(time.Second)
		}
		c.Write(transport.Text, transport.Encode(transport.EOF{}))
		if n := <-got; n != int64(ticked) {
			t.Errorf("the host got %d bytes, want %d", n, ticked)
		}
		c.CloseNow()
		<-c.Done()
	})
}

// A pong that is later than the next ping, on a way that is so slow, is a sign
// of life.
func TestKeepalive_LatePongsCount(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, func(c *relay.Config) { c.DataPing = time.Second })
		s.StartAgent("h", map[string]agent.Handler{"": echo()}, nil)
		c, err := transport.Dial(context.Background(), s.URL+"/connect/h", &transport.DialOptions{Transport: s.FarTransport(600 * time.Millisecond)})
		if err != nil {
			t.Fatal(err)
		}
		read := make(chan error, 1)
		go func() {
			_, _, err := c.Reader() // and so answers pings
			read <- err
		}()
		time.Sleep(longer)
		select {
		case err := <-read:
			t.Errorf("ended with %v", err)
		default:
			c.CloseNow()
			<-read
		}
		<-c.Done()
	})
}

// What is frozen is cut, on both sides.
func TestKeepalive_DeadEndIsCut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		h := s.MustConnect("h", relaytest.HostConfig{Proto: 3, OnDial: func(h *relaytest.Host, d transport.StreamDial) {
			sc, freeze, err := h.OpenFreezable(d)
			if err == nil {
				io.WriteString(sc, "hello")
				time.Sleep(time.Second)
				freeze()
			}
		}})
		c, err := s.Relay.Dial(context.Background(), "h", relay.Target{})
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		_, err = io.Copy(io.Discard, c)
		if took := time.Since(begun); err == nil || took < 5*time.Minute || took > 6*time.Minute {
			t.Errorf("%v after %v, want an error after StallTimeout", err, took)
		}
		h.Close()
	})
}

// v2Waits begins an exchange with a v2 host that does not answer. The client's
// body, if it is to have one, never ends. done tells when the client has its
// answer, whatever it is.
func v2Waits(t *testing.T, s *relaytest.Server, upload bool) (h *relaytest.Host, done <-chan struct{}) {
	t.Helper()
	h = s.MustConnect("v2", relaytest.HostConfig{})
	method, body := http.MethodGet, io.Reader(nil)
	if upload {
		pr, pw := io.Pipe()
		t.Cleanup(func() { pw.Close() })
		method, body = http.MethodPost, pr
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		s.Do(method, "/hosts/v2/x", body)
	}()
	return h, over
}

// The data socket of a v2 exchange is kept alive before the answer too: while
// the service thinks, and while the client's body comes slowly.
func TestKeepalive_V2HostThatHasNotAnswered(t *testing.T) {
	for _, upload := range []bool{false, true} {
		t.Run(fmt.Sprint("upload ", upload), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := server(t, nil)
				h, done := v2Waits(t, s, upload)
				c, err := h.DialBack(nextDial(t, h))
				if err != nil {
					t.Fatal(err)
				}
				go closeOf(c)
				time.Sleep(15 * time.Second) // pings begin when an exchange has lasted for so long
				for i := range 3 {
					before := c.Received()
					time.Sleep(15*time.Second + 10*time.Millisecond)
					if c.Received() == before {
						t.Errorf("no ping came in interval %d of 15 s", i)
					}
				}
				c.CloseNow()
				<-done
			})
		})
	}
}

// A v2 host that vanishes before it has answered is noticed, where no
// ResponseHeaderTimeout does it: there is none, or the body is still coming.
func TestKeepalive_V2HostVanishesBeforeItsAnswer(t *testing.T) {
	for _, upload := range []bool{false, true} {
		t.Run(fmt.Sprint("upload ", upload), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := server(t, func(c *relay.Config) {
					if !upload {
						c.ResponseHeaderTimeout = -1 // no limit
					}
				})
				h, done := v2Waits(t, s, upload)
				_, freeze, _, err := h.DialBackFreezable(nextDial(t, h))
				if err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				freeze()
				time.Sleep(6 * time.Minute) // StallTimeout is 5
				synctest.Wait()
				select {
				case <-done:
				default:
					t.Error("the client waits for a host that gave no sign of life for StallTimeout")
				}
				settled(t, s, "after StallTimeout")
			})
		})
	}
}
