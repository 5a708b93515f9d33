package main

import (
	"log/slog"
	"net/http"
	"time"
)

// logRequests is a middleware as most servers have one.
func logRequests(log *slog.Logger, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun := time.Now()
		rec := &recorder{ResponseWriter: w, status: http.StatusOK}
		next.ServeHTTP(rec, r)
		// The path without the query, which may hold a token.
		log.Info("request", "method", r.Method, "host", r.Host, "path", r.URL.Path, "status", rec.status, "took", time.Since(begun))
	})
}

// recorder remembers the status of an answer.
type recorder struct {
	http.ResponseWriter
	status int
}

func (r *recorder) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

// Unwrap is what http.ResponseController looks for. Without it the relay could
// neither upgrade a connection nor flush an answer or lift a deadline.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
