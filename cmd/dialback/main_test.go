//go:build unix

package main_test

import (
	"os"
	"testing"

	"github.com/dialback/dialback/internal/proctest"
)

func TestMain(m *testing.M) { os.Exit(proctest.RunTests(m)) }
