package sim

import (
	"io"
	"net/http"

	"github.com/dialback/dialback/transport"
)

// oldRelayName is the address of a relay of an earlier version, which takes
// control sockets and knows neither ping nor hello.
const oldRelayName = "old"

// startOldRelay serves it.
func (w *World) startOldRelay() {
	p := newProcess(w, oldRelayName, w.label(oldRelayName))
	ln, err := w.network.base.Listen(oldRelayName)
	if err != nil {
		w.tr.violated("sim", "listen: %v", err)
		return
	}
	server := &http.Server{ErrorLog: w.quiet, Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		conn, err := transport.Accept(rw, r, nil)
		if err != nil {
			return
		}
		w.tr.log("%s: %s attaches", p.label, r.URL.Query().Get("hostId"))
		for err == nil { // frames are read and mean nothing
			var message io.Reader
			if _, message, err = conn.Reader(); err == nil {
				_, err = io.Copy(io.Discard, message)
			}
		}
		conn.CloseNow()
		<-conn.Done()
	})}
	go server.Serve(ln)
	w.closers = append(w.closers, func() { server.Close() })
}
