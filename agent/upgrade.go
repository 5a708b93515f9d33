package agent

import (
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/dialback/dialback/transport"
)

// upgrade is a 101 of the service. ReverseProxy would lose bytes that the
// client sent right behind its request (golang/go#80875), so it is given an
// error to pass to the ErrorHandler, which serves the upgrade.
type upgrade struct {
	res   *http.Response
	local io.ReadWriteCloser
}

func (*upgrade) Error() string { return "agent: upgraded" }

var errUpgrade = errors.New("agent: the service upgraded what was not asked for")

// takeUpgrade takes the connection out of a 101.
func takeUpgrade(res *http.Response) error {
	local, ok := res.Body.(io.ReadWriteCloser)
	if !ok || !strings.EqualFold(res.Header.Get("Upgrade"), res.Request.Header.Get("Upgrade")) {
		return errUpgrade
	}
	res.Body = http.NoBody // ReverseProxy closes it
	return &upgrade{res: res, local: local}
}

// serve sends the 101 and copies until both sides have ended.
func (u *upgrade) serve(w http.ResponseWriter, r *http.Request, e env) {
	defer u.local.Close()
	stream, ok := r.Context().Value(streamInfoKey{}).(*Stream)
	if !ok {
		panic(http.ErrAbortHandler) // not on a stream of ours
	}
	e.tasks.Add(1) // the server does not wait for what was hijacked
	defer e.tasks.Done()
	conn, brw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer conn.Close()
	u.res.Body = nil
	if err := u.res.Write(brw.Writer); err != nil {
		return
	}
	if err := brw.Writer.Flush(); err != nil {
		return
	}
	if n := brw.Reader.Buffered(); n > 0 {
		first, _ := brw.Reader.Peek(n)
		if _, err := u.local.Write(first); err != nil {
			stream.CloseWith(transport.CloseInternal, "service connection broke")
			return
		}
	}
	newSplice(stream, u.local, e.closeTimeout).run()
}
