// Package relay is the server side of Dialback: an http.Handler that hosts keep
// a control socket to, and through which clients reach them.
//
// # Overview
//
// A host behind NAT opens one WebSocket to the relay, the control socket, and
// keeps it. For each stream that a client wants, the [Server] sends stream:dial
// on that socket, the host dials back with a data socket of its own, and the
// Server splices client and data socket. So streams do not block each other,
// and the loss of a control socket ends none of them. HTTP requests to an agent
// take a stream that is kept, if there is one.
//
// The package is the mechanism. Who may come is decided by two functions of the
// embedder's, and what must outlive the process is kept in a store.Store.
// Package agent is the other side; PROTOCOL.md has the wire.
//
// # Mounting it
//
//	srv, err := relay.New(relay.Config{
//		Store:           memory.New(),
//		AuthorizeHost:   authorizeHost,   // who may attach as a host
//		AuthorizeClient: authorizeClient, // who may reach it
//	})
//	if err != nil {
//		return err
//	}
//	defer srv.Close()
//	mux.Handle("/relay/", http.StripPrefix("/relay", srv))
//
// http.ServeMux cleans paths and redirects. Where hosts must get a path with
// "//" or ".." in it to the letter, compare the prefix yourself, in front of the
// mux, as examples/embed does. Middleware around the Server must leave
// http.ResponseController its way to the connection: an Unwrap method.
//
// # Routes
//
// Below the mount point:
//
//	/v2/control             hosts: the control socket
//	/v2/dial                hosts: a dial-back
//	/hosts/{hostID}/...     clients: HTTP to the host's default service
//	/connect/{hostID}       clients: a byte stream to a service, ?service=S
//	/hosts/{hostID}/_whoowns, /presence, /health
//
// Each is also a handler of its own, for routes of the embedder's:
// [Server.ControlHandler], [Server.DialHandler], [Server.HostsHandler],
// [Server.ConnectHandler], [Server.PresenceHandler], [Server.HealthHandler].
// [Server.ServeHost] serves a request from a host that the embedder names, by
// subdomain for instance. [Server.Dial] and [Server.RoundTripper] reach hosts
// from inside the embedding program.
//
// What hosts answer at /hosts runs on the origin of the embedder. Serve hosts
// that you do not trust on a domain of their own, by ServeHost.
//
// # Hosts and attachments
//
// An attachment is the record of one socket; the Store knows which one is each
// host's current. A new control socket claims the host, and the one before it
// is retired in the same step: marked in the Store, then closed. Nothing is ever
// sent to a retired socket again, however open it looks. A socket is also
// retired when its host has not pinged for [Config.StaleAfter], when it takes no
// frames, when a dial is not acknowledged and a protocol ping is not answered,
// when its credentials expire, and by [Server.Revoke].
//
// A pong means routable: it is written after the Store has confirmed that this
// very socket is current. A retired socket gets a close with its reason instead.
//
// # Streams and dial-back
//
// A dial carries a ticket, which is bound to host and control socket, pending in
// this process only, and good once. When it is redeemed the Store is asked
// whether the socket is still current. If the socket was replaced or lost
// meanwhile, the dial is issued anew under another ticket, three times at most
// and all within [Config.DialTimeout]; a host that has just left is given
// [Config.ReconnectGrace] to come back.
//
// A client's request body is not read before the host is there, so nothing has
// to be kept for that. An exchange fails the moment that its data socket closes.
//
// A stream to an HTTP service of an agent carries one exchange at a time, and is
// kept in between: [Config.MaxIdleStreams] of a host, each for [Config.PoolIdle]. It
// belongs to the node of the client, and only the relay closes it while it is
// idle. It is taken for a request if its generation is the one that the Store
// named within the last second. One that has been idle for 250 ms proves by a
// protocol ping that its peer lives, within 2 s: along with a request that may be
// sent twice (GET, HEAD, OPTIONS, TRACE, or one with an Idempotency-Key), before
// the first byte of any other one. A request that has not been written, or that
// may be sent twice, got no byte of an answer, and of whose body no more was read
// than [Config.ReplayBuffer], is then sent once more on a fresh stream; no other
// exchange is ever sent twice, nor one that ended for ResponseHeaderTimeout.
// Upgrades, byte streams and hosts of protocol 2 have a data socket each.
//
// The data socket of a stream is dialed back for it, or is one of the spares that
// an agent has dialed in advance: [Config.MaxSpares] of a host in use.
//
// While an agent has not answered a request, it is pinged after 250 ms and then
// from time to time, unless the request has a body and its host is not known to
// have been replaced. A peer that gives no pong within 2 s is cut, and its client
// need not wait for a timeout.
//
// A stream ends when one of its two sockets does, and each end's close code and
// reason reach the other. Back-pressure goes through: a reader that is slow
// stalls its own stream only.
//
// Every failure is one of the errors of this package; [Describe] tells what the
// outside is told of it.
//
// # Several nodes
//
// Servers that share a Store are nodes of one relay: host, client and dial-back
// may each land on another. The stream belongs to the node where the client is.
// It asks the node of the control socket for the dial, by an HTTP call to
// [Node].URL below /node/ that is signed with [Node].Key, and a dial-back that
// lands on another node is handed over as raw bytes, one hop at most. A call is
// bounded by [Config.NodeTimeout], and fails as [ErrNodeUnreachable].
//
// A node keeps a lease in the Store, and gives up its hosts when another process
// takes its ID. When it alone has lost the Store it closes its hosts with 1012,
// spread over 30 s, so that they go elsewhere; while no node has the Store, no
// host is sent away. A host that has just left is waited for on every node, for
// what is left of ReconnectGrace.
//
// Package memory is the Store of Servers in one process; nodes that are
// processes of their own need one that they share, as store/redis is.
//
// # Authentication
//
// [Config.AuthorizeHost] and [Config.AuthorizeClient] are asked before anything
// is upgraded; without them everybody is refused. They take the token with
// [Credential], and only a token that was taken is removed from what the host
// gets. The [Identity] that they return can expire, and can set headers toward
// the host. A dial-back needs its ticket and nothing else.
//
// # Shutdown
//
// A Server ends with [Server.Shutdown], which drains, or with [Server.Close].
// http.Server.Shutdown does neither: it forgets hijacked connections. The order
// for a process is: tell the load balancer, then Shutdown of the relay while the
// HTTP server still takes dial-backs, then Shutdown of the HTTP server. Shutdown
// of one node among several also waits until its agents are on another one, and
// until no dial-back for another node passes through it.
//
// # Concurrency
//
// All methods of Server may be called concurrently. The functions of [Config]
// and [Hooks] are called without any lock held: AuthorizeHost and
// AuthorizeClient in the goroutine of their request, hooks in that in which the
// thing happened. No goroutine is left when Close has returned; New starts one.
//
// # Limits
//
// Everything that a host or a client can make the Server hold is bounded by a
// field of [Config], and reaching a bound is an error with a name:
// [ErrHostLimit], [ErrNodeLimit], [ErrBodyTooLarge], [ErrBadAnswer]. A control
// frame has 64 KiB at most; a stream has no limit on messages, bytes or time. A
// wait that nothing ends is ended by one of Config's durations, and streams by
// StallTimeout alone, which runs only while bytes wait.
package relay
