package main

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"sigs.k8s.io/yaml"
)

// driverName is also the domain of the devices' attributes and of the CDI devices.
const driverName = "isolane.dev"

// Names of attributes and capacity of a device.
const (
	attributeRNIC     = "rnic"
	attributeClass    = "class"
	attributeWeight   = "weight"
	capacityGuarantee = "guarantee"
)

// classLatency is the class that the daemon does not pace.
const classLatency = "latency"

// classes are those of isolaned.
var classes = []string{classLatency, "throughput", "bandwidth", "auto"}

const (
	// weightMax is the largest weight of isolaned.
	weightMax = 1 << 20
	// devicesMax bounds the devices of one machine: a machine has at most a few hundred pods.
	devicesMax = 1024
)

// offersFile is the operator's file.
type offersFile struct {
	// OthersWeight is the sum of the weights of tenants without a claim, for which each guarantee leaves room.
	OthersWeight int64   `json:"othersWeight"`
	Offers       []offer `json:"offers"`
}

// offer is a number of equal shares of one RDMA NIC.
type offer struct {
	RNIC string `json:"rnic"`
	// Rate is that of the device in isolaned's file, in bit/s.
	Rate   resource.Quantity `json:"rate"`
	Class  string            `json:"class"`
	Weight int64             `json:"weight"`
	Count  int               `json:"count"`
}

// share is what a device gives to a claim.
type share struct {
	class  string
	weight int64
}

// offered is the share of a device.
type offered struct {
	share
	rnic string
}

// offers are the devices of this machine.
type offers struct {
	devices []resourceapi.Device
	shares  map[string]offered
}

func readOffers(path string) (*offers, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the offers: %w; give --offers FILE", err)
	}
	return parseOffers(path, text)
}

// parseOffers checks the file. `path` is its name in messages.
func parseOffers(path string, text []byte) (*offers, error) {
	var file offersFile
	if err := yaml.UnmarshalStrict(text, &file); err != nil {
		return nil, fmt.Errorf("%s: must have othersWeight and offers with rnic, rate, class, weight and count: %w", path, err)
	}
	if file.OthersWeight < 0 || file.OthersWeight > weightMax {
		return nil, fmt.Errorf("%s: othersWeight %d: must be from 0 to %d", path, file.OthersWeight, weightMax)
	}
	// A tenant has its weight on each RDMA NIC of the machine, whichever it has claimed.
	sum := file.OthersWeight
	for at, offer := range file.Offers {
		if err := offer.check(); err != nil {
			return nil, fmt.Errorf("%s: offers[%d]: %w", path, at, err)
		}
		sum += offer.Weight * int64(offer.Count)
	}
	made := &offers{shares: map[string]offered{}}
	rates, names := map[string]resource.Quantity{}, map[string]string{}
	for at, offer := range file.Offers {
		if rate, known := rates[offer.RNIC]; known && rate.Cmp(offer.Rate) != 0 {
			return nil, fmt.Errorf("%s: offers[%d]: rate %s of %s: an earlier offer has %s; give an RDMA NIC one rate", path, at, offer.Rate.String(), offer.RNIC, rate.String())
		}
		rates[offer.RNIC] = offer.Rate
		if other, taken := names[deviceName(offer.RNIC)]; taken && other != offer.RNIC {
			return nil, fmt.Errorf("%s: offers[%d]: rnic %q: its devices would have the names of those of %q; rename one of the RDMA NICs", path, at, offer.RNIC, other)
		}
		names[deviceName(offer.RNIC)] = offer.RNIC
		for range offer.Count {
			if err := made.add(offer, sum); err != nil {
				return nil, fmt.Errorf("%s: offers[%d]: %w", path, at, err)
			}
		}
	}
	if len(made.devices) == 0 {
		return nil, fmt.Errorf("%s: offers is empty: give at least one offer", path)
	}
	return made, nil
}

func (o offer) check() error {
	switch {
	case o.RNIC == "" || strings.ContainsFunc(o.RNIC, func(c rune) bool { return !plain(c) && c != '_' }):
		return fmt.Errorf("rnic %q: must be a device's name as ibv_devices prints it", o.RNIC)
	case o.Rate.Value() <= 0 || o.Rate.CmpInt64(math.MaxInt64/weightMax) > 0:
		return fmt.Errorf("rate %s: must be more than zero and at most %d bit/s", o.Rate.String(), int64(math.MaxInt64/weightMax))
	case !slices.Contains(classes, o.Class):
		return fmt.Errorf("class %q: must be %s", o.Class, strings.Join(classes, ", "))
	case o.Weight < 1 || o.Weight > weightMax:
		return fmt.Errorf("weight %d: must be from 1 to %d", o.Weight, weightMax)
	case o.Count < 1 || o.Count > devicesMax:
		return fmt.Errorf("count %d: must be from 1 to %d", o.Count, devicesMax)
	}
	return nil
}

// plain characters are those of file names, and have no meaning in patterns.
func plain(c rune) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-'
}

// add makes one device. The guarantee is the part of the rate that the weight has of `sum`, rounded down. A tenant of the latency class has
// none, because the daemon does not pace it.
func (o *offers) add(offer offer, sum int64) error {
	if len(o.devices) == devicesMax {
		return fmt.Errorf("count %d: all offers together may have at most %d devices", offer.Count, devicesMax)
	}
	begin := deviceName(offer.RNIC) + "-" + offer.Class
	name := ""
	for number := 0; ; number++ {
		name = fmt.Sprintf("%s-%d-%d", begin, offer.Weight, number)
		if _, taken := o.shares[name]; !taken {
			break
		}
	}
	if wrong := validation.IsDNS1123Label(name); len(wrong) > 0 {
		return fmt.Errorf("rnic %q: the device's name %s would not be valid: %s", offer.RNIC, name, strings.Join(wrong, "; "))
	}
	device := resourceapi.Device{
		Name: name,
		Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
			attributeRNIC:   {StringValue: &offer.RNIC},
			attributeClass:  {StringValue: &offer.Class},
			attributeWeight: {IntValue: &offer.Weight},
		},
	}
	if offer.Class != classLatency {
		bits := *resource.NewQuantity(offer.Rate.Value()/sum*offer.Weight+offer.Rate.Value()%sum*offer.Weight/sum, resource.DecimalSI)
		device.Capacity = map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{capacityGuarantee: {Value: bits}}
	}
	o.shares[name] = offered{share: share{class: offer.Class, weight: offer.Weight}, rnic: offer.RNIC}
	o.devices = append(o.devices, device)
	return nil
}

// deviceName is the RDMA NIC's part of a device's name, which has neither capitals nor underscores.
func deviceName(rnic string) string { return strings.ToLower(strings.ReplaceAll(rnic, "_", "-")) }

// resources are the devices as one pool of the machine, in slices of the size that Kubernetes accepts.
func (o *offers) resources(node string) resourceslice.DriverResources {
	pool := resourceslice.Pool{}
	for devices := range slices.Chunk(o.devices, resourceapi.ResourceSliceMaxDevices) {
		pool.Slices = append(pool.Slices, resourceslice.Slice{Devices: devices})
	}
	return resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{node: pool}}
}
