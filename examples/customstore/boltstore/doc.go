// Package boltstore is a [store.Store] in a bbolt file: an example of how to
// write a backend on a database with transactions.
//
//	db, err := bbolt.Open("relay.db", 0o600, &bbolt.Options{Timeout: time.Second})
//	…
//	defer db.Close()
//	s, err := boltstore.New(db)
//
// bbolt locks its file, so all nodes that share it are Servers of one process,
// each with a Store of its own on the same *bbolt.DB. What it adds to package
// memory is that presence, tombstones and generations outlive the process.
//
// # What differs from the contract
//
// The clock is the process's wall clock: a deadline must mean something to the
// next process as well. A clock that is set forward expires what it jumps over,
// and the next Pings write it again.
//
// Each write waits for the disk. A call whose context ends returns at once, and
// its transaction is finished or undone behind it. With DB.NoSync writes are
// quicker and a crash of the machine may damage the file.
//
// # How it is made
//
// Three buckets, hosts, sockets and nodes, hold one value for each host, socket
// and node ID. A method is one transaction: it reads a value, changes it by the
// rules of the contract, which are plain functions of the value and the time in
// host.go and node.go, and writes it back. The database lets one writer in at a
// time, and that is all that makes the compare-and-set atomic.
//
// Each value begins with the time when it may be forgotten. Every write looks
// at a few entries further on and deletes what is past it, so that nothing else
// has to clean up and no call takes longer for all hosts.
package boltstore
