package main_test

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	main "github.com/dialback/dialback/cmd/dialback"
	"github.com/dialback/dialback/relay"
	"github.com/dialback/dialback/relaytest"
	"github.com/dialback/dialback/store/memory"
	"github.com/dialback/dialback/store/storetest"
	"github.com/dialback/dialback/transport"
)

// A drain takes no longer when the Store hangs, out of which a relay takes its
// hosts and itself when it closes. Hosts and clients are still told.
func TestDrain_TheStoreHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := storetest.NewFaulty(memory.New())
		s := relaytest.NewServer(t, &relaytest.Options{Config: func(c *relay.Config) { c.Store = st }})
		defer s.Close()
		defer st.Clear()
		h := s.MustConnect("h", relaytest.HostConfig{Proto: 3, OnDial: func(h *relaytest.Host, d transport.StreamDial) {
			if _, err := h.Open(d); err != nil {
				t.Error(err)
			}
		}})
		for i := range 100 { // more than are taken out at once
			s.MustConnect(fmt.Sprint("idle", i), relaytest.HostConfig{Proto: 3})
		}
		client, err := s.DialWS(t.Context(), "/connect/h", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer client.CloseNow()
		time.Sleep(2 * time.Second) // the stream is recorded

		begun := time.Now()
		hang := time.AfterFunc(main.DrainTime/2, func() { st.Set("*", storetest.Fault{Hang: true}) })
		defer hang.Stop()
		if err := main.Drain(t.Context(), s.Relay, &http.Server{}); err != nil {
			t.Errorf("the drain ended with %v, want nil: what is left is the process's end to clean up", err)
		}
		if took := time.Since(begun); took > main.DrainTime {
			t.Errorf("the drain took %v, want %v at most", took, main.DrainTime)
		}
		if _, _, err := client.Reader(); transport.CloseCodeOf(err) != transport.CloseRestart {
			t.Errorf("the client's stream ended with %v, want 1012", err)
		}
		select {
		case ce := <-h.Closed():
			if ce.Code != transport.CloseRestart {
				t.Errorf("the host's socket ended with %v, want 1012", ce)
			}
		default:
			t.Error("the host has not been told that the relay ends")
		}
	})
}
