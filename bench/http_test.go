package bench_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"
)

// BenchmarkGet is small GETs, on connections that are kept.
func BenchmarkGet(b *testing.B) {
	for _, c := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("c=%d", c), func(b *testing.B) {
			eachHost(b, func(b *testing.B, g *rig, relay *path) {
				workers := newWorkers(c, smallSize)
				compare(b, g, relay, "req/s", func(p *path) (float64, error) {
					return load(workers, func(w *worker) error {
						return fetch(p, http.MethodGet, "/small", nil, pattern[:smallSize], w.buf)
					})
				})
			})
		})
	}
}

// BenchmarkPost is POSTs of 1 MiB, 8 at once, whose body comes back. The rate
// counts it once.
func BenchmarkPost(b *testing.B) {
	eachHost(b, func(b *testing.B, g *rig, relay *path) {
		workers := newWorkers(8, postSize)
		body := bytes.Repeat(pattern, 2)[:postSize]
		compare(b, g, relay, "MB/s", func(p *path) (float64, error) {
			rate, err := load(workers, func(w *worker) error {
				return fetch(p, http.MethodPost, "/echo", body, body, w.buf)
			})
			return rate * postSize / 1e6, err
		})
	})
}

// fetch sends a request and checks that the answer is want, through buf of at
// least that size.
func fetch(p *path, method, urlPath string, body, want, buf []byte) error {
	var reader io.Reader
	if body != nil {
		reader = bytes.NewReader(body)
	}
	req, err := http.NewRequest(method, p.url+urlPath, reader)
	if err != nil {
		return err
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	n, err := io.ReadFull(resp.Body, buf[:len(want)])
	switch {
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("%s %s: status %d: %.200q", method, urlPath, resp.StatusCode, buf[:n])
	case err != nil:
		return fmt.Errorf("%s %s: truncated after %d of %d bytes: %w", method, urlPath, n, len(want), err)
	case !bytes.Equal(buf[:n], want):
		return fmt.Errorf("%s %s: the answer's body is not what was sent", method, urlPath)
	}
	return atEnd(resp.Body)
}

// atEnd checks that nothing more comes from r.
func atEnd(r io.Reader) error {
	var one [1]byte
	if n, err := r.Read(one[:]); n != 0 || err != io.EOF {
		return fmt.Errorf("more than the whole answer came: %d bytes, %v", n, err)
	}
	return nil
}

// BenchmarkDownload is one answer of 64 MiB.
func BenchmarkDownload(b *testing.B) {
	eachHost(b, func(b *testing.B, g *rig, relay *path) {
		buf := make([]byte, 256<<10)
		compare(b, g, relay, "MB/s", func(p *path) (float64, error) {
			began := time.Now()
			err := download(p, buf)
			return bigSize / 1e6 / time.Since(began).Seconds(), err
		})
	})
}

// download fetches the big answer and checks every byte of it.
func download(p *path, buf []byte) error {
	resp, err := p.client.Get(p.url + "/big")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET /big: status %d", resp.StatusCode)
	}
	for at := 0; ; {
		n, err := resp.Body.Read(buf)
		for got := buf[:n]; len(got) > 0; {
			want := pattern[at%len(pattern):]
			k := min(len(got), len(want))
			if !bytes.Equal(got[:k], want[:k]) {
				return fmt.Errorf("GET /big: wrong bytes after %d", at)
			}
			got = got[k:]
			at += k
		}
		switch {
		case errors.Is(err, io.EOF) && at == bigSize:
			return nil
		case err != nil:
			return fmt.Errorf("GET /big: truncated after %d of %d bytes: %w", at, bigSize, err)
		}
	}
}
