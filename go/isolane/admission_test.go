package isolane

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

func threeClasses() Config {
	return Config{MTUBytes: 1000, Classes: []Class{
		{Name: "high", DSCP: 46, TargetPerMTU: 15 * time.Microsecond},
		{Name: "medium", DSCP: 26, TargetPerMTU: 25 * time.Microsecond},
		{Name: "low", DSCP: 10},
	}}
}

// at makes an Admission whose clock and random numbers the test sets.
func at(t *testing.T, config Config) (*Admission, *uint64, *uint32) {
	t.Helper()
	a, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	now, random := new(uint64), new(uint32)
	a.now = func() uint64 { return *now }
	a.random = func() uint32 { return *random }
	return a, now, random
}

func TestASlowCallLowersWhatTheNextOnesGet(t *testing.T) {
	a, _, random := at(t, threeClasses())
	verdict := a.Decide("host:1", 0, 7000)
	if verdict.Downgraded || verdict.Class != 0 {
		t.Fatalf("every destination begins trusted: %+v", verdict)
	}
	a.Complete(verdict, time.Second)
	if p := a.Probability("host:1", 0); p < 0.9299 || p > 0.9301 {
		t.Fatalf("7 MTUs of a miss cost 0.07, so 0.93, not %v", p)
	}
	*random = 1<<32 - 1
	verdict = a.Decide("host:1", 0, 7000)
	if !verdict.Downgraded || verdict.Class != 2 || verdict.Asked != 0 {
		t.Fatalf("downgraded into the lowest class: %+v", verdict)
	}
	if other := a.Decide("host:2", 0, 7000); other.Downgraded {
		t.Fatal("destinations learn apart")
	}
	reports := a.Reports()
	if len(reports) != 6 || reports[0].Counts != (Counts{Asked: 2, Downgraded: 1, Missed: 1}) {
		t.Fatalf("reports: %+v", reports)
	}
}

func TestShadowDecidesAndDoesNotAct(t *testing.T) {
	config := threeClasses()
	config.Mode = Shadow
	a, _, random := at(t, config)
	a.Complete(a.Decide("host:1", 0, 7000), time.Second)
	*random = 1<<32 - 1
	verdict := a.Decide("host:1", 0, 7000)
	if verdict.Downgraded || !verdict.WouldDowngrade || verdict.Class != 0 {
		t.Fatalf("reported, not moved: %+v", verdict)
	}
	config.Mode = Off
	if err := a.Reconfigure(config); err != nil {
		t.Fatal(err)
	}
	if verdict := a.Decide("host:1", 0, 7000); verdict.Downgraded || verdict.WouldDowngrade {
		t.Fatalf("off decides nothing: %+v", verdict)
	}
}

func TestMemoryIsBoundedAndIdlePlacesAreReused(t *testing.T) {
	config := threeClasses()
	config.DestinationsMax = 100
	config.IdleAfter = time.Second
	a, now, _ := at(t, config)
	for i := range 150 {
		verdict := a.Decide(fmt.Sprint("host:", i), 0, 1)
		if verdict.Downgraded {
			t.Fatal("a destination without a place is admitted")
		}
		a.Complete(verdict, time.Second)
	}
	if a.count.Load() != 100 {
		t.Fatalf("%d places, want 100", a.count.Load())
	}
	*now = ps(2 * time.Second)
	a.Decide("late:1", 0, 1)
	if a.count.Load() != 1 {
		t.Fatalf("the idle ones leave when a place is wanted: %d left", a.count.Load())
	}
	a.Forget("late:1")
	if a.count.Load() != 0 {
		t.Fatal("a departed destination leaves at once")
	}
}

func TestAFullTableIsNotLookedThroughAtEveryCall(t *testing.T) {
	config := threeClasses()
	config.DestinationsMax = 1
	config.IdleAfter = 64 * time.Second
	a, now, _ := at(t, config)
	looks := func(name string) bool {
		before := a.swept.Load()
		a.Decide(name, 0, 1)
		return a.swept.Load() != before
	}
	*now = ps(time.Second)
	if looks("host:1") {
		t.Fatal("there was room")
	}
	if !looks("host:2") || looks("host:3") {
		t.Fatal("the first newcomer looks, the next one need not")
	}
	*now += ps(time.Second) + 1
	if !looks("host:2") {
		t.Fatal("after a part of the idle time it may have changed")
	}
}

func TestManyGoroutinesCountEveryCall(t *testing.T) {
	a, err := New(threeClasses())
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for worker := range 8 {
		all.Add(1)
		go func() {
			defer all.Done()
			for call := range 1000 {
				verdict := a.Decide(fmt.Sprint("host:", call%3), worker%3, 1500)
				a.Complete(verdict, time.Duration(call)*time.Nanosecond)
			}
		}()
	}
	all.Wait()
	total := uint64(0)
	for _, report := range a.Reports() {
		total += report.Counts.Asked
	}
	if total != 8000 {
		t.Fatalf("%d calls counted, 8000 made", total)
	}
}

func TestWhatControlsNothingIsRefusedWithTheValue(t *testing.T) {
	cases := map[string]func(*Config){
		"1 classes":            func(c *Config) { c.Classes = c.Classes[:1] },
		"DSCP is 64":           func(c *Config) { c.Classes[0].DSCP = 64 },
		"TargetPerMTU is 0s":   func(c *Config) { c.Classes[0].TargetPerMTU = 0 },
		"Percentile is 100":    func(c *Config) { c.Classes[0].Percentile = 100 },
		"Floor is 2":           func(c *Config) { c.Classes[0].Floor = 2 },
		"both named":           func(c *Config) { c.Classes[1].Name = "high" },
		"both have DSCP 46":    func(c *Config) { c.Classes[1].DSCP = 46 },
		"lowest class has":     func(c *Config) { c.Classes[2].TargetPerMTU = 1 },
		"MTUBytes is 1":        func(c *Config) { c.MTUBytes = 1 },
		"DestinationsMax is -": func(c *Config) { c.DestinationsMax = -1 },
		"travels in metadata":  func(c *Config) { c.Classes[0].Name = "two words" },
	}
	for part, spoil := range cases {
		config := threeClasses()
		spoil(&config)
		if _, err := New(config); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("want %q in %v", part, err)
		}
	}
}

func TestClassesStayWhileCallsRun(t *testing.T) {
	a, _, _ := at(t, threeClasses())
	other := threeClasses()
	other.Classes[0].DSCP = 34
	if err := a.Reconfigure(other); err == nil {
		t.Fatal("a code point cannot change: connections carry it")
	}
}

const settingsText = `
mode = "shadow"
mtu_bytes = 4096
idle_after = "30s"
alpha = 0.02
[[class]]
name = "high"
dscp = 46
target_per_mtu = "15us"
percentile = 99.0
[[class]]
name = "low"
dscp = 8
`

func TestTheSettingsFileOfTheOtherLanguagesIsRead(t *testing.T) {
	config, err := ParseConfig(settingsText)
	if err != nil {
		t.Fatal(err)
	}
	high := Class{
		Name: "high", DSCP: 46, TargetPerMTU: 15 * time.Microsecond, Percentile: 99, Alpha: 0.02, Beta: 0.01, Floor: 0.1,
	}
	if config.Mode != Shadow || config.MTUBytes != 4096 || config.IdleAfter != 30*time.Second || config.Classes[0] != high {
		t.Fatalf("%+v", config)
	}
	for text, part := range map[string]string{
		strings.Replace(settingsText, "mode = \"shadow\"", "mode = \"shado\"", 1): "mode is \"shado\"",
		strings.Replace(settingsText, "alpha", "alfa", 1):                         "unknown key \"alfa\"",
		strings.Replace(settingsText, "15us", "15", 1):                            "target_per_mtu is \"15\"",
		strings.Replace(settingsText, "dscp = 8", "", 1):                          "has no dscp",
		strings.Replace(settingsText, "0.02", "0.0", 1):                           "alpha is 0",
		settingsText + "[[group]]\nname = \"a\"\n":                                "has no destinations",
		settingsText + "[quota]\nserver = \"unix:/q\"\ntenant = \"a\"\n":          "add a group",
	} {
		if _, err := ParseConfig(text); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("want %q in %v", part, err)
		}
	}
}

func BenchmarkDecide(b *testing.B) {
	a, err := New(threeClasses())
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		a.Decide("host:1", 0, 32768)
	}
}
