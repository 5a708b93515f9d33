package relay_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/dialback/dialback/relay"
)

// A request whose spare is lost after the agent has opened it is sent again if
// its method or its key makes that safe, as a stream of its own: of the first
// one the agent would say that it was opened already. Any other request may have
// been carried out, and that is what its client hears.
func TestSpare_WhatIsSentTwice(t *testing.T) {
	tests := []struct {
		method, body, key string
		twice             bool
	}{
		{"GET", "", "", true},
		{"POST", "", "", false},
		{"POST", "body", "", false},
		{"POST", "", "key", true},
		{"POST", "body", "key", true},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprint(tt.method, " ", tt.body, " ", tt.key), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := server(t, func(c *relay.Config) { c.MaxIdleStreams = -1 })
				var seen atomic.Int32
				s.StartAgent("h", handler(func(w http.ResponseWriter, r *http.Request) {
					if seen.Add(1) == 2 {
						panic(http.ErrAbortHandler)
					}
					echoBody(w, r)
				}), nil)
				get(s, "/hosts/h/").want(t, "by a dial", 200, "")
				spares(t, s, "before", 1)
				req, _ := http.NewRequest(tt.method, s.URL+"/hosts/h/", strings.NewReader(tt.body))
				if tt.key != "" {
					req.Header.Set("Idempotency-Key", tt.key)
				}
				resp, body, err := s.DoRequest(req)
				if err != nil {
					t.Fatal(err)
				}
				status, part, times := 502, "stream_closed", int32(2)
				if tt.twice {
					status, part, times = 200, tt.body, 3
				}
				if resp.StatusCode != status || !strings.Contains(body, part) || seen.Load() != times {
					t.Errorf("%d %q, and the service saw %d requests in all; want %d with %q, and %d", resp.StatusCode, body, seen.Load(), status, part, times)
				}
				if n := s.Relay.Stats().SpareOpens; n != 1 {
					t.Errorf("%d streams were opened on spares, want 1: the second is dialed", n)
				}
			})
		})
	}
}
