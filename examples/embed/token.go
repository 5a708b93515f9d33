package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"
)

// Roles of claims.
const (
	roleHost   = "host"   // may attach as one of Hosts
	roleClient = "client" // may reach one of Hosts
)

// claims are what a token says. A token is the claims as JSON and an HMAC over
// them, both in base64url, with a dot between: what a JWT is, with less around
// it. Yours may as well be a JWT, a session or a call of another service.
type claims struct {
	Subject string   `json:"sub"`
	Role    string   `json:"role"`
	Hosts   []string `json:"hosts"`
	Expires int64    `json:"exp"` // seconds since 1970
}

var errToken = errors.New("the token is not valid")

// sign makes the token.
func (c claims) sign(key []byte) string {
	p, err := json.Marshal(c)
	if err != nil { // not for these types
		return ""
	}
	body := base64.RawURLEncoding.EncodeToString(p)
	return body + "." + base64.RawURLEncoding.EncodeToString(mac(key, body))
}

// verify returns the claims of a token that was signed with key. Whether they
// have expired, and what they allow, is for the caller to look at.
func verify(key []byte, token string) (claims, error) {
	var c claims
	body, sum, ok := strings.Cut(token, ".")
	if !ok {
		return c, errToken
	}
	got, err := base64.RawURLEncoding.DecodeString(sum)
	if err != nil || !hmac.Equal(got, mac(key, body)) { // in constant time
		return c, errToken
	}
	p, err := base64.RawURLEncoding.DecodeString(body)
	if err != nil || json.Unmarshal(p, &c) != nil {
		return c, errToken
	}
	return c, nil
}

func mac(key []byte, body string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(body))
	return h.Sum(nil)
}

func (c claims) expiresAt() time.Time { return time.Unix(c.Expires, 0) }

// allow reports whether the claims are for this role and host.
func (c claims) allow(role, hostID string) bool {
	return c.Role == role && slices.Contains(c.Hosts, hostID)
}
