package relay

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"regexp"
	"time"

	"github.com/dialback/dialback/store"
)

// StoreOutage says what a node does with its own hosts while its Store fails.
//
// A Store may fail for some hosts only, as a Redis Cluster does of which one
// master is down. Then it is out for those alone, and they are served as below;
// but their pings are not answered, so that they go, after a while, to where the
// Store may be reached for them.
type StoreOutage int

const (
	// ServeLocal keeps serving the hosts whose control sockets this node
	// holds, as long as they ping. It is the one case in which a dial is not
	// fenced by the Store.
	ServeLocal StoreOutage = iota
	// FailClosed answers every new stream with ErrStoreUnavailable.
	FailClosed
)

// Node names this relay process among others that share its Store. The zero
// Node is right for a single process.
type Node struct {
	// ID is [A-Za-z0-9_-]{1,32}. Empty means a random one.
	ID string
	// URL is where the other nodes reach this one's mount point. Empty means
	// that they cannot. With http the bytes of hosts whose dial-backs land on
	// another node cross in the clear.
	URL string
	// Key authenticates nodes to each other and signs tickets; all nodes
	// share it, 16 bytes at least. Empty means a random one, which is right
	// for a single process only.
	Key []byte
	// TLS is for https URLs of other nodes. Nil means the default.
	TLS *tls.Config
	// DialContext connects to other nodes. Nil means net.Dialer's.
	DialContext func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Config configures a Server. Store is required; every other field has a
// usable zero value, and a negative duration or limit is an error from New
// unless the field says what it means.
type Config struct {
	// Store holds the attachments. Required: a memory default on a fleet
	// would be an outage.
	Store store.Store

	// AuthorizeHost decides whether a request may attach as hostID; nil
	// refuses everybody. See AuthorizeFunc.
	AuthorizeHost AuthorizeFunc
	// AuthorizeClient decides whether a request may reach hostID; nil refuses
	// everybody. See AuthorizeFunc.
	AuthorizeClient AuthorizeFunc

	// Node names this process among several.
	Node Node
	// Logger gets the log. Nil means silence.
	Logger *slog.Logger
	// Hooks observe; see Hooks for the goroutines that call them.
	Hooks Hooks

	// AllowedOrigins are the origins ("https://app.example.com") from which a
	// browser may open WebSockets without an explicit token. The relay's own
	// origin is always allowed.
	AllowedOrigins []string
	// TrustForwarded keeps the Forwarded and X-Forwarded-* headers of a
	// request and adds to them. False, the default, removes them first: a
	// client could have written them.
	TrustForwarded bool
	// PrivateCookies names cookies that never go to a host, such as the
	// embedder's own session cookie.
	PrivateCookies []string
	// StoreOutage says what happens while the Store fails. The zero value is
	// ServeLocal.
	StoreOutage StoreOutage

	// MaxHosts bounds the control sockets on this node; more are answered 503
	// node_limit. A socket that takes over from its host's current one counts
	// once that has ended. Zero means no limit.
	MaxHosts int
	// MaxStreams bounds the streams and exchanges of one host on this node;
	// more are answered 429 host_limit. Zero means 1,000.
	MaxStreams int
	// MaxPendingDials bounds the dials of one host that wait for a dial-back
	// on this node; more are answered 429 host_limit. Zero means 1,000.
	MaxPendingDials int
	// MaxIdleStreams bounds the idle streams to one host that this node keeps
	// for the next request. Zero means 128, negative none.
	MaxIdleStreams int
	// MaxSpares bounds the data sockets to one host in use that agents dial in
	// advance for this node: a stream that gets one costs one round trip to
	// the host instead of four. They are kept for PoolIdle. Zero means 2,
	// negative none, and more than MaxPendingDials as many as that.
	MaxSpares int
	// MaxBody bounds a request body in bytes; a larger one is answered 413
	// before the rest is read. Zero means no limit.
	MaxBody int64
	// ReplayBuffer bounds what is kept, in bytes, of the body of one request
	// that may be sent twice, until it has an answer; one with a longer body
	// is not sent again once more than that was read, nor is one whose client
	// pauses in its body for DialTimeout meanwhile. Zero means 64 KiB, negative
	// nothing is kept.
	ReplayBuffer int
	// MaxHeader bounds the header of a host's answer in bytes; a larger one
	// is answered 502. Zero means 64 KiB.
	MaxHeader int
	// SendQueue bounds the frames that wait to be written on one control
	// socket; a full one retires the socket. Zero means 1,024.
	SendQueue int
	// AcceptRate bounds how many control sockets per second are accepted;
	// more are answered 503 with Retry-After. Zero means no limit.
	AcceptRate float64

	// StaleAfter retires a control socket that has not pinged for so long.
	// Zero means 110 seconds.
	StaleAfter time.Duration
	// AckTimeout is how long an agent of protocol 3 may take to acknowledge a
	// dial before it gets a protocol ping, and how long that ping may take
	// before the socket is retired. It is also how long a stream on a spare
	// waits for the agent before it is dialed as well. Zero means 2 seconds.
	AckTimeout time.Duration
	// DialTimeout bounds a dial, all its issues together. It is also how long an
	// upload to a host that was replaced meanwhile may stand still before its
	// stream is taken for dead. Zero means 10 seconds.
	DialTimeout time.Duration
	// ReconnectGrace is how long a request waits for a host that has just
	// left. Zero means 2 seconds, negative not at all.
	ReconnectGrace time.Duration
	// ResponseHeaderTimeout bounds the wait for a host's answer once the
	// request is written. Zero means 65 seconds, negative no limit.
	ResponseHeaderTimeout time.Duration
	// StallTimeout ends a stream when bytes wait to be written for so long
	// without progress. Zero means 5 minutes.
	StallTimeout time.Duration
	// DataPing is the interval of protocol pings on data sockets, which keeps
	// idle NAT mappings open. Zero means 15 seconds.
	DataPing time.Duration
	// PoolIdle is how long an idle stream to an agent is kept for the next
	// request, and a spare for the next stream. Zero means 90 seconds; it must
	// exceed a second.
	PoolIdle time.Duration
	// PingBatch is how long pings of hosts are collected for one call of the
	// Store. Zero means 250 milliseconds.
	PingBatch time.Duration
	// ControlWriteTimeout retires a control socket when a frame cannot be
	// written for so long. Zero means 5 seconds.
	ControlWriteTimeout time.Duration
	// CloseTimeout is what a closing WebSocket gives the other side before it
	// is cut. Zero means 1 second.
	CloseTimeout time.Duration
	// RowTTL is the life of a host's row in the Store after its last ping.
	// Zero means 5 minutes; it must exceed StaleAfter.
	RowTTL time.Duration
	// StoreTimeout bounds one call of the Store. Zero means 1 second.
	StoreTimeout time.Duration
	// ClaimTimeout bounds a claim with all its retries. Zero means 10 seconds.
	ClaimTimeout time.Duration
	// NodeLease is the life of this node's lease in the Store, NodeBeat how
	// often it is renewed. Zero means 15 and 5 seconds.
	NodeLease time.Duration
	NodeBeat  time.Duration
	// NodeTimeout bounds a call of another node. Zero means 1 second. A dial-back
	// that passes through another node waits for twice StoreTimeout more, in
	// which that node asks the Store.
	NodeTimeout time.Duration
	// DrainNotice is how long a draining node goes on serving clients, so
	// that load balancers notice. Zero means 5 seconds, negative not at all.
	DrainNotice time.Duration
	// RetryAfter is what a 503 or 429 tells clients to wait, unless it is a
	// host's refusal. Zero means 2 seconds.
	RetryAfter time.Duration

	// Rand gives the jitter, in [0,1). Nil means math/rand/v2.
	Rand func() float64
}

// The bounds of a flapping host: design, lives, duplicate hosts.
const (
	flapCount   = 5
	flapWindow  = time.Minute
	flapProbe   = time.Second
	flapHold    = 5 * time.Second
	maxIssues   = 3
	localAlive  = 45 * time.Second // degraded mode: how fresh a local host's ping must be
	maxMeta     = 1 << 10
	pingCap     = 8 // pings of one socket that one batch answers
	pingBatchTo = 500
	// apartAtOnce is how many sockets are asked for at once, each alone, after a
	// Ping of many has failed.
	apartAtOnce = 32

	// pongBurst is how many sockets are answered before their sendLoops get to
	// run: a batch of thousands of pings must not need thousands of goroutines,
	// whose stacks would stay until the next collection.
	pongBurst = 16

	// controlBuffer is the size of the read and of the write buffer of a control
	// socket: most of its life it is idle, and most frames are short.
	controlBuffer = 128
)

// longest is what a longer duration is cut to: the sum of a few must not overflow.
const longest = 50 * 365 * 24 * time.Hour

var nodeIDPattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,32}$`)

// withDefaults returns a copy of c with every zero value filled in.
func (c Config) withDefaults() (Config, error) {
	if c.Store == nil {
		return c, errors.New("relay: Config.Store is required (store/memory for one process)")
	}
	var bad error
	var durations []*time.Duration
	orDefault := func(v *time.Duration, def time.Duration) { // negative values mean "none"
		durations = append(durations, v)
		if *v == 0 {
			*v = def
		}
		*v = max(*v, 0)
	}
	positive := func(name string, v *time.Duration, def time.Duration) {
		durations = append(durations, v)
		if *v == 0 {
			*v = def
		}
		if *v < 0 && bad == nil {
			bad = fmt.Errorf("relay: Config.%s is negative", name)
		}
	}
	atLeast0 := func(name string, v *int, def int) {
		if *v == 0 {
			*v = def
		}
		if *v < 0 && bad == nil {
			bad = fmt.Errorf("relay: Config.%s is negative", name)
		}
	}
	atLeast0("MaxHosts", &c.MaxHosts, 0)
	atLeast0("MaxStreams", &c.MaxStreams, 1000)
	atLeast0("MaxPendingDials", &c.MaxPendingDials, 1000)
	atLeast0("MaxHeader", &c.MaxHeader, 64<<10)
	atLeast0("SendQueue", &c.SendQueue, 1024)
	positive("StaleAfter", &c.StaleAfter, 110*time.Second)
	positive("AckTimeout", &c.AckTimeout, 2*time.Second)
	positive("DialTimeout", &c.DialTimeout, 10*time.Second)
	orDefault(&c.ReconnectGrace, 2*time.Second)
	orDefault(&c.ResponseHeaderTimeout, 65*time.Second)
	positive("StallTimeout", &c.StallTimeout, 5*time.Minute)
	positive("DataPing", &c.DataPing, 15*time.Second)
	positive("PoolIdle", &c.PoolIdle, 90*time.Second)
	positive("PingBatch", &c.PingBatch, 250*time.Millisecond)
	positive("ControlWriteTimeout", &c.ControlWriteTimeout, 5*time.Second)
	positive("CloseTimeout", &c.CloseTimeout, time.Second)
	positive("RowTTL", &c.RowTTL, 5*time.Minute)
	positive("StoreTimeout", &c.StoreTimeout, time.Second)
	positive("ClaimTimeout", &c.ClaimTimeout, 10*time.Second)
	positive("NodeLease", &c.NodeLease, 15*time.Second)
	positive("NodeBeat", &c.NodeBeat, 5*time.Second)
	positive("NodeTimeout", &c.NodeTimeout, time.Second)
	orDefault(&c.DrainNotice, 5*time.Second)
	positive("RetryAfter", &c.RetryAfter, 2*time.Second)
	switch {
	case bad != nil:
		return c, bad
	case c.MaxBody < 0:
		return c, errors.New("relay: Config.MaxBody is negative")
	case c.StoreOutage != ServeLocal && c.StoreOutage != FailClosed:
		return c, fmt.Errorf("relay: Config.StoreOutage is %d, not ServeLocal or FailClosed", c.StoreOutage)
	case c.AcceptRate < 0:
		return c, errors.New("relay: Config.AcceptRate is negative")
	case c.PoolIdle <= time.Second:
		return c, errors.New("relay: Config.PoolIdle must exceed a second")
	case c.RowTTL <= c.StaleAfter:
		return c, errors.New("relay: Config.RowTTL must exceed StaleAfter")
	case c.NodeLease <= c.NodeBeat:
		return c, errors.New("relay: Config.NodeLease must exceed NodeBeat")
	case c.Node.ID != "" && !nodeIDPattern.MatchString(c.Node.ID):
		return c, fmt.Errorf("relay: Config.Node.ID %q is not [A-Za-z0-9_-]{1,32}", c.Node.ID)
	case c.Node.URL != "" && len(c.Node.Key) == 0:
		return c, errors.New("relay: Config.Node.Key is required with Node.URL: all nodes share it")
	case c.Node.URL != "" && !isNodeURL(c.Node.URL):
		return c, errors.New("relay: Config.Node.URL is not an http or https URL of a host and a path only")
	case len(c.Node.Key) > 0 && len(c.Node.Key) < 16:
		return c, errors.New("relay: Config.Node.Key is shorter than 16 bytes")
	}
	for _, d := range durations {
		*d = min(*d, longest)
	}
	c.MaxHeader = min(c.MaxHeader, 1<<30)
	c.AcceptRate = min(c.AcceptRate, 1e9)
	if c.ReplayBuffer == 0 {
		c.ReplayBuffer = 64 << 10
	}
	c.ReplayBuffer = max(c.ReplayBuffer, 0)
	if c.MaxSpares == 0 {
		c.MaxSpares = 2
	}
	c.MaxSpares = min(c.MaxSpares, c.MaxPendingDials)
	if c.MaxIdleStreams == 0 {
		c.MaxIdleStreams = 128
	}
	if c.Node.ID == "" {
		c.Node.ID = randomHex(8)
	}
	if len(c.Node.Key) == 0 {
		c.Node.Key = make([]byte, 32)
		rand.Read(c.Node.Key)
	}
	if c.AuthorizeHost == nil {
		c.AuthorizeHost = refuseAll
	}
	if c.AuthorizeClient == nil {
		c.AuthorizeClient = refuseAll
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, nil
}

// isNodeURL reports whether raw is where other nodes can reach a mount point.
func isNodeURL(raw string) bool {
	u, err := url.Parse(raw)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "" &&
		u.User == nil && u.RawQuery == "" && u.Fragment == ""
}

// randomHex returns n random bytes in hex.
func randomHex(n int) string {
	b := make([]byte, n)
	rand.Read(b)
	return hex.EncodeToString(b)
}
