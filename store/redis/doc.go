// Package redis is the [store.Store] of several relay nodes, in a Redis server,
// a Redis with Sentinels, or a Redis Cluster.
//
// What differs from the contract of package store: the clock is that of the
// server, and a ttl has the precision of a millisecond.
package redis
