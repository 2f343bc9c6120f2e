// Package isolaneprometheus exposes the counts and admit probabilities of an Admission to Prometheus, with the names that the other
// languages use.
//
// The number of series is bounded: the destinations with the most calls have series of their own, the others share the destination
// "other", without a probability.
package isolaneprometheus

import (
	"cmp"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"isolane.dev/isolane/go/isolane"
)

// DestinationsDefault is the default number of destinations with series of their own, as metrics_destinations in the
// settings.
const DestinationsDefault = 100

const other = "other"

var (
	labels = []string{"destination", "class"}

	issued      = counter("issued", "Calls that requested the class.")
	downgraded  = counter("downgraded", "Calls that requested the class and ran in the lowest class (in shadow mode: would have run).")
	leased      = counter("leased", "Calls that ran in the class within a lease of the quota server.")
	met         = counter("met", "Calls that ran in the class and met its objective.")
	missed      = counter("missed", "Calls that ran in the class and missed its objective.")
	probability = prometheus.NewDesc("isolane_rpc_destination_admit_probability",
		"Part of the calls to the destination that may run in the class.", labels, nil)
)

func counter(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("isolane_rpc_destination_"+name+"_total", help, labels, nil)
}

// Collector is a prometheus.Collector of one Admission.
type Collector struct {
	admission    *isolane.Admission
	destinations int
}

// New makes a Collector; destinations is the number of destinations with series of their own, DestinationsDefault if
// not above zero.
func New(admission *isolane.Admission, destinations int) *Collector {
	if destinations <= 0 {
		destinations = DestinationsDefault
	}
	return &Collector{admission, destinations}
}

// Describe sends the descriptions of all metrics.
func (c *Collector) Describe(out chan<- *prometheus.Desc) {
	for _, one := range []*prometheus.Desc{issued, downgraded, leased, met, missed, probability} {
		out <- one
	}
}

// Collect sends the metrics.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	reports := c.admission.Reports()
	own := busiest(reports, c.destinations)
	rest := map[string]isolane.Counts{}
	for _, report := range reports {
		if !own[report.Destination] {
			rest[report.Class] = sum(rest[report.Class], report.Counts)
			continue
		}
		send(out, report.Destination, report.Class, report.Counts)
		out <- prometheus.MustNewConstMetric(probability, prometheus.GaugeValue, report.Probability, report.Destination, report.Class)
	}
	for class, counts := range rest {
		send(out, other, class, counts)
	}
}

// busiest returns the destinations with the most calls; of two with equal counts, the first by name.
func busiest(reports []isolane.Report, count int) map[string]bool {
	calls := map[string]uint64{}
	for _, report := range reports {
		calls[report.Destination] += report.Counts.Asked
	}
	names := make([]string, 0, len(calls))
	for name := range calls {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(calls[b], calls[a]), cmp.Compare(a, b))
	})
	own := map[string]bool{}
	for _, name := range names[:min(count, len(names))] {
		own[name] = true
	}
	return own
}

func sum(a, b isolane.Counts) isolane.Counts {
	return isolane.Counts{
		Asked: a.Asked + b.Asked, Downgraded: a.Downgraded + b.Downgraded, Leased: a.Leased + b.Leased,
		Met: a.Met + b.Met, Missed: a.Missed + b.Missed,
	}
}

func send(out chan<- prometheus.Metric, destination, class string, counts isolane.Counts) {
	for _, one := range []struct {
		desc  *prometheus.Desc
		value uint64
	}{
		{issued, counts.Asked}, {downgraded, counts.Downgraded}, {leased, counts.Leased},
		{met, counts.Met}, {missed, counts.Missed},
	} {
		out <- prometheus.MustNewConstMetric(one.desc, prometheus.CounterValue, float64(one.value), destination, class)
	}
}
