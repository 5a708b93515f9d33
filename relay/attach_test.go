package relay_test

import (
	"context"
	"errors"
	"fmt"
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

// Report A: a socket that the host has replaced stays open for the network,
// since its peer never answers the close, and must never get a dial again.
func TestReportA_ReplacedSocketNeverGetsADial(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		old := s.MustConnect("h", relaytest.HostConfig{OnDial: relaytest.AnswerText("old")})
		get(s, "/hosts/h/x").want(t, "before the replacement", 200, "old")
		old.Freeze()
		s.MustConnect("h", relaytest.HostConfig{OnDial: relaytest.AnswerText("new")})
		for range 20 {
			r := get(s, "/hosts/h/x")
			r.want(t, "after the replacement", 200, "new")
			r.wantWithin(t, "after the replacement", 10*time.Millisecond)
		}
		old.Thaw()
		synctest.Wait()
		if n := relaytest.Count[transport.StreamDial](old); n != 1 {
			t.Errorf("the replaced socket was sent %d dials, want the one from before", n)
		}
		settled(t, s, "after the replacement")
	})
}

// The mark is in the Store, so a process that comes up later, or another node,
// knows it too, and a ping of the retired socket does not bring it back.
func TestReportA_MarkOutlivesTheProcess(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memory.New()
		s := server(t, func(c *relay.Config) { c.Store = st })
		old := s.MustConnect("h", relaytest.HostConfig{})
		before, err := st.Current(context.Background(), "h")
		if err != nil {
			t.Fatal(err)
		}
		old.Freeze()
		s.MustConnect("h", relaytest.HostConfig{})
		s.Close()
		ok, err := st.Ping(context.Background(), []store.Attachment{before}, time.Minute)
		if err != nil || ok[0] {
			t.Errorf("the replaced socket pings after the restart: current %v, %v; the mark must say retired", ok, err)
		}
		if a, err := st.Current(context.Background(), "h"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("after the shutdown the host is at %v, %v; want not found", a, err)
		}
	})
}

// A socket that is here and looks alive is not dialed unless the Store names it:
// another node may have taken the host over, and its news may be lost.
func TestReportA_StoreIsAskedForEachDial(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memory.New()
		s := server(t, func(c *relay.Config) { c.Store = st })
		old := s.MustConnect("h", relaytest.HostConfig{OnDial: relaytest.AnswerText("old")})
		get(s, "/hosts/h/x").want(t, "before", 200, "old")
		_, err := st.Claim(context.Background(), store.Attachment{ID: "elsewhere", HostID: "h", NodeID: "other", Incarnation: "other", Role: store.RoleHost, Proto: 2}, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		get(s, "/hosts/h/x").want(t, "the host is elsewhere, on a node that is gone", 503, "host_offline")
		if n := relaytest.Count[transport.StreamDial](old); n != 1 {
			t.Errorf("the retired socket was sent %d dials, want the one from before", n)
		}
	})
}

// A relay says that it answers pings to whoever asks, and nothing to hosts of
// version 2.
func TestControl_Subprotocol(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		for want, offered := range map[string][]string{"dialback.v3": {"other", "dialback.v3"}, "": nil} {
			c, err := s.DialWS(context.Background(), "/v2/control?hostId=h", &transport.DialOptions{Subprotocols: offered})
			if err != nil {
				t.Fatal(err)
			}
			defer c.CloseNow()
			if c.Subprotocol() != want {
				t.Errorf("offered %v, taken %q, want %q", offered, c.Subprotocol(), want)
			}
		}
	})
}

func TestReplaced_ClosedWith4409(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		old := s.MustConnect("h", relaytest.HostConfig{})
		s.MustConnect("h", relaytest.HostConfig{})
		wantClosed(t, old, "a newer socket took over", transport.CloseReplaced)
	})
}

// A dial that went to the socket that is then replaced is issued anew, with a
// new ticket, and its caller does not wait for a timer.
func TestReplaced_PendingDialIsIssuedAnew(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		old := s.MustConnect("h", relaytest.HostConfig{})
		c := async(s, "/hosts/h/x")
		first := nextDial(t, old)
		pending(t, c, "the host has not dialed back")
		fresh := s.MustConnect("h", relaytest.HostConfig{OnDial: relaytest.AnswerText("new")})
		r := <-c
		r.want(t, "the pending call", 200, "new")
		r.wantWithin(t, "the pending call", time.Second)
		// The late answer of the old socket finds nobody.
		if _, err := old.DialBack(first); handshakeStatus(err) != 404 {
			t.Errorf("a dial-back with the old ticket: %v, want 404", err)
		}
		if n := relaytest.Count[transport.StreamDial](fresh); n != 1 {
			t.Errorf("the new socket got %d dials, want 1", n)
		}
		settled(t, s, "after the late dial-back")
	})
}

// Three issues at most: a host that is replaced for ever is an error, not a loop.
func TestReplaced_AtMostThreeIssues(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		h := s.MustConnect("h", relaytest.HostConfig{})
		c := async(s, "/hosts/h/x")
		for range 3 {
			nextDial(t, h)
			h = s.MustConnect("h", relaytest.HostConfig{})
		}
		r := <-c
		r.want(t, "replaced three times", 503, "host_replaced")
		if n := relaytest.Count[transport.StreamDial](h); n != 0 {
			t.Errorf("a fourth dial was sent")
		}
	})
}

// The late end of a replaced socket ends no stream of its successor.
func TestReplaced_LateCloseTouchesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := storetest.NewFaulty(memory.New())
		s := server(t, func(c *relay.Config) { c.Store = st })
		old := s.MustConnect("h", relaytest.HostConfig{Proto: 3})
		old.Freeze()
		fresh := s.MustConnect("h", relaytest.HostConfig{Proto: 3})
		client, host := connectTo(t, s, fresh)
		roundTrip(t, client, host, "before")
		st.Set("Detach", storetest.Fault{Delay: 500 * time.Millisecond}) // fault 11
		old.Vanish()
		time.Sleep(3 * time.Second)
		roundTrip(t, client, host, "after the late end of the old socket")
		if p, _ := s.Relay.Presence(context.Background(), "h"); !p["h"].Online {
			t.Error("the late end of the replaced socket made the host offline")
		}
	})
}

// Losing the control socket ends no stream and no exchange.
func TestControlLost_StreamsGoOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		h := s.MustConnect("h", relaytest.HostConfig{Proto: 3})
		client, host := connectTo(t, s, h)
		roundTrip(t, client, host, "before")
		h.Vanish()
		time.Sleep(time.Minute)
		roundTrip(t, client, host, "a minute after the control socket was lost")
	})
}

// A host that reconnects while its streams flow is taken at once (fault 8).
func TestReplaced_StreamsOfTheOldSocketGoOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		old := s.MustConnect("h", relaytest.HostConfig{Proto: 3})
		client, host := connectTo(t, s, old)
		roundTrip(t, client, host, "before")
		s.MustConnect("h", relaytest.HostConfig{Proto: 3})
		wantClosed(t, old, "replaced", transport.CloseReplaced)
		roundTrip(t, client, host, "after the host was replaced")
	})
}

// A hundred re-logins over blackholed sockets leave one host's worth (fault 7).
func TestReplaced_HundredTimesLeavesOne(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memory.New()
		s := server(t, func(c *relay.Config) { c.Store = st })
		for i := range 100 {
			h := s.MustConnect("h", relaytest.HostConfig{Proto: 3, Instance: "6ba7b810-9dad-11d1-80b4-00c04fd430c8", Seq: uint64(i)})
			h.Freeze()
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if n := s.Relay.Stats().Hosts; n != 1 {
			t.Errorf("%d control sockets are left, want 1", n)
		}
		if rows := st.Stats(); rows.Hosts+rows.Tombstones > 2 {
			t.Errorf("the Store is left with %+v, want one host's worth", rows)
		}
	})
}

// A late claim of an agent's older connection does not replace its newer one.
func TestClaim_LateOlderSeqIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		const instance = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
		fresh := s.MustConnect("h", relaytest.HostConfig{Proto: 3, Instance: instance, Seq: 2})
		_, err := s.Connect("h", relaytest.HostConfig{Proto: 3, Instance: instance, Seq: 1})
		if transport.CloseCodeOf(err) != transport.CloseReplaced {
			t.Errorf("the older connection: %v, want 4409", err)
		}
		wantOpen(t, fresh, "a late claim of an older connection")
	})
}

// A claim whose answer is lost is asked again, and the true predecessor is
// still retired (fault 41).
func TestClaim_LostReplyIsRepeated(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := storetest.NewFaulty(memory.New())
		s := server(t, func(c *relay.Config) { c.Store = st })
		old := s.MustConnect("h", relaytest.HostConfig{})
		st.Set("Claim", storetest.Fault{Err: errors.New("reply lost"), After: true, Times: 1})
		s.MustConnect("h", relaytest.HostConfig{OnDial: relaytest.AnswerText("new")})
		wantClosed(t, old, "the claim was repeated", transport.CloseReplaced)
		time.Sleep(3 * time.Second) // the prober finds the Store again
		get(s, "/hosts/h/x").want(t, "after the repeated claim", 200, "new")
	})
}

// The reply to the claim of a v2 host's socket is lost, and the host comes again,
// twice. The first socket is not claimed again: it would take the host from the
// third, which is the one that lives.
func TestClaim_IsNotRepeatedOnceALaterSocketIsThere(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := storetest.NewFaulty(memory.New())
		s := server(t, func(c *relay.Config) { c.Store = st })
		st.Set("Claim", storetest.Fault{After: true, Delay: 900 * time.Millisecond, Err: errors.New("reply lost"), Times: 1})
		go s.Connect("h", relaytest.HostConfig{})
		time.Sleep(300 * time.Millisecond)
		s.MustConnect("h", relaytest.HostConfig{}).Freeze()
		time.Sleep(300 * time.Millisecond)
		third := s.MustConnect("h", relaytest.HostConfig{OnDial: relaytest.AnswerText("the living one")})
		time.Sleep(2 * time.Second)
		wantOpen(t, third, "a late claim of an earlier socket")
		get(s, "/hosts/h/x").want(t, "after the lost reply", 200, "the living one")
		if n := st.Calls("Claim"); n != 3 {
			t.Errorf("%d claims of three sockets, want 3", n)
		}
	})
}

// The pong comes only after the Store has confirmed, within the batch.
func TestPong_OnlyAfterTheStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := storetest.NewFaulty(memory.New())
		s := server(t, func(c *relay.Config) { c.Store = st })
		h := s.MustConnect("h", relaytest.HostConfig{})
		st.Set("Ping", storetest.Fault{Delay: 300 * time.Millisecond})
		h.Send(transport.Ping{})
		time.Sleep(550*time.Millisecond - time.Nanosecond)
		synctest.Wait()
		if n := relaytest.Count[transport.Pong](h); n != 0 {
			t.Fatal("a pong came before the Store had confirmed (250 ms of batch and 300 ms of Store)")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if n := relaytest.Count[transport.Pong](h); n != 1 {
			t.Fatalf("%d pongs once the Store had confirmed, want 1", n)
		}
	})
}

// A socket that was retired elsewhere learns it from its ping: a close with
// its reason, and no pong.
func TestPong_RetiredSocketGetsACloseInstead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memory.New()
		a := server(t, func(c *relay.Config) { c.Store = st })
		b := server(t, func(c *relay.Config) { c.Store = st })
		old := a.MustConnect("h", relaytest.HostConfig{})
		b.MustConnect("h", relaytest.HostConfig{})
		old.Send(transport.Ping{})
		wantClosed(t, old, "replaced on another node", transport.CloseReplaced)
		if n := relaytest.Count[transport.Pong](old); n != 0 {
			t.Errorf("the retired socket got %d pongs", n)
		}
	})
}

// Both spellings are answered in their own words, and each ping once.
func TestPong_InTheWordsOfThePing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		h := s.MustConnect("h", relaytest.HostConfig{})
		h.Send(transport.Ping{})
		h.Send(transport.Ping{Op: true})
		time.Sleep(time.Second)
		var plain, op int
		for _, f := range h.Frames() {
			if p, ok := f.(transport.Pong); ok && p.Op {
				op++
			} else if ok {
				plain++
			}
		}
		if plain != 1 || op != 1 {
			t.Errorf("%d pongs by type and %d by op, want 1 and 1", plain, op)
		}
	})
}

// What is malformed, binary, unknown or deeply nested is dropped in silence.
func TestControl_JunkIsDropped(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		h := s.MustConnect("h", relaytest.HostConfig{OnDial: relaytest.AnswerText("ok")})
		deep := make([]byte, 30000)
		for i := range deep {
			deep[i] = '['
		}
		for _, junk := range []string{"", "{", "null", "[]", `"x"`, `{"type":5}`, `{"type":"ping"`, string(deep), `{"op":{}}`, `{"type":"stream:ack"}`, `{"type":"stream:refuse","ticket":"nobody's"}`} {
			if err := h.SendRaw(transport.Text, []byte(junk)); err != nil {
				t.Fatalf("after junk %.20q: %v", junk, err)
			}
		}
		h.SendRaw(transport.Binary, []byte(`{"type":"ping"}`))
		time.Sleep(time.Second)
		wantOpen(t, h, "after junk")
		if n := relaytest.Count[transport.Pong](h); n != 0 {
			t.Errorf("junk was answered with %d pongs", n)
		}
		if n := s.Relay.Stats().Ignored; n < 10 {
			t.Errorf("%d frames counted as ignored, want at least 10", n)
		}
		get(s, "/hosts/h/x").want(t, "after junk", 200, "ok")
	})
}

func TestControl_FrameAbove64KiBCloses1009(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		h := s.MustConnect("h", relaytest.HostConfig{})
		go h.SendRaw(transport.Text, make([]byte, 65<<10))
		wantClosed(t, h, "a frame above 64 KiB", transport.CloseTooBig)
	})
}

// Silence for StaleAfter retires in the Store first, then closes 4408.
func TestStale_ExactlyAfter110Seconds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := storetest.NewFaulty(memory.New())
		s := server(t, func(c *relay.Config) { c.Store = st })
		h := s.MustConnect("h", relaytest.HostConfig{})
		start := time.Now()
		time.Sleep(30 * time.Second)
		h.Send(transport.Ping{})
		synctest.Wait()
		st.Set("Retire", storetest.Fault{Delay: 200 * time.Millisecond})
		time.Sleep(110*time.Second - time.Nanosecond)
		wantOpen(t, h, "one nanosecond before 110 s after the last ping")
		time.Sleep(time.Nanosecond)
		wantOpen(t, h, "the mark is being written")
		time.Sleep(200 * time.Millisecond)
		wantClosed(t, h, "110 s after the last ping", transport.CloseStale)
		if _, err := st.Current(context.Background(), "h"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("the stale socket is still current in the Store: %v", err)
		}
		if d := time.Since(start); d > 141*time.Second {
			t.Errorf("it took %v", d)
		}
	})
}

// A stale socket whose peer is a blackhole is gone within CloseTimeout.
func TestStale_WaitsForNoCloseHandshake(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		h := s.MustConnect("h", relaytest.HostConfig{})
		h.Freeze()
		time.Sleep(112 * time.Second)
		synctest.Wait()
		if n := s.Relay.Stats().Hosts; n != 0 {
			t.Errorf("%d control sockets are left", n)
		}
	})
}

// An agent that does not acknowledge a dial, and does not answer a protocol
// ping either, is dead: the socket is retired after 2 s and 2 s (fault 16).
func TestAck_MissingRetiresADeadSocket(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		h := s.MustConnect("h", relaytest.HostConfig{Proto: 3})
		h.Freeze()
		r := <-async(s, "/hosts/h/x")
		r.want(t, "a dead host that looks alive", 503, "host_gone")
		r.wantWithin(t, "ack, ping, and the grace", 6*time.Second)
		if r.took < 4*time.Second {
			t.Errorf("given up after %v, before ack and ping had their 2 s each", r.took)
		}
		if r := get(s, "/hosts/h/x"); r.took > 0 {
			r.want(t, "the next call", 503, "host_offline")
		}
		if s.Relay.Stats().Stale != 1 {
			t.Error("the host is not marked stale")
		}
	})
}

// A slow host that answers protocol pings is not dead.
func TestAck_MissingKeepsALivingSocket(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		h := s.MustConnect("h", relaytest.HostConfig{Proto: 3, NoAck: true})
		r := <-async(s, "/hosts/h/x")
		r.want(t, "a host that never dials back", 504, "no_dial_back")
		wantOpen(t, h, "it answers pings")
	})
}

// Two live v2 hosts with one ID: the newcomer must find the incumbent dead
// (fault 10).
func TestFlapping_LivingIncumbentStays(t *testing.T) {
	bubble(t, func(t *testing.T) {
		flaps := 0
		s := server(t, func(c *relay.Config) {
			c.Hooks.HostFlapping = func(string, int) { flaps++ }
		})
		var last *relaytest.Host
		for i := range 6 {
			last = s.MustConnect("h", relaytest.HostConfig{OnDial: relaytest.AnswerText(fmt.Sprint(i))})
		}
		synctest.Wait() // the last replacement is counted, too
		start := time.Now()
		_, err := s.Connect("h", relaytest.HostConfig{OnDial: relaytest.AnswerText("newcomer")})
		if transport.CloseCodeOf(err) != transport.CloseReplaced || time.Since(start) != 5*time.Second {
			t.Errorf("the newcomer after five replacements: %v after %v, want 4409 after 5 s", err, time.Since(start))
		}
		wantOpen(t, last, "the incumbent answers pings")
		get(s, "/hosts/h/x").want(t, "the incumbent serves", 200, "5")
		if flaps != 1 {
			t.Errorf("reported %d times within a minute, want once", flaps)
		}
	})
}

// A process whose network breaks again and again is no second process.
func TestFlapping_OneProcessThatComesBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		flaps := 0
		s := server(t, func(c *relay.Config) { c.Hooks.HostFlapping = func(string, int) { flaps++ } })
		for i := range 10 {
			s.MustConnect("h", relaytest.HostConfig{Proto: 3, Instance: "6d1f6a1c-2f4c-4a0e-9a0e-1d2c3b4a5f60", Seq: uint64(i)})
		}
		synctest.Wait()
		if flaps != 0 {
			t.Errorf("reported %d times, want never", flaps)
		}
	})
}

func TestFlapping_DeadIncumbentIsReplaced(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := server(t, nil)
		var last *relaytest.Host
		for range 6 {
			last = s.MustConnect("h", relaytest.HostConfig{})
		}
		synctest.Wait()
		last.Freeze()
		s.MustConnect("h", relaytest.HostConfig{OnDial: relaytest.AnswerText("newcomer")})
		get(s, "/hosts/h/x").want(t, "the incumbent missed a 1 s ping", 200, "newcomer")
	})
}

// Many hosts attach and leave at once, while the relay starts (fault 12).
func TestAttach_ComeAndGo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memory.New()
		s := server(t, func(c *relay.Config) { c.Store = st })
		for i := range 50 {
			go func() {
				if h, err := s.Connect(fmt.Sprintf("h%d", i), relaytest.HostConfig{}); err == nil {
					h.Vanish()
				}
			}()
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := s.Relay.Stats().Hosts; n != 0 {
			t.Errorf("%d hosts are left", n)
		}
		if rows := st.Stats(); rows.Hosts != 0 {
			t.Errorf("%d rows are left", rows.Hosts)
		}
	})
}

// connectTo opens a byte stream to a scripted host and returns both ends.
func connectTo(t *testing.T, s *relaytest.Server, h *relaytest.Host) (client, host *transport.StreamConn) {
	t.Helper()
	conn := byConnect(t, s, h.ID)
	t.Cleanup(conn.CloseNow)
	host, err := h.Open(nextDial(t, h))
	if err != nil {
		t.Fatal(err)
	}
	return transport.NewStreamConn(conn), host
}

// roundTrip sends a word both ways.
func roundTrip(t *testing.T, client, host *transport.StreamConn, why string) {
	t.Helper()
	b := make([]byte, 4)
	for _, dir := range []struct{ from, to *transport.StreamConn }{{client, host}, {host, client}} {
		if _, err := dir.from.Write([]byte("word")); err != nil {
			t.Fatalf("%s: write: %v", why, err)
		}
		dir.to.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := dir.to.Read(b); err != nil || string(b) != "word" {
			t.Fatalf("%s: read %q, %v", why, b, err)
		}
		dir.to.SetReadDeadline(time.Time{})
	}
}

func handshakeStatus(err error) int {
	var he *transport.HandshakeError
	if errors.As(err, &he) {
		return he.Status
	}
	return 0
}
