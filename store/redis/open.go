package redis

import (
	"errors"
	"net/url"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// What Open sets where the URL says nothing.
const (
	ioTimeout   = 500 * time.Millisecond // to read, to write, and to wait for a free connection
	dialTimeout = time.Second            // also bounded by Options.Timeout
)

// Open returns a client for New, which the caller closes. It connects when it
// is used first. The form of rawURL says what is there:
//
//	redis://user:password@host:6379/0?pool_size=50     a server
//	rediss://host:6380                                 the same with TLS
//	unix:///run/redis.sock?db=0                        a server on a unix socket
//	redis://sentinel:26379?master_name=m&addr=h2:26379 the master m, by Sentinels
//	redis://host1:6379?addr=host2:6379                 a Cluster, by its members
//
// The query is that of go-redis' ParseURL, ParseFailoverURL and
// ParseClusterURL; rediss works with each. A Cluster of which one address is
// known names it twice.
//
// Open sets what Clients in the documentation of this package asks for. It
// refuses a URL that asks for reads from replicas.
func Open(rawURL string) (goredis.UniversalClient, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		// Its text holds the URL, and with it the password.
		return nil, errors.New("redis: open: the URL is malformed")
	}
	switch q := u.Query(); {
	case q.Has("master_name"):
		return openFailover(rawURL)
	case q.Has("addr"):
		return openCluster(rawURL)
	default:
		return openServer(rawURL)
	}
}

// errReplicas: replicas lag, and a Store must see every completed write.
var errReplicas = errors.New("redis: open: the URL asks for reads from replicas")

func openServer(rawURL string) (goredis.UniversalClient, error) {
	o, err := goredis.ParseURL(rawURL)
	if err != nil {
		return nil, err
	}
	harden(&o.ContextTimeoutEnabled, &o.MaxRetries, &o.DialerRetries,
		&o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout, &o.PoolTimeout)
	return goredis.NewClient(o), nil
}

func openFailover(rawURL string) (goredis.UniversalClient, error) {
	o, err := goredis.ParseFailoverURL(rawURL)
	if err != nil {
		return nil, err
	}
	if o.ReplicaOnly || o.RouteByLatency || o.RouteRandomly || o.UseDisconnectedReplicas {
		return nil, errReplicas
	}
	harden(&o.ContextTimeoutEnabled, &o.MaxRetries, &o.DialerRetries,
		&o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout, &o.PoolTimeout)
	return goredis.NewFailoverClient(o), nil
}

func openCluster(rawURL string) (goredis.UniversalClient, error) {
	o, err := goredis.ParseClusterURL(rawURL)
	if err != nil {
		return nil, err
	}
	if o.ReadOnly || o.RouteByLatency || o.RouteRandomly {
		return nil, errReplicas
	}
	harden(&o.ContextTimeoutEnabled, &o.MaxRetries, &o.DialerRetries,
		&o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout, &o.PoolTimeout)
	return goredis.NewClusterClient(o), nil
}

// harden sets what the three kinds of options have in common.
func harden(heedContext *bool, retries, dials *int, dial, read, write, pool *time.Duration) {
	*heedContext = true
	*retries = -1 // none; 0 would be 3
	*dials = 1
	orElse(dial, dialTimeout)
	orElse(read, ioTimeout)
	orElse(write, ioTimeout)
	orElse(pool, ioTimeout)
}

func orElse(d *time.Duration, otherwise time.Duration) {
	if *d == 0 {
		*d = otherwise
	}
}
