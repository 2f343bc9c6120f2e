package main

import (
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"sigs.k8s.io/yaml"
)

// Names of the opaque parameters in a claim's configuration.
const (
	parametersVersion = "isolane.dev/v1"
	parametersKind    = "RdmaShare"
)

// parameters lower class or weight of a claim's device.
type parameters struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Class      string `json:"class,omitempty"`
	Weight     *int64 `json:"weight,omitempty"`
}

// request is what a claim gets on this machine.
type request struct {
	share
	results []resourceapi.DeviceRequestAllocationResult
}

// requestOf reads the claim's devices and parameters. The error names the claim, the value and what to do. `may` says whether a
// namespace may use the latency class.
func requestOf(claim *resourceapi.ResourceClaim, node string, offers *offers, may func(namespace string) bool) (*request, error) {
	wrong := func(format string, values ...any) error {
		return fmt.Errorf("claim %s/%s: %s", claim.Namespace, claim.Name, fmt.Sprintf(format, values...))
	}
	allocation := claim.Status.Allocation
	if allocation == nil {
		return nil, wrong("has no devices; wait for the scheduler")
	}
	made := &request{}
	// The weights of the devices of one RDMA NIC add up.
	weights := map[string]int64{}
	for _, result := range allocation.Devices.Results {
		if result.Driver != driverName {
			continue
		}
		if result.Pool != node {
			return nil, wrong("device %s of the pool %s: this machine has the pool %s; delete the pod, so that it is scheduled again", result.Device, result.Pool, node)
		}
		offered, known := offers.shares[result.Device]
		if !known {
			return nil, wrong("device %s: this machine offers no such device; delete the claim, so that another device is allocated", result.Device)
		}
		if result.AdminAccess != nil && *result.AdminAccess {
			return nil, wrong("request %s: adminAccess has no meaning for a share; remove it", result.Request)
		}
		got, err := configured(offered.share, result, allocation.Devices.Config)
		if err != nil {
			return nil, wrong("%s", err)
		}
		// The class of the device counts, so that no namespace uses up the devices of another one.
		if (offered.class == classLatency || got.class == classLatency) && !may(claim.Namespace) {
			return nil, wrong("device %s: the namespace may not use the class latency; claim another class, or list the namespace in pods.latencyNamespaces", result.Device)
		}
		if len(made.results) > 0 && got.class != made.class {
			return nil, wrong("device %s: has the class %s, and another device of the claim the class %s; give all devices of a claim one class", result.Device, got.class, made.class)
		}
		made.class = got.class
		weights[offered.rnic] += got.weight
		made.results = append(made.results, result)
	}
	if len(made.results) == 0 {
		return nil, wrong("has no device of the driver %s", driverName)
	}
	first := offers.shares[made.results[0].Device].rnic
	made.weight = weights[first]
	for _, result := range made.results {
		if rnic := offers.shares[result.Device].rnic; weights[rnic] != made.weight {
			return nil, wrong("devices of %s: have the weight %d together, and those of %s %d; claim equal weights of all RDMA NICs", rnic, weights[rnic], first, made.weight)
		}
	}
	if made.weight > weightMax {
		return nil, wrong("weight %d of all devices of %s together: must be at most %d; claim fewer devices", made.weight, first, weightMax)
	}
	return made, nil
}

// configured applies the parameters for the device in their order: those of the class come first, then those of the claim.
func configured(got share, result resourceapi.DeviceRequestAllocationResult, config []resourceapi.DeviceAllocationConfiguration) (share, error) {
	offered := got
	for _, one := range config {
		if one.Opaque == nil || one.Opaque.Driver != driverName || !applies(one.Requests, result.Request) {
			continue
		}
		wanted, err := parseParameters(one.Opaque.Parameters.Raw)
		if err != nil {
			return got, fmt.Errorf("parameters for request %s: %w", result.Request, err)
		}
		if wanted.Class != "" {
			got.class = wanted.Class
		}
		if wanted.Weight != nil {
			got.weight = *wanted.Weight
		}
	}
	if got.class == classLatency && offered.class != classLatency {
		return got, fmt.Errorf("class latency for request %s: device %s has the class %s; claim a device whose attribute class is latency", result.Request, result.Device, offered.class)
	}
	if got.weight > offered.weight {
		return got, fmt.Errorf("weight %d for request %s: device %s has the weight %d; lower it, or claim a device of a larger weight", got.weight, result.Request, result.Device, offered.weight)
	}
	return got, nil
}

func applies(requests []string, request string) bool {
	return len(requests) == 0 || slices.Contains(requests, request) || slices.Contains(requests, resourceclaim.BaseRequestRef(request))
}

func parseParameters(raw []byte) (parameters, error) {
	var wanted parameters
	if err := yaml.UnmarshalStrict(raw, &wanted); err != nil {
		return wanted, fmt.Errorf("must have apiVersion, kind, class and weight only: %w", err)
	}
	if wanted.APIVersion != parametersVersion || wanted.Kind != parametersKind {
		return wanted, fmt.Errorf("apiVersion %q and kind %q: must be %s and %s", wanted.APIVersion, wanted.Kind, parametersVersion, parametersKind)
	}
	if wanted.Class != "" && !slices.Contains(classes, wanted.Class) {
		return wanted, fmt.Errorf("class %q: must be %s", wanted.Class, strings.Join(classes, ", "))
	}
	if wanted.Weight != nil && (*wanted.Weight < 1 || *wanted.Weight > weightMax) {
		return wanted, fmt.Errorf("weight %d: must be from 1 to the weight of the device", *wanted.Weight)
	}
	return wanted, nil
}
