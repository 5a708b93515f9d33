package relay

import (
	"errors"
	"io"
	"maps"
	"net/http"
	"time"
)

// notFromHosts are headers with power over the whole origin, which is the
// embedder's when hosts are served by path.
var notFromHosts = map[string]bool{"Service-Worker-Allowed": true, "Clear-Site-Data": true, "Strict-Transport-Security": true}

// unbind frees a connection from the embedder's Read- and WriteTimeout, which
// would cut long exchanges; StallTimeout takes their place.
func unbind(rc *http.ResponseController) {
	rc.SetReadDeadline(time.Time{})
	rc.SetWriteDeadline(time.Time{})
}

// informClient passes a 1xx answer on (RFC 9110, section 15.2). What the
// embedder has set is for the answer itself, and stays.
func informClient(w http.ResponseWriter, status int, from http.Header) {
	h := w.Header()
	embedders := maps.Clone(h)
	clear(h)
	copyHeader(h, from)
	w.WriteHeader(status)
	clear(h)
	maps.Copy(h, embedders)
}

// copyHeader copies what a host may say to its client.
func copyHeader(h, from http.Header) {
	if len(from["Connection"]) > 0 {
		from = endToEnd(from)
	}
	for k, vs := range from {
		if !hopByHop[k] && !notFromHosts[k] {
			h[k] = vs
		}
	}
}

// setHeader copies a host's header to the client's answer.
func setHeader(h http.Header, resp *http.Response) {
	copyHeader(h, resp.Header)
	if cl := resp.Header["Content-Length"]; len(cl) == 1 {
		h["Content-Length"] = cl
	}
	if _, ok := h["Content-Type"]; !ok {
		h["Content-Type"] = nil // net/http shall not guess
	}
	for k := range resp.Trailer {
		h.Add("Trailer", k)
	}
}

// answer copies a host's response to the client. From here on the status is
// out: a failure can only cut the connection, so that nobody takes a truncated
// answer for a whole one. That is what the panic with http.ErrAbortHandler
// does, which net/http expects and does not log.
func (s *Server) answer(w http.ResponseWriter, rc *http.ResponseController, r *http.Request, st *stream, out *outbound, resp *http.Response) {
	defer out.stopUpload(w)
	defer resp.Body.Close()
	setHeader(w.Header(), resp)
	announced := len(resp.Trailer)
	w.WriteHeader(resp.StatusCode)
	if err := s.copyBody(w, rc, resp); err != nil {
		resp.Body.Close()
		out.stopUpload(w)
		switch {
		case st.aborted() != nil:
			err = st.aborted()
		case out.upload.failed() != nil:
			err = uploadError(out.upload.failed())
		case r.Context().Err() != nil: // and not the host, whose socket was closed for that
			err = errClientGone
		}
		s.report(r.Context(), st.hub.hostID, err)
		if err != errClientGone {
			// The status must not be lost in a buffer: no answer at all would
			// say that the request may be sent again.
			rc.SetWriteDeadline(time.Now().Add(s.cfg.CloseTimeout))
			rc.Flush()
		}
		panic(http.ErrAbortHandler)
	}
	if len(resp.Trailer) > 0 {
		rc.Flush() // with trailers the answer must be chunked
	}
	for k, vs := range resp.Trailer {
		if announced == 0 || len(resp.Trailer) != announced {
			k = http.TrailerPrefix + k
		}
		w.Header()[k] = vs
	}
}

// aheadBody is a body that knows whether its next Read waits for the network.
type aheadBody interface{ ahead() bool }

// copyBody copies the body as it comes: what has arrived, be it the header
// alone, is flushed before the next wait.
func (s *Server) copyBody(w http.ResponseWriter, rc *http.ResponseController, resp *http.Response) error {
	bp := spliceBufs.Get().(*[]byte)
	defer spliceBufs.Put(bp)
	ahead, _ := resp.Body.(aheadBody)
	for sent := int64(0); ; {
		if sent != resp.ContentLength && (ahead == nil || !ahead.ahead()) {
			if err := rc.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
				return writeFailed(err)
			}
		}
		n, err := resp.Body.Read(*bp)
		if n > 0 {
			rc.SetWriteDeadline(time.Now().Add(s.cfg.StallTimeout))
			if _, werr := w.Write((*bp)[:n]); werr != nil {
				return writeFailed(werr)
			}
			sent += int64(n)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return ErrStreamClosed
		}
	}
}

// writeFailed names the end of a client's connection.
func writeFailed(err error) error {
	if errors.Is(err, http.ErrContentLength) {
		return ErrBadAnswer
	}
	return errClientGone
}
