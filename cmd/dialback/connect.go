package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"

	"github.com/dialback/dialback/transport"
)

// errInterrupted ends a stream that was cut short by a signal.
var errInterrupted = errors.New("interrupted")

// connect joins standard input and output with a service of a host.
func connect(ctx context.Context, args []string) error {
	f := newFlags("connect")
	f.String("relay", "", "the relay's `URL`")
	id := f.String("id", "", "the host's `name`")
	service := f.String("service", "", "the `name` of the host's service; empty for its default")
	if _, err := f.parse(args); err != nil {
		return err
	}
	if err := f.required("relay", "id"); err != nil {
		return err
	}
	base, err := f.relayBase()
	if err != nil {
		return err
	}
	u := base + "/connect/" + url.PathEscape(*id)
	if *service != "" {
		u += "?service=" + url.QueryEscape(*service)
	}
	conn, err := transport.Dial(ctx, u, &transport.DialOptions{Options: transport.Options{ReadLimit: -1}, Header: credentials(*f.token)})
	if err != nil {
		return err
	}
	return reason(join(ctx, transport.NewStreamConn(conn), os.Stdin, os.Stdout))
}

// join copies both ways until both directions have ended or the stream is over,
// and closes the stream. The end of one direction is passed on and does not cut
// the other: a program that reads out sees the end of the answer while the stream
// still takes in. Only a clean end is passed on so, by closing out: ssh ends this
// process when it reads one, and a failure is to be said before. When join
// returns, all that was sent has left this process, so that it may exit.
func join(ctx context.Context, sc *transport.StreamConn, in io.Reader, out io.WriteCloser) error {
	stop := context.AfterFunc(ctx, func() { sc.CloseWith(transport.CloseGoingAway, "interrupted") })
	defer stop()
	input := make(chan error, 1)
	go copyInput(sc, in, input)
	_, err := io.Copy(out, sc)
	if err == nil { // the answer is complete; the service may still take in
		_ = out.Close()
		select {
		case err = <-input:
		case <-sc.Conn().Done():
			err = sendError(sc)
		}
	} else {
		select { // an input that broke is the cause, if it did
		case ierr := <-input:
			err = cmp.Or(ierr, err)
		default:
		}
		sc.CloseWith(transport.CloseInternal, "the client's output broke")
	}
	_ = sc.Close()
	<-sc.Conn().Done()
	if ctx.Err() != nil {
		return errInterrupted
	}
	return err
}

// copyInput sends in and passes its end on; done gets nil then. An input that
// breaks is no end: the service must not take what it got for the whole.
// Reading in cannot be interrupted, so this may go on until the process ends.
func copyInput(sc *transport.StreamConn, in io.Reader, done chan<- error) {
	src := &inputReader{r: in}
	_, _ = io.Copy(sc, src) // sendError has the error of sending
	if src.err != nil {
		done <- src.err
		sc.CloseWith(transport.CloseInternal, "the client's input broke")
		return
	}
	done <- sendError(sc)
}

// inputReader keeps the error of r, which io.Copy does not tell from that of
// the side that is written to.
type inputReader struct {
	r   io.Reader
	err error
}

func (r *inputReader) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	if err != nil && err != io.EOF {
		r.err = err
	}
	return n, err
}

// sendError ends what is sent. It returns why sc took less than all, unless
// that is a clean end of the service, which may leave input unread.
func sendError(sc *transport.StreamConn) error {
	err := sc.CloseWrite()
	var ce *transport.CloseError
	if errors.As(err, &ce) && ce.Remote && ce.Code == transport.CloseNormal {
		return nil
	}
	return err
}

// credentials are the headers that carry the token.
func credentials(token string) http.Header {
	h := http.Header{}
	if token != "" {
		h.Set("Dialback-Authorization", "Bearer "+token)
	}
	return h
}

// reason words the end of a connection for a person.
func reason(err error) error {
	var ce *transport.CloseError
	if !errors.As(err, &ce) {
		return err
	}
	switch {
	case ce.Code == transport.CloseAbnormal:
		return errors.New("the connection to the relay was lost")
	case ce.Reason == "":
		return fmt.Errorf("closed with %d", ce.Code)
	case !ce.Remote:
		return errors.New(ce.Reason)
	}
	return fmt.Errorf("%s (%d)", ce.Reason, ce.Code)
}
