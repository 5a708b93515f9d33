package redistest

import (
	"os/exec"
	"syscall"
)

// endWithParent makes the kernel kill the server when the test's process dies
// without its cleanup.
func endWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
