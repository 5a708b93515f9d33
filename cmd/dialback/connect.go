package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/dialback/dialback/transport"
)

// connect joins standard input and output with a service of a host. The end of
// standard input is passed on and does not cut the answer.
func connect(ctx context.Context, args []string) error {
	f := newFlags("connect")
	relayURL := f.String("relay", "", "the relay's `URL`")
	id := f.String("id", "", "the host's `name`")
	service := f.String("service", "", "the `name` of the host's service; empty for its default")
	if _, err := f.parse(args); err != nil {
		return err
	}
	if err := f.required("relay", "id"); err != nil {
		return err
	}
	u := strings.TrimSuffix(*relayURL, "/") + "/connect/" + url.PathEscape(*id)
	if *service != "" {
		u += "?service=" + url.QueryEscape(*service)
	}
	conn, err := transport.Dial(ctx, u, &transport.DialOptions{Options: transport.Options{ReadLimit: -1}, Header: credentials(*f.token)})
	if err != nil {
		return err
	}
	sc := transport.NewStreamConn(conn)
	defer sc.Close()
	stop := context.AfterFunc(ctx, func() { sc.CloseWith(transport.CloseGoingAway, "interrupted") })
	defer stop()
	go func() { // ends with the process: standard input cannot be interrupted
		if _, err := io.Copy(sc, os.Stdin); err == nil {
			sc.CloseWrite()
		}
	}()
	_, err = io.Copy(os.Stdout, sc)
	return reason(err)
}

// credentials are the headers that carry the token.
func credentials(token string) http.Header {
	h := http.Header{}
	if token != "" {
		h.Set("Dialback-Authorization", "Bearer "+token)
	}
	return h
}

// reason words the end of a stream for a person.
func reason(err error) error {
	var ce *transport.CloseError
	if !errors.As(err, &ce) {
		return err
	}
	if ce.Reason == "" {
		return fmt.Errorf("stream closed with %d", ce.Code)
	}
	return fmt.Errorf("%s (%d)", ce.Reason, ce.Code)
}
