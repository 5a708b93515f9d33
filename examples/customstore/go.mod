module github.com/dialback/dialback/examples/customstore

go 1.25

require (
	github.com/dialback/dialback v0.0.0
	go.etcd.io/bbolt v1.4.3
)

require (
	github.com/coder/websocket v1.8.15 // indirect
	github.com/google/uuid v1.6.0 // indirect
	golang.org/x/sys v0.41.0 // indirect
	golang.org/x/time v0.14.0 // indirect
)

replace github.com/dialback/dialback => ../..
