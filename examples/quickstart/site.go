package main

import (
	_ "embed"
	"html/template"
	"net/http"

	"github.com/coder/websocket"
)

//go:embed page.html
var pageSource string

var page = template.Must(template.New("page").Parse(pageSource))

// newSite is an ordinary web site, as any host may have: a page, and a
// WebSocket that sends back what it gets. It knows nothing of the relay.
func newSite(name string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_ = page.Execute(w, map[string]string{"Name": name}) // fails when the client has left
	})
	mux.HandleFunc("GET /echo", echo)
	return mux
}

func echo(w http.ResponseWriter, r *http.Request) {
	ws, err := websocket.Accept(w, r, nil)
	if err != nil {
		return // Accept has answered
	}
	defer ws.CloseNow()
	for {
		typ, message, err := ws.Read(r.Context())
		if err != nil {
			return
		}
		if err := ws.Write(r.Context(), typ, message); err != nil {
			return
		}
	}
}
