module github.com/dialback/dialback

go 1.25

require (
	github.com/coder/websocket v1.8.15
	github.com/google/uuid v1.6.0
	go.uber.org/goleak v1.3.0
	golang.org/x/net v0.50.0
	golang.org/x/time v0.14.0
)
