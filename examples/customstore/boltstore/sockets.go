package boltstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"slices"
	"time"

	"go.etcd.io/bbolt"

	"github.com/dialback/dialback/store"
)

// socketKey begins with the host ID and its length, so that no two pairs of IDs
// make the same key, and ends with the socket ID, so that the keys of a host are
// in the order of those.
func socketKey(hostID, id string) []byte {
	key := binary.BigEndian.AppendUint16(nil, uint16(len(hostID)))
	return append(append(key, hostID...), id...)
}

// PutSockets implements store.Sockets.
func (s *Store) PutSockets(ctx context.Context, as []store.Attachment, ttl time.Duration) error {
	if err := store.CheckPutSockets(as, ttl); err != nil {
		return err
	}
	rows := make([]*store.Attachment, len(as))
	for i := range as {
		rows[i] = row(&as[i])
	}
	_, err := update(ctx, s, func(tx *bbolt.Tx) (struct{}, error) {
		now := time.Now()
		for _, a := range rows {
			a.LastPing = now
			if err := put(tx, socketBucket, socketKey(a.HostID, a.ID), now.Add(ttl), a); err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, nil
	})
	return err
}

// DropSockets implements store.Sockets.
func (s *Store) DropSockets(ctx context.Context, refs []store.SocketRef) error {
	if err := store.CheckDropSockets(refs); err != nil {
		return err
	}
	refs = slices.Clone(refs)
	_, err := update(ctx, s, func(tx *bbolt.Tx) (struct{}, error) {
		for _, ref := range refs {
			if err := tx.Bucket([]byte(socketBucket)).Delete(socketKey(ref.HostID, ref.ID)); err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, nil
	})
	return err
}

// Sockets implements store.Sockets.
func (s *Store) Sockets(ctx context.Context, hostID, after string, limit int) ([]store.Attachment, error) {
	if err := store.CheckSockets(hostID, after, limit); err != nil {
		return nil, err
	}
	return view(ctx, s, func(tx *bbolt.Tx) ([]store.Attachment, error) {
		now := time.Now()
		var as []store.Attachment
		prefix, last := socketKey(hostID, ""), socketKey(hostID, after)
		c := tx.Bucket([]byte(socketBucket)).Cursor()
		for key, entry := c.Seek(last); bytes.HasPrefix(key, prefix) && len(as) < limit; key, entry = c.Next() {
			if bytes.Equal(key, last) || forgotten(entry, now) {
				continue
			}
			var a store.Attachment
			if err := decode(entry, &a); err != nil {
				return nil, err
			}
			as = append(as, a)
		}
		return as, nil
	})
}
