package boltstore

import (
	"bytes"
	"encoding/binary"
	"encoding/gob"
	"time"

	"go.etcd.io/bbolt"
)

// sweepPerWrite is how many entries of each bucket a write looks at for what
// may be forgotten. It is more than one write of one entry adds.
const sweepPerWrite = 8

// get reads the value of key into v, and says whether there is one that may not
// be forgotten yet. gob keeps strings byte by byte, also those that are no
// UTF-8, and what it decodes is a copy; JSON would not do.
func get(tx *bbolt.Tx, bucket string, key []byte, now time.Time, v any) (bool, error) {
	entry := tx.Bucket([]byte(bucket)).Get(key)
	if entry == nil || forgotten(entry, now) {
		return false, nil
	}
	return true, decode(entry, v)
}

// put writes v, which may be forgotten at until.
func put(tx *bbolt.Tx, bucket string, key []byte, until time.Time, v any) error {
	var entry bytes.Buffer
	deadline := until.Add(time.Microsecond - 1).UnixMicro() // rounded up
	entry.Write(binary.BigEndian.AppendUint64(nil, uint64(deadline)))
	if err := gob.NewEncoder(&entry).Encode(v); err != nil {
		return err
	}
	return tx.Bucket([]byte(bucket)).Put(key, entry.Bytes())
}

func decode(entry []byte, v any) error {
	return gob.NewDecoder(bytes.NewReader(entry[8:])).Decode(v)
}

func forgotten(entry []byte, now time.Time) bool {
	return now.UnixMicro() >= int64(binary.BigEndian.Uint64(entry))
}

// sweep looks at the next few entries of each bucket, round and round, and
// deletes those that may be forgotten.
func (s *Store) sweep(tx *bbolt.Tx, now time.Time) error {
	for _, name := range []string{hostBucket, socketBucket, nodeBucket} {
		bucket := tx.Bucket([]byte(name))
		c := bucket.Cursor()
		var dead [][]byte // a cursor stumbles over what is deleted under it
		key, entry := c.Seek(s.hands[name])
		for n := 0; key != nil && n < sweepPerWrite; n++ {
			if forgotten(entry, now) {
				dead = append(dead, key)
			}
			key, entry = c.Next()
		}
		s.hands[name] = bytes.Clone(key) // nil after the last: from the first
		for _, key := range dead {
			if err := bucket.Delete(key); err != nil {
				return err
			}
		}
	}
	return nil
}
