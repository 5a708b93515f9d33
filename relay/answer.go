package relay

import (
	"errors"
	"io"
	"net/http"
	"time"
)

// notFromHosts are headers with power over the whole origin, which is the
// embedder's when hosts are served by path.
var notFromHosts = map[string]bool{"Service-Worker-Allowed": true, "Clear-Site-Data": true, "Strict-Transport-Security": true}

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
// does, which net/http expects and does not log. Only where the end of the
// connection is the end of the answer it takes a reset.
func (s *Server) answer(c *toClient, r *http.Request, st *stream, out *outbound, resp *http.Response) {
	defer out.stopUpload(c.w)
	defer resp.Body.Close()
	h := c.w.Header()
	setHeader(h, resp)
	announced := len(resp.Trailer)
	c.w.WriteHeader(resp.StatusCode)
	if err := c.copyBody(resp); err != nil {
		resp.Body.Close()
		out.stopUpload(c.w)
		switch {
		case st.aborted() != nil:
			err = st.aborted()
		case out.upload.failed() != nil:
			err = uploadError(out.upload.failed())
		case r.Context().Err() != nil: // and not the host, whose socket was closed for that
			err = errClientGone
		}
		s.report(r.Context(), st.hub.hostID, err)
		c.rc.SetWriteDeadline(time.Now().Add(s.cfg.CloseTimeout))
		if err != errClientGone {
			// The status must not be lost in a buffer: no answer at all would
			// say that the request may be sent again.
			c.rc.Flush()
		}
		if !r.ProtoAtLeast(1, 1) && resp.ContentLength < 0 {
			c.reset()
		}
		panic(http.ErrAbortHandler)
	}
	if len(resp.Trailer) > 0 {
		c.flush() // with trailers the answer must be chunked
	}
	for k, vs := range resp.Trailer {
		if announced == 0 || len(resp.Trailer) != announced {
			k = http.TrailerPrefix + k
		}
		h[k] = vs
	}
	c.bound() // for the last chunk and the trailers
}

// aheadBody is a body that knows whether its next Read waits for the network.
type aheadBody interface{ ahead() bool }

// copyBody copies the body as it comes: what has arrived, be it the header
// alone, is flushed before the next wait.
func (c *toClient) copyBody(resp *http.Response) error {
	bp := spliceBufs.Get().(*[]byte)
	defer spliceBufs.Put(bp)
	ahead, _ := resp.Body.(aheadBody)
	for sent := int64(0); ; {
		if sent != resp.ContentLength && (ahead == nil || !ahead.ahead()) {
			if err := c.flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
				return writeFailed(err)
			}
			c.wait()
		}
		n, err := resp.Body.Read(*bp)
		if n > 0 {
			if _, werr := c.Write((*bp)[:n]); werr != nil {
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
