//go:build !linux

package proctest

import (
	"os/exec"
	"syscall"
)

// EndWithParent does nothing: only Linux can.
func EndWithParent(*exec.Cmd, syscall.Signal) {}
