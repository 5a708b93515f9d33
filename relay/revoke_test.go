package relay_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
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

// A request that comes while the mark of a revoke is written finds that the host is
// not there any more: the host is told why all the same.
func TestRevoke_SeenByARequestFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := storetest.NewFaulty(memory.New())
		var why atomic.Value
		s := server(t, func(c *relay.Config) {
			c.Store = st
			c.Hooks.HostDetached = func(_ store.Attachment, r store.Reason) { why.Store(r) }
		})
		h := s.MustConnect("h", relaytest.HostConfig{})
		st.Set("Retire", storetest.Fault{Delay: 5 * time.Millisecond, After: true})
		go s.Relay.Revoke(context.Background(), "h", "stolen")
		time.Sleep(time.Millisecond)
		async(s, "/hosts/h/x")
		time.Sleep(5 * time.Second)
		synctest.Wait()
		wantClosed(t, h, "revoked", transport.CloseForbidden)
		if why.Load() != store.ReasonRevoked {
			t.Errorf("the hook was told %v, want revoked", why.Load())
		}
	})
}

// So does a ping of the host.
func TestRevoke_SeenByAPingFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := storetest.NewFaulty(memory.New())
		s := server(t, func(c *relay.Config) { c.Store = st })
		h := s.MustConnect("h", relaytest.HostConfig{})
		time.Sleep(10 * time.Second)
		st.Set("Retire", storetest.Fault{Delay: 5 * time.Millisecond, After: true})
		h.Send(transport.Ping{})
		time.Sleep(249 * time.Millisecond)
		go s.Relay.Revoke(context.Background(), "h", "stolen")
		time.Sleep(100 * time.Millisecond)
		wantClosed(t, h, "revoked", transport.CloseForbidden)
	})
}

// A host whose claim is under way when it is revoked.
func TestRevoke_ReachesAHostThatAttaches(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := storetest.NewFaulty(memory.New())
		var barred atomic.Bool
		s := server(t, func(c *relay.Config) {
			c.Store = st
			c.AuthorizeHost = func(ctx context.Context, r *http.Request, hostID string) (relay.Identity, error) {
				if barred.Load() {
					return relay.Identity{}, relay.ErrForbidden
				}
				return relay.Identity{}, nil
			}
		})
		st.Set("Claim", storetest.Fault{Delay: 300 * time.Millisecond})
		connected := make(chan error, 1)
		go func() { connected <- endOf(s, "h") }()
		time.Sleep(100 * time.Millisecond)
		barred.Store(true)
		if err := s.Relay.Revoke(context.Background(), "h", "stolen"); err != nil {
			t.Fatal(err)
		}
		if err := <-connected; transport.CloseCodeOf(err) != transport.CloseForbidden {
			t.Errorf("the host was told %v, want 4403", err)
		}
		r := get(s, "/hosts/h/x")
		r.want(t, "after it", 503, "host_offline")
		r.wantWithin(t, "after it", 0)
	})
}

// A reason may be of any length; the host gets the beginning of it.
func TestRevoke_LongReason(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := relaytest.NewCluster(t, 2, nil)
		h := c.Nodes[0].MustConnect("h", relaytest.HostConfig{})
		time.Sleep(3 * time.Second)
		if err := c.Nodes[1].Relay.Revoke(context.Background(), "h", strings.Repeat("x", 300<<10)); err != nil {
			t.Fatal(err)
		}
		wantClosed(t, h, "revoked", transport.CloseForbidden)
	})
}

// Nobody waits for a host that was revoked, on any node.
func TestRevoke_GivesNoGrace(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := relaytest.NewCluster(t, 2, nil)
		c.Nodes[0].MustConnect("h", relaytest.HostConfig{})
		time.Sleep(3 * time.Second)
		c.Nodes[0].Relay.Revoke(context.Background(), "h", "x")
		r1, r0 := async(c.Nodes[1], "/hosts/h/x"), async(c.Nodes[0], "/hosts/h/x")
		a, b := <-r1, <-r0
		a.wantWithin(t, "on another node", 0)
		b.wantWithin(t, "on its own node", 0)
	})
}
