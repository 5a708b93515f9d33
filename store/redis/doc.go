// Package redis is the [store.Store] of several relay nodes, in a Redis server,
// a Redis with Sentinels, or a Redis Cluster.
//
//	client, err := redis.Open("redis://localhost:6379")
//	…
//	defer client.Close()
//	s := redis.New(client, nil)
//
// It is tested with Redis 7.0.15, as a server, with a Sentinel and as a Cluster
// of three masters, and with miniredis 2.40. It uses nothing that came after
// Redis 6.0: EVALSHA and EVAL, and in scripts commands on strings, hashes,
// sorted sets and lists. It needs no KEYS, no SCAN and no Pub/Sub.
//
// # What differs from the contract
//
// The clock is that of the server, of each master in a Cluster. Deadlines of
// hosts and leases are those of keys; LastPing, generations and the deadlines
// of socket records are read from TIME. A ttl is rounded up to the millisecond.
//
// What one method does to one host or node is one script. There are two
// exceptions: PutSockets and DropSockets with more than 200 records of one host
// take several, so that no script holds the server up for longer than about a
// millisecond.
//
// LastSeen reports a host whose row has expired, as not attached and without a
// reason, for 24 hours.
//
// # Keys
//
// All begin with Options.Prefix. The part in braces is the ID, in which braces
// and percent signs are escaped as in URLs: it is the hash tag, so that all
// keys about one host, or one node, share a slot. Sizes are MEMORY USAGE with
// UUIDs for IDs and no Meta.
//
//	host:{ID}          hash     328 bytes     ttl of the row + 24 h
//	                            750 with the socket that the current one replaced,
//	                            1000 with eight that were retired before,
//	                            330 when detached (then 24 h)
//	host:{ID}:live     string   104 bytes     ttl of the row
//	host:{ID}:sockets  hash     340 bytes     the longest ttl of a record
//	                            for each record
//	host:{ID}:ends     zset     140 bytes     the longest ttl of a record
//	                            for each record
//	node:{ID}          hash     232 bytes     the lease
//	node:{ID}:held     list     200 bytes     the lease + 24 h
//	nodes              zset     88 bytes      the lease + 1 h
//
// An attached host costs 570 bytes in all. One with a Meta of more than 64
// bytes costs 700 more, unless hash-max-listpack-value is raised to its size.
//
// On two busy cores, shared by the server and the relay, a round of Pings of
// 100,000 hosts in pipelines of 500 took 1.3 to 2.1 s and 1 s of the server's
// CPU, 10 µs for each host; a PING of another client then took 0.6 ms (median).
// go test -bench . measures both.
//
// # Clients
//
// A Store repeats nothing by itself, and returns at Options.Timeout or at the
// end of the context, whatever the client does. Open sets what makes the client
// agree with that. One that was made otherwise should have
//
//   - ContextTimeoutEnabled: true, without which go-redis heeds no context, and
//     a call that the Store has given up keeps its connection;
//   - ReadTimeout and WriteTimeout of about 500 ms, not 5 s;
//   - MaxRetries: -1 (0 means 3). The Store is safe with retries: a Claim that
//     is sent twice gives the same answer twice. They only add load when there
//     is too much;
//   - no reads from replicas (ReadOnly, RouteByLatency, RouteRandomly), and no
//     Ring, which moves keys when a server is down.
//
// go-redis prints connections that fail, by a logger of the whole process. Who
// wants that elsewhere, or nowhere, gives SetLogger of go-redis another one; this
// package does not.
//
// Scripts need no deployment. A server that does not know one, new, restarted or
// after SCRIPT FLUSH, learns it from the call that needs it.
//
// # Servers
//
// Set maxmemory-policy noeviction: a Redis that evicts makes up its own mind
// about who is current. Rows that are gone are written again by the next Ping,
// but tombstones are not.
//
// With replicas set min-replicas-to-write 1 and min-replicas-max-lag 1 or 2, so
// that a master which was cut off from its replicas refuses writes after that
// many seconds, rather than giving out generations that nobody will know.
//
// Persistence is not needed. A Redis that comes back empty, or without its last
// writes, is filled by the next round of Pings.
//
// # Failover
//
// Replication is asynchronous: a replica that becomes the master may lack the
// last writes. Until it serves, calls are outages. From then on
//
//   - a Claim that was lost is written again by the Ping of its holder, with its
//     generation, over the older one that stands;
//   - if both sides gave out generations, the newer one wins, whichever side
//     remains, and the Ping of the other says retired;
//   - a Retire or Detach that was lost is lost. Who retired a socket should do so
//     again if its holder still pings;
//   - a KeepNode that was lost is told by created, at the next beat;
//   - a server whose clock is behind gives out generations above those that it
//     knows of the host.
//
// In a Cluster all this is so for the hosts of one master. Calls that are only
// about hosts of the others go on; one that takes several hosts fails if a single
// one of them is out. A node has its lease on one of the masters as well, and is
// out as a whole with that: its hosts move to other nodes.
package redis
