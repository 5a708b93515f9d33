// Package dialback is the documentation of an embeddable relay that works by
// dial-back; it holds no code.
//
// A host behind NAT keeps one outbound control WebSocket to the relay. For
// each stream a client opens, the relay sends stream:dial on it, the host dials
// a data socket back, and the relay splices the two.
//
//	client ──▶ relay.Server ◀── control ── agent ──▶ local service
//	                 ▲                        │
//	                 └────── dial-back ───────┘
//
// Import relay to build a server, with store/memory or store/redis as its
// Store; agent to be a host; relaytest to unit-test a server of yours;
// transport to speak the wire; store and store/storetest to write a Store.
package dialback
