package main_test

import (
	"os"
	"os/exec"
	"testing"
)

func TestBuildsForOtherSystems(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the standard library for other systems")
	}
	t.Parallel()
	for _, system := range []string{"windows", "darwin"} {
		cmd := exec.Command("go", "build", "-o", os.DevNull, ".")
		cmd.Env = append(os.Environ(), "GOOS="+system, "GOARCH=amd64", "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("GOOS=%s: %v\n%s", system, err, out)
		}
	}
}
