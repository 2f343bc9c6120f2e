package isolane

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"time"
)

// Admission holds a process's state of its destinations. It is safe for use by many goroutines; known destinations
// share no lock, except those of one host with Aequitas2.
type Admission struct {
	config atomic.Pointer[settings]
	begin  time.Time
	known  sync.Map // destination name to *destination
	count  atomic.Int64
	// sweeping lets one caller at a time search for idle destinations; swept is the time of the last search.
	sweeping sync.Mutex
	swept    atomic.Uint64
	// hosts has the ports of [Aequitas2].
	hosts hosts
	// leases has one entry per group and class with an objective; quotaRuns is true while a goroutine renews them.
	leases    []lease
	quotaRuns atomic.Bool
	observer  atomic.Pointer[func(context.Context, Outcome)]
	// random and now are replaced by tests.
	random func() uint32
	now    func() uint64
}

// settings is a checked Config with its classes in the algorithm's units.
type settings struct {
	Config
	options []options
}

// destination is the state of one destination.
type destination struct {
	cells []cell
	// host has the ports of its host, with Aequitas2 only.
	host *host
	// group is its index among the groups, -1 for none.
	group    int
	lastCall atomic.Uint64
}

type cell struct {
	mutex  sync.Mutex
	state  admitState
	level  channel
	counts Counts
}

// Counts are the calls that requested one class.
type Counts struct {
	// Asked is the number of these calls.
	Asked uint64
	// Downgraded is the number of calls that ran in the lowest class (in shadow mode: would have run).
	Downgraded uint64
	// Leased is the number of calls that ran in the class within a quota's lease, at any admit probability.
	Leased uint64
	// Met is the number of calls that ran in the class and met its objective.
	Met uint64
	// Missed is the number of calls that ran in the class and missed it.
	Missed uint64
}

// Verdict is the decision on one call.
type Verdict struct {
	// Asked is the class that the application requested, Class the one to run in; 0 is the highest.
	Asked, Class int
	// Downgraded is true if the call runs in a lower class than it requested.
	Downgraded bool
	// WouldDowngrade is true if it would run in a lower class outside shadow mode.
	WouldDowngrade bool

	mtus uint32
	at   *destination
}

// New makes an Admission; zero fields of the Config take their defaults.
func New(config Config) (*Admission, error) {
	begin := time.Now()
	a := &Admission{
		begin:  begin,
		random: rand.Uint32,
		now:    func() uint64 { return ps(time.Since(begin)) },
	}
	checked, err := check(config)
	if err != nil {
		return nil, err
	}
	a.config.Store(checked)
	a.leases = make([]lease, len(checked.Groups)*(len(checked.Classes)-1))
	return a, nil
}

func check(config Config) (*settings, error) {
	config = config.withDefaults()
	if err := config.check(); err != nil {
		return nil, err
	}
	checked := &settings{Config: config}
	for _, class := range config.Classes[:len(config.Classes)-1] {
		checked.options = append(checked.options, class.options(config.IdleAfter))
	}
	return checked, nil
}

// Reconfigure applies other settings while calls run. The number, names and code points of the classes, the groups and
// the quota server cannot change.
func (a *Admission) Reconfigure(config Config) error {
	next, err := check(config)
	if err != nil {
		return err
	}
	now := a.config.Load()
	same := len(next.Classes) == len(now.Classes)
	for i := 0; same && i < len(next.Classes); i++ {
		same = next.Classes[i].Name == now.Classes[i].Name && next.Classes[i].DSCP == now.Classes[i].DSCP
	}
	if !same {
		return fmt.Errorf("isolane: class (number, name, DSCP) cannot change while the program runs; restart it to apply the change")
	}
	if next.Algorithm != now.Algorithm {
		return fmt.Errorf("isolane: the algorithm cannot change while the program runs; restart it to apply the change")
	}
	if !slices.Equal(next.Groups, now.Groups) || (next.Quota == nil) != (now.Quota == nil) ||
		next.Quota != nil && *next.Quota != *now.Quota {
		return fmt.Errorf("isolane: groups and quota cannot change while the program runs; restart it to apply the change")
	}
	a.config.Store(next)
	return nil
}

// Config returns the current configuration with its defaults filled in.
func (a *Admission) Config() Config {
	config := a.config.Load().Config
	config.Classes = append([]Class(nil), config.Classes...)
	config.Groups = append([]Group(nil), config.Groups...)
	if config.Quota != nil {
		quota := *config.Quota
		config.Quota = &quota
	}
	return config
}

// Decide decides on a call of size bytes that requests class. It waits only while another goroutine decides on, learns
// from or reports calls to the same destination in the same class. With Aequitas2 it also waits while another does so at
// the same host in the same class. The first call to a destination takes the locks that list all destinations and hosts.
// An unknown class counts as the lowest.
func (a *Admission) Decide(to string, class int, bytes int) Verdict {
	config := a.config.Load()
	lowest := len(config.Classes) - 1
	if class < 0 || class > lowest {
		class = lowest
	}
	verdict := Verdict{Asked: class, Class: class, mtus: mtusOf(bytes, config.MTUBytes)}
	at := a.destination(to, config)
	if at == nil {
		return verdict
	}
	now := a.now()
	at.lastCall.Store(now)
	verdict.at = at
	cell := &at.cells[class]
	cell.mutex.Lock()
	defer cell.mutex.Unlock()
	cell.counts.Asked++
	if class == lowest || config.Mode == Off {
		return verdict
	}
	// A call within the lease is admitted regardless of the probability: a guarantee covers all admitted traffic.
	leased := at.group >= 0 && a.lease(at.group, class).take(uint64(max(bytes, 0)), now/psPerNs)
	if admitted := a.admits(at, class, &config.options[class], now, verdict.mtus, leased); admitted {
		if leased {
			cell.counts.Leased++
		}
		return verdict
	}
	cell.counts.Downgraded++
	if config.Mode == Shadow {
		verdict.WouldDowngrade = true
		return verdict
	}
	verdict.Class, verdict.Downgraded = lowest, true
	return verdict
}

// admits decides by the algorithm; the cell's lock is held.
func (a *Admission) admits(at *destination, class int, o *options, now uint64, mtus uint32, leased bool) bool {
	cell := &at.cells[class]
	if at.host == nil {
		return cell.state.decide(o, now, a.random()) || leased
	}
	return leased || cell.level.decide(o, at.host.ports[class].currentGap(), now, mtus)
}

// Complete learns from a call that ended latency after it was passed to its connection.
func (a *Admission) Complete(verdict Verdict, latency time.Duration) {
	a.learn(verdict, latency, verdict.mtus)
}

// CompleteRead learns from a call whose response has responseBytes: the objective covers the packets of both
// directions. Subtract the server's own time from the latency.
func (a *Admission) CompleteRead(verdict Verdict, responseBytes int, latency time.Duration) {
	a.learn(verdict, latency, withResponse(verdict.mtus, responseBytes, a.config.Load().MTUBytes))
}

// GiveUp learns from a call that ended without an answer, by its deadline, by cancellation or with its connection. Its
// latency is at least elapsed: beyond the objective it counts as a miss, below it counts as nothing. It returns whether
// the call missed.
func (a *Admission) GiveUp(verdict Verdict, elapsed time.Duration) bool {
	return a.giveUp(verdict, elapsed, verdict.mtus)
}

func (a *Admission) giveUp(verdict Verdict, elapsed time.Duration, mtus uint32) bool {
	config := a.config.Load()
	if verdict.Class >= len(config.options) || config.options[verdict.Class].meets(ps(elapsed), mtus) {
		return false
	}
	a.learn(verdict, elapsed, mtus)
	return true
}

func (a *Admission) learn(verdict Verdict, latency time.Duration, mtus uint32) {
	config := a.config.Load()
	if verdict.at == nil || config.Mode == Off || verdict.Class >= len(config.options) {
		return
	}
	options := &config.options[verdict.Class]
	took := ps(latency)
	cell := &verdict.at.cells[verdict.Class]
	cell.mutex.Lock()
	defer cell.mutex.Unlock()
	now, met := a.now(), options.meets(took, mtus)
	if host := verdict.at.host; host == nil {
		cell.state.complete(options, now, took, mtus)
	} else {
		host.ports[verdict.Class].complete(options, now, took, met, cell.level.rate.gap(now, options.rateWindow))
	}
	if met {
		cell.counts.Met++
	} else {
		cell.counts.Missed++
	}
}

// HasClass returns whether the settings have a class with this name.
func (a *Admission) HasClass(name string) bool { return a.class(name) >= 0 }

// class returns the number of the class with this name, -1 for none.
func (a *Admission) class(name string) int {
	return slices.IndexFunc(a.config.Load().Classes, func(class Class) bool { return class.Name == name })
}

// Observe sets the function that receives the outcome of every call of every Conn after its end, with the call's
// context: for traces and your own metrics. It must not block. Package isolaneotel has one.
func (a *Admission) Observe(observer func(context.Context, Outcome)) { a.observer.Store(&observer) }

// Probability returns the admit probability of a destination and class, 1 for an unknown destination.
func (a *Admission) Probability(to string, class int) float64 {
	found, ok := a.known.Load(to)
	if !ok || class < 0 || class >= len(found.(*destination).cells) {
		return 1
	}
	at := found.(*destination)
	cell := &at.cells[class]
	cell.mutex.Lock()
	defer cell.mutex.Unlock()
	return at.probability(a.config.Load(), class)
}

// probability is the part of its calls that a class admits; the cell's lock is held.
func (d *destination) probability(config *settings, class int) float64 {
	cell := &d.cells[class]
	parts := cell.state.probability
	if d.host != nil && class < len(config.options) {
		parts = cell.level.probability(&config.options[class], d.host.ports[class].currentGap())
	}
	return float64(parts) / float64(one)
}

// Report is the state of one destination and class, for metrics.
type Report struct {
	Destination string
	Class       string
	Probability float64
	Counts      Counts
}

// Reports lists all destinations and classes, sorted by name and rank.
func (a *Admission) Reports() []Report {
	config := a.config.Load()
	var reports []Report
	a.known.Range(func(name, value any) bool {
		at := value.(*destination)
		for i := range at.cells {
			cell := &at.cells[i]
			cell.mutex.Lock()
			reports = append(reports, Report{
				Destination: name.(string),
				Class:       config.Classes[i].Name,
				Probability: at.probability(config, i),
				Counts:      cell.counts,
			})
			cell.mutex.Unlock()
		}
		return true
	})
	sort.SliceStable(reports, func(i, j int) bool { return reports[i].Destination < reports[j].Destination })
	return reports
}

// Forget removes a destination that has departed.
func (a *Admission) Forget(to string) {
	if gone, was := a.known.LoadAndDelete(to); was {
		a.count.Add(-1)
		if gone.(*destination).host != nil {
			a.hosts.part(hostOf(to))
		}
	}
}

// destination finds or makes the entry of a destination; nil when destinations in use take all entries.
func (a *Admission) destination(to string, config *settings) *destination {
	if found, ok := a.known.Load(to); ok {
		return found.(*destination)
	}
	if a.count.Load() >= int64(config.DestinationsMax) {
		a.sweep(config)
		if a.count.Load() >= int64(config.DestinationsMax) {
			return nil
		}
	}
	now := a.now()
	made := &destination{cells: make([]cell, len(config.Classes)), group: slices.IndexFunc(config.Groups, func(group Group) bool {
		return fits(group.Destinations, to)
	})}
	made.lastCall.Store(now)
	for i := range made.cells {
		made.cells[i].state = newAdmitState(now)
	}
	if config.Algorithm == Aequitas2 {
		made.host = a.hosts.join(hostOf(to), len(config.options), now)
	}
	// Two callers may both find the last free entry: concurrent callers can exceed the bound by their number.
	found, was := a.known.LoadOrStore(to, made)
	if !was {
		a.count.Add(1)
	} else if made.host != nil {
		a.hosts.part(hostOf(to))
	}
	return found.(*destination)
}

// sweepsInIdleTime limits how often a full table is searched, so that newcomers do not search at every call.
const sweepsInIdleTime = 64

// sweep removes destinations without a call for the idle time. A caller does not wait for another one's search, and
// returns at once after a recent search.
func (a *Admission) sweep(config *settings) {
	if !a.sweeping.TryLock() {
		return
	}
	defer a.sweeping.Unlock()
	now, idle := a.now(), ps(config.IdleAfter)
	if last := a.swept.Load(); last != 0 && since(now, last) <= idle/sweepsInIdleTime {
		return
	}
	a.swept.Store(max(now, 1))
	a.known.Range(func(name, value any) bool {
		if since(now, value.(*destination).lastCall.Load()) > idle {
			a.Forget(name.(string))
		}
		return true
	})
}

// mtusOf is the size of a message in packets, rounded up.
func mtusOf(bytes, mtu int) uint32 {
	if bytes <= 0 {
		return 1
	}
	return uint32(min((int64(bytes)+int64(mtu)-1)/int64(mtu), 1<<31))
}

// withResponse adds the full packets of a response to the packets of its request. The rest of the response, below one
// packet, is not counted, because every call has a response.
func withResponse(mtus uint32, responseBytes, mtu int) uint32 {
	return uint32(min(int64(mtus)+int64(max(responseBytes, 0)/mtu), 1<<31))
}
