package relay_test

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"reflect"
	"testing"
	"time"

	"github.com/dialback/dialback/agent"
	"github.com/dialback/dialback/relay"
	"github.com/dialback/dialback/relaytest"
	"github.com/dialback/dialback/store"
)

// setHuge sets every number of a Config to the largest there is.
func setHuge(cfg any) {
	v := reflect.ValueOf(cfg).Elem()
	for i := range v.NumField() {
		switch f := v.Field(i); f.Kind() {
		case reflect.Int64:
			f.SetInt(math.MaxInt64)
		case reflect.Int:
			if f.Type() == reflect.TypeFor[int]() { // not an enumeration
				f.SetInt(math.MaxInt)
			}
		case reflect.Float64:
			f.SetFloat(math.Inf(1))
		}
	}
}

// The largest numbers of a Config are limits that nothing reaches: no sum of
// them overflows.
func TestConfig_HugeNumbers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := relaytest.NewCluster(t, 2, &relaytest.Options{Config: func(cfg *relay.Config) {
			setHuge(cfg)
			cfg.StaleAfter--   // less than RowTTL
			cfg.NodeBeat--     // less than NodeLease
			cfg.MaxSpares = 10 // so many are dialed
		}})
		var cfg agent.Config
		setHuge(&cfg)
		cfg.HeartbeatInterval = time.Hour // less than SilenceTimeout
		time.Sleep(3 * time.Second)       // the nodes know each other
		services := handler(func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) })
		stop := c.Nodes[0].StartAgent("h", services, &cfg)
		stopAfar := c.Nodes[0].StartAgentOn(c.Balanced(1), "afar", services, &cfg) // its dial-backs pass another node
		c.Nodes[0].MustConnect("v2", relaytest.HostConfig{OnDial: relaytest.AnswerText("hello")})
		for _, host := range []string{"h", "v2", "afar"} {
			for range 4 { // on a dial, an idle stream, spares
				first := async(c.Nodes[0], "/hosts/"+host+"/")
				do(c.Nodes[0], "POST", "/hosts/"+host+"/", "hello").want(t, host, 200, "hello")
				(<-first).want(t, host, 200, "")
				do(c.Nodes[1], "POST", "/hosts/"+host+"/", "hello").want(t, host+" through the other node", 200, "hello")
			}
		}
		if seen, err := c.Nodes[1].Relay.Presence(context.Background(), "h"); err != nil || !seen["h"].Online {
			t.Errorf("Presence: %+v, %v", seen, err)
		}
		stop()
		stopAfar()
		for _, n := range c.Nodes {
			n.Close()
		}
		if att, err := c.Store.Current(context.Background(), "v2"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("after Close: %+v, %v; want ErrNotFound, Close has told the Store", att, err)
		}
	})
}
