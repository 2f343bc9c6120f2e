package isolaneprometheus

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"isolane.dev/isolane/go/isolane"
)

func admission(t *testing.T) *isolane.Admission {
	t.Helper()
	made, err := isolane.New(isolane.Config{MTUBytes: 1000, Classes: []isolane.Class{
		{Name: "high", DSCP: 46, TargetPerMTU: time.Millisecond, Beta: 1.0 / 64}, {Name: "low", DSCP: 8},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func TestTheBusiestDestinationsHaveSeriesOfTheirOwn(t *testing.T) {
	made := admission(t)
	for i := range 3 {
		for range 3 - i {
			made.Complete(made.Decide(fmt.Sprint("host:", i), 0, 1000), time.Microsecond)
		}
	}
	// A miss of ten packets.
	made.Complete(made.Decide("host:0", 0, 10_000), time.Second)
	want := `
# HELP isolane_rpc_destination_admit_probability Part of the calls to the destination that may run in the class.
# TYPE isolane_rpc_destination_admit_probability gauge
isolane_rpc_destination_admit_probability{class="high",destination="host:0"} 0.84375
isolane_rpc_destination_admit_probability{class="low",destination="host:0"} 1
# HELP isolane_rpc_destination_missed_total Calls that ran in the class and missed its objective.
# TYPE isolane_rpc_destination_missed_total counter
isolane_rpc_destination_missed_total{class="high",destination="host:0"} 1
isolane_rpc_destination_missed_total{class="high",destination="other"} 0
isolane_rpc_destination_missed_total{class="low",destination="host:0"} 0
isolane_rpc_destination_missed_total{class="low",destination="other"} 0
# HELP isolane_rpc_destination_issued_total Calls that requested the class.
# TYPE isolane_rpc_destination_issued_total counter
isolane_rpc_destination_issued_total{class="high",destination="host:0"} 4
isolane_rpc_destination_issued_total{class="high",destination="other"} 3
isolane_rpc_destination_issued_total{class="low",destination="host:0"} 0
isolane_rpc_destination_issued_total{class="low",destination="other"} 0
`
	err := testutil.CollectAndCompare(New(made, 1), strings.NewReader(want), "isolane_rpc_destination_admit_probability",
		"isolane_rpc_destination_missed_total", "isolane_rpc_destination_issued_total")
	if err != nil {
		t.Fatal(err)
	}
}

func TestTheCollectorObeysTheRulesOfPrometheus(t *testing.T) {
	made := admission(t)
	made.Decide("host:0", 0, 1)
	problems, err := testutil.CollectAndLint(New(made, 0))
	if err != nil || len(problems) > 0 {
		t.Fatal(problems, err)
	}
}
