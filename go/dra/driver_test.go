package main

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	resourceclient "k8s.io/client-go/kubernetes/typed/resource/v1"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	"tags.cncf.io/container-device-interface/pkg/cdi"
)

const sharedParameters = `"apiVersion":"isolane.dev/v1","kind":"RdmaShare"`

func TestTheKubeletRegistersTheDriver(t *testing.T) {
	m := newMachine(t)
	info := m.start().info
	if info.Type != registerapi.DRAPlugin || info.Name != "isolane.dev" || !slices.Equal(info.SupportedVersions, []string{drapb.DRAPluginService}) {
		t.Error(info)
	}
	if info.Endpoint != m.path("plugins/isolane.dev/dra.sock") {
		t.Error(info.Endpoint)
	}
}

func TestTheMachinesSharesArePublished(t *testing.T) {
	m := newMachine(t)
	m.start()
	var slice *resourceapi.ResourceSlice
	select {
	case slice = <-m.api.posted:
	case <-time.After(patience):
		t.Fatal("no slice")
	}
	if slice.Spec.Driver != "isolane.dev" || *slice.Spec.NodeName != node || slice.Spec.Pool.Name != node || slice.OwnerReferences[0].Kind != "Node" {
		t.Errorf("%+v", slice.Spec)
	}
	if len(slice.Spec.Devices) != 8 {
		t.Fatal(len(slice.Spec.Devices))
	}
	// 92 Gb/s for the weights 4 * 4 + 3 * 1 + 4 of all offers and 4 of others: 92 / 27 * 4 = 13.6.
	first := slice.Spec.Devices[0]
	rate, _ := first.Capacity["guarantee"]
	if first.Name != "mlx5-0-bandwidth-4-0" || *first.Attributes["rnic"].StringValue != "mlx5_0" ||
		*first.Attributes["class"].StringValue != "bandwidth" || *first.Attributes["weight"].IntValue != 4 || rate.Value.Value() != 13_629_629_629 {
		t.Errorf("%+v", first)
	}
	if latency := slice.Spec.Devices[4]; latency.Name != "mlx5-0-latency-1-0" || len(latency.Capacity) != 0 {
		t.Errorf("%+v", latency)
	}
}

func TestAClaimEntersAContainerAndEnds(t *testing.T) {
	m := newMachine(t)
	claim := newClaim("prod", 1, "mlx5-0-bandwidth-4-0", "mlx5-1-bandwidth-4-0")
	m.api.put(claim)
	k := m.start()
	// The kubelet may ask again.
	first, second := k.mustPrepare(claim), k.mustPrepare(claim)
	for _, devices := range [][]*drapb.Device{first, second} {
		if len(devices) != 2 || !slices.Equal(devices[0].CDIDeviceIDs, []string{"isolane.dev/claim=" + string(claim.UID)}) ||
			devices[1].PoolName != node || devices[1].DeviceName != "mlx5-1-bandwidth-4-0" || !slices.Equal(devices[1].RequestNames, []string{"share-1"}) {
			t.Fatal(devices)
		}
	}
	// As a container runtime does.
	cache, _ := cdi.NewCache(cdi.WithSpecDirs(m.path("cdi")))
	if wrong := cache.GetErrors(); len(wrong) > 0 {
		t.Fatal(wrong)
	}
	container := &oci.Spec{}
	if _, err := cache.InjectDevices(container, first[0].CDIDeviceIDs[0]); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(container.Process.Env, "LD_PRELOAD=/opt/isolane/libisolane_shim.so") || len(container.Mounts) != 2 {
		t.Errorf("%+v", container)
	}
	name := "claim-" + string(claim.UID) + "-" + string(podUID(1)) + ".toml"
	text, err := os.ReadFile(m.path("control/assignments/" + name))
	want := "pod = \"00000b0d-0000-4000-8000-000000000001\"\ntenant = \"prod/claim=claim-1\"\nclass = \"bandwidth\"\nweight = 4\n"
	if err != nil || string(text) != want {
		t.Errorf("%v: %s", err, text)
	}
	for range 2 {
		if wrong := k.unprepare(string(claim.UID)); wrong != "" {
			t.Fatal(wrong)
		}
	}
	m.mustHave(t, 0)
}

func TestParametersLowerClassAndWeight(t *testing.T) {
	m := newMachine(t)
	k := m.start()
	claim := newClaim("prod", 1, "mlx5-0-bandwidth-4-0")
	claim.Status.Allocation.Devices.Results[0].Request = "share/small"
	configure(claim, `{`+sharedParameters+`,"class":"auto","weight":3}`, "other")
	configure(claim, `{`+sharedParameters+`,"weight":3}`, "share")
	configure(claim, `{`+sharedParameters+`,"class":"throughput","weight":2}`)
	// The parameters of another driver are not ours to read.
	configure(claim, `{"x":1}`)
	claim.Status.Allocation.Devices.Config[3].Opaque.Driver = "gpu.example.com"
	m.api.put(claim)
	k.mustPrepare(claim)
	text, _ := os.ReadFile(m.path("control/assignments/" + m.names("control/assignments")[0]))
	hasAll(t, string(text), "class = \"throughput\"", "weight = 2")
}

func TestWeightsOfOneRNICAddUp(t *testing.T) {
	m := newMachine(t)
	if _, err := inProcess(t, m).prepare(newClaim("prod", 1, "mlx5-0-bandwidth-4-0", "mlx5-0-bandwidth-4-1")); err != nil {
		t.Fatal(err)
	}
	text, _ := os.ReadFile(m.path("control/assignments/" + m.names("control/assignments")[0]))
	hasAll(t, string(text), "weight = 8")
}

// claimsWith calls a function before each answer of the API server.
type claimsWith struct {
	resourceclient.ResourceClaimInterface
	before func()
}

func (c claimsWith) ResourceClaims(string) resourceclient.ResourceClaimInterface { return c }
func (c claimsWith) Get(ctx context.Context, name string, options metav1.GetOptions) (*resourceapi.ResourceClaim, error) {
	claim, err := c.ResourceClaimInterface.Get(ctx, name, options)
	c.before()
	return claim, err
}

func TestAClaimThatTheKubeletPreparesMeanwhileStays(t *testing.T) {
	m := newMachine(t)
	d := inProcess(t, m)
	claim := newClaim("prod", 1, "mlx5-0-bandwidth-4-0")
	if _, err := d.prepare(claim); err != nil {
		t.Fatal(err)
	}
	stale := claim.DeepCopy()
	stale.Status.Allocation = nil
	m.api.put(stale)
	d.claims = claimsWith{d.claims.ResourceClaims("prod"), func() {
		if made, _ := d.PrepareResourceClaims(t.Context(), []*resourceapi.ResourceClaim{claim}); made[claim.UID].Err != nil {
			t.Error(made)
		}
	}}
	d.reconcile(t.Context())
	m.mustHave(t, 2)
}

func TestAWrongClaimIsNamedAndLeavesNothing(t *testing.T) {
	m := newMachine(t)
	k := m.start()
	device := "mlx5-0-bandwidth-4-0"
	of := func(text string) *resourceapi.ResourceClaim { return configure(newClaim("test", 1, device), text) }
	otherPool := newClaim("test", 1, device)
	otherPool.Status.Allocation.Devices.Results[0].Pool = "machine-2"
	otherDriver := newClaim("test", 1, device)
	otherDriver.Status.Allocation.Devices.Results[0].Driver = "gpu.example.com"
	admin := newClaim("test", 1, device)
	admin.Status.Allocation.Devices.Results[0].AdminAccess = new(bool)
	*admin.Status.Allocation.Devices.Results[0].AdminAccess = true
	podWithoutUID := newClaim("test", 1, device)
	podWithoutUID.Status.ReservedFor[0].UID = "../../x"
	for name, wrong := range map[string]struct {
		claim *resourceapi.ResourceClaim
		parts []string
	}{
		"a larger weight":     {of(`{` + sharedParameters + `,"weight":5}`), []string{"claim test/claim-1", "weight 5", device, "lower it"}},
		"a weight of zero":    {of(`{` + sharedParameters + `,"weight":0}`), []string{"weight 0", "from 1"}},
		"a class of none":     {of(`{` + sharedParameters + `,"class":"fast"}`), []string{`class "fast"`, "latency, throughput, bandwidth, auto"}},
		"the latency class":   {of(`{` + sharedParameters + `,"class":"latency"}`), []string{"class latency", "claim a device whose attribute"}},
		"an unknown key":      {of(`{` + sharedParameters + `,"wieght":2}`), []string{"parameters for request share-0", "wieght"}},
		"another kind":        {of(`{"apiVersion":"isolane.dev/v1","kind":"Share"}`), []string{`kind "Share"`, "RdmaShare"}},
		"no object":           {of(`7`), []string{"parameters for request share-0", "must have apiVersion"}},
		"a namespace":         {newClaim("test", 1, "mlx5-0-latency-1-0"), []string{"class latency", "pods.latencyNamespaces"}},
		"an unknown device":   {newClaim("test", 1, "mlx5-7-auto-1-0"), []string{"mlx5-7-auto-1-0", "delete the claim"}},
		"another pool":        {otherPool, []string{"machine-2", node}},
		"another driver":      {otherDriver, []string{"no device of the driver isolane.dev"}},
		"access of an admin":  {admin, []string{"adminAccess", "remove it"}},
		"two classes":         {newClaim("prod", 1, device, "mlx5-0-latency-1-0"), []string{"the class latency", "the class bandwidth", "one class"}},
		"two weights":         {newClaim("prod", 1, device, "mlx5-0-bandwidth-4-1", "mlx5-1-bandwidth-4-0"), []string{"devices of mlx5_1: have the weight 4 together", "of mlx5_0 8", "equal weights"}},
		"a class not used":    {configure(newClaim("test", 1, "mlx5-0-latency-1-0"), `{`+sharedParameters+`,"class":"bandwidth"}`), []string{"class latency", "pods.latencyNamespaces"}},
		"a path as pod's uid": {podWithoutUID, []string{"../../x", "pod", "hexadecimal"}},
	} {
		t.Run(name, func(t *testing.T) {
			m.api.put(wrong.claim)
			hasAll(t, k.prepare(wrong.claim).Error, wrong.parts...)
			m.mustHave(t, 0)
		})
	}
}

func TestAPathAsUidReachesNoFile(t *testing.T) {
	m := newMachine(t)
	k := m.start()
	m.file("victim.json", "{}")
	for _, uid := range []string{"x/../../victim", "../victim", "/victim", "", ".", strings.Repeat("a", 37), strings.Repeat("-", 36), strings.Repeat("a", 100_000), "a\x00b", "*"} {
		hasAll(t, k.unprepare(uid), "hexadecimal")
		claim := newClaim("prod", 1, "mlx5-0-bandwidth-4-0")
		claim.UID = types.UID(uid)
		m.api.put(claim)
		hasAll(t, k.prepare(claim).Error, "hexadecimal")
	}
	m.mustHave(t, 0)
	if text, err := os.ReadFile(m.path("victim.json")); err != nil || string(text) != "{}" {
		t.Error(err)
	}
}

func TestAPathAsNameIsRejected(t *testing.T) {
	m := newMachine(t)
	d := inProcess(t, m)
	for _, name := range []string{"../x", "a/b", "", "..", strings.Repeat("a", 254), "a\"\nclass = \"latency"} {
		claim := newClaim("prod", 1, "mlx5-0-bandwidth-4-0")
		claim.Name = name
		if _, err := d.prepare(claim); err == nil || !strings.Contains(err.Error(), "must have names") {
			t.Errorf("%q: %v", name, err)
		}
		claim.Name, claim.Namespace = "a", name
		if _, err := d.prepare(claim); err == nil || !strings.Contains(err.Error(), "must have names") {
			t.Errorf("%q: %v", name, err)
		}
	}
	m.mustHave(t, 0)
}

func TestADeviceAndAPodHaveOneClaim(t *testing.T) {
	m := newMachine(t)
	k := m.start()
	first := newClaim("prod", 1, "mlx5-0-bandwidth-4-0")
	sameDevice, samePod := newClaim("prod", 2, "mlx5-0-bandwidth-4-0"), newClaim("prod", 3, "mlx5-0-bandwidth-4-1")
	samePod.Status.ReservedFor[0].UID = podUID(1)
	for _, claim := range []*resourceapi.ResourceClaim{first, sameDevice, samePod} {
		m.api.put(claim)
	}
	k.mustPrepare(first)
	hasAll(t, k.prepare(sameDevice).Error, "claim prod/claim-2", "mlx5-0-bandwidth-4-0", "prod/claim-1")
	hasAll(t, k.prepare(samePod).Error, "claim prod/claim-3", string(podUID(1)), string(claimUID(1)), "give a pod one claim")
	m.mustHave(t, 2)
}

func TestARestartAfterAKillReconcilesWithTheClaims(t *testing.T) {
	m := newMachine(t)
	k := m.start()
	stays, gone, replaced := newClaim("prod", 1, "mlx5-0-bandwidth-4-0"), newClaim("prod", 2, "mlx5-0-bandwidth-4-1"), newClaim("prod", 3, "mlx5-0-bandwidth-4-2")
	for _, claim := range []*resourceapi.ResourceClaim{stays, gone, replaced} {
		m.api.put(claim)
		k.mustPrepare(claim)
	}
	k.kill()
	m.api.remove(gone)
	successor := newClaim("prod", 3, "mlx5-0-bandwidth-4-2")
	successor.UID = claimUID(4)
	m.api.put(successor)
	// What a driver leaves that was killed between two steps: an assignment without a record, a record without its assignment, and files
	// that are not complete.
	orphan := "claim-" + string(claimUID(9)) + "-" + string(podUID(9)) + ".toml"
	m.file("control/assignments/"+orphan, "")
	if err := os.Remove(m.path("control/assignments/claim-" + string(stays.UID) + "-" + string(podUID(1)) + ".toml")); err != nil {
		t.Fatal(err)
	}
	m.file("control/assignments/pod-1.toml", "another's")
	m.file("control/assignments/."+orphan+".part", "cgr")
	m.file("cdi/."+specName(gone.UID)+".part", "{")
	k = m.start()
	want := []string{
		specName(stays.UID),
		"claim-" + string(stays.UID) + "-" + string(podUID(1)) + ".toml", "pod-1.toml",
	}
	if left := m.left(); !slices.Equal(left, want) {
		t.Errorf("left: %v", left)
	}
	// The kubelet asks again for what it knows.
	k.mustPrepare(stays)
	if wrong := k.unprepare(string(gone.UID)); wrong != "" {
		t.Error(wrong)
	}
}

func TestWithoutAnAPIServerEverythingStays(t *testing.T) {
	m := newMachine(t)
	k := m.start()
	claim := newClaim("prod", 1, "mlx5-0-bandwidth-4-0")
	m.api.put(claim)
	k.mustPrepare(claim)
	before := m.left()
	k.kill()
	m.api.remove(claim)
	m.api.setBroken(true)
	k = m.start()
	if left := m.left(); !slices.Equal(left, before) || len(left) != 2 {
		t.Errorf("left: %v", left)
	}
	if wrong := k.unprepare(string(claim.UID)); wrong != "" || len(m.left()) > 0 {
		t.Error(wrong, m.left())
	}
}

// inProcess is the driver without sockets, for its comparisons with the API server.
func inProcess(t *testing.T, m *machine) *driver {
	t.Helper()
	client, err := connect(m.path("kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	offers, err := readOffers(m.path("dra.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return &driver{node: node, offers: offers, store: newStore(m.path("cdi"), m.path("control/assignments")), claims: client.ResourceV1()}
}

func TestTheSecondPodOfASharedClaimIsAssigned(t *testing.T) {
	m := newMachine(t)
	d := inProcess(t, m)
	claim := newClaim("prod", 1, "mlx5-0-bandwidth-4-0")
	m.api.put(claim)
	if _, err := d.prepare(claim); err != nil {
		t.Fatal(err)
	}
	later := claim.DeepCopy()
	reserve(later, podUID(2))
	m.api.put(later)
	d.reconcile(t.Context())
	if names := m.names("control/assignments"); len(names) != 2 {
		t.Errorf("assignments: %v", names)
	}
	later = later.DeepCopy()
	later.Status.ReservedFor = later.Status.ReservedFor[1:]
	m.api.put(later)
	d.reconcile(t.Context())
	if names := m.names("control/assignments"); len(names) != 1 || !strings.Contains(names[0], string(podUID(2))) {
		t.Errorf("assignments: %v", names)
	}
	later = later.DeepCopy()
	later.Status.Allocation = nil
	m.api.put(later)
	d.reconcile(t.Context())
	m.mustHave(t, 0)
}

func TestALaterPodOfASharedClaimKeepsItsOwnClaim(t *testing.T) {
	m := newMachine(t)
	d := inProcess(t, m)
	shared, own := newClaim("prod", 1, "mlx5-0-bandwidth-4-0"), newClaim("prod", 2, "mlx5-0-bandwidth-4-1")
	for _, claim := range []*resourceapi.ResourceClaim{shared, own} {
		m.api.put(claim)
		if _, err := d.prepare(claim); err != nil {
			t.Fatal(err)
		}
	}
	before := m.left()
	later := shared.DeepCopy()
	reserve(later, podUID(2))
	m.api.put(later)
	d.reconcile(t.Context())
	if left := m.left(); !slices.Equal(left, before) {
		t.Errorf("left: %v", left)
	}
	if len(d.said) != 1 {
		t.Errorf("reported: %v", d.said)
	}
}

func TestWithoutTheLibraryAClaimIsNotPrepared(t *testing.T) {
	m := newMachine(t)
	if err := os.Remove(m.path("cdi/isolane.dev-rdma.json")); err != nil {
		t.Fatal(err)
	}
	_, err := inProcess(t, m).prepare(newClaim("prod", 1, "mlx5-0-bandwidth-4-0"))
	if err == nil {
		t.Fatal("prepared")
	}
	hasAll(t, err.Error(), "claim prod/claim-1", "isolane.dev/rdma=paced", "isolane rdma cdi")
}

func TestAWrongOfferIsNamed(t *testing.T) {
	for text, parts := range map[string][]string{
		``:                             {"offers is empty"},
		`othersWeight: -1`:             {"othersWeight -1", "from 0"},
		`offers: [{rnic: "../x"}]`:     {"offers[0]", `rnic "../x"`},
		`offers: [{rnic: a, x: 1}]`:    {"file.yaml", `"x"`},
		`offers: [{rnic: a, rate: 0}]`: {"rate 0"},
		`offers: [{rnic: a, rate: 1G, class: fast}]`:                                                                                 {`class "fast"`, "latency, throughput"},
		`offers: [{rnic: a, rate: 1G, class: auto, weight: 0}]`:                                                                      {"weight 0", "from 1"},
		`offers: [{rnic: a, rate: 1G, class: auto, weight: 1, count: 0}]`:                                                            {"count 0"},
		`offers: [{rnic: a, rate: 1G, class: auto, weight: 1, count: 1025}]`:                                                         {"count 1025"},
		`offers: [{rnic: ` + strings.Repeat("a", 60) + `, rate: 1G, class: auto, weight: 1, count: 1}]`:                              {"would not be valid"},
		`offers: [{rnic: a, rate: 1G, class: auto, weight: 1, count: 1}, {rnic: a, rate: 2G, class: auto, weight: 2, count: 1}]`:     {"offers[1]", "rate 2G", "one rate"},
		`offers: [{rnic: a_b, rate: 1G, class: auto, weight: 1, count: 1}, {rnic: a-B, rate: 1G, class: auto, weight: 2, count: 1}]`: {"offers[1]", `"a-B"`, `"a_b"`},
	} {
		_, err := parseOffers("file.yaml", []byte(text))
		if err == nil {
			t.Errorf("%s is accepted", text)
			continue
		}
		hasAll(t, err.Error(), parts...)
	}
}

func TestGuaranteesOfAnRNICAreAtMostItsRate(t *testing.T) {
	text := "othersWeight: 0\noffers: [{rnic: a_b, rate: 100, class: auto, weight: 3, count: 7}, {rnic: b, rate: 1G, class: auto, weight: 3, count: 2}]"
	offers, err := parseOffers("x", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var sum int64
	for _, device := range offers.devices[:7] {
		guarantee := device.Capacity["guarantee"]
		sum += guarantee.Value.Value()
	}
	// 100 * 3 / 27 = 11.1.
	if sum != 7*11 {
		t.Error(sum)
	}
}

func TestASliceHasAtMostTheDevicesThatKubernetesAccepts(t *testing.T) {
	offers, err := parseOffers("x", []byte("offers: [{rnic: a, rate: 1G, class: auto, weight: 1, count: 300}]"))
	if err != nil {
		t.Fatal(err)
	}
	var sizes []int
	for _, slice := range offers.resources(node).Pools[node].Slices {
		sizes = append(sizes, len(slice.Devices))
	}
	if !slices.Equal(sizes, []int{128, 128, 44}) {
		t.Error(sizes)
	}
}

// isolane is the program of ISOLANE; without it the test is skipped.
func isolane(t *testing.T, words ...string) []byte {
	t.Helper()
	program := os.Getenv("ISOLANE")
	if program == "" {
		t.Skip("ISOLANE does not name the program")
	}
	command := exec.Command(program, words...)
	command.Env = append(os.Environ(), "ISOLANE_SHIM=/opt/isolane/libisolane_shim.so")
	output, err := command.Output()
	if err != nil {
		t.Fatalf("%v: %v", words, err)
	}
	return output
}

func TestTheEditsAreThoseOfTheProgram(t *testing.T) {
	written := isolane(t, "rdma", "cdi", "--library-folder", "/opt/isolane")
	var got, want any
	if json.Unmarshal(written, &got) != nil || json.Unmarshal([]byte(pacedText), &want) != nil {
		t.Fatal("no JSON")
	}
	one, _ := json.Marshal(got)
	other, _ := json.Marshal(want)
	if string(one) != string(other) {
		t.Errorf("%s\n%s", one, other)
	}
}

func TestTheDaemonReadsTheAssignment(t *testing.T) {
	folder := t.TempDir()
	s := newStore(t.TempDir(), filepath.Join(folder, "assignments"))
	one := record{uid: claimUID(1), claim: types.NamespacedName{Namespace: "prod", Name: "a"}, share: share{class: "throughput", weight: 7}}
	long := record{uid: claimUID(2), claim: types.NamespacedName{Namespace: strings.Repeat("n", 63), Name: "a"}, share: one.share}
	for _, one := range []record{one, long} {
		if err := s.assign(one, []types.UID{podUID(1)}); err != nil {
			t.Fatal(err)
		}
	}
	var listed []struct {
		Tenant, Class, Pod string
		Weight             int
	}
	if err := json.Unmarshal(isolane(t, "rdma", "assign", "--list", "--json", "--folder", s.assignments), &listed); err != nil {
		t.Fatal(err)
	}
	if len(listed) != 2 || listed[0].Tenant != "prod/claim=a" || listed[0].Class != "throughput" || listed[0].Weight != 7 ||
		listed[1].Tenant != "claim-"+string(claimUID(2)) || listed[0].Pod != string(podUID(1)) {
		t.Errorf("%+v", listed)
	}
}
