package isolane

import (
	"math"
	"time"
)

// one is the probability 1 in parts of 2^32.
const one = uint64(1) << 32

const psPerNs = 1000

// Values outside 0 to 1 are clamped, others rounded down, as in the Rust library.
func partsOf(value float64) uint64 {
	if !(value > 0) {
		return 0
	}
	return uint64(math.Min(value, 1) * float64(one))
}

// options are the parameters of one class, in the algorithm's units.
type options struct {
	targetPerMTU uint64 // ps
	window       uint64 // ps between two increases
	increment    uint64 // parts of 2^32
	decrement    uint64 // parts of 2^32 for each MTU of a miss
	floor        uint64 // parts of 2^32
	idleAfter    uint64 // ps
	// For Aequitas2: the window of rates and the longest gap in ps, the cut and the allowed misses in parts of 2^32.
	rateWindow, longestGap, cut, allowed uint64
}

// incrementWindow is target / (1 - percentile / 100), in which about one miss is allowed (line 4).
func incrementWindow(targetPs uint64, percentile float64) uint64 {
	factor := 100.0 / (100.0 - percentile)
	window := float64(targetPs) * factor
	if window >= math.MaxUint64 {
		return math.MaxUint64
	}
	return uint64(window)
}

// meets returns whether a call of mtus packets that took latency met the objective.
func (o *options) meets(latency uint64, mtus uint32) bool {
	return latency < saturatingMul(o.targetPerMTU, uint64(max(mtus, 1)))
}

// admitState is the admit probability of one destination and class. Times are picoseconds of a clock that never runs
// backwards.
type admitState struct {
	probability  uint64
	lastIncrease uint64
	lastCall     uint64
}

func newAdmitState(now uint64) admitState {
	return admitState{probability: one, lastIncrease: now, lastCall: now}
}

// decide returns whether a call may run in the requested class (lines 5 to 12).
func (s *admitState) decide(o *options, now uint64, random uint32) bool {
	if since(now, s.lastCall) > o.idleAfter {
		*s = newAdmitState(now)
	}
	s.lastCall = now
	return uint64(random) < s.probability
}

// complete learns from a call that ran in the class (lines 13 to 20).
func (s *admitState) complete(o *options, now, latency uint64, mtus uint32) {
	size := uint64(max(mtus, 1))
	if o.meets(latency, mtus) {
		if since(now, s.lastIncrease) > o.window {
			s.probability = min(s.probability+o.increment, one)
			s.lastIncrease = now
		}
		return
	}
	lowered := saturatingMul(o.decrement, size)
	if lowered > s.probability {
		lowered = s.probability
	}
	s.probability = max(s.probability-lowered, o.floor)
}

func since(now, then uint64) uint64 {
	if now < then {
		return 0
	}
	return now - then
}

func saturatingMul(a, b uint64) uint64 {
	if a != 0 && b > math.MaxUint64/a {
		return math.MaxUint64
	}
	return a * b
}

func ps(d time.Duration) uint64 {
	if d <= 0 {
		return 0
	}
	return saturatingMul(uint64(d), psPerNs)
}
