// Package agent is the host side of Dialback: it keeps a host behind NAT
// reachable through a relay.
//
// An agent holds one outbound control socket to the relay. When a client opens
// a stream to the host, the relay says so there, and the agent dials back with
// a data socket of its own for that stream. So streams do not block each
// other, and losing the control socket ends none of them.
//
// # Listen
//
// [Listen] turns the host into a [net.Listener] whose connections are the
// streams of one service. Anything that takes a listener can be reached
// through the relay that way:
//
//	ln, err := agent.Listen(ctx, agent.Config{RelayURL: url, HostID: "host-1", Token: token})
//	if err != nil {
//		return err
//	}
//	defer ln.Close()
//	return http.Serve(ln, handler)
//
// Such a service is raw: the relay splices bytes and does not know what they
// are. Clients reach it by /connect or by relay.Server.Dial.
//
// # Forward
//
// [New] with [Config.Services] serves what already listens on this machine.
// [ForwardTCP] is a raw service. [ForwardHTTP] and [HTTP] are HTTP services:
// the relay sends them requests, many on one stream, and clients reach them by
// /hosts. A client names a service, never an address.
//
//	a, err := agent.New(agent.Config{RelayURL: url, HostID: "host-1", Token: token,
//		Services: map[string]agent.Handler{
//			"":    agent.ForwardHTTP("http://127.0.0.1:3000"),
//			"ssh": agent.ForwardTCP("127.0.0.1:22"),
//		}})
//	if err != nil {
//		return err
//	}
//	return a.Run(ctx)
//
// The agent makes an answer of its own only where the service gives none. It
// is JSON and has a Dialback-Error header with the code: service_down (502)
// when the service cannot be reached, does not answer, or answers with what is
// not valid HTTP/1.1, and bad_request (400) for a path that would leave the base
// path of the target, or a request that is malformed or ambiguous.
//
// # Reconnecting
//
// The agent pings the relay and leaves a control socket that was silent for
// [Config.SilenceTimeout], but only if the relay has ever answered on it, or
// has said in its handshake that it would: a relay that knows no ping must not
// be punished for that. It connects again
// for as long as Run runs, whatever fails: a token func that hangs or panics,
// a relay that accepts and never answers, a hook that never returns.
//
// The first attempt after a loss comes within [Config.ReconnectDelay], later
// ones after an exponentially growing, fully jittered delay up to
// [Config.MaxReconnectDelay]. Only a connection that lasted for
// [Config.StableAfter] resets that. Where the relay says more, the agent
// listens: a Retry-After is honoured, a denied host retries slowly, and a host
// that keeps being replaced by another agent with the same ID backs off to
// [Config.SlowReconnectDelay] and reports it.
//
// A relay that drains tells its hosts, and the agent connects a second control
// socket while the first one still serves. Streams outlive all of this.
//
// # Concurrency
//
// All methods of [Agent], [Listener] and [Stream] may be called concurrently,
// except that one Run at a time is allowed. Every wait is bounded by a field of
// [Config]. After Run has returned, nothing of the agent runs on, except calls
// of the embedder's own functions that would not return.
package agent
