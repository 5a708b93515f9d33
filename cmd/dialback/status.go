package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// errOffline is the failure of a host that is not there: exit code 1.
var errOffline = errors.New("host is offline")

// hostStatus is what --json prints.
type hostStatus struct {
	ID         string `json:"id"`
	Online     bool   `json:"online"`
	LastSeenAt int64  `json:"lastSeenAt,omitempty"` // milliseconds since 1970
}

// status tells whether a host is online; an offline host is exit code 1.
func status(ctx context.Context, args []string) error {
	f := newFlags("status")
	f.String("relay", "", "the relay's `URL`")
	id := f.String("id", "", "the host's `name`")
	asJSON := f.Bool("json", false, "print JSON")
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
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	base = httpURL(base)
	var seen struct {
		Hosts map[string]struct {
			Online     bool
			LastSeenAt int64
		}
	}
	if err := getJSON(ctx, base+"/presence?hostIds="+url.QueryEscape(*id), *f.token, &seen); err != nil {
		return err
	}
	h, ok := seen.Hosts[*id]
	if !ok { // it may not be seen; the relay says why elsewhere
		if err := getJSON(ctx, base+"/hosts/"+url.PathEscape(*id)+"/_whoowns", *f.token, &struct{}{}); err != nil {
			return err
		}
		return errors.New("the relay does not tell")
	}
	st := hostStatus{ID: *id, Online: h.Online, LastSeenAt: h.LastSeenAt}
	if *asJSON {
		json.NewEncoder(os.Stdout).Encode(st)
	} else {
		fmt.Println(st)
	}
	if !st.Online {
		return errOffline
	}
	return nil
}

func (s hostStatus) String() string {
	word, seen := "offline", "never seen"
	if s.Online {
		word = "online"
	}
	if s.LastSeenAt != 0 {
		seen = "last seen " + time.UnixMilli(s.LastSeenAt).UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("%s: %s, %s", s.ID, word, seen)
}

// httpURL is a ws or wss URL as an http or https one.
func httpURL(u string) string {
	if rest, ok := strings.CutPrefix(u, "ws"); ok && (strings.HasPrefix(rest, "://") || strings.HasPrefix(rest, "s://")) {
		return "http" + rest
	}
	return u
}

// noRedirects takes a redirection for the answer: what it leads to is not the
// relay that the token is for. Nor do host and connect follow one.
var noRedirects = http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

// getJSON fetches u into v; another answer than 200 is an error in the relay's
// own words, unless those have the token in them.
func getJSON(ctx context.Context, u, token string, v any) error {
	err := fetchJSON(ctx, u, token, v)
	if err != nil && token != "" && strings.Contains(err.Error(), token) {
		return errors.New("the relay's answer is not shown, since it quotes the token")
	}
	return err
}

func fetchJSON(ctx context.Context, u, token string, v any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u, nil)
	if err != nil {
		return err
	}
	req.Header = credentials(token)
	resp, err := noRedirects.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusSwitchingProtocols { // its body has no end
		return errors.New("the answer is not a relay's: 101")
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		var e struct {
			Error struct{ Code, Message string }
		}
		json.Unmarshal(b, &e)
		return fmt.Errorf("the relay answered %d: %s", resp.StatusCode, e.Error.Message)
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("the answer is not a relay's: %w", err)
	}
	return nil
}
