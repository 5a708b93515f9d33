package storetest

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dialback/dialback/store"
)

// RunBenchmarks measures the calls that a relay makes most, for a comparison
// of backends. open returns a fresh and empty Store each time; it cleans up
// with b.Cleanup.
func RunBenchmarks(b *testing.B, open func(b *testing.B) store.Store) {
	b.Run("Claim", func(b *testing.B) { benchClaim(b, open(b)) })
	b.Run("ClaimParallel", func(b *testing.B) { benchClaimParallel(b, open(b)) })
	b.Run("Current", func(b *testing.B) { benchCurrent(b, open(b)) })
	for _, n := range []int{1, 50, 500} {
		b.Run(fmt.Sprintf("Ping/%d", n), func(b *testing.B) { benchPing(b, open(b), n) })
	}
	b.Run("Detach", func(b *testing.B) { benchDetach(b, open(b)) })
	b.Run("LastSeen/100", func(b *testing.B) { benchLastSeen(b, open(b), 100) })
	b.Run("Sockets", func(b *testing.B) { benchSockets(b, open(b)) })
	b.Run("KeepNode", func(b *testing.B) { benchKeepNode(b, open(b)) })
}

// benchHosts is how many hosts are attached while one call is measured.
const benchHosts = 1000

const benchTTL = 5 * time.Minute

func benchAttach(b *testing.B, s store.Store) []store.Attachment {
	b.Helper()
	as := make([]store.Attachment, benchHosts)
	for i := range as {
		c, err := s.Claim(b.Context(), socket(fmt.Sprint("host-", i), fmt.Sprint("socket-", i)), benchTTL)
		if err != nil {
			b.Fatal(err)
		}
		as[i] = c.Current
	}
	b.ReportAllocs()
	return as
}

func benchClaim(b *testing.B, s store.Store) {
	as := benchAttach(b, s)
	i := 0
	for b.Loop() {
		a := as[i%len(as)]
		a.ID = fmt.Sprint("again-", i)
		if _, err := s.Claim(b.Context(), a, benchTTL); err != nil {
			b.Fatal(err)
		}
		i++
	}
}

func benchClaimParallel(b *testing.B, s store.Store) {
	as := benchAttach(b, s)
	var i atomic.Int64
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			n := i.Add(1)
			a := as[n%benchHosts]
			a.ID = fmt.Sprint("again-", n)
			a.Instance = ""
			if _, err := s.Claim(b.Context(), a, benchTTL); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

func benchCurrent(b *testing.B, s store.Store) {
	as := benchAttach(b, s)
	i := 0
	for b.Loop() {
		if _, err := s.Current(b.Context(), as[i%len(as)].HostID); err != nil {
			b.Fatal(err)
		}
		i++
	}
}

func benchPing(b *testing.B, s store.Store, n int) {
	as := benchAttach(b, s)[:n]
	for b.Loop() {
		if _, err := s.Ping(b.Context(), as, benchTTL); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/host")
}

// benchDetach measures a late Detach, the one that must change nothing.
func benchDetach(b *testing.B, s store.Store) {
	ref := benchAttach(b, s)[0].Ref()
	ref.Generation--
	for b.Loop() {
		if err := s.Detach(b.Context(), ref); err != nil {
			b.Fatal(err)
		}
	}
}

func benchLastSeen(b *testing.B, s store.Store, n int) {
	var ids []string
	for _, a := range benchAttach(b, s)[:n] {
		ids = append(ids, a.HostID)
	}
	for b.Loop() {
		if _, err := s.LastSeen(b.Context(), ids); err != nil {
			b.Fatal(err)
		}
	}
}

// benchSockets puts and drops the records of one stream on a busy host.
func benchSockets(b *testing.B, s store.Store) {
	var as []store.Attachment
	for i := range benchHosts {
		as = append(as, streamSocket(store.RoleDial, "h", fmt.Sprint("socket-", i)))
	}
	if err := s.PutSockets(b.Context(), as, benchTTL); err != nil {
		b.Fatal(err)
	}
	one := []store.Attachment{streamSocket(store.RoleClient, "h", "s-client"), streamSocket(store.RoleDial, "h", "s-dial")}
	refs := []store.SocketRef{one[0].SocketRef(), one[1].SocketRef()}
	b.ReportAllocs()
	for b.Loop() {
		if err := s.PutSockets(b.Context(), one, benchTTL); err != nil {
			b.Fatal(err)
		}
		if err := s.DropSockets(b.Context(), refs); err != nil {
			b.Fatal(err)
		}
	}
}

func benchKeepNode(b *testing.B, s store.Store) {
	n := nodeOf("node", "1")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.KeepNode(b.Context(), n, benchTTL); err != nil {
			b.Fatal(err)
		}
	}
}
