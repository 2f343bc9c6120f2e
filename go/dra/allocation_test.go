package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
	"sigs.k8s.io/yaml"
)

// fenced are the YAML documents of the guide.
var fenced = regexp.MustCompile("(?s)```yaml\n(.*?)```")

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// document decodes strictly the document of the guide that has the line.
func document[T any](t *testing.T, line string) *T {
	t.Helper()
	for _, block := range fenced.FindAllStringSubmatch(read(t, "../../docs/guides/kubernetes.md"), -1) {
		for _, text := range strings.Split(block[1], "---\n") {
			if !slices.Contains(strings.Split(text, "\n"), line) {
				continue
			}
			value := new(T)
			if err := yaml.UnmarshalStrict([]byte(text), value); err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			return value
		}
	}
	t.Fatalf("the guide has no document with %q", line)
	return nil
}

// guideOffers are the devices that the values of the guide make.
func guideOffers(t *testing.T) *offers {
	t.Helper()
	values := document[struct {
		DRA struct {
			Enabled bool `json:"enabled"`
			offersFile
		} `json:"dra"`
	}](t, "dra:")
	text, err := yaml.Marshal(values.DRA.offersFile)
	if err != nil {
		t.Fatal(err)
	}
	made, err := parseOffers("the guide", text)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// classes of devices for the allocator: that of the chart alone.
type chartClass struct{ class *resourceapi.DeviceClass }

func (c chartClass) List() ([]*resourceapi.DeviceClass, error) {
	return []*resourceapi.DeviceClass{c.class}, nil
}
func (c chartClass) Get(name string) (*resourceapi.DeviceClass, error) {
	if name != c.class.Name {
		return nil, os.ErrNotExist
	}
	return c.class, nil
}

// allocate gives the claim devices as the scheduler of Kubernetes does; nil if no device fits.
func allocate(t *testing.T, offered *offers, claim *resourceapi.ResourceClaim, taken ...string) *resourceapi.AllocationResult {
	t.Helper()
	class := &resourceapi.DeviceClass{}
	class.Name = "rdma.isolane.dev"
	expression := regexp.MustCompile(`expression: (.*)`).FindStringSubmatch(read(t, "../../packaging/kubernetes/isolane/templates/dra.yaml"))[1]
	class.Spec.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: expression}}}
	name := node
	published := &resourceapi.ResourceSlice{Spec: resourceapi.ResourceSliceSpec{
		Driver: driverName, NodeName: &name, Devices: offered.devices,
		Pool: resourceapi.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1},
	}}
	published.Name = "slice"
	state := structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	for _, device := range taken {
		state.AllocatedDevices.Insert(structured.MakeDeviceID(driverName, node, device))
	}
	allocator, err := structured.NewAllocator(t.Context(), structured.Features{}, state, chartClass{class}, []*resourceapi.ResourceSlice{published}, cel.NewCache(10, cel.Features{}))
	if err != nil {
		t.Fatal(err)
	}
	machine := &corev1.Node{}
	machine.Name = node
	results, err := allocator.Allocate(t.Context(), machine, []*resourceapi.ResourceClaim{claim})
	if err != nil {
		t.Fatal(err)
	}
	if len(results) == 0 {
		return nil
	}
	return &results[0]
}

func TestTheSchedulersAllocatorGivesTheGuidesClaimAShare(t *testing.T) {
	offered := guideOffers(t)
	template := document[resourceapi.ResourceClaimTemplate](t, "kind: ResourceClaimTemplate")
	pod := document[corev1.Pod](t, "kind: Pod")
	if *pod.Spec.ResourceClaims[0].ResourceClaimTemplateName != template.Name || pod.Spec.Containers[0].Resources.Claims[0].Name != pod.Spec.ResourceClaims[0].Name {
		t.Error("the pod of the guide does not use the guide's claim")
	}
	claim := newClaim("prod", 1)
	claim.Spec = template.Spec.Spec
	// Defaults of the API server.
	claim.Spec.Devices.Requests[0].Exactly.AllocationMode = resourceapi.DeviceAllocationModeExactCount
	claim.Spec.Devices.Requests[0].Exactly.Count = 1
	claim.Status.Allocation = allocate(t, offered, claim)
	if claim.Status.Allocation == nil {
		t.Fatal("no device fits")
	}
	got, err := requestOf(claim, node, offered, func(string) bool { return false })
	if err != nil {
		t.Fatal(err)
	}
	if got.share != (share{class: "throughput", weight: 2}) || got.results[0].Device != "mlx5-0-bandwidth-4-0" {
		t.Errorf("%+v", got)
	}
	// All devices of the class are taken, and those of the class latency do not fit.
	var taken []string
	for _, device := range offered.devices[:8] {
		taken = append(taken, device.Name)
	}
	if got := allocate(t, offered, claim, taken...); got != nil {
		t.Errorf("%+v", got.Devices.Results)
	}
}

func TestTheGuidesGuaranteeIsThatOfTheDevice(t *testing.T) {
	guarantee := guideOffers(t).devices[0].Capacity["guarantee"]
	// 92G * 4 / 52 = 7.0769G.
	if guarantee.Value.Value() != 7_076_923_076 || !strings.Contains(read(t, "../../docs/guides/kubernetes.md"), "= 7.076923076 Gb/s.") {
		t.Error(guarantee.Value.String())
	}
}
