package isolane

import (
	"math/big"
	"math/bits"
	"strings"
	"sync"
)

// Aequitas 2: admission that keeps the allowed part of misses. A channel is a destination and class, a port is the
// destination's host and class: destinations that differ only in their port number share their evidence. The port has a
// gap, the shortest mean time between two MTUs of one channel, and a channel admits a call if the time of its admitted
// calls is over. docs/internals/calls.md explains the rules; testdata/aequitas2.json holds this code to the Rust
// library's, bit for bit. Units: picoseconds, and parts of 2^32.

const (
	defaultCut    = 0.0625
	defaultFloor2 = 0.01
	// rateTargets is the length of the window in which rates are counted, in objectives.
	rateTargets = 256
	// savedMax and the others bound the misses that a budget saves or lacks.
	savedMax     = int64(2) << 32
	lackMax      = int64(4) << 32
	firstLackMax = int64(2) << 32
	never        = ^uint64(0)
)

// margin is the part of the allowed misses that is kept in reserve. It is a variable, so that the compiler computes with
// it as the Rust library does.
var margin = 0.4

// allowedOf is the part of misses to keep: what the percentile allows, less the margin.
func allowedOf(percentile float64) uint64 {
	allowed := float64(1-float64(percentile/100)) * (1 - margin)
	return max(partsOf(allowed), 1)
}

// longestGap is one MTU in each objective, divided by the floor.
func longestGap(target, floor uint64) uint64 {
	floor = max(floor, 1)
	high, low := target>>32, target<<32
	if high >= floor {
		return never
	}
	gap, _ := bits.Div64(high, low, floor)
	return max(gap, 1)
}

// rate counts MTUs in two consecutive windows.
type rate struct {
	start, now, before uint64
}

func (r *rate) count(now, window, mtus uint64) {
	if passed := since(now, r.start); passed >= window {
		before := r.now
		if passed >= saturatingMul(2, window) {
			before = 0
		}
		*r = rate{start: now, before: before}
	}
	r.now += mtus
}

// gap is the time between two MTUs, the shorter of both windows.
func (r *rate) gap(now, window uint64) uint64 {
	gap := func(time, mtus uint64) uint64 {
		if mtus == 0 {
			return never
		}
		return time / mtus
	}
	passed := max(since(now, r.start), window/16)
	return min(gap(passed, r.now), gap(window, r.before))
}

// channel is the state of a destination and class.
type channel struct {
	// used is the time up to which the admitted calls use the channel's part.
	used        uint64
	rate, asked rate
}

// decide returns whether a call may run in its class.
func (c *channel) decide(o *options, gap, now uint64, mtus uint32) bool {
	size := uint64(max(mtus, 1))
	c.asked.count(now, o.rateWindow, size)
	if c.used > now {
		return false
	}
	cost := saturatingMul(gap, size)
	c.used = saturatingAdd(max(c.used, since(now, cost)), cost)
	c.rate.count(now, o.rateWindow, size)
	return true
}

// probability is the part of its calls that the channel admits, estimated from the last whole window.
func (c *channel) probability(o *options, gap uint64) uint64 {
	if gap == 0 || c.asked.before == 0 {
		return one
	}
	asked := new(big.Int).Mul(new(big.Int).SetUint64(gap), new(big.Int).SetUint64(c.asked.before))
	part := new(big.Int).Lsh(new(big.Int).SetUint64(o.rateWindow), 32)
	part.Quo(part, asked)
	if !part.IsUint64() {
		return one
	}
	return min(part.Uint64(), one)
}

// port is the state of a host and class.
type port struct {
	mutex      sync.Mutex
	gap        uint64
	budget     int64
	descended  bool
	answered   uint64
	lastEnd    uint64
	natural    [2]uint64
	windowFrom uint64
}

// begin makes the port new. The port begins a little earlier than its first call, so that this call is evidence.
func (p *port) begin(now uint64) {
	p.gap, p.budget, p.descended = 0, 0, false
	p.answered, p.lastEnd, p.windowFrom = now, now, now
	p.natural = [2]uint64{never, never}
}

func (p *port) currentGap() uint64 {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.gap
}

// complete learns from the end of a call that ran in the class; gap is the time between two MTUs of its channel.
func (p *port) complete(o *options, now, latency uint64, met bool, gap uint64) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if since(now, p.lastEnd) > o.idleAfter {
		p.begin(now)
	}
	p.lastEnd = now
	p.note(now, o.rateWindow, gap)
	if met {
		lacked := p.budget < 0
		p.budget = min(p.budget+int64(o.allowed), savedMax)
		p.descended = p.descended || lacked && p.budget >= 0
		p.grow(o)
		return
	}
	most := firstLackMax
	if p.descended {
		most = lackMax
	}
	p.budget = max(p.budget-int64(one), -most)
	// No call is older than the clock.
	latency = min(latency, now)
	if now-latency > p.answered {
		p.lengthen(o)
		p.answered = saturatingAdd(now, latency)
	}
}

func (p *port) note(now, window, gap uint64) {
	if passed := since(now, p.windowFrom); passed >= window {
		before := p.natural[0]
		if passed >= saturatingMul(2, window) {
			before = never
		}
		p.natural = [2]uint64{never, before}
		p.windowFrom = now
	}
	p.natural[0] = min(p.natural[0], gap)
}

// grow shortens the gap by cut x allowed x 2^budget.
func (p *port) grow(o *options) {
	if p.gap <= 1 {
		return
	}
	high, low := bits.Mul64(p.gap, o.cut)
	high, low = mul128(high, low, o.allowed)
	low = high<<32 | low>>32
	high >>= 32
	// The whole misses shift, the rest is a straight line between two powers.
	high, low = mul128(high, low, one+uint64(p.budget)&(one-1))
	shift := uint(64 - (p.budget >> 32))
	var step uint64
	if shift >= 64 {
		step = high >> (shift - 64)
	} else {
		step = high<<(64-shift) | low>>shift
	}
	p.gap -= min(max(step, 1), p.gap-1)
}

// lengthen makes the gap longer by a cut, at least from that of the fastest channel.
func (p *port) lengthen(o *options) {
	gap := p.gap
	if natural := min(p.natural[0], p.natural[1]); natural != never {
		gap = max(gap, natural)
	}
	high, low := bits.Mul64(gap, o.cut)
	more := high<<32 | low>>32
	p.gap = min(saturatingAdd(saturatingAdd(gap, more), 1), o.longestGap)
}

func mul128(high, low, by uint64) (uint64, uint64) {
	carry, product := bits.Mul64(low, by)
	return high*by + carry, product
}

// host is the ports of a host, one per class with an objective, and the number of its destinations.
type host struct {
	ports        []port
	destinations int
}

// hosts has the ports of all hosts; destinations find theirs when they are made.
type hosts struct {
	mutex sync.Mutex
	known map[string]*host
}

func (h *hosts) join(name string, classes int, now uint64) *host {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	found := h.known[name]
	if found == nil {
		found = &host{ports: make([]port, classes)}
		for i := range found.ports {
			found.ports[i].begin(since(now, psPerNs))
		}
		if h.known == nil {
			h.known = map[string]*host{}
		}
		h.known[name] = found
	}
	found.destinations++
	return found
}

func (h *hosts) part(name string) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if found := h.known[name]; found != nil {
		if found.destinations--; found.destinations == 0 {
			delete(h.known, name)
		}
	}
}

// hostOf is a destination's name without its port number. A name that is not host:number or [host]:number is a host as
// a whole.
func hostOf(name string) string {
	colon := strings.LastIndexByte(name, ':')
	if colon < 0 {
		return name
	}
	before, number := name[:colon], name[colon+1:]
	isNumber := number != "" && strings.Trim(number, "0123456789") == ""
	if isNumber && (strings.HasSuffix(before, "]") || !strings.Contains(before, ":")) {
		return before
	}
	return name
}
