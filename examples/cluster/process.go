package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// process is a program that runs beside this one. It is killed when the context
// ends that it was started with.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
}

func startProcess(cmd *exec.Cmd) (*process, error) {
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &process{cmd: cmd, done: make(chan struct{})}, nil
}

func (p *process) wait() {
	defer close(p.done)
	_ = p.cmd.Wait() // it was killed, or says itself what went wrong
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// kill is kill -9: the process gets no chance to say goodbye.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.done
}

// nodeProcess is a relay node in a process of its own.
type nodeProcess struct {
	*process
	id, url string
	stdin   io.Closer
}

// startNode starts a node and waits until it listens.
func startNode(ctx context.Context, id, redisURL, key string) (*nodeProcess, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, nodeArg, id, redisURL)
	cmd.Env = append(os.Environ(), keyVar+"="+key)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p, err := startProcess(cmd)
	if err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	go p.wait() // not before the line is read: it closes stdout
	if err != nil {
		p.kill()
		return nil, fmt.Errorf("node %s has not started", id)
	}
	return &nodeProcess{process: p, id: id, url: strings.TrimSpace(line), stdin: stdin}, nil
}

// stop lets the node end by itself.
func (n *nodeProcess) stop() {
	n.stdin.Close()
	<-n.done
}

var errNoRedis = errors.New("redis-server is not installed: apt-get install redis-server")

// startRedis starts a Redis on a unix socket in dir, which keeps nothing on
// disk. It is not ready yet.
func startRedis(ctx context.Context, dir string) (*process, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, errNoRedis
	}
	p, err := startProcess(exec.CommandContext(ctx, path,
		"--port", "0", "--unixsocket", redisSocket(dir), "--dir", dir,
		"--save", "", "--appendonly", "no", "--daemonize", "no"))
	if err != nil {
		return nil, err
	}
	go p.wait()
	return p, nil
}

func redisSocket(dir string) string { return filepath.Join(dir, "redis.sock") }

// until calls ready again and again, until it says so.
func until(ctx context.Context, what string, ready func() bool) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ready() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w while waiting for %s", ctx.Err(), what)
		case <-tick.C:
		}
	}
	return nil
}
