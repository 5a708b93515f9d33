package proctest

import (
	"os/exec"
	"syscall"
)

// EndWithParent makes the kernel send sig to the process when the test's own
// process dies without its cleanup. Start does it with SIGKILL.
func EndWithParent(cmd *exec.Cmd, sig syscall.Signal) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: sig}
}
