package relay_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dialback/dialback/agent"
	"github.com/dialback/dialback/relay"
	"github.com/dialback/dialback/relaytest"
)

const (
	// goodHost is beside the hostile party in the same Server, and must not
	// notice it. No fuzzer guesses its name.
	goodHost = "good-5b1f0f6e3c"
	// proof is a header that only the relay knows: a request that comes to a
	// service without it was never authorized.
	proof = "proof-77a1c4d2e9"
	// maxSteps and maxScript bound a script.
	maxSteps  = 40
	maxScript = 4 << 10
	// maxAlloc bounds what one script may have the process allocate, ever, in
	// bytes: so it bounds what can be held.
	maxAlloc = 96 << 20
)

// fuzzWorld is a relay with a good host on it, and what must stay true of both.
type fuzzWorld struct {
	t *testing.T
	s *relaytest.Server

	log, panics lockedBuffer
	before      runtime.MemStats
	echo        net.Conn
	echoed      *bufio.Reader
	rounds      int
	ends        []func() // of those who are still there when the world ends

	mu      sync.Mutex
	secrets []string // never in the log
	unasked []string // requests that reached a service without the relay's leave
}

func hostToken(hostID string) string   { return "host-token-of-" + hostID }
func clientToken(hostID string) string { return "client-token-of-" + hostID }

// tokens lets in whoever has the token of that host.
func tokens(of func(hostID string) string) relay.AuthorizeFunc {
	return func(_ context.Context, r *http.Request, hostID string) (relay.Identity, error) {
		if relay.Credential(r) != of(hostID) {
			return relay.Identity{}, relay.ErrUnauthorized
		}
		return relay.Identity{Headers: http.Header{"X-Proof": {proof}}}, nil
	}
}

// secure gives a relay's Config tokens and a log.
func (w *fuzzWorld) secure(c *relay.Config) {
	c.AuthorizeHost, c.AuthorizeClient = tokens(hostToken), tokens(clientToken)
	c.Logger = slog.New(slog.NewTextHandler(&w.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func newFuzzWorld(t *testing.T) *fuzzWorld {
	w := &fuzzWorld{t: t}
	w.begin()
	w.use(relaytest.NewServer(t, &relaytest.Options{Config: w.secure, HTTP: w.listen}))
	return w
}

// begin notes how much has been allocated so far.
func (w *fuzzWorld) begin() { runtime.ReadMemStats(&w.before) }

// listen takes the log of an http.Server: what a panic of a handler is told to.
func (w *fuzzWorld) listen(h *http.Server) { h.ErrorLog = log.New(&w.panics, "", 0) }

// use puts the good host on s.
func (w *fuzzWorld) use(s *relaytest.Server) {
	w.s = s
	w.secret(hostToken(goodHost), clientToken(goodHost))
	s.StartAgent(goodHost, map[string]agent.Handler{"": w.service("good"), "echo": echo()}, &agent.Config{
		Token: func(context.Context) (string, error) { return hostToken(goodHost), nil },
	})
	conn, err := s.Relay.Dial(w.t.Context(), goodHost, relay.Target{Service: "echo"})
	if err != nil {
		w.t.Fatal(err)
	}
	w.echo, w.echoed = conn, bufio.NewReader(conn)
	w.checkGood("at first")
}

// service answers with its name and the request's query.
func (w *fuzzWorld) service(name string) agent.Handler {
	return w.serviceWith(name, func(http.ResponseWriter, *http.Request) bool { return false })
}

// serviceWith is service, with what first does not answer. A request that the
// relay has not let in is noted.
func (w *fuzzWorld) serviceWith(name string, first func(http.ResponseWriter, *http.Request) bool) agent.Handler {
	return agent.HTTP(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if !slices.Equal(r.Header["X-Proof"], []string{proof}) {
			w.noteUnasked(fmt.Sprintf("%s %s %v", r.Method, r.RequestURI, r.Header))
		}
		if !first(rw, r) {
			io.Copy(io.Discard, r.Body)
			fmt.Fprintf(rw, "%s %s", name, r.URL.RawQuery)
		}
	}))
}

func (w *fuzzWorld) noteUnasked(request string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unasked = append(w.unasked, request)
}

// secret notes what must never be logged.
func (w *fuzzWorld) secret(s ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.secrets = append(w.secrets, s...)
}

// said notes what a hostile party says: its words may be quoted, and a secret in
// them that is not where a ticket belongs is none any more.
func (w *fuzzWorld) said(words []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := string(words)
	for _, s := range w.secrets {
		text = strings.ReplaceAll(strings.ReplaceAll(text, `"ticket":"`+s+`"`, ""), `"Ticket":"`+s+`"`, "")
	}
	w.secrets = slices.DeleteFunc(w.secrets, func(s string) bool { return strings.Contains(text, s) })
}

// atEnd has f called before the world ends.
func (w *fuzzWorld) atEnd(f func()) { w.ends = append(w.ends, f) }

// checkGood uses the good host: an exchange, and its stream that has been there
// from the beginning.
func (w *fuzzWorld) checkGood(when string) {
	w.t.Helper()
	w.rounds++
	start, n := time.Now(), fmt.Sprint(w.rounds)
	req, _ := http.NewRequest("GET", w.s.URL+"/hosts/"+goodHost+"/?"+n, nil)
	req.Header.Set("Dialback-Authorization", clientToken(goodHost))
	if resp, body, err := w.s.DoRequest(req); err != nil || resp.StatusCode != 200 || body != "good "+n {
		w.t.Errorf("%s: the good host's exchange: %v %q %v", when, resp, body, err)
	}
	w.echo.SetDeadline(time.Now().Add(time.Minute))
	fmt.Fprintf(w.echo, "%s\n", n)
	if line, err := w.echoed.ReadString('\n'); err != nil || line != n+"\n" {
		w.t.Errorf("%s: the good host's stream: %q, %v, want %q", when, line, err, n)
	}
	if took := time.Since(start); took > time.Second {
		w.t.Errorf("%s: the good host took %v", when, took)
	}
}

// settled checks that of all the streams only the good host's is left.
func (w *fuzzWorld) settled(why string) {
	w.t.Helper()
	synctest.Wait()
	if st := w.s.Relay.Stats(); st.Streams != 1 || st.PendingDials != 0 {
		w.t.Errorf("%s: %d streams and %d pending dials are left, want the good host's stream alone", why, st.Streams, st.PendingDials)
	}
}

// finish ends the world and checks what it has left.
func (w *fuzzWorld) finish() {
	w.t.Helper()
	start := time.Now()
	w.s.Relay.Close()
	if took := time.Since(start); took > 5*time.Second {
		w.t.Errorf("Close took %v", took)
	}
	synctest.Wait()
	if st := w.s.Relay.Stats(); st.Hosts != 0 || st.Streams != 0 || st.PendingDials != 0 {
		w.t.Errorf("after Close: %+v", st)
	}
	for _, end := range w.ends {
		end()
	}
	w.s.Close()
	synctest.Wait()
	var after runtime.MemStats
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - w.before.TotalAlloc; grown > maxAlloc {
		w.t.Errorf("one script allocated %d MiB", grown>>20)
	}
	if s := w.panics.String(); strings.Contains(s, "panic") {
		w.t.Errorf("a handler panicked: %s", s)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.secrets {
		if strings.Contains(w.log.String(), s) || strings.Contains(w.panics.String(), s) {
			w.t.Errorf("%q is in the log", s)
		}
	}
	for _, r := range w.unasked {
		w.t.Errorf("a request that was never let in reached a service: %s", r)
	}
}

// codes are all that an answer of the relay's own can be, by its status.
var codes = map[string][]int{
	"host_offline": {503}, "host_gone": {503}, "host_replaced": {503}, "store_unavailable": {503}, "node_unreachable": {503},
	"draining": {503}, "node_limit": {503}, "host_limit": {429}, "no_dial_back": {504}, "header_timeout": {504},
	"refused": {403, 404, 429, 502, 503}, "service_down": {502}, "stream_closed": {502}, "bad_answer": {502},
	"unauthorized": {401}, "forbidden": {403}, "revoked": {403}, "bad_request": {400}, "host_speaks_v2": {400}, "body_too_large": {413}, "client_gone": {499},
}
