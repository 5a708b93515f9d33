package relay_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dialback/dialback/relaytest"
	"github.com/dialback/dialback/transport"
)

const uploadSize = 4 << 20

// uploadHost is a host of protocol 3 that reads an upload: some of it, then, after
// a pause, piece by piece with a pause each. It answers once it has everything.
func uploadHost(t *testing.T, s *relaytest.Server, pause time.Duration, pieces int, each time.Duration) (read *atomic.Int64) {
	read = new(atomic.Int64)
	wait := func(d time.Duration) {
		select {
		case <-time.After(d):
		case <-t.Context().Done():
		}
	}
	s.MustConnect("h", relaytest.HostConfig{Proto: 3, OnDial: func(h *relaytest.Host, d transport.StreamDial) {
		sc, err := h.Open(d)
		if err != nil {
			return
		}
		defer sc.Close()
		buf := make([]byte, uploadSize/pieces)
		n, err := sc.Read(buf[:4096])
		_, body, _ := strings.Cut(string(buf[:n]), "\r\n\r\n")
		got := len(body)
		wait(pause)
		for err == nil && got < uploadSize {
			n, err = io.ReadFull(sc, buf[:min(len(buf), uploadSize-got)])
			got += n
			read.Store(int64(got))
			wait(each)
		}
		if err == nil {
			io.WriteString(sc, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
			io.Copy(io.Discard, sc)
		}
	}})
	return read
}

// The end of a control socket ends no exchange: an upload whose host is replaced
// goes on, although a service that is slow to read it keeps the host from
// answering pings.
func TestGuard_UploadOutlivesTheControlSocket(t *testing.T) {
	for _, tt := range []struct {
		name        string
		pause, each time.Duration
	}{
		{"a service that pauses", 9 * time.Second, 0},
		{"a service that is slow", 0, 3 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := server(t, nil)
				read := uploadHost(t, s, tt.pause, 16, tt.each)
				answer := startUpload(s)
				time.Sleep(time.Second)
				s.MustConnect("h", relaytest.HostConfig{Proto: 3})
				if err := <-answer; err != nil || read.Load() != uploadSize {
					t.Errorf("%v after %d bytes", err, read.Load())
				}
			})
		})
	}
}

// A long body may hide a pong for longer than a proof may take: it is not sent
// along with the proof of a stream that has rested, even if it may be sent twice.
func TestGuard_LongBodyComesAfterTheProof(t *testing.T) {
	for _, size := range []int{5, 5 << 10, 16 << 10, 30 << 10, 60 << 10, 400 << 10} {
		for _, chunked := range []bool{false, true} {
			t.Run(fmt.Sprint(size, " chunked ", chunked), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					s := server(t, nil)
					var requests atomic.Int32
					s.StartAgent("h", handler(func(w http.ResponseWriter, r *http.Request) {
						requests.Add(1)
						time.Sleep(5 * time.Second)
						n, err := io.Copy(io.Discard, r.Body)
						fmt.Fprint(w, n, err)
					}), nil)
					for range 2 {
						var body io.Reader = strings.NewReader(strings.Repeat("u", size))
						if chunked {
							body = io.MultiReader(body)
						}
						req, _ := http.NewRequest("POST", s.URL+"/hosts/h/x", body)
						req.Header.Set("Idempotency-Key", "key")
						resp, got, err := s.DoRequest(req)
						if err != nil || resp.StatusCode != 200 || got != fmt.Sprint(size, " <nil>") {
							t.Fatal(resp, got, err)
						}
						time.Sleep(time.Second)
					}
					if requests.Load() != 2 || s.Relay.Stats().Replays != 0 {
						t.Errorf("the service saw %d requests, %d replays; want 2 and none", requests.Load(), s.Relay.Stats().Replays)
					}
				})
			})
		}
	}
}

// An upload to a host that froze, and came back by another process, ends: bytes
// that nobody takes are waited for as long as for a dial-back.
func TestGuard_UploadToAFrozenPredecessorEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		uploadHost(t, s, time.Hour, 16, 0)
		answer := startUpload(s)
		time.Sleep(time.Second)
		s.MustConnect("h", relaytest.HostConfig{Proto: 3})
		start := time.Now()
		err := <-answer
		if took := time.Since(start); took > 13*time.Second || err == nil || !strings.Contains(err.Error(), "stream_closed") {
			t.Errorf("%v after %v, want stream_closed in 10 s", err, took)
		}
	})
}

// startUpload sends a POST, whose answer's error it returns.
func startUpload(s *relaytest.Server) <-chan error {
	answer := make(chan error, 1)
	go func() {
		resp, body, err := s.Do("POST", "/hosts/h/upload", strings.NewReader(strings.Repeat("u", uploadSize)))
		if err == nil && resp.StatusCode != http.StatusOK {
			err = errors.New(fmt.Sprint(resp.StatusCode, body))
		}
		answer <- err
	}()
	return answer
}
