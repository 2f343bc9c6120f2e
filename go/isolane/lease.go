package isolane

import (
	"math"
	"math/bits"
	"sync/atomic"
)

// leaseBurst is the rate that a lease may save up, as time in nanoseconds; the same as in the Rust library.
const leaseBurst = uint64(20_000_000)

// lease is the rate that the quota server grants this process for one group of destinations and one class, in addition
// to the admit probability. A word holds the time until which the rate is used up; an admitted call advances it by the
// time that its bytes take. Times are nanoseconds of the Admission's clock.
type lease struct {
	rate      atomic.Uint64 // bytes per second
	until     atomic.Uint64
	usedUntil atomic.Uint64
	// countedAt is the rate of the times in usedUntil: the last one above zero.
	countedAt atomic.Uint64
	asked     atomic.Uint64 // bytes, within the lease or not
}

// set applies a rate until a time. One goroutine at a time. Use beyond now is a debt in bytes, which another rate
// repays in another time.
func (l *lease) set(rate, until, now uint64) {
	l.rate.Store(rate)
	l.until.Store(until)
	old := l.countedAt.Load()
	if rate == 0 || rate == old {
		return
	}
	l.countedAt.Store(rate)
	for {
		used := l.usedUntil.Load()
		if used < now {
			return
		}
		next := saturatingAdd(now, mulDiv(used-now, old, rate))
		if l.usedUntil.CompareAndSwap(used, next) {
			return
		}
	}
}

// take returns whether a call of size bytes is admitted at now, and counts the requested bytes.
func (l *lease) take(size, now uint64) bool {
	l.asked.Add(size)
	rate := l.rate.Load()
	if rate == 0 || now >= l.until.Load() {
		return false
	}
	cost := mulDiv(size, 1_000_000_000, rate)
	for {
		used := l.usedUntil.Load()
		from := max(used, now)
		if from-now > leaseBurst {
			return false
		}
		if l.usedUntil.CompareAndSwap(used, saturatingAdd(from, cost)) {
			return true
		}
	}
}

// mulDiv is a * b / c, rounded down, or the largest number.
func mulDiv(a, b, c uint64) uint64 {
	high, low := bits.Mul64(a, b)
	if high >= c {
		return math.MaxUint64
	}
	quotient, _ := bits.Div64(high, low, c)
	return quotient
}

func saturatingAdd(a, b uint64) uint64 {
	sum, carry := bits.Add64(a, b, 0)
	if carry != 0 {
		return math.MaxUint64
	}
	return sum
}

// fits returns whether a name matches one of the comma-separated patterns: * matches any text, ? one character.
func fits(patterns, name string) bool {
	runes := []rune(name)
	for pattern := range splitPatterns(patterns) {
		if fitsOne([]rune(pattern), runes) {
			return true
		}
	}
	return false
}

// fitsOne matches greedily and returns to the latest star only: never exponential.
func fitsOne(pattern, name []rune) bool {
	p, n, star, from := 0, 0, -1, 0
	for n < len(name) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, from = p, n
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == name[n]):
			p++
			n++
		case star >= 0:
			from++
			p, n = star+1, from
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}
