package agent_test

import (
	"fmt"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Idle connections are closed when their time is over, each at its own.
func TestHop_IdleConnectionsExpire(t *testing.T) {
	for _, tt := range []struct {
		keepAlive string
		want      string
	}{
		{"", "[1m30s 2m30s]"},
		{"timeout=70", "[1m9s 2m9s]"},
		{"timeout=600", "[1m30s 2m30s]"}, // for idleFor at most
	} {
		t.Run(tt.keepAlive, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				var mu sync.Mutex
				var closed []time.Duration
				client, _ := hopTo(t, &http.Server{
					Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						if tt.keepAlive != "" {
							w.Header().Set("Keep-Alive", tt.keepAlive)
						}
						if r.URL.Path == "/both" {
							time.Sleep(5 * time.Millisecond)
						}
					}),
					ConnState: func(_ net.Conn, s http.ConnState) {
						if s == http.StateClosed {
							mu.Lock()
							defer mu.Unlock()
							closed = append(closed, time.Since(began).Truncate(time.Second))
						}
					},
				})
				var both sync.WaitGroup
				for range 2 {
					both.Go(func() {
						res, err := client.Get("http://any/both")
						_ = body(t, res, err)
					})
				}
				both.Wait()
				time.Sleep(time.Minute)
				res, err := client.Get("http://any/")
				_ = body(t, res, err)
				time.Sleep(time.Hour)
				mu.Lock()
				defer mu.Unlock()
				if got := fmt.Sprint(closed); got != tt.want {
					t.Errorf("the connections were closed after %s, want %s", got, tt.want)
				}
			})
		})
	}
}
