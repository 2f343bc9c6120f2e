package isolane

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

type trace struct {
	TargetNs    uint64     `json:"target_ns"`
	Percentile  float64    `json:"percentile"`
	Floor       float64    `json:"floor"`
	Cut         float64    `json:"cut"`
	IdleAfterNs uint64     `json:"idle_after_ns"`
	Steps       [][]uint64 `json:"steps"`
}

func traces(t *testing.T) []trace {
	t.Helper()
	text, err := os.ReadFile("testdata/aequitas2.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Cases []trace `json:"cases"`
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Cases) < 8 {
		t.Fatalf("%d cases: the file is not whole", len(file.Cases))
	}
	return file.Cases
}

// Goal: an Admission with the algorithm aequitas-2 makes the same decisions as the Rust library, bit for bit. Method:
// replay the traces of the Rust tests with the traces' clock.
func TestAequitas2DecidesWhatTheRustLibraryDoes(t *testing.T) {
	for i, c := range traces(t) {
		a, err := New(Config{
			Algorithm: Aequitas2,
			MTUBytes:  1000,
			IdleAfter: time.Duration(c.IdleAfterNs),
			Classes: []Class{
				{
					Name: "high", DSCP: 46, TargetPerMTU: time.Duration(c.TargetNs), Percentile: c.Percentile,
					Floor: c.Floor, Cut: c.Cut,
				},
				{Name: "low", DSCP: 8},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		var now uint64
		a.now = func() uint64 { return now * psPerNs }
		verdicts := map[uint64]Verdict{}
		refused := 0
		for j, step := range c.Steps {
			now = step[0]
			if len(step) == 4 {
				verdict := a.Decide(fmt.Sprintf("host:%d", step[1]), 0, int(step[2])*1000)
				if verdict.Downgraded {
					refused++
				}
				if verdict.Downgraded == (step[3] == 1) {
					t.Fatalf("case %d step %d: downgraded %t, Rust admits %d", i, j, verdict.Downgraded, step[3])
				}
				verdicts[uint64(j)] = verdict
				continue
			}
			verdict := verdicts[step[1]]
			a.Complete(verdict, time.Duration(step[2]))
			gap := verdict.at.host.ports[0].currentGap()
			name := fmt.Sprintf("host:%d", c.Steps[step[1]][1])
			part := uint64(a.Probability(name, 0) * float64(one))
			if gap != step[3] || part != step[4] {
				t.Fatalf("case %d step %d: gap %d and part %d, Rust has %d and %d", i, j, gap, part, step[3], step[4])
			}
		}
		if refused == 0 {
			t.Fatalf("case %d exercises nothing", i)
		}
	}
}

func TestHostOfADestinationHasNoPortNumber(t *testing.T) {
	for name, want := range map[string]string{
		"10.0.0.2:443": "10.0.0.2", "storage:50051": "storage", "[fd00::1]:443": "[fd00::1]", "fd00::1": "fd00::1",
		"storage": "storage", "unix:/run/s": "unix:/run/s", "storage:": "storage:", "": "",
	} {
		if got := hostOf(name); got != want {
			t.Errorf("%q has the host %q, want %q", name, got, want)
		}
	}
}

// Goal: the evidence of a host ends with its last destination.
func TestDepartedDestinationsFreeTheirHost(t *testing.T) {
	a, err := New(Config{Algorithm: Aequitas2, Classes: []Class{
		{Name: "high", DSCP: 46, TargetPerMTU: time.Microsecond}, {Name: "low", DSCP: 8},
	}})
	if err != nil {
		t.Fatal(err)
	}
	a.Decide("a:1", 0, 1)
	a.Decide("a:2", 0, 1)
	a.Forget("a:1")
	if len(a.hosts.known) != 1 {
		t.Fatalf("%d hosts, want 1", len(a.hosts.known))
	}
	a.Forget("a:2")
	if len(a.hosts.known) != 0 {
		t.Fatalf("%d hosts, want none", len(a.hosts.known))
	}
}

func TestEachAlgorithmHasItsOwnParameters(t *testing.T) {
	const classes = "[[class]]\nname = \"high\"\ndscp = 46\ntarget_per_mtu = \"15us\"\n[[class]]\nname = \"low\"\ndscp = 8\n"
	config, err := ParseConfig("algorithm = \"aequitas-2\"\ncut = 0.125\n" + classes)
	if err != nil {
		t.Fatal(err)
	}
	if class := config.Classes[0]; config.Algorithm != Aequitas2 || class.Cut != 0.125 || class.Floor != defaultFloor2 {
		t.Errorf("algorithm %v with %+v", config.Algorithm, class)
	}
	for _, top := range []string{
		"algorithm = \"aequitas-3\"\n", "cut = 0.1\n", "algorithm = \"aequitas-2\"\nalpha = 0.1\n", "algorithm = \"aequitas-2\"\ncut = 0\n",
	} {
		if _, err := ParseConfig(top + classes); err == nil {
			t.Errorf("%q is accepted", top)
		}
	}
}

// Goal: New and Reconfigure reject parameters without effect, as ParseConfig does, and accept every Config that they return.
func TestAConfigHasNoParameterOfTheOtherAlgorithm(t *testing.T) {
	config := func(algorithm Algorithm, class Class) Config {
		class.Name, class.DSCP, class.TargetPerMTU = "high", 46, time.Microsecond
		return Config{Algorithm: algorithm, Classes: []Class{class, {Name: "low", DSCP: 8}}}
	}
	for _, wrong := range []Config{
		config(Aequitas2, Class{Alpha: 0.5}), config(Aequitas2, Class{Beta: 0.5}), config(Aequitas, Class{Cut: 0.5}),
	} {
		if _, err := New(wrong); err == nil || !strings.Contains(err.Error(), "has no effect with this algorithm") {
			t.Errorf("%+v: %v", wrong.Classes[0], err)
		}
	}
	for _, lowest := range []Class{{Percentile: 99}, {Alpha: 0.5}, {Beta: 0.5}, {Floor: 0.5}, {Cut: 0.5}} {
		wrong := config(Aequitas, Class{})
		lowest.Name, lowest.DSCP = "low", 8
		wrong.Classes[1] = lowest
		if _, err := New(wrong); err == nil || !strings.Contains(err.Error(), "has no effect in the lowest class") {
			t.Errorf("%+v: %v", lowest, err)
		}
	}
	for _, algorithm := range []Algorithm{Aequitas, Aequitas2} {
		a, err := New(config(algorithm, Class{}))
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Reconfigure(a.Config()); err != nil {
			t.Error(err)
		}
	}
	read, err := ParseConfig(settingsText)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(read); err != nil {
		t.Error(err)
	}
}
