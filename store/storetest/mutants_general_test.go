package storetest_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dialback/dialback/store"
)

func socketMutants() []mutant {
	return []mutant{
		{"records are not ordered", broken(func(s *altered) {
			s.sockets = func(ctx context.Context, hostID, after string, limit int) ([]store.Attachment, error) {
				as, err := s.Store.Sockets(ctx, hostID, after, limit)
				slices.Reverse(as)
				return as, err
			}
		}), []string{"SocketsAreOrderedAndPaged", "PutSocketsIsVisibleOnEveryNode"}},
		{"a page begins at after", broken(func(s *altered) {
			s.sockets = func(ctx context.Context, hostID, after string, limit int) ([]store.Attachment, error) {
				as, err := s.Store.Sockets(ctx, hostID, "", max(limit, 1000))
				as = slices.DeleteFunc(as, func(a store.Attachment) bool { return a.ID < after })
				return as[:min(limit, len(as))], err
			}
		}), []string{"SocketsAreOrderedAndPaged"}},
		{"no records are ErrNotFound", broken(func(s *altered) {
			s.sockets = func(ctx context.Context, hostID, after string, limit int) ([]store.Attachment, error) {
				as, err := s.Store.Sockets(ctx, hostID, after, limit)
				if err == nil && len(as) == 0 {
					err = store.ErrNotFound
				}
				return as, err
			}
		}), []string{"SocketsOfAnUnknownHostAreNone"}},
		{"the record that was put first stays", broken(func(s *altered) {
			s.putSockets = func(ctx context.Context, as []store.Attachment, ttl time.Duration) error {
				for i, a := range as {
					if have, err := s.Store.Sockets(ctx, a.HostID, "", 1); err == nil && len(have) == 1 && have[0].ID == a.ID {
						continue
					}
					if err := s.Store.PutSockets(ctx, as[i:i+1], ttl); err != nil {
						return err
					}
				}
				return nil
			}
		}), []string{"PutSocketsAgainReplacesTheRecord", "PutSocketsAgainMakesTheTTLRunAnew"}},
		{"DropSockets drops all of the host", broken(func(s *altered) {
			s.drop = func(ctx context.Context, refs []store.SocketRef) error {
				for _, ref := range refs {
					as, err := s.Store.Sockets(ctx, ref.HostID, "", 1000)
					if err != nil {
						return err
					}
					for _, a := range as {
						if err := s.Store.DropSockets(ctx, []store.SocketRef{a.SocketRef()}); err != nil {
							return err
						}
					}
				}
				return nil
			}
		}), []string{"DropSocketsRemovesRecords", "SocketRecordsOfAnotherHostAreNotTouched"}},
		{"Retire drops the records of streams", broken(func(s *altered) {
			s.retire = func(ctx context.Context, ref store.Ref, reason store.Reason) error {
				as, _ := s.Store.Sockets(ctx, ref.HostID, "", 1000)
				for _, a := range as {
					_ = s.Store.DropSockets(ctx, []store.SocketRef{a.SocketRef()})
				}
				return s.Store.Retire(ctx, ref, reason)
			}
		}), []string{"SocketRecordsAreIndependentOfTheHostsRow"}},
	}
}

func nodeMutants() []mutant {
	return []mutant{
		{"every lease is new", broken(func(s *altered) {
			s.keepNode = func(ctx context.Context, n store.Node, lease time.Duration) (bool, error) {
				_, err := s.Store.KeepNode(ctx, n, lease)
				return err == nil, err
			}
		}), []string{"KeepNodeSaysWhetherItCreatedTheLease"}},
		{"KeepNode does not update", broken(func(s *altered) {
			var first remembers[store.Node]
			s.keepNode = func(ctx context.Context, n store.Node, lease time.Duration) (bool, error) {
				if have, ok := first.get(n.ID + n.Incarnation); ok {
					n = have
				}
				first.set(n.ID+n.Incarnation, n)
				return s.Store.KeepNode(ctx, n, lease)
			}
		}), []string{"KeepNodeUpdatesTheRecord"}},
		{"nodes are not ordered", broken(func(s *altered) {
			s.nodes = func(ctx context.Context) ([]store.Node, error) {
				ns, err := s.Store.Nodes(ctx)
				slices.Reverse(ns)
				return ns, err
			}
		}), []string{"NodesAreOrderedByID"}},
		{"replaced incarnations take over again", broken(func(s *altered) {
			s.keepNode = func(ctx context.Context, n store.Node, lease time.Duration) (bool, error) {
				created, err := s.Store.KeepNode(ctx, n, lease)
				if errors.Is(err, store.ErrRetired) {
					err = nil
				}
				return created, err
			}
		}), []string{"ANewIncarnationTakesOver", "ANewIncarnationTakesOverAnExpiredLease", "ANewIncarnationTakesOverADroppedLease",
			"SixteenReplacedIncarnationsAreRemembered", "OneOfConcurrentIncarnationsHoldsTheNode"}},
		{"an expired lease is forgotten with its incarnation", broken(func(s *altered) {
			forgetful(s, silence(time.Second))
		}), []string{"ANewIncarnationTakesOverAnExpiredLease"}},
		{"a dropped lease is forgotten with its incarnation", broken(func(s *altered) {
			forget := forgetful(s, func() bool { return false })
			s.dropNode = func(context.Context, string, string) error {
				forget()
				return nil
			}
		}), []string{"ANewIncarnationTakesOverADroppedLease", "DropNodeEndsOnlyItsOwnLease"}},
		{"DropNode ignores the incarnation", broken(func(s *altered) {
			s.dropNode = func(ctx context.Context, id, incarnation string) error {
				ns, _ := s.Store.Nodes(ctx)
				for _, n := range ns {
					if n.ID == id {
						incarnation = n.Incarnation
					}
				}
				return s.Store.DropNode(ctx, id, incarnation)
			}
		}), []string{"DropNodeEndsOnlyItsOwnLease"}},
	}
}

func generalMutants() []mutant {
	return []mutant{
		{"ttls are rounded down", broken(ttls(func(d time.Duration) time.Duration {
			return max(d.Truncate(time.Millisecond), min(d, time.Millisecond))
		})), []string{"ATTLIsNeverRoundedDown"}},
		{"records stand a second longer", broken(ttls(func(d time.Duration) time.Duration {
			if d <= 0 {
				return d
			}
			return d + time.Second
		})), []string{"ARowExpiresAtItsDeadline", "ATTLBelowAMillisecondIsATTL", "ASocketRecordExpiresAtItsDeadline", "ALeaseExpiresAtItsDeadline"}},
		{"a ttl of 0 is for ever", broken(ttls(func(d time.Duration) time.Duration {
			if d <= 0 {
				return time.Hour
			}
			return d
		})), []string{"InvalidArgumentsChangeNothing"}},
		{"IDs lose their case", broken(renamed(strings.ToLower)),
			[]string{"AnyHostIDRoundTripsAndNoneCollide", "AnySocketIDRoundTripsAndNoneCollide", "AnyNodeIDRoundTripsAndNoneCollide", "AnyOtherIDRoundTrips"}},
		{"IDs are made UTF-8", broken(renamed(func(id string) string { return strings.ToValidUTF8(id, "\ufffd") })),
			[]string{"AnySocketIDRoundTripsAndNoneCollide", "AnyOtherIDRoundTrips"}},
		{"braces are taken out of IDs", broken(renamed(func(id string) string {
			if t := strings.NewReplacer("{", "", "}", "").Replace(id); t != "" {
				return t
			}
			return id
		})), []string{"AnyHostIDRoundTripsAndNoneCollide"}},
		{"Meta is cut", broken(func(s *altered) {
			s.claim = func(ctx context.Context, a store.Attachment, ttl time.Duration) (store.Claimed, error) {
				a.Meta = a.Meta[:min(len(a.Meta), 1000)]
				return s.Store.Claim(ctx, a, ttl)
			}
		}), []string{"MetaRoundTripsByteByByte"}},
		{"Meta is kept", broken(func(s *altered) {
			var kept remembers[[]byte]
			s.claim = func(ctx context.Context, a store.Attachment, ttl time.Duration) (store.Claimed, error) {
				c, err := s.Store.Claim(ctx, a, ttl)
				if _, ok := kept.get(a.ID); !ok {
					kept.set(a.ID, a.Meta)
				}
				return c, err
			}
			s.current = func(ctx context.Context, hostID string) (store.Attachment, error) {
				a, err := s.Store.Current(ctx, hostID)
				if err == nil {
					a.Meta, _ = kept.get(a.ID)
				}
				return a, err
			}
		}), []string{"ArgumentsAreNotKept", "ResultsAreTheCallersOwn"}},
		{"lists are shared", broken(func(s *altered) {
			var kept remembers[[]store.Attachment]
			s.sockets = func(ctx context.Context, hostID, after string, limit int) ([]store.Attachment, error) {
				if as, ok := kept.get(hostID); ok {
					return as, nil
				}
				as, err := s.Store.Sockets(ctx, hostID, after, limit)
				kept.set(hostID, as)
				return as, err
			}
		}), []string{"ResultsAreTheCallersOwn"}},
		{"Ping writes into its arguments", broken(func(s *altered) {
			s.ping = func(ctx context.Context, as []store.Attachment, ttl time.Duration) ([]bool, error) {
				for i := range as {
					as[i].LastPing = time.Now()
				}
				return s.Store.Ping(ctx, as, ttl)
			}
		}), []string{"ArgumentsAreNotModified"}},
		{"LastSeen sorts its argument", broken(func(s *altered) {
			s.lastSeen = func(ctx context.Context, hostIDs []string) (map[string]store.Seen, error) {
				slices.Sort(hostIDs)
				return s.Store.LastSeen(ctx, hostIDs)
			}
		}), []string{"ArgumentsAreNotModified"}},
		{"one call at a time", broken(func(s *altered) {
			var busy atomic.Int32
			s.claim = func(ctx context.Context, a store.Attachment, ttl time.Duration) (store.Claimed, error) {
				defer busy.Add(-1)
				if busy.Add(1) > 1 {
					return store.Claimed{}, errors.New("busy")
				}
				time.Sleep(time.Nanosecond)
				return s.Store.Claim(ctx, a, ttl)
			}
		}), []string{"AllMethodsMayBeCalledAtOnce", "ConcurrentClaimsFormOneChain"}},
		{"the context is not looked at", broken(func(s *altered) {
			s.claim = func(ctx context.Context, a store.Attachment, ttl time.Duration) (store.Claimed, error) {
				return s.Store.Claim(context.WithoutCancel(ctx), a, ttl)
			}
		}), []string{"AContextThatIsDoneChangesNothing"}},
		{"Close twice is an error", broken(func(s *altered) {
			var n atomic.Int32
			s.close = func() error {
				if n.Add(1) > 1 {
					return store.ErrClosed
				}
				return s.Store.Close()
			}
		}), []string{"CloseMayBeCalledTwice"}},
		{"Close does nothing", broken(func(s *altered) {
			s.close = func() error { return nil }
		}), []string{"AfterCloseEveryMethodReturnsErrClosed"}},
	}
}
