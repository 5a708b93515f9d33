package storetest_test

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/dialback/dialback/store"
	"github.com/dialback/dialback/store/memory"
)

func routeMutants() []mutant {
	return []mutant{
		{"absent is a zero value", broken(func(s *altered) {
			s.current = func(ctx context.Context, hostID string) (store.Attachment, error) {
				a, err := s.Store.Current(ctx, hostID)
				if errors.Is(err, store.ErrNotFound) {
					err = nil
				}
				return a, err
			}
		}), []string{"UnknownHostIsNotFound", "ARowExpiresAtItsDeadline"}},
		{"nodes do not see each other", func() (store.Store, store.Store) { return memory.New(), memory.New() },
			[]string{"ClaimIsVisibleOnEveryNode", "PutSocketsIsVisibleOnEveryNode", "KeepNodeIsVisibleOnEveryNode",
				"RetireEndsTheAttachmentOnEveryNode", "DetachEndsTheAttachmentOnEveryNode"}},
		{"Claim keeps the generation that it is given", broken(func(s *altered) {
			s.claim = func(ctx context.Context, a store.Attachment, ttl time.Duration) (store.Claimed, error) {
				c, err := s.Store.Claim(ctx, a, ttl)
				if a.Generation != 0 {
					c.Current.Generation = a.Generation
				}
				return c, err
			}
		}), []string{"ClaimIgnoresWhatTheStoreSets"}},
		{"Claim does not mark the previous one", broken(func(s *altered) {
			s.claim = func(ctx context.Context, a store.Attachment, ttl time.Duration) (store.Claimed, error) {
				c, err := s.Store.Claim(ctx, a, ttl)
				c.Previous.Retired = false
				return c, err
			}
		}), []string{"ClaimRetiresTheCurrentOne"}},
		{"Claim repeated forgets the previous one", broken(func(s *altered) {
			s.claim = func(ctx context.Context, a store.Attachment, ttl time.Duration) (store.Claimed, error) {
				before, _ := s.Store.Current(ctx, a.HostID)
				c, err := s.Store.Claim(ctx, a, ttl)
				if before.ID == a.ID {
					c.Previous = store.Attachment{}
				}
				return c, err
			}
		}), []string{"ClaimRepeatedGivesTheSameAnswer", "ClaimRepeatedAfterAPingStillNamesThePrevious", "ConcurrentClaimsOfOneSocketGetOneAnswer"}},
		{"Claim repeated gets another generation", broken(func(s *altered) {
			var n atomic.Uint64
			s.claim = func(ctx context.Context, a store.Attachment, ttl time.Duration) (store.Claimed, error) {
				c, err := s.Store.Claim(ctx, a, ttl)
				c.Current.Generation += n.Add(1)
				return c, err
			}
		}), []string{"ClaimRepeatedGivesTheSameAnswer"}},
		{"no Claim is late", broken(func(s *altered) {
			s.claim = func(ctx context.Context, a store.Attachment, ttl time.Duration) (store.Claimed, error) {
				c, err := s.Store.Claim(ctx, a, ttl)
				if errors.Is(err, store.ErrRetired) {
					a.Instance, a.ID = "", a.ID+" again"
					c, err = s.Store.Claim(ctx, a, ttl)
				}
				return c, err
			}
		}), []string{"ClaimOfTheReplacedSocketIsLate", "ClaimOfARetiredSocketIsLate", "ClaimOfARetiredSocketIsLateUnderItsSuccessor",
			"ClaimOfTheSocketBeforeTheTombstoneIsLate", "ClaimOfTheSameInstanceWithALowerSeqIsLate"}},
		{"only the last that was retired is known", broken(func(s *altered) {
			s.claim = func(ctx context.Context, a store.Attachment, ttl time.Duration) (store.Claimed, error) {
				c, err := s.Store.Claim(ctx, a, ttl)
				if !errors.Is(err, store.ErrRetired) {
					return c, err
				}
				if current, none := s.Store.Current(ctx, a.HostID); none == nil {
					if c, _ := s.Store.Claim(ctx, current, ttl); c.Previous.ID != a.ID {
						a.ID += " again"
						return s.Store.Claim(ctx, a, ttl)
					}
				}
				return c, err
			}
		}), []string{"ClaimOfEachOfTheLastThatWereRetiredIsLate", "ClaimOfASocketThatHadExpiredAndWasReplacedIsLate"}},
		{"a Claim with the same seq is late", broken(func(s *altered) {
			s.claim = func(ctx context.Context, a store.Attachment, ttl time.Duration) (store.Claimed, error) {
				if cur, err := s.Store.Current(ctx, a.HostID); err == nil && cur.Instance == a.Instance && cur.Seq == a.Seq && cur.ID != a.ID {
					return store.Claimed{}, store.ErrRetired
				}
				return s.Store.Claim(ctx, a, ttl)
			}
		}), []string{"ClaimOfAnotherOrNoInstanceIsNotLate"}},
		{"Claim names an expired one as previous", broken(func(s *altered) {
			var last remembers[store.Attachment]
			s.claim = func(ctx context.Context, a store.Attachment, ttl time.Duration) (store.Claimed, error) {
				c, err := s.Store.Claim(ctx, a, ttl)
				if c.Previous.ID == "" {
					c.Previous, _ = last.get(a.HostID)
				}
				last.set(a.HostID, c.Current)
				return c, err
			}
		}), []string{"AnExpiredAttachmentIsNoPrevious", "ClaimOfARetiredSocketIsLateUnderItsSuccessor"}},
		{"generations are a counter in the row", broken(func(s *altered) {
			var n remembers[uint64]
			s.claim = func(ctx context.Context, a store.Attachment, ttl time.Duration) (store.Claimed, error) {
				_, absent := s.Store.Current(ctx, a.HostID)
				c, err := s.Store.Claim(ctx, a, ttl)
				g, _ := n.get(a.HostID)
				if absent != nil {
					g = 0
				}
				n.set(a.HostID, g+1)
				c.Current.Generation = g + 1
				return c, err
			}
			s.retire = func(ctx context.Context, ref store.Ref, reason store.Reason) error {
				if cur, err := s.Store.Current(ctx, ref.HostID); err == nil && cur.ID == ref.ID {
					ref = cur.Ref()
				}
				return s.Store.Retire(ctx, ref, reason)
			}
			s.detach = func(ctx context.Context, ref store.Ref) error { return s.retire(ctx, ref, store.ReasonGone) }
		}), []string{"GenerationsGrowAcrossRetireAndDetach", "GenerationsGrowAcrossExpiry", "GenerationsGrowWhenTheClockIsBehind"}},
		{"claims are read, then written", broken(func(s *altered) {
			s.claim = func(ctx context.Context, a store.Attachment, ttl time.Duration) (store.Claimed, error) {
				before, _ := s.Store.Current(ctx, a.HostID)
				time.Sleep(time.Microsecond)
				c, err := s.Store.Claim(ctx, a, ttl)
				c.Previous = before
				return c, err
			}
		}), []string{"ConcurrentClaimsFormOneChain"}},
	}
}

func pingMutants() []mutant {
	return []mutant{
		{"Ping does not prolong", broken(func(s *altered) {
			s.ping = func(ctx context.Context, as []store.Attachment, _ time.Duration) ([]bool, error) {
				return s.Store.Ping(ctx, as, time.Second)
			}
		}), []string{"PingKeepsARowForLongerThanItsTTL"}},
		{"Ping writes expired rows again, and refreshes none", broken(func(s *altered) {
			s.ping = func(ctx context.Context, as []store.Attachment, ttl time.Duration) ([]bool, error) {
				current := make([]bool, len(as))
				for i, a := range as {
					if cur, err := s.Store.Current(ctx, a.HostID); err == nil && cur.ID == a.ID {
						current[i] = true
						continue
					}
					one, err := s.Store.Ping(ctx, as[i:i+1], ttl)
					if err != nil {
						return nil, err
					}
					current[i] = one[0]
				}
				return current, nil
			}
		}), []string{"PingKeepsARowForLongerThanItsTTL"}},
		{"Ping does not set LastPing", broken(func(s *altered) {
			var claimed remembers[time.Time]
			s.claim = func(ctx context.Context, a store.Attachment, ttl time.Duration) (store.Claimed, error) {
				c, err := s.Store.Claim(ctx, a, ttl)
				claimed.set(a.HostID, c.Current.LastPing)
				return c, err
			}
			s.current = func(ctx context.Context, hostID string) (store.Attachment, error) {
				a, err := s.Store.Current(ctx, hostID)
				a.LastPing, _ = claimed.get(hostID)
				return a, err
			}
		}), []string{"PingSetsLastPing", "LastSeenOfAnAttachedHost"}},
		{"Ping overwrites the row", broken(func(s *altered) {
			var pinged remembers[store.Attachment]
			s.ping = func(ctx context.Context, as []store.Attachment, ttl time.Duration) ([]bool, error) {
				for _, a := range as {
					pinged.set(a.ID, a)
				}
				return s.Store.Ping(ctx, as, ttl)
			}
			s.current = func(ctx context.Context, hostID string) (store.Attachment, error) {
				a, err := s.Store.Current(ctx, hostID)
				if p, ok := pinged.get(a.ID); ok && err == nil {
					a.Meta, a.NodeID = p.Meta, p.NodeID
				}
				return a, err
			}
		}), []string{"PingChangesNothingElse"}},
		{"Ping answers out of order", broken(func(s *altered) {
			s.ping = func(ctx context.Context, as []store.Attachment, ttl time.Duration) ([]bool, error) {
				current, err := s.Store.Ping(ctx, as, ttl)
				if len(current) > 1 {
					current[0], current[1] = current[1], current[0]
				}
				return current, err
			}
		}), []string{"PingAnswersForEachArgument"}},
		{"Ping of nothing is an error", broken(func(s *altered) {
			s.ping = func(ctx context.Context, as []store.Attachment, ttl time.Duration) ([]bool, error) {
				if len(as) == 0 {
					return nil, errors.New("no arguments")
				}
				return s.Store.Ping(ctx, as, ttl)
			}
		}), []string{"PingOfNothingIsNothing"}},
		{"Ping never writes a row again", broken(func(s *altered) {
			s.ping = func(ctx context.Context, as []store.Attachment, ttl time.Duration) ([]bool, error) {
				current := make([]bool, len(as))
				for i, a := range as {
					if cur, err := s.Store.Current(ctx, a.HostID); err == nil && cur.ID == a.ID {
						one, err := s.Store.Ping(ctx, as[i:i+1], ttl)
						if err != nil {
							return nil, err
						}
						current[i] = one[0]
					}
				}
				return current, nil
			}
		}), []string{"PingWritesALostRowAgain", "PingWritesAnExpiredRowAgain", "PingAfterLostWritesLetsTheNewestGenerationWin", "PingWritesOverAnOlderTombstone"}},
		{"every Ping is current", broken(func(s *altered) {
			s.ping = func(ctx context.Context, as []store.Attachment, ttl time.Duration) ([]bool, error) {
				current, err := s.Store.Ping(ctx, as, ttl)
				for i := range current {
					current[i] = true
				}
				return current, err
			}
		}), []string{"PingOfTheSameGenerationButAnotherSocketIsRetired", "PingDoesNotWriteWhereATombstoneStands"}},
		{"Ping brings retired sockets back", broken(func(s *altered) {
			var ghost remembers[store.Attachment]
			s.ping = func(ctx context.Context, as []store.Attachment, ttl time.Duration) ([]bool, error) {
				current, err := s.Store.Ping(ctx, as, ttl)
				for i, ok := range current {
					if !ok {
						ghost.set(as[i].HostID, as[i])
					}
				}
				return current, err
			}
			s.current = func(ctx context.Context, hostID string) (store.Attachment, error) {
				a, err := s.Store.Current(ctx, hostID)
				if g, ok := ghost.get(hostID); ok && errors.Is(err, store.ErrNotFound) {
					return g, nil
				}
				return a, err
			}
		}), []string{"PingDoesNotWriteWhereATombstoneStands", "RetireOfALostRowLeavesATombstone",
			"PingOfAReplacedSocketIsRetiredAlsoWhenItsSuccessorExpired"}},
		{"the Ping of a retired socket prolongs its successor", broken(func(s *altered) {
			s.ping = func(ctx context.Context, as []store.Attachment, ttl time.Duration) ([]bool, error) {
				current, err := s.Store.Ping(ctx, as, ttl)
				for i, ok := range current {
					if cur, err := s.Store.Current(ctx, as[i].HostID); !ok && err == nil {
						_, _ = s.Store.Ping(ctx, []store.Attachment{cur}, ttl)
					}
				}
				return current, err
			}
		}), []string{"PingOfARetiredSocketDoesNotKeepItsSuccessor"}},
		{"a row that expires leaves no fence and no tombstone", broken(func(s *altered) {
			forgetful(s, silence(time.Second))
		}), []string{"PingOfAReplacedSocketIsRetiredAlsoWhenItsSuccessorExpired", "ATombstoneOutlivesTheTTLOfItsRow", "ATombstoneOutlivesASuccessorThatExpired"}},
		{"tombstones and fences stand for an hour", broken(func(s *altered) {
			forgetful(s, silence(time.Hour))
		}), []string{"ATombstoneStandsForADay", "AGenerationFencesForADay", "AReplacedIncarnationIsRefusedForADay"}},
	}
}

func retireMutants() []mutant {
	return []mutant{
		{"Retire and Detach do nothing", broken(func(s *altered) {
			s.retire = func(context.Context, store.Ref, store.Reason) error { return nil }
			s.detach = func(context.Context, store.Ref) error { return nil }
		}), []string{"RetireEndsTheAttachmentOnEveryNode", "DetachEndsTheAttachmentOnEveryNode", "RetireBeatsConcurrentPings",
			"LastSeenOfAHostThatLeft", "ANewerTombstoneTakesThePlaceOfAnOlderOne", "HostsDoNotTouchEachOther"}},
		{"Detach ignores the generation", broken(func(s *altered) {
			s.detach = func(ctx context.Context, ref store.Ref) error {
				if cur, err := s.Store.Current(ctx, ref.HostID); err == nil {
					ref = cur.Ref()
				}
				return s.Store.Detach(ctx, ref)
			}
		}), []string{"AStaleGenerationCannotRetireOrDetach", "LateDetachesNeverTouchASuccessor"}},
		{"Retire ignores the socket ID", broken(func(s *altered) {
			s.retire = func(ctx context.Context, ref store.Ref, reason store.Reason) error {
				if cur, err := s.Store.Current(ctx, ref.HostID); err == nil && cur.Generation == ref.Generation {
					ref = cur.Ref()
				}
				return s.Store.Retire(ctx, ref, reason)
			}
		}), []string{"AnotherSocketCannotRetireOrDetach"}},
		{"Retire of what is absent is an error", broken(func(s *altered) {
			s.detach = func(ctx context.Context, ref store.Ref) error {
				if cur, err := s.Store.Current(ctx, ref.HostID); err != nil || cur.ID != ref.ID {
					return store.ErrNotFound
				}
				return s.Store.Detach(ctx, ref)
			}
		}), []string{"AStaleGenerationCannotRetireOrDetach", "TheFirstReasonStays", "RetireOfAnExpiredRowLeavesATombstone"}},
		{"Retire needs a row", broken(func(s *altered) {
			s.retire = func(ctx context.Context, ref store.Ref, reason store.Reason) error {
				if cur, err := s.Store.Current(ctx, ref.HostID); err != nil || cur.ID != ref.ID {
					return nil
				}
				return s.Store.Retire(ctx, ref, reason)
			}
			s.detach = func(ctx context.Context, ref store.Ref) error { return s.retire(ctx, ref, store.ReasonGone) }
		}), []string{"RetireOfALostRowLeavesATombstone", "RetireOfAnExpiredRowLeavesATombstone", "RetireTakesAnOlderRowWithIt"}},
		{"the last reason counts", broken(func(s *altered) {
			var last remembers[store.Reason]
			s.retire = func(ctx context.Context, ref store.Ref, reason store.Reason) error {
				last.set(ref.HostID, reason)
				return s.Store.Retire(ctx, ref, reason)
			}
			s.detach = func(ctx context.Context, ref store.Ref) error { return s.retire(ctx, ref, store.ReasonGone) }
			s.lastSeen = func(ctx context.Context, hostIDs []string) (map[string]store.Seen, error) {
				m, err := s.Store.LastSeen(ctx, hostIDs)
				for id, seen := range m {
					if !seen.Attached {
						seen.Reason, _ = last.get(id)
						m[id] = seen
					}
				}
				return m, err
			}
		}), []string{"TheFirstReasonStays", "ANewerTombstoneTakesThePlaceOfAnOlderOne"}},
	}
}

func seenMutants() []mutant {
	seen := func(change func(map[string]store.Seen, []string) map[string]store.Seen) func() (store.Store, store.Store) {
		return broken(func(s *altered) {
			s.lastSeen = func(ctx context.Context, hostIDs []string) (map[string]store.Seen, error) {
				m, err := s.Store.LastSeen(ctx, hostIDs)
				if err != nil {
					return nil, err
				}
				return change(m, hostIDs), nil
			}
		})
	}
	return []mutant{
		{"LastSeen knows everybody", seen(func(m map[string]store.Seen, ids []string) map[string]store.Seen {
			for _, id := range ids {
				known := m[id] // the zero Seen if it is not there
				m[id] = known
			}
			return m
		}), []string{"LastSeenLeavesOutUnknownHosts", "SocketRecordsAreIndependentOfTheHostsRow", "ATombstoneStandsForADay"}},
		{"LastSeen of nobody is nil", seen(func(m map[string]store.Seen, _ []string) map[string]store.Seen {
			if len(m) == 0 {
				return nil
			}
			return m
		}), []string{"LastSeenLeavesOutUnknownHosts"}},
		{"LastSeen says that all are attached", seen(func(m map[string]store.Seen, _ []string) map[string]store.Seen {
			for id, s := range m {
				s.Attached = true
				m[id] = s
			}
			return m
		}), []string{"LastSeenOfAHostThatLeft", "LastSeenOfAnExpiredRowIsNotAttached"}},
		{"LastSeen never says attached", seen(func(m map[string]store.Seen, _ []string) map[string]store.Seen {
			for id, s := range m {
				s.Attached = false
				m[id] = s
			}
			return m
		}), []string{"LastSeenOfAnAttachedHost", "LastSeenOfAHostThatCameBack"}},
		{"a tombstone keeps the time of its end", seen(func(m map[string]store.Seen, _ []string) map[string]store.Seen {
			for id, s := range m {
				s.LastPing = time.Now()
				m[id] = s
			}
			return m
		}), []string{"LastSeenOfAHostThatLeft"}},
	}
}
