package hostile_test

import (
	"reflect"
	"testing"

	"github.com/dialback/dialback/internal/hostile"
)

func TestScript_IsWhatStepsRead(t *testing.T) {
	want := []hostile.Step{hostile.S(1, "abc"), hostile.S(255, ""), hostile.S(7, "x")}
	script := hostile.Script(want...)
	if got := hostile.Steps(script, 10); len(got) != 3 || !reflect.DeepEqual(got[0], want[0]) || got[1].Op != 255 || string(got[2].Arg) != "x" {
		t.Errorf("read %v, want %v", got, want)
	}
	if got := hostile.Steps(append(script, 9, 200, 'y'), 10); len(got) != 4 || string(got[3].Arg) != "y" {
		t.Errorf("an Arg that is cut off: %v", got)
	}
	if got := hostile.Steps(script, 2); len(got) != 2 {
		t.Errorf("%d steps, want 2 at most", len(got))
	}
	if got := string(hostile.S(1, "a$Tb").Fill(map[string]string{"$T": "ticket"})); got != "aticketb" {
		t.Errorf("filled: %q", got)
	}
}
