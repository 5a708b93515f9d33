package transport

import "bytes"

// FrameScan is frameScan, for its test.
type FrameScan = frameScan

func (s *FrameScan) Advance(p []byte) int { return s.advance(p) }
func (s *FrameScan) AtBoundary() bool     { return s.atBoundary() }
func (s *FrameScan) Closed() bool         { return s.closed }

// ReadFrames reads wire to its end by a frameReader.
func ReadFrames(wire []byte, client bool, data func([]byte), control func(opcode byte, payload []byte)) error {
	var f frameReader
	f.start(&rawConn{r: bytes.NewReader(wire)}, 16, client, func(opcode byte, p []byte) error { control(opcode, p); return nil })
	buf := make([]byte, 100)
	for {
		_, err := f.nextFrame()
		for err == nil && f.left > 0 {
			var n int
			n, err = f.payload(buf)
			data(buf[:n])
		}
		if err != nil {
			return err
		}
	}
}
