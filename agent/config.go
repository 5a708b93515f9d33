package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"
)

// Config is what an agent needs. New copies it. RelayURL and HostID are
// required; the zero value of everything else is usable. A negative duration
// or limit is an error; a duration of more than ten years counts as ten years.
type Config struct {
	// RelayURL is where the relay is mounted, with its path prefix if it has
	// one: "wss://relay.example.com/relay". ws, wss, http and https are the
	// same here but for TLS. Required.
	RelayURL string
	// HostID names this host: 1 to 128 of A-Z a-z 0-9 . _ : @ ~ -, but not
	// "." or "..". Required.
	HostID string
	// Token mints the credentials of one connection attempt; it is called
	// anew for each. They are sent as Dialback-Authorization: Bearer, unless
	// empty, and never logged. A call that fails, panics or takes longer than
	// TokenTimeout is a failed attempt. Nil means that none are sent.
	Token func(ctx context.Context) (string, error)
	// Services are what this host offers, by name. The empty name is the
	// default service. At least one is required, except for Listen.
	Services map[string]Handler
	// ListenService is the name of the service that Listen serves; New
	// ignores it. Empty means the default service.
	ListenService string

	// Logger gets what happens: reconnects at Info, what an operator should
	// look at at Warn, single dials at Debug. No token and no ticket is ever
	// logged. Nil means no logging.
	Logger *slog.Logger
	// Hooks are told what happens.
	Hooks Hooks
	// Transport makes the connections to the relay. A clone of it is used, so
	// it stays the caller's own. Nil means one that dials by HTTP/1.1, through
	// the proxy of the environment if there is one.
	Transport *http.Transport
	// Rand gives the jitter of reconnects, in [0,1]; a panic or anything else
	// counts as 1. It is called from one goroutine at a time. Nil means
	// math/rand/v2.
	Rand func() float64

	// MaxStreams bounds the streams of this host together with the dial-backs
	// in flight. A dial above it is refused with status 429. Zero means 1000.
	MaxStreams int

	// HeartbeatInterval is the time between two pings on the control socket.
	// Zero means 30 seconds.
	HeartbeatInterval time.Duration
	// SilenceTimeout is how long the control socket may bring no text frame
	// before the agent leaves it, if the relay has ever answered on it. It
	// must be longer than HeartbeatInterval. Zero means 75 seconds, or two
	// and a half intervals if that is more.
	SilenceTimeout time.Duration
	// HandshakeTimeout bounds DNS, connect, TLS and upgrade together, of
	// control sockets and of dial-backs. A dial-back is tried up to three
	// times within it; one try has half of it at most. Zero means 10 seconds.
	HandshakeTimeout time.Duration
	// TokenTimeout bounds a call of Token. Zero means 10 seconds.
	TokenTimeout time.Duration
	// CloseTimeout is what the relay is given to answer a close frame. No
	// reconnect waits for it. Zero means 1 second.
	CloseTimeout time.Duration
	// WriteTimeout ends a control socket on which a write makes no progress
	// for so long. Zero means 5 seconds.
	WriteTimeout time.Duration
	// StallTimeout ends a stream on which a write to the relay makes no
	// progress for so long: a client that does not read. It runs only while
	// bytes wait. Zero means 5 minutes.
	StallTimeout time.Duration
	// SpareTimeout is how long a data socket that was dialed in advance waits
	// for its stream; the relay usually closes it sooner. Zero means 3 minutes.
	SpareTimeout time.Duration
	// DialTimeout bounds a dial of a local service. Zero means 5 seconds.
	DialTimeout time.Duration
	// StopTimeout is how long Run, when it ends, waits for handlers and hooks
	// that do not return. Zero means 5 seconds.
	StopTimeout time.Duration

	// ReconnectDelay bounds the delay before the first attempt after a loss;
	// the second may wait twice as long, and so on. Zero means 500
	// milliseconds.
	ReconnectDelay time.Duration
	// MaxReconnectDelay bounds the growth. Zero means 5 seconds.
	MaxReconnectDelay time.Duration
	// StableAfter is how long a control socket must have lasted for the next
	// loss to count as a first one. Zero means 10 seconds.
	StableAfter time.Duration
	// SlowReconnectDelay is the delay where coming back soon cannot help: the
	// relay denies this host, or another agent keeps replacing it. Up to a
	// tenth of jitter is added. Zero means 1 minute.
	SlowReconnectDelay time.Duration
}

// maxDuration is for ever, and leaves room for arithmetic.
const maxDuration = 10 * 365 * 24 * time.Hour

var hostIDs = regexp.MustCompile(`^[A-Za-z0-9._:@~-]{1,128}$`)

// withDefaults returns a checked copy of cfg without zero values.
func (cfg Config) withDefaults() (Config, error) {
	if cfg.HostID == "." || cfg.HostID == ".." || !hostIDs.MatchString(cfg.HostID) {
		return cfg, fmt.Errorf("agent: Config.HostID: %q is not a host ID", cfg.HostID)
	}
	if len(cfg.Services) == 0 {
		return cfg, errors.New("agent: Config.Services: no service")
	}
	cfg.Services = maps.Clone(cfg.Services)
	for name, h := range cfg.Services {
		if h == nil {
			return cfg, fmt.Errorf("agent: Config.Services[%q]: no handler", name)
		}
		if err := h.check(); err != nil {
			return cfg, fmt.Errorf("agent: Config.Services[%q]: %w", name, err)
		}
	}
	if cfg.MaxStreams < 0 {
		return cfg, errors.New("agent: Config.MaxStreams: negative")
	}
	if cfg.MaxStreams == 0 {
		cfg.MaxStreams = 1000
	}
	for _, d := range []struct {
		name  string
		value *time.Duration
		zero  time.Duration
	}{
		{"HeartbeatInterval", &cfg.HeartbeatInterval, 30 * time.Second},
		{"SilenceTimeout", &cfg.SilenceTimeout, 0},
		{"HandshakeTimeout", &cfg.HandshakeTimeout, 10 * time.Second},
		{"TokenTimeout", &cfg.TokenTimeout, 10 * time.Second},
		{"CloseTimeout", &cfg.CloseTimeout, time.Second},
		{"WriteTimeout", &cfg.WriteTimeout, 5 * time.Second},
		{"StallTimeout", &cfg.StallTimeout, 5 * time.Minute},
		{"SpareTimeout", &cfg.SpareTimeout, 3 * time.Minute},
		{"DialTimeout", &cfg.DialTimeout, 5 * time.Second},
		{"StopTimeout", &cfg.StopTimeout, 5 * time.Second},
		{"ReconnectDelay", &cfg.ReconnectDelay, 500 * time.Millisecond},
		{"MaxReconnectDelay", &cfg.MaxReconnectDelay, 5 * time.Second},
		{"StableAfter", &cfg.StableAfter, 10 * time.Second},
		{"SlowReconnectDelay", &cfg.SlowReconnectDelay, time.Minute},
	} {
		if *d.value < 0 {
			return cfg, fmt.Errorf("agent: Config.%s: negative", d.name)
		}
		if *d.value == 0 {
			*d.value = d.zero
		}
		*d.value = min(*d.value, maxDuration)
	}
	if cfg.SilenceTimeout == 0 {
		cfg.SilenceTimeout = max(75*time.Second, cfg.HeartbeatInterval*5/2)
	}
	if cfg.SilenceTimeout <= cfg.HeartbeatInterval {
		return cfg, errors.New("agent: Config.SilenceTimeout: not longer than HeartbeatInterval")
	}
	cfg.MaxReconnectDelay = max(cfg.MaxReconnectDelay, cfg.ReconnectDelay)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Rand == nil {
		cfg.Rand = rand.Float64
	}
	cfg.Transport = relayTransport(cfg.Transport)
	return cfg, nil
}

// relayTransport is the agent's own copy of t, or the default.
func relayTransport(t *http.Transport) *http.Transport {
	if t != nil {
		t = t.Clone()
		t.DisableKeepAlives = true // nothing idle is left behind
		return t
	}
	return &http.Transport{
		Proxy:             http.ProxyFromEnvironment,
		DisableKeepAlives: true,
		// The zero Dialer keeps TCP alive, so a data socket whose relay
		// vanished ends within minutes.
		DialContext: (&net.Dialer{}).DialContext,
		// Resumption saves a dial-back most of its TLS handshake.
		TLSClientConfig: &tls.Config{ClientSessionCache: tls.NewLRUClientSessionCache(8)},
	}
}

// relayURL knows the addresses of a relay.
type relayURL struct {
	base   string // without trailing slash
	hostID string // escaped for a query
}

func parseRelayURL(raw, hostID string) (relayURL, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return relayURL{}, errors.New("agent: Config.RelayURL: not a URL")
	}
	switch u.Scheme {
	case "ws", "wss", "http", "https":
	default:
		return relayURL{}, fmt.Errorf("agent: Config.RelayURL: scheme %q is not ws, wss, http or https", u.Scheme)
	}
	if u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return relayURL{}, errors.New("agent: Config.RelayURL: want a host and a path only")
	}
	base := u.Scheme + "://" + u.Host + strings.TrimRight(u.EscapedPath(), "/")
	return relayURL{base: base, hostID: url.QueryEscape(hostID)}, nil
}

// control is the URL of one connection attempt.
func (u relayURL) control(instance string, seq uint64) string {
	return fmt.Sprintf("%s/v2/control?hostId=%s&proto=3&instance=%s&seq=%d", u.base, u.hostID, instance, seq)
}

// dial is the URL of a dial-back. It holds the ticket: never log it.
func (u relayURL) dial(ticket string) string {
	return u.base + "/v2/dial?hostId=" + u.hostID + "&ticket=" + url.QueryEscape(ticket)
}
