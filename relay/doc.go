// Package relay is the server side of Dialback: an http.Handler that hosts keep
// a control socket to, and through which clients reach them.
package relay
