package main

import (
	"context"
	"net/http"
	"time"

	"github.com/dialback/dialback/relay"
)

// sessionCookie is where a browser that is logged in keeps its token.
const sessionCookie = "embed_session"

// authorizeHost decides who may attach as a host.
func (a *app) authorizeHost(_ context.Context, r *http.Request, hostID string) (relay.Identity, error) {
	return a.authorize(relay.Credential(r), roleHost, hostID)
}

// authorizeClient decides who may reach a host: by an explicit token, or by the
// session of a browser. A WebSocket that another site opens with the browser's
// cookie is refused by the relay itself, which sees that no token was used.
func (a *app) authorizeClient(_ context.Context, r *http.Request, hostID string) (relay.Identity, error) {
	token := relay.Credential(r)
	if c, err := r.Cookie(sessionCookie); token == "" && err == nil {
		token = c.Value
	}
	id, err := a.authorize(token, roleClient, hostID)
	if err != nil {
		return id, err
	}
	// The host's service learns who it is; a client cannot claim to be another.
	id.Headers = http.Header{"X-User": {id.Subject}}
	return id, nil
}

// authorize is common to both. What it denies is told to the caller in the
// words given here: they must hold no secret.
func (a *app) authorize(token, role, hostID string) (relay.Identity, error) {
	if token == "" {
		return relay.Identity{}, relay.Deny(relay.ErrUnauthorized, "a token is required")
	}
	c, err := verify(a.cfg.Key, token)
	switch {
	case err != nil:
		return relay.Identity{}, relay.Deny(relay.ErrUnauthorized, err.Error())
	case !time.Now().Before(c.expiresAt()):
		return relay.Identity{}, relay.Deny(relay.ErrUnauthorized, "the token has expired")
	case !c.allow(role, hostID):
		return relay.Identity{}, relay.Deny(relay.ErrForbidden, "the token is not for this")
	}
	// Control sockets and streams end with the token, with close code 4401.
	return relay.Identity{Subject: c.Subject, ExpiresAt: c.expiresAt()}, nil
}
