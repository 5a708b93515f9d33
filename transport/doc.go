// Package transport is the wire that relay and agent share: connections of
// messages, byte streams over them, and the control frames.
//
// # Connections
//
// A Conn is a WebSocket at the level of messages. Accept and Dial make one;
// Pipe makes two that are connected in memory, for tests. All keep one
// contract, and transporttest checks it. No other package imports a WebSocket
// library.
//
// A Conn is bounded by three durations of Options, not by contexts: a context
// that ends in the middle of a frame could only cut the connection.
// WriteTimeout ends a write that makes no progress, CloseTimeout a close that
// is not answered, HandshakeTimeout a dial. Nothing bounds how long a peer may
// be silent: that is what pings are for.
//
// A ping is answered, and a close noticed, while somebody reads. A ping does
// not wait for a write that is blocked by back-pressure, nor hurt it; the
// answer to the peer's close frame waits CloseTimeout for such a write to get
// through.
//
// # Byte streams
//
// A StreamConn makes a Conn a net.Conn: bytes are binary messages, the frame
// EOF is half close, and 1000 the only close that reads as io.EOF. It has the
// deadlines that http.Server and http.Transport need.
//
// # Frames
//
// A Frame is one control message as JSON text; Encode and Decode convert, and
// PROTOCOL.md tells who sends which and when.
//
// # Close codes
//
// A CloseCode says why a connection ended. Its comment has the ranges;
// CloseError is the error of every method of a Conn that has ended.
//
// # Heartbeat
//
// Heartbeat knows when a host has to ping and when its relay is dead. It is
// told the time and has no goroutine.
package transport
