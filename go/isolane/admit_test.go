package isolane

import (
	"encoding/json"
	"os"
	"testing"
)

// Goal: the Go algorithm makes the same decisions as the Rust one, bit for bit. Method: replay the vectors of the Rust
// tests.
func TestDecidesWhatTheRustLibraryDoes(t *testing.T) {
	text, err := os.ReadFile("testdata/admission.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Cases []struct {
			TargetPs    uint64      `json:"target_ps"`
			Percentile  float64     `json:"percentile"`
			Increment   float64     `json:"increment"`
			Decrement   float64     `json:"decrement"`
			Floor       float64     `json:"floor"`
			IdleAfterPs uint64      `json:"idle_after_ps"`
			WindowPs    uint64      `json:"window_ps"`
			BeginPs     uint64      `json:"begin_ps"`
			Steps       [][6]uint64 `json:"steps"`
		} `json:"cases"`
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Cases) < 10 {
		t.Fatalf("%d cases: the file is not whole", len(file.Cases))
	}
	admitted, idle := 0, 0
	for i, c := range file.Cases {
		o := options{
			targetPerMTU: c.TargetPs,
			window:       incrementWindow(c.TargetPs, c.Percentile),
			increment:    partsOf(c.Increment),
			decrement:    partsOf(c.Decrement),
			floor:        partsOf(c.Floor),
			idleAfter:    c.IdleAfterPs,
		}
		if o.window != c.WindowPs {
			t.Errorf("case %d: window %d ps, Rust has %d", i, o.window, c.WindowPs)
		}
		state := newAdmitState(c.BeginPs)
		for j, step := range c.Steps {
			now, random, latency, size := step[0], uint32(step[1]), step[3], uint32(step[4])
			if since(now, state.lastCall) > o.idleAfter {
				idle++
			}
			got := state.decide(&o, now, random)
			if got {
				admitted++
			}
			if got != (step[2] == 1) {
				t.Fatalf("case %d step %d: admitted %t, Rust says %d", i, j, got, step[2])
			}
			state.complete(&o, now, latency, size)
			if state.probability != step[5] {
				t.Fatalf("case %d step %d: probability %d, Rust has %d", i, j, state.probability, step[5])
			}
		}
	}
	if admitted == 0 || idle == 0 {
		t.Fatalf("the vectors exercise nothing: %d admitted, %d idle", admitted, idle)
	}
}

func TestDecimalsBecomePartsWithinBounds(t *testing.T) {
	for value, want := range map[float64]uint64{-1: 0, 0: 0, 0.5: one / 2, 1: one, 7: one} {
		if got := partsOf(value); got != want {
			t.Errorf("%v is %d parts, want %d", value, got, want)
		}
	}
}
