package isolane

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/BurntSushi/toml"
)

// fileClass and file are the settings file shared by all languages; docs/guides/rpc.md describes its keys.
type fileClass struct {
	Name         string  `toml:"name"`
	DSCP         *int    `toml:"dscp"`
	TargetPerMTU string  `toml:"target_per_mtu"`
	Percentile   float64 `toml:"percentile"`
	fileSteps
}

// fileSteps are the steps of the admit probability: of one class, or of all classes that have none of their own.
type fileSteps struct {
	Alpha *float64 `toml:"alpha"`
	Beta  *float64 `toml:"beta"`
	Floor *float64 `toml:"floor"`
	Cut   *float64 `toml:"cut"`
}

type file struct {
	Mode            string `toml:"mode"`
	Algorithm       string `toml:"algorithm"`
	MTUBytes        int    `toml:"mtu_bytes"`
	IdleAfter       string `toml:"idle_after"`
	DestinationsMax int    `toml:"destinations_max"`
	MetricsMax      int    `toml:"metrics_destinations"`
	fileSteps
	Classes []fileClass `toml:"class"`
	Groups  []fileGroup `toml:"group"`
	Quota   *fileQuota  `toml:"quota"`
}

type fileGroup struct {
	Name         string `toml:"name"`
	Destinations string `toml:"destinations"`
}

type fileQuota struct {
	Server  string `toml:"server"`
	KeyFile string `toml:"key_file"`
	Tenant  string `toml:"tenant"`
}

// ParseConfig parses settings in the TOML form of the Rust, Python and C libraries.
func ParseConfig(text string) (Config, error) {
	var read file
	meta, err := toml.Decode(text, &read)
	if err != nil {
		return Config{}, fmt.Errorf("isolane: settings: %w", err)
	}
	if unknown := meta.Undecoded(); len(unknown) > 0 {
		return Config{}, fmt.Errorf("isolane: settings: unknown key %q", unknown[0].String())
	}
	config := Config{MTUBytes: read.MTUBytes, DestinationsMax: read.DestinationsMax}
	switch read.Mode {
	case "", "enforce":
	case "shadow":
		config.Mode = Shadow
	case "off":
		config.Mode = Off
	default:
		return Config{}, fmt.Errorf("isolane: settings: mode is %q; give enforce, shadow or off", read.Mode)
	}
	switch read.Algorithm {
	case "", "aequitas":
	case "aequitas-2":
		config.Algorithm = Aequitas2
	default:
		return Config{}, fmt.Errorf("isolane: settings: algorithm is %q; give aequitas or aequitas-2", read.Algorithm)
	}
	if config.IdleAfter, err = duration("idle_after", read.IdleAfter); err != nil {
		return Config{}, err
	}
	for i, class := range read.Classes {
		one, err := class.class(read, i == len(read.Classes)-1)
		if err != nil {
			return Config{}, err
		}
		config.Classes = append(config.Classes, one)
	}
	for _, group := range read.Groups {
		config.Groups = append(config.Groups, Group(group))
	}
	if read.Quota != nil {
		quota := Quota(*read.Quota)
		config.Quota = &quota
	}
	config = config.withDefaults()
	return config, config.check()
}

func (c fileClass) class(read file, lowest bool) (Class, error) {
	if c.DSCP == nil {
		return Class{}, fmt.Errorf("isolane: settings: class %q has no dscp; give 0 to 63", c.Name)
	}
	target, err := duration("target_per_mtu", c.TargetPerMTU)
	if err != nil {
		return Class{}, err
	}
	own := c.Percentile != 0 || c.fileSteps != fileSteps{}
	if lowest && own {
		return Class{}, fmt.Errorf("isolane: settings: the last class, %q, has no target; it takes name and dscp only", c.Name)
	}
	class := Class{Name: c.Name, DSCP: *c.DSCP, TargetPerMTU: target, Percentile: c.Percentile}
	if lowest {
		return class, nil
	}
	steps := []struct {
		key         string
		own, common *float64
		into        *float64
	}{
		{"alpha", c.Alpha, read.Alpha, &class.Alpha},
		{"beta", c.Beta, read.Beta, &class.Beta},
		{"floor", c.Floor, read.Floor, &class.Floor},
		{"cut", c.Cut, read.Cut, &class.Cut},
	}
	second := read.Algorithm == "aequitas-2"
	for _, step := range steps {
		value := step.own
		if value == nil {
			value = step.common
		}
		if value == nil {
			continue
		}
		if unused := (step.key == "cut") != second; unused && step.key != "floor" {
			return Class{}, fmt.Errorf("isolane: settings: %s has no effect with this algorithm; remove the key: alpha and beta are "+
				"for aequitas, cut is for aequitas-2", step.key)
		}
		if partsOf(*value) == 0 {
			return Class{}, fmt.Errorf("isolane: settings: %s is %v; give a value above 0 and at most 1", step.key, *value)
		}
		*step.into = *value
	}
	return class, nil
}

func duration(key, text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	value, err := time.ParseDuration(strings.ReplaceAll(text, " ", ""))
	if err != nil || value <= 0 {
		return 0, fmt.Errorf("isolane: settings: %s is %q; write a time above zero with its unit, like \"15us\"", key, text)
	}
	return value, nil
}

// ReadConfig reads the settings file at path.
func ReadConfig(path string) (Config, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("isolane: cannot read the settings: %w", err)
	}
	config, err := ParseConfig(string(text))
	if err != nil {
		return Config{}, fmt.Errorf("%s: %w", path, err)
	}
	return config, nil
}
