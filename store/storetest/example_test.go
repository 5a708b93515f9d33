package storetest_test

import (
	"testing"
	"time"

	"github.com/dialback/dialback/store/memory"
	"github.com/dialback/dialback/store/storetest"
)

// What the author of a backend writes. A backend that other processes share
// opens two handles on the same empty data, sleeps in earnest and leaves out
// Bubble and Fast:
//
//	a, b := open(t), open(t)
//	return storetest.Fixture{A: a, B: b, Advance: time.Sleep, Tick: 20 * time.Millisecond}
func ExampleRun() {
	// In a file of the backend's tests:
	//
	// func TestConformance(t *testing.T) {
	testConformance := func(t *testing.T) {
		storetest.Run(t, storetest.Config{
			Bubble: true,
			Open: func(*testing.T) storetest.Fixture {
				s := memory.New()
				return storetest.Fixture{A: s, B: s, Advance: time.Sleep, Tick: time.Second, Fast: true}
			},
		})
	}
	_ = testConformance // go test calls it
}
