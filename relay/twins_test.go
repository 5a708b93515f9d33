package relay_test

import (
	"errors"
	"testing"
	"time"

	"github.com/dialback/dialback/agent"
	"github.com/dialback/dialback/relay"
	"github.com/dialback/dialback/relaytest"
	"github.com/dialback/dialback/store"
	"github.com/dialback/dialback/store/storetest"
	"github.com/dialback/dialback/transport"
)

// node0 starts one more process with the ID node0.
func node0(t *testing.T, st store.Store) *relaytest.Server {
	t.Helper()
	return server(t, func(cfg *relay.Config) {
		cfg.Store, cfg.Node = st, relay.Node{ID: "node0", Key: []byte("0123456789abcdef")}
	})
}

// clockAhead registers a process with the ID node0 whose clock is an hour ahead.
func clockAhead(t *testing.T, st store.Store) store.Node {
	t.Helper()
	n := store.Node{ID: "node0", Incarnation: "older", StartedAt: time.Now().Add(time.Hour), Beat: 1}
	if _, err := st.KeepNode(t.Context(), n, 15*time.Second); err != nil {
		t.Fatal(err)
	}
	return n
}

// Two processes with one NodeID: the newer wins, the older one closes its
// hosts with 1012 and takes no new ones.
func TestCluster_TwoProcessesWithOneNodeID(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := relaytest.NewCluster(t, 1, nil)
		h := c.Nodes[0].MustConnect("h", relaytest.HostConfig{})
		newer := node0(t, c.Store)
		time.Sleep(6 * time.Second)
		wantClosed(t, h, "the older process", transport.CloseRestart)
		if _, err := c.Nodes[0].Connect("h", relaytest.HostConfig{}); handshakeStatus(err) != 503 {
			t.Errorf("a new host at the older process: %v, want 503", err)
		}
		newer.MustConnect("h", relaytest.HostConfig{})
	})
}

// A Store that loses its last writes forgets which process replaced which. The
// older one, which knows, must not take the ID back: the newer one would refuse
// all hosts from then on, and its tickets could not be handed over.
func TestCluster_SupersededStaysSuperseded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := relaytest.NewLossyStore()
		node0(t, st) // beats at 5 s, 10 s and so on
		time.Sleep(2 * time.Second)
		newer := node0(t, st) // at 7 s, 12 s
		time.Sleep(4500 * time.Millisecond)
		st.Lose()
		time.Sleep(10 * time.Second)
		if _, err := newer.Connect("h", relaytest.HostConfig{}); err != nil {
			t.Errorf("a host at the newer process, after the Store has lost everything: %v", err)
		}
	})
}

// Nor may it if the Store forgets it before the older one has heard of it: who
// started later has the ID, whichever of them comes first then.
func TestCluster_OlderProcessComesBackAfterALoss(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := relaytest.NewLossyStore()
		cutOff := storetest.NewFaulty(st)
		older := node0(t, cutOff)
		time.Sleep(2 * time.Second)
		cutOff.Set("*", storetest.Fault{Err: errors.New("no way to the Store")})
		newer := node0(t, st)
		time.Sleep(time.Second)
		st.Lose()
		time.Sleep(5 * time.Second) // the newer one has registered again
		cutOff.Clear()
		time.Sleep(5 * time.Second)
		if _, err := newer.Connect("h", relaytest.HostConfig{}); err != nil {
			t.Errorf("a host at the newer process, after the Store has lost everything: %v", err)
		}
		if _, err := older.Connect("h", relaytest.HostConfig{}); err == nil {
			t.Errorf("a host at the older process is taken, after the newer one has taken the ID back")
		}
	})
}

// Which process is the newer one does not hang on clocks: the one that comes and
// has never had the ID.
func TestCluster_ClockOfTheOlderProcessIsAhead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := relaytest.NewLossyStore()
		older := clockAhead(t, st)
		newer := node0(t, st)
		newer.MustConnect("h", relaytest.HostConfig{})
		st.Lose()
		older.Beat = 2
		if _, err := st.KeepNode(t.Context(), older, 15*time.Second); err != nil {
			t.Fatal(err)
		}
		time.Sleep(6 * time.Second)
		newer.MustConnect("h2", relaytest.HostConfig{})
		if _, err := st.KeepNode(t.Context(), older, 15*time.Second); !errors.Is(err, store.ErrRetired) {
			t.Errorf("the older process renews its lease: %v, want ErrRetired", err)
		}
	})
}

// A process that has just started is not taken for superseded because it could
// not ask whom its ID belongs to.
func TestCluster_NewProcessCannotReadTheNodes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := relaytest.NewLossyStore()
		clockAhead(t, st)
		f := storetest.NewFaulty(st)
		f.Set("Nodes", storetest.Fault{Err: errors.New("no answer"), Times: 1})
		s := node0(t, f)
		time.Sleep(time.Second)
		s.MustConnect("h", relaytest.HostConfig{})
	})
}

// A process that knows that another one has its ID takes no clients, says so to
// load balancers, and passes dial-backs on: those for the other one may land here.
func TestCluster_SupersededProcessTakesNoClients(t *testing.T) {
	bubble(t, func(t *testing.T) {
		nodes := 0
		c := relaytest.NewCluster(t, 3, &relaytest.Options{Config: func(cfg *relay.Config) {
			if nodes == 2 { // the third one starts later, with the ID of the first
				time.Sleep(time.Second)
				cfg.Node.ID = "node0"
			}
			cfg.MaxIdleStreams, cfg.MaxSpares = -1, -1
			nodes++
		}})
		time.Sleep(10 * time.Second)
		c.Nodes[1].StartAgentOn(c.Balanced(1), "h", map[string]agent.Handler{"": text("ok")}, nil)
		time.Sleep(10 * time.Second)
		get(c.Nodes[0], "/health").want(t, "health of the older process", 503, "superseded")
		for range 9 {
			r := get(c.Nodes[0], "/hosts/h/x")
			r.want(t, "at the older process", 503, "draining")
			r.wantWithin(t, "at the older process", 0)
			get(c.Nodes[2], "/hosts/h/x").want(t, "at the newer process", 200, "ok")
		}
	})
}

// A host whose claim is under way when another process takes the node's ID does
// not stay here, where no other node would find it.
func TestCluster_SupersededDuringAClaim(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := relaytest.NewLossyStore()
		slow := storetest.NewFaulty(st)
		older := node0(t, slow) // beats at 5 s
		time.Sleep(4500 * time.Millisecond)
		node0(t, st)
		slow.Set("Claim", storetest.Fault{Delay: 900 * time.Millisecond})
		if err := endOf(older, "h"); transport.CloseCodeOf(err) != transport.CloseRestart {
			t.Errorf("a host of the older process: %v, want 1012", err)
		}
	})
}
