package relay_test

import (
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"
)

// zeros is an endless body.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// A body of 1 GiB goes through, and nobody holds it (fault 27).
func TestHTTP_UploadOfOneGiB(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const size = 1 << 30
		s := server(t, nil)
		s.StartAgent("h", handler(func(w http.ResponseWriter, r *http.Request) {
			n, err := io.Copy(io.Discard, r.Body)
			fmt.Fprint(w, n, err)
		}), nil)
		start := time.Now()
		resp, body, err := s.Do("POST", "/hosts/h/up", io.LimitReader(zeros{}, size))
		if err != nil || resp.StatusCode != 200 || body != fmt.Sprint(int64(size), nil) {
			t.Errorf("%v %q %v", resp, body, err)
		}
		if d := time.Since(start); d > time.Second {
			t.Errorf("it waited for %v of fake time: for a timer", d)
		}
	})
}
