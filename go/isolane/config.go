package isolane

import (
	"errors"
	"fmt"
	"regexp"
	"time"
)

// Mode selects whether decisions are applied.
type Mode int

const (
	// Enforce runs calls that are not admitted in the lowest class.
	Enforce Mode = iota
	// Shadow runs all calls in the requested class, and counts and reports downgrades.
	Shadow
	// Off decides and learns nothing; calls are counted.
	Off
)

// String returns the mode's name in a settings file.
func (m Mode) String() string {
	switch m {
	case Shadow:
		return "shadow"
	case Off:
		return "off"
	default:
		return "enforce"
	}
}

// Algorithm selects how calls are admitted.
type Algorithm int

const (
	// Aequitas is the paper's algorithm 2: an admit probability for each destination and class.
	Aequitas Algorithm = iota
	// Aequitas2 has a level for each host and class; docs/internals/calls.md explains it.
	Aequitas2
)

// Class is one class of the network and its parameters.
type Class struct {
	// Name of the class in applications and metrics.
	Name string
	// DSCP marks its packets, 0 to 63.
	DSCP int
	// TargetPerMTU is the objective: the longest latency of a call per MTU of its size. Zero for the lowest class only.
	TargetPerMTU time.Duration
	// Percentile of calls that must meet it; 99.9 if zero.
	Percentile float64
	// Alpha is the increase of the admit probability after a window without a miss, for Aequitas only; 0.01 if zero.
	Alpha float64
	// Beta is its decrease per MTU of a miss, for Aequitas only; 0.01 if zero.
	Beta float64
	// Floor is the smallest admit probability; 0.1 if zero. With Aequitas2 it is the smallest level, in MTUs for each
	// TargetPerMTU; 0.01 if zero.
	Floor float64
	// Cut is the relative change of the level by one congestion, for Aequitas2 only; 0.0625 if zero.
	Cut float64
}

// Config is the operator's configuration. A zero field takes its default.
type Config struct {
	// Mode selects whether decisions are applied.
	Mode Mode
	// Algorithm selects how calls are admitted.
	Algorithm Algorithm
	// MTUBytes is the payload of one packet; 1460 if zero.
	MTUBytes int
	// IdleAfter is how long a destination without calls keeps its state and its entry; a minute if zero.
	IdleAfter time.Duration
	// DestinationsMax bounds the memory; 100,000 if zero. Calls to further destinations are admitted and not learned from.
	DestinationsMax int
	// Classes from the highest to the lowest, 2 to 8.
	Classes []Class
	// Groups are destinations that share a quota; Quota is the server that guarantees it. [Admission.StartQuota] renews
	// its leases.
	Groups []Group
	Quota  *Quota
}

const (
	defaultMTUBytes        = 1460
	defaultIdleAfter       = time.Minute
	defaultDestinationsMax = 100_000
	classesMin             = 2
	classesMax             = 8
	destinationsMaxMax     = 10_000_000
)

var namePattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// withDefaults fills in zero fields.
func (c Config) withDefaults() Config {
	orInt := func(value *int, other int) {
		if *value == 0 {
			*value = other
		}
	}
	orFloat := func(value *float64, other float64) {
		if *value == 0 {
			*value = other
		}
	}
	orInt(&c.MTUBytes, defaultMTUBytes)
	orInt(&c.DestinationsMax, defaultDestinationsMax)
	if c.IdleAfter == 0 {
		c.IdleAfter = defaultIdleAfter
	}
	c.Classes = append([]Class(nil), c.Classes...)
	c.Groups = append([]Group(nil), c.Groups...)
	if c.Quota != nil {
		quota := *c.Quota
		c.Quota = &quota
	}
	// The lowest class has no objective, so its parameters stay as they are: another value than zero is an error.
	for i := range max(len(c.Classes)-1, 0) {
		class := &c.Classes[i]
		orFloat(&class.Percentile, 99.9)
		// A parameter of the other algorithm stays zero: another value is an error.
		if c.Algorithm == Aequitas2 {
			orFloat(&class.Floor, defaultFloor2)
			orFloat(&class.Cut, defaultCut)
		} else {
			orFloat(&class.Alpha, 0.01)
			orFloat(&class.Beta, 0.01)
			orFloat(&class.Floor, 0.1)
		}
	}
	return c
}

// check rejects invalid values with object, value and remedy.
func (c Config) check() error {
	if n := len(c.Classes); n < classesMin || n > classesMax {
		return fmt.Errorf("isolane: %d classes; give %d to %d, the lowest last", n, classesMin, classesMax)
	}
	if c.Mode < Enforce || c.Mode > Off {
		return fmt.Errorf("isolane: mode %d; give Enforce, Shadow or Off", c.Mode)
	}
	if c.Algorithm < Aequitas || c.Algorithm > Aequitas2 {
		return fmt.Errorf("isolane: algorithm %d; give Aequitas or Aequitas2", c.Algorithm)
	}
	if c.MTUBytes < 64 || c.MTUBytes > 65_535 {
		return fmt.Errorf("isolane: MTUBytes is %d; give the payload of a packet, 64 to 65535", c.MTUBytes)
	}
	if c.IdleAfter < 0 {
		return fmt.Errorf("isolane: IdleAfter is %s; give a time above zero", c.IdleAfter)
	}
	if c.DestinationsMax < 1 || c.DestinationsMax > destinationsMaxMax {
		return fmt.Errorf("isolane: DestinationsMax is %d; give 1 to %d", c.DestinationsMax, destinationsMaxMax)
	}
	for i, class := range c.Classes {
		if err := class.check(i == len(c.Classes)-1, c.Algorithm); err != nil {
			return fmt.Errorf("isolane: class %d (%q): %w", i, class.Name, err)
		}
		for j, other := range c.Classes[:i] {
			if other.Name == class.Name {
				return fmt.Errorf("isolane: classes %d and %d are both named %q; rename one", j, i, class.Name)
			}
			if other.DSCP == class.DSCP {
				return fmt.Errorf("isolane: classes %d and %d both have DSCP %d, so the network could not distinguish them; "+
					"give another", j, i, class.DSCP)
			}
		}
	}
	return c.checkQuota()
}

func (c Class) check(lowest bool, algorithm Algorithm) error {
	if !namePattern.MatchString(c.Name) {
		return errors.New("a name is 1 to 64 letters, digits, '-', '_' or '.': it travels in metadata")
	}
	if c.DSCP < 0 || c.DSCP > 63 {
		return fmt.Errorf("DSCP is %d; give a code point from 0 to 63", c.DSCP)
	}
	if lowest {
		if c.TargetPerMTU != 0 {
			return errors.New("the lowest class has an objective; it carries what the others may not, so leave it out")
		}
		for _, unused := range []struct {
			name  string
			value float64
		}{{"Percentile", c.Percentile}, {"Alpha", c.Alpha}, {"Beta", c.Beta}, {"Floor", c.Floor}, {"Cut", c.Cut}} {
			if unused.value != 0 {
				return fmt.Errorf("%s is %v, which has no effect in the lowest class; leave it zero", unused.name, unused.value)
			}
		}
		return nil
	}
	if c.TargetPerMTU <= 0 {
		return fmt.Errorf("TargetPerMTU is %s; give the longest latency of a call for each of its MTUs", c.TargetPerMTU)
	}
	if !(c.Percentile > 0 && c.Percentile < 100) {
		return fmt.Errorf("Percentile is %v; give one above 0 and below 100, like 99.9", c.Percentile)
	}
	second := algorithm == Aequitas2
	steps := []struct {
		name  string
		value float64
		used  bool
	}{{"Alpha", c.Alpha, !second}, {"Beta", c.Beta, !second}, {"Floor", c.Floor, true}, {"Cut", c.Cut, second}}
	for _, step := range steps {
		if !step.used {
			if step.value == 0 {
				continue
			}
			return fmt.Errorf("%s is %v, which has no effect with this algorithm; leave it zero: Alpha and Beta are for Aequitas, "+
				"Cut is for Aequitas2", step.name, step.value)
		}
		if !(step.value > 0 && step.value <= 1) || partsOf(step.value) == 0 {
			return fmt.Errorf("%s is %v; give a value above 0 and at most 1", step.name, step.value)
		}
	}
	return nil
}

// options in the algorithm's units.
func (c Class) options(idleAfter time.Duration) options {
	return options{
		targetPerMTU: ps(c.TargetPerMTU),
		window:       incrementWindow(ps(c.TargetPerMTU), c.Percentile),
		increment:    partsOf(c.Alpha),
		decrement:    partsOf(c.Beta),
		floor:        partsOf(c.Floor),
		idleAfter:    ps(idleAfter),
		rateWindow:   saturatingMul(ps(c.TargetPerMTU), rateTargets),
		longestGap:   longestGap(ps(c.TargetPerMTU), partsOf(c.Floor)),
		cut:          partsOf(c.Cut),
		allowed:      allowedOf(c.Percentile),
	}
}
