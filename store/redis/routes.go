package redis

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/dialback/dialback/store"
)

// Claim implements store.Routes. It is one script.
func (s *Store) Claim(ctx context.Context, a store.Attachment, ttl time.Duration) (store.Claimed, error) {
	if err := store.CheckClaim(a, ttl); err != nil {
		return store.Claimed{}, err
	}
	if err := s.ready(ctx); err != nil {
		return store.Claimed{}, err
	}
	args := append([]any{a.ID, a.Instance, a.Seq, millis(ttl)}, anys(fields(&a))...)
	replies, err := s.do(ctx, "claim", command{claimScript, s.keys.host(a.HostID), args})
	if err != nil {
		return store.Claimed{}, err
	}
	return parseClaimed(a.HostID, replies[0])
}

func parseClaimed(hostID string, reply any) (store.Claimed, error) {
	pair, ok := reply.([]any)
	switch {
	case ok && len(pair) == 0:
		return store.Claimed{}, store.ErrRetired
	case !ok || len(pair) != 2:
		return store.Claimed{}, fmt.Errorf("redis: claim: %w", errReply)
	}
	var c store.Claimed
	var err error
	if c.Current, err = parseAttachment(hostID, pair[0]); err != nil {
		return store.Claimed{}, fmt.Errorf("redis: claim: %w", err)
	}
	if c.Previous, err = parseAttachment(hostID, pair[1]); err != nil {
		return store.Claimed{}, fmt.Errorf("redis: claim: %w", err)
	}
	if c.Previous.ID != "" {
		c.Previous.Retired = true
		c.Previous.RetiredReason = store.ReasonReplaced
	}
	return c, nil
}

// parseAttachment reads a list of fields. An empty one is the zero Attachment.
func parseAttachment(hostID string, reply any) (store.Attachment, error) {
	kv, err := stringsOf(reply)
	if err != nil || len(kv) == 0 {
		return store.Attachment{}, err
	}
	return parseFields(hostID, kv)
}

// Current implements store.Routes. It is one script.
func (s *Store) Current(ctx context.Context, hostID string) (store.Attachment, error) {
	if err := store.CheckCurrent(hostID); err != nil {
		return store.Attachment{}, err
	}
	if err := s.ready(ctx); err != nil {
		return store.Attachment{}, err
	}
	replies, err := s.do(ctx, "current", command{currentScript, s.keys.host(hostID), nil})
	if err != nil {
		return store.Attachment{}, err
	}
	a, err := parseAttachment(hostID, replies[0])
	if err != nil {
		return store.Attachment{}, fmt.Errorf("redis: current: %w", err)
	}
	if a.ID == "" {
		return store.Attachment{}, store.ErrNotFound
	}
	return a, nil
}

// Ping implements store.Routes. Sockets with which all is well cost a short
// script each, the others a second one; 500 go in one round trip.
func (s *Store) Ping(ctx context.Context, as []store.Attachment, ttl time.Duration) ([]bool, error) {
	if err := store.CheckPing(as, ttl); err != nil {
		return nil, err
	}
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	current := make([]bool, 0, len(as))
	for batch := range slices.Chunk(as, maxBatch) {
		answers, err := s.pingBatch(ctx, batch, millis(ttl))
		if err != nil {
			return nil, err
		}
		current = append(current, answers...)
	}
	return current, nil
}

func (s *Store) pingBatch(ctx context.Context, as []store.Attachment, ttl int64) ([]bool, error) {
	const yes = int64(1)
	touches := make([]command, len(as))
	for i := range as {
		gen := strconv.FormatUint(as[i].Generation, 10)
		touches[i] = command{touchScript, s.keys.host(as[i].HostID), []any{
			gen, as[i].ID, ttl, ttl + store.TombstoneTTL.Milliseconds(),
		}}
	}
	replies, err := s.do(ctx, "ping", touches...)
	if err != nil {
		return nil, err
	}
	current := make([]bool, len(as))
	var rest []int // indexes of those that touch did not find current
	var asserts []command
	for i := range as {
		if current[i] = replies[i] == yes; current[i] {
			continue
		}
		args := append([]any{touches[i].args[0], as[i].ID, ttl}, anys(fields(&as[i]))...)
		rest = append(rest, i)
		asserts = append(asserts, command{assertScript, touches[i].keys, args})
	}
	if len(rest) == 0 {
		return current, nil
	}
	if replies, err = s.do(ctx, "ping", asserts...); err != nil {
		return nil, err
	}
	for n, i := range rest {
		current[i] = replies[n] == yes
	}
	return current, nil
}

// Retire implements store.Routes. It is one script.
func (s *Store) Retire(ctx context.Context, ref store.Ref, reason store.Reason) error {
	if err := store.CheckRetire(ref, reason); err != nil {
		return err
	}
	if err := s.ready(ctx); err != nil {
		return err
	}
	args := []any{strconv.FormatUint(ref.Generation, 10), ref.ID, string(reason)}
	_, err := s.do(ctx, "retire", command{retireScript, s.keys.host(ref.HostID), args})
	return err
}

// Detach implements store.Routes.
func (s *Store) Detach(ctx context.Context, ref store.Ref) error {
	return s.Retire(ctx, ref, store.ReasonGone)
}

// LastSeen implements store.Routes, with 500 hosts in one round trip. A host
// whose row has expired is reported as not attached, for a day.
func (s *Store) LastSeen(ctx context.Context, hostIDs []string) (map[string]store.Seen, error) {
	if err := store.CheckLastSeen(hostIDs); err != nil {
		return nil, err
	}
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	seen := make(map[string]store.Seen, len(hostIDs))
	for batch := range slices.Chunk(hostIDs, maxBatch) {
		commands := make([]command, len(batch))
		for i, id := range batch {
			commands[i] = command{seenScript, s.keys.host(id), nil}
		}
		replies, err := s.do(ctx, "last seen", commands...)
		if err != nil {
			return nil, err
		}
		for i, id := range batch {
			switch one, known, err := parseSeen(replies[i]); {
			case err != nil:
				return nil, fmt.Errorf("redis: last seen: %w", err)
			case known:
				seen[id] = one
			}
		}
	}
	return seen, nil
}

func parseSeen(reply any) (seen store.Seen, known bool, err error) {
	kv, err := stringsOf(reply)
	if err != nil || len(kv) == 0 {
		return store.Seen{}, false, err
	}
	var p parser
	for i := 0; i+1 < len(kv); i += 2 {
		switch name, value := kv[i], kv[i+1]; name {
		case "attached":
			seen.Attached = true
		case "gen":
			seen.Generation = p.uint(value)
		case "ping":
			seen.LastPing = p.time(value)
		case "node":
			seen.NodeID = value
		case "inc":
			seen.Incarnation = value
		case "why":
			seen.Reason = store.Reason(value)
		case "left":
			seen.LeftFor = time.Duration(p.uint(value)) * time.Millisecond
		}
	}
	return seen, true, p.err
}
