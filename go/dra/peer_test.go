package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

const node = "machine-1"

// patience is how long a loaded machine may take for one step.
const patience = 120 * time.Second

// TestMain runs the driver itself in a process that a test starts.
func TestMain(m *testing.M) {
	if os.Getenv("ISOLANE_DRA_DRIVER") != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// apiServer has the parts of the Kubernetes API that a driver uses, in the published form. A request that it does not know is an error of the
// test.
type apiServer struct {
	t      *testing.T
	server *httptest.Server
	mutex  sync.Mutex
	claims map[string]*resourceapi.ResourceClaim
	slices map[string]*resourceapi.ResourceSlice
	// posted has each slice once, when the driver makes it.
	posted chan *resourceapi.ResourceSlice
	broken bool
	number int
}

func newAPIServer(t *testing.T) *apiServer {
	api := &apiServer{
		t:      t,
		claims: map[string]*resourceapi.ResourceClaim{},
		slices: map[string]*resourceapi.ResourceSlice{},
		posted: make(chan *resourceapi.ResourceSlice, 64),
	}
	handle := http.NewServeMux()
	handle.HandleFunc("GET /api/v1/nodes/{name}", func(w http.ResponseWriter, r *http.Request) {
		answer(w, 200, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: r.PathValue("name"), UID: "0000000a-0000-4000-8000-000000000000"}})
	})
	handle.HandleFunc("GET /apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}", api.claim)
	handle.HandleFunc("GET /apis/resource.k8s.io/v1/resourceslices", api.list)
	handle.HandleFunc("POST /apis/resource.k8s.io/v1/resourceslices", api.post)
	handle.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("the driver sends %s %s", r.Method, r.URL)
		notFound(w)
	})
	api.server = httptest.NewServer(handle)
	t.Cleanup(func() {
		api.server.CloseClientConnections()
		api.server.Close()
	})
	return api
}

func answer(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(value)
}

func notFound(w http.ResponseWriter) {
	answer(w, 404, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Reason: metav1.StatusReasonNotFound, Code: 404})
}

func (api *apiServer) claim(w http.ResponseWriter, r *http.Request) {
	api.mutex.Lock()
	defer api.mutex.Unlock()
	claim, known := api.claims[r.PathValue("namespace")+"/"+r.PathValue("name")]
	switch {
	case api.broken:
		w.WriteHeader(http.StatusInternalServerError)
	case known:
		answer(w, 200, claim)
	default:
		notFound(w)
	}
}

func (api *apiServer) list(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("watch") != "" {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(200)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return
	}
	api.mutex.Lock()
	defer api.mutex.Unlock()
	list := resourceapi.ResourceSliceList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
	for _, slice := range api.slices {
		list.Items = append(list.Items, *slice)
	}
	answer(w, 200, list)
}

func (api *apiServer) post(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	// JSON or protobuf, as the client prefers.
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	slice, ok := object.(*resourceapi.ResourceSlice)
	if err != nil || !ok {
		api.t.Errorf("the driver sends no slice of resource.k8s.io/v1: %v: %.200s", err, body)
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	api.mutex.Lock()
	defer api.mutex.Unlock()
	api.number++
	slice.Name = fmt.Sprintf("slice-%d", api.number)
	slice.UID = types.UID(fmt.Sprintf("0000000b-0000-4000-8000-%012d", api.number))
	slice.ResourceVersion = fmt.Sprint(api.number + 1)
	api.slices[slice.Name] = slice
	api.posted <- slice
	answer(w, 201, slice)
}

// put stores the claim in place of an earlier one of its name; remove is its deletion.
func (api *apiServer) put(claim *resourceapi.ResourceClaim) {
	api.mutex.Lock()
	defer api.mutex.Unlock()
	api.claims[claim.Namespace+"/"+claim.Name] = claim
}

func (api *apiServer) remove(claim *resourceapi.ResourceClaim) {
	api.mutex.Lock()
	defer api.mutex.Unlock()
	delete(api.claims, claim.Namespace+"/"+claim.Name)
}

func (api *apiServer) setBroken(broken bool) {
	api.mutex.Lock()
	defer api.mutex.Unlock()
	api.broken = broken
}

// machine has the folders of one machine.
type machine struct {
	t      *testing.T
	folder string
	api    *apiServer
}

const offersText = `
othersWeight: 4
offers:
  - {rnic: mlx5_0, rate: 92G, class: bandwidth, weight: 4, count: 4}
  - {rnic: mlx5_0, rate: 92G, class: latency, weight: 1, count: 3}
  - {rnic: mlx5_1, rate: 46G, class: bandwidth, weight: 4, count: 1}
`

// pacedText is what `isolane rdma cdi` writes; TestTheEditsAreThoseOfTheProgram compares it with the program.
const pacedText = `{"cdiVersion":"0.5.0","kind":"isolane.dev/rdma","devices":[{"name":"paced","containerEdits":{
"env":["LD_PRELOAD=/opt/isolane/libisolane_shim.so"],
"mounts":[{"hostPath":"/opt/isolane/libisolane_shim.so","containerPath":"/opt/isolane/libisolane_shim.so","options":["ro","rbind","nosuid","nodev"]},
{"hostPath":"/run/isolane/clients","containerPath":"/run/isolane/clients","options":["ro","rbind","nosuid","nodev"]}]}}]}`

func newMachine(t *testing.T) *machine {
	t.Helper()
	// A short path: the name of a Unix socket has at most 107 bytes.
	folder, err := os.MkdirTemp("", "dra")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	m := &machine{t: t, folder: folder, api: newAPIServer(t)}
	for _, name := range []string{"cdi", "control", "plugins", "registry"} {
		if err := os.Mkdir(m.path(name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	m.file("cdi/isolane.dev-rdma.json", pacedText)
	m.file("dra.yaml", offersText)
	m.file("kubeconfig", fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"a",
"clusters":[{"name":"a","cluster":{"server":%q}}],"users":[{"name":"a","user":{}}],
"contexts":[{"name":"a","context":{"cluster":"a","user":"a"}}]}`, m.api.server.URL))
	return m
}

func (m *machine) path(name string) string { return filepath.Join(m.folder, name) }

func (m *machine) file(name, text string) {
	m.t.Helper()
	if err := os.WriteFile(m.path(name), []byte(text), 0o644); err != nil {
		m.t.Fatal(err)
	}
}

// names are the files below the folder, without those of another driver.
func (m *machine) names(folder string) []string {
	entries, _ := os.ReadDir(m.path(folder))
	var names []string
	for _, entry := range entries {
		if entry.Name() != "isolane.dev-rdma.json" {
			names = append(names, entry.Name())
		}
	}
	return names
}

// left is everything that prepared claims have on the machine.
func (m *machine) left() []string { return append(m.names("cdi"), m.names("control/assignments")...) }

// mustHave checks how many files prepared claims have on the machine.
func (m *machine) mustHave(t *testing.T, count int) {
	t.Helper()
	if left := m.left(); len(left) != count {
		t.Errorf("left: %v", left)
	}
}

// kubelet starts the driver as a process and speaks with it as a kubelet does.
type kubelet struct {
	drapb.DRAPluginClient
	t       *testing.T
	process *exec.Cmd
	said    *bytes.Buffer
	info    *registerapi.PluginInfo
}

// launch starts the driver and does not wait for it.
func (m *machine) launch() *kubelet {
	m.t.Helper()
	k := &kubelet{t: m.t, said: &bytes.Buffer{}}
	k.process = exec.Command(os.Args[0], "--offers", m.path("dra.yaml"), "--cdi-folder", m.path("cdi"),
		"--assignments", m.path("control/assignments"), "--plugins", m.path("plugins"), "--registry", m.path("registry"),
		"--kubeconfig", m.path("kubeconfig"), "--latency-namespace", "prod", "--interval", "1h")
	k.process.Env = append(os.Environ(), "ISOLANE_DRA_DRIVER=1", "NODE_NAME="+node)
	k.process.Stderr = k.said
	if err := k.process.Start(); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(k.kill)
	return k
}

func (m *machine) start() *kubelet {
	m.t.Helper()
	k := m.launch()
	ctx, cancel := context.WithTimeout(m.t.Context(), patience)
	defer cancel()
	registration := registerapi.NewRegistrationClient(dial(m.t, m.path("registry/isolane.dev-reg.sock")))
	info, err := registration.GetInfo(ctx, &registerapi.InfoRequest{}, grpc.WaitForReady(true))
	if err != nil {
		m.t.Fatalf("%v: %s", err, k.said)
	}
	if _, err := registration.NotifyRegistrationStatus(ctx, &registerapi.RegistrationStatus{PluginRegistered: true}); err != nil {
		m.t.Fatal(err)
	}
	k.info = info
	k.DRAPluginClient = drapb.NewDRAPluginClient(dial(m.t, info.Endpoint))
	return k
}

// kill is SIGKILL.
func (k *kubelet) kill() {
	_ = k.process.Process.Kill()
	_ = k.process.Wait()
}

func dial(t *testing.T, socket string) *grpc.ClientConn {
	t.Helper()
	// The driver may not listen yet. gRPC's own first delay is a second.
	retry := grpc.WithConnectParams(grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: 5 * time.Millisecond, Multiplier: 1, MaxDelay: 5 * time.Millisecond},
		MinConnectTimeout: patience,
	})
	connection, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()), retry)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	return connection
}

// prepare returns the answer for one claim; an error of the call as a whole counts as the claim's.
func (k *kubelet) prepare(claim *resourceapi.ResourceClaim) *drapb.NodePrepareResourceResponse {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(k.t.Context(), patience)
	defer cancel()
	wanted := &drapb.Claim{Namespace: claim.Namespace, Name: claim.Name, UID: string(claim.UID)}
	got, err := k.NodePrepareResources(ctx, &drapb.NodePrepareResourcesRequest{Claims: []*drapb.Claim{wanted}}, grpc.WaitForReady(true))
	if err != nil {
		return &drapb.NodePrepareResourceResponse{Error: err.Error()}
	}
	if len(got.Claims) != 1 || got.Claims[string(claim.UID)] == nil {
		k.t.Fatalf("the answer is for other claims: %v", got)
	}
	return got.Claims[string(claim.UID)]
}

func (k *kubelet) mustPrepare(claim *resourceapi.ResourceClaim) []*drapb.Device {
	k.t.Helper()
	got := k.prepare(claim)
	if got.Error != "" {
		k.t.Fatal(got.Error)
	}
	return got.Devices
}

// unprepare returns the error for the claim, and an empty text without one.
func (k *kubelet) unprepare(uid string) string {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(k.t.Context(), patience)
	defer cancel()
	claims := []*drapb.Claim{{Namespace: "prod", Name: "a", UID: uid}}
	got, err := k.NodeUnprepareResources(ctx, &drapb.NodeUnprepareResourcesRequest{Claims: claims})
	if err != nil {
		k.t.Fatal(err)
	}
	return got.Claims[uid].Error
}

func claimUID(number int) types.UID {
	return types.UID(fmt.Sprintf("0000c1a1-0000-4000-8000-%012d", number))
}
func podUID(number int) types.UID {
	return types.UID(fmt.Sprintf("00000b0d-0000-4000-8000-%012d", number))
}

// newClaim is a claim as the scheduler leaves it: devices are allocated, and it is reserved for a pod of the same number.
func newClaim(namespace string, number int, devices ...string) *resourceapi.ResourceClaim {
	claim := &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("claim-%d", number), UID: claimUID(number)},
		Status:     resourceapi.ResourceClaimStatus{Allocation: &resourceapi.AllocationResult{}},
	}
	for at, device := range devices {
		claim.Status.Allocation.Devices.Results = append(claim.Status.Allocation.Devices.Results, resourceapi.DeviceRequestAllocationResult{
			Request: fmt.Sprintf("share-%d", at), Driver: driverName, Pool: node, Device: device,
		})
	}
	reserve(claim, podUID(number))
	return claim
}

func reserve(claim *resourceapi.ResourceClaim, pod types.UID) {
	claim.Status.ReservedFor = append(claim.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: "pod", UID: pod})
}

// configure adds opaque parameters to the claim.
func configure(claim *resourceapi.ResourceClaim, text string, requests ...string) *resourceapi.ResourceClaim {
	one := resourceapi.DeviceAllocationConfiguration{Source: resourceapi.AllocationConfigSourceClaim, Requests: requests}
	one.Opaque = &resourceapi.OpaqueDeviceConfiguration{Driver: driverName}
	one.Opaque.Parameters.Raw = []byte(text)
	devices := &claim.Status.Allocation.Devices
	devices.Config = append(devices.Config, one)
	return claim
}

func hasAll(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q does not have %q", text, part)
		}
	}
}
