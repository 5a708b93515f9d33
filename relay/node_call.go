package relay

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"

	"github.com/dialback/dialback/store"
)

// nodeHeader carries the MAC of a call between nodes.
const nodeHeader = "Dialback-Node"

// maxNodeBody bounds the body of a node call, in bytes.
const maxNodeBody = 256 << 10

// The calls between nodes: JSON by POST below /node/. They are idempotent, so a
// replay within an incarnation only says again what was true before: a revoke
// ends the host's sockets once more.
type (
	// nodeDial asks the node that holds a host's control socket for a dial. The
	// answer is a nodeDialed.
	nodeDial struct {
		HostID     string
		ID         string // of the attachment
		Generation uint64
		Ticket     string
		StreamID   string
		Kind       string
		Path       string
		Query      string
		Service    string
		Proto      string
		Waiting    string // incarnation of the node that waits
	}
	nodeDialed struct{ Result string }

	// nodeOutcomes tells a waiting node how dials ended without a dial-back.
	nodeOutcomes struct{ Outcomes []nodeOutcome }
	nodeOutcome  struct {
		HostID string
		Ticket string
		Result string // outcomeRefused, outcomeRetired, outcomeGone
		Status int    // of a refusal
		Reason string
	}
	// nodeCancel: the client left.
	nodeCancel struct{ HostID, Ticket string }
	// nodeRetire: the Store has retired this socket of yours; close it.
	nodeRetire struct {
		HostID     string
		ID         string
		Generation uint64
	}
	// nodeRetired: every socket of the host before this one is retired.
	nodeRetired struct {
		HostID, ID string
		Generation uint64
	}
	// nodeRevoke ends a host's control socket and streams.
	nodeRevoke struct{ HostID, Reason string }
	// nodeStore answers whether a node has the Store.
	nodeStore struct{ Store bool }
)

const (
	dialedResult   = "dialed"
	notMineResult  = "not-mine"
	retiredResult  = "retired"
	outcomeRefused = "refused"
	outcomeRetired = "retired"
	outcomeGone    = "gone"
)

// nodeMAC authenticates a call: the key is shared, and nothing in it is a
// clock. The URI is the one below the node's URL.
func (s *Server) nodeMAC(method, nodeID, incarnation, uri string, body []byte) string {
	m := hmac.New(sha256.New, s.cfg.Node.Key)
	sum := sha256.Sum256(body)
	fmt.Fprintf(m, "dialback node\x00%s\x00%s\x00%s\x00%s\x00%x", method, nodeID, incarnation, uri, sum)
	return base64.RawURLEncoding.EncodeToString(m.Sum(nil))
}

// errNodeDown: the node refused the connection; it is not there.
var errNodeDown = errors.New("relay: node refused the connection")

// call calls another node. It fails with errNodeDown or ErrNodeUnreachable,
// within NodeTimeout. A 401 means that another process has the node's address:
// the table is read again, and the call made once more if it has the node's ID,
// with a NodeTimeout of its own.
func (s *Server) call(ctx context.Context, to store.Node, uri string, in, out any) error {
	body, err := encodeCall(in)
	if err != nil {
		return err
	}
	for again := true; ; again = false {
		status, err := s.callOnce(ctx, to, uri, body, out)
		switch {
		case errors.Is(err, syscall.ECONNREFUSED):
			s.nodes.suspect(to.Incarnation)
			return errNodeDown
		case err != nil:
			if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil && s.nodes.lists(to.Incarnation) {
				// The connections that are kept may be forgotten by the network,
				// and each of them would cost another call its NodeTimeout.
				s.nodeClient.CloseIdleConnections()
			}
			return fmt.Errorf("%w: %s", ErrNodeUnreachable, to.ID)
		case status == http.StatusUnauthorized && again:
			s.nodes.read()
			next, ok := s.nodes.successor(to)
			switch {
			case !ok:
				return fmt.Errorf("%w: %s does not know the key", ErrNodeUnreachable, to.ID)
			case next.ID != to.ID, strings.HasPrefix(uri, "/node/dial"):
				s.nodes.suspect(to.Incarnation)
				return errNodeDown // the socket went with the process
			}
			to = next
		case status != http.StatusOK:
			return fmt.Errorf("%w: %s answered %d", ErrNodeUnreachable, to.ID, status)
		default:
			return nil
		}
	}
}

// encodeCall encodes a call as the control frames are: &, < and > take one byte,
// so that a query which fits into a frame fits into a call.
func encodeCall(in any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(in)
	return b.Bytes(), err
}

func (s *Server) callOnce(ctx context.Context, to store.Node, uri string, body []byte, out any) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.NodeTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(to.URL, "/")+uri, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	// Not sent: it has net/http repeat a call whose kept connection the other
	// node has just closed, as all of them may be repeated.
	req.Header["Idempotency-Key"] = nil
	req.Header.Set(nodeHeader, s.nodeMAC(http.MethodPost, to.ID, to.Incarnation, uri, body))
	resp, err := s.nodeClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return resp.StatusCode, nil // its body is the connection, whose reads no context ends
	}
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxNodeBody))
	if err != nil {
		return 0, err
	}
	if resp.StatusCode == http.StatusOK && out != nil {
		err = json.Unmarshal(answer, out)
	}
	return resp.StatusCode, err
}

// tell calls another node in the background, for news that it would find out
// by itself a little later.
func (s *Server) tell(to store.Node, uri string, in any) {
	s.spawn(func() { s.call(s.ctx, to, uri, in, nil) })
}

// tellProcess tells the node of an incarnation, if it lives.
func (s *Server) tellProcess(incarnation string, uri string, in any) {
	s.spawn(func() {
		to, ok := s.nodes.recent(func(n store.Node) bool { return n.Incarnation == incarnation })
		if !ok {
			to, ok = s.nodes.byIncarnation(incarnation)
		}
		if ok && s.callable(to) {
			s.call(s.ctx, to, uri, in, nil)
		}
	})
}

// tellAll tells every other node.
func (s *Server) tellAll(uri string, in any) {
	for _, n := range s.nodes.everyone() {
		s.tell(n, uri, in)
	}
}
