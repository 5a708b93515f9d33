package relay_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dialback/dialback/relay"
	"github.com/dialback/dialback/relaytest"
	"github.com/dialback/dialback/store"
	"github.com/dialback/dialback/store/memory"
	"github.com/dialback/dialback/store/storetest"
	"github.com/dialback/dialback/transport"
)

// A socket whose claim is under way when the Server closes is closed too, though
// it was not there when all the others were.
func TestClose_HostThatIsAttaching(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := storetest.NewFaulty(memory.New())
		s := server(t, func(c *relay.Config) { c.Store = st })
		s.MustConnect("other", relaytest.HostConfig{})
		st.Set("Claim", storetest.Fault{Delay: 500 * time.Millisecond})
		late := make(chan *relaytest.Host, 1)
		go func() {
			h, _ := s.Connect("late", relaytest.HostConfig{})
			late <- h
		}()
		time.Sleep(100 * time.Millisecond)
		st.Set("Retire", storetest.Fault{Delay: 800 * time.Millisecond})
		s.Relay.Close() // a bubble cannot end while it waits
		if h := <-late; h != nil {
			wantClosed(t, h, "the host that came late", transport.CloseRestart)
		}
		if _, err := st.Current(t.Context(), "late"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("it is still current: %v", err)
		}
	})
}

// One that attaches after all were asked to leave is asked as well.
func TestShutdown_HostThatIsAttaching(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := storetest.NewFaulty(memory.New())
		s := server(t, func(c *relay.Config) { c.Store, c.DrainNotice = st, 100*time.Millisecond })
		busy := s.MustConnect("busy", relaytest.HostConfig{Proto: 3})
		connectTo(t, s, busy) // a stream, so that the Shutdown lasts
		st.Set("Claim", storetest.Fault{Delay: 500 * time.Millisecond})
		late := make(chan error, 1)
		go func() { late <- endOf(s, "late") }()
		time.Sleep(50 * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		go s.Relay.Shutdown(ctx)
		time.Sleep(time.Second)
		select {
		case err := <-late:
			if transport.CloseCodeOf(err) != transport.CloseRestart {
				t.Errorf("the host that came late: %v, want 1012", err)
			}
		default:
			t.Error("the host that came late was not asked to leave")
		}
	})
}

// Whoever closes a Server that is being closed finds it closed: a process that
// ends then leaves nothing in the Store.
func TestClose_SecondCallWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := storetest.NewFaulty(memory.New())
		s := server(t, func(c *relay.Config) { c.Store = st })
		s.MustConnect("h", relaytest.HostConfig{})
		st.Set("Retire", storetest.Fault{Delay: 500 * time.Millisecond})
		go s.Relay.Close()
		time.Sleep(time.Millisecond)
		s.Relay.Close()
		if nodes, err := st.Nodes(t.Context()); err != nil || len(nodes) > 0 {
			t.Errorf("after a second Close the Store has %v, %v; want no lease", nodes, err)
		}
	})
}

// A Store that hangs costs a Close no timeout for each host.
func TestClose_ManyHostsAndAStoreThatHangs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := storetest.NewFaulty(memory.New())
		s := server(t, func(c *relay.Config) { c.Store = st })
		for i := range 500 {
			s.MustConnect(fmt.Sprint("h", i), relaytest.HostConfig{})
		}
		st.Set("*", storetest.Fault{Hang: true})
		start := time.Now()
		s.Relay.Close()
		if d := time.Since(start); d > 6*time.Second {
			t.Errorf("Close took %v", d)
		}
	})
}

// A node that had the host long ago gives it ReconnectGrace like any other.
func TestCluster_HostThatWasHereLongAgo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := relaytest.NewCluster(t, 2, nil)
		c.Nodes[0].MustConnect("h", relaytest.HostConfig{Proto: 3}).Vanish()
		synctest.Wait()
		h := c.Nodes[1].MustConnect("h", relaytest.HostConfig{Proto: 3})
		connectTo(t, c.Nodes[0], h) // node 0 remembers the host
		time.Sleep(time.Minute)
		h.Vanish()
		synctest.Wait()
		reply := async(c.Nodes[0], "/hosts/h/x")
		time.Sleep(400 * time.Millisecond)
		c.Nodes[1].MustConnect("h", relaytest.HostConfig{OnDial: relaytest.AnswerText("back")})
		(<-reply).want(t, "the host is back within ReconnectGrace", 200, "back")
	})
}

// MaxBody holds for a request that asks for an upgrade, too: the service may take
// it for an ordinary one.
func TestUpgrade_MaxBody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, func(c *relay.Config) { c.MaxBody = 10 })
		s.StartAgent("h", handler(func(_ http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) }), nil)
		req, _ := http.NewRequest("POST", s.URL+"/hosts/h/x", strings.NewReader("more than ten bytes"))
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", "h2c")
		resp, body, err := s.DoRequest(req)
		if err != nil || resp.StatusCode != 413 {
			t.Errorf("%v %q %v, want 413", resp, body, err)
		}
	})
}

// A client that leaves in the midst of an answer is what ended it, not the host.
func TestHTTP_ClientLeavesDuringTheAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		s.StartAgent("h", handler(func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, "first")
			http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}), nil)
		ctx, leave := context.WithCancel(t.Context())
		req, _ := http.NewRequestWithContext(ctx, "GET", s.URL+"/hosts/h/x", nil)
		resp, err := (&http.Client{Transport: s.Transport()}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		io.ReadFull(resp.Body, make([]byte, 5))
		leave()
		synctest.Wait()
		if f := s.Relay.Stats().Failures; f["stream_closed"] != 0 || f["client_gone"] != 1 {
			t.Errorf("failures %v, want one client_gone", f)
		}
	})
}
