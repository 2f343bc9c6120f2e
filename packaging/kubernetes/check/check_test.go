// Package check renders the Helm chart with Helm's own engine, and decodes every object strictly into the types of
// Kubernetes: a field that Kubernetes does not have, or a value of another type, is an error. The CDI specification is
// read and applied by the library of the Container Device Interface. No cluster runs.
package check

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"sigs.k8s.io/yaml"
	"tags.cncf.io/container-device-interface/pkg/cdi"
)

const chart = "../isolane"

// render returns the rendered objects as YAML, by kind. The key of an object of the DRA driver has " dra" after the kind.
func render(t *testing.T, values map[string]any) (map[string]string, error) {
	t.Helper()
	cluster := *chartutil.DefaultCapabilities
	cluster.KubeVersion = chartutil.KubeVersion{Version: "v1.34.0", Major: "1", Minor: "34"}
	return renderFor(t, &cluster, values)
}

func renderFor(t *testing.T, cluster *chartutil.Capabilities, values map[string]any) (map[string]string, error) {
	t.Helper()
	loaded, err := loader.Load(chart)
	if err != nil {
		t.Fatal(err)
	}
	options := chartutil.ReleaseOptions{Name: "isolane", Namespace: "isolane-system", Revision: 1, IsInstall: true}
	rendered, err := chartutil.ToRenderValues(loaded, values, options, cluster)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(loaded, rendered)
	if err != nil {
		return nil, err
	}
	objects := map[string]string{}
	for name, text := range files {
		if filepath.Ext(name) != ".yaml" {
			continue
		}
		for _, document := range strings.Split(text, "\n---\n") {
			var object struct {
				Kind string `json:"kind"`
			}
			if err := yaml.Unmarshal([]byte(document), &object); err != nil {
				t.Fatalf("%s: %v\n%s", name, err, document)
			}
			if object.Kind == "" {
				continue
			}
			key := object.Kind
			if filepath.Base(name) == "dra.yaml" {
				key += " dra"
			}
			if _, twice := objects[key]; twice {
				t.Fatalf("two objects %s", key)
			}
			objects[key] = document
		}
	}
	return objects, nil
}

func strict[T any](t *testing.T, text string) T {
	t.Helper()
	var value T
	if err := yaml.UnmarshalStrict([]byte(text), &value, yaml.DisallowUnknownFields); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return value
}

func everything() map[string]any {
	return map[string]any{
		"enforce":          map[string]any{"enabled": true, "config": "[[tenant]]\nname = \"guests\"\nothers = true\n"},
		"podMonitor":       map[string]any{"enabled": true},
		"pods":             map[string]any{"latencyNamespaces": []any{"prod", "*"}, "weightMax": 1048576},
		"nodeSelector":     map[string]any{"rdma": "true"},
		"imagePullSecrets": []any{map[string]any{"name": "registry"}},
		"dra":              map[string]any{"enabled": true, "othersWeight": 1048576, "offers": []any{share()}},
	}
}

func share() map[string]any {
	return map[string]any{"rnic": "mlx5_0", "rate": "92G", "class": "bandwidth", "weight": 4, "count": 8}
}

func mustRender(t *testing.T, values map[string]any) map[string]string {
	t.Helper()
	objects, err := render(t, values)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

func TestEveryObjectHasOnlyFieldsOfKubernetes(t *testing.T) {
	for name, values := range map[string]map[string]any{"default": {}, "everything": everything()} {
		t.Run(name, func(t *testing.T) {
			objects := mustRender(t, values)
			strict[appsv1.DaemonSet](t, objects["DaemonSet"])
			strict[corev1.ConfigMap](t, objects["ConfigMap"])
			strict[corev1.ServiceAccount](t, objects["ServiceAccount"])
			strict[rbacv1.ClusterRole](t, objects["ClusterRole"])
			strict[rbacv1.ClusterRoleBinding](t, objects["ClusterRoleBinding"])
			want := 5
			if name == "everything" {
				strict[appsv1.DaemonSet](t, objects["DaemonSet dra"])
				strict[corev1.ConfigMap](t, objects["ConfigMap dra"])
				strict[corev1.ServiceAccount](t, objects["ServiceAccount dra"])
				strict[rbacv1.ClusterRole](t, objects["ClusterRole dra"])
				strict[rbacv1.ClusterRoleBinding](t, objects["ClusterRoleBinding dra"])
				strict[resourcev1.DeviceClass](t, objects["DeviceClass dra"])
				want = 12
			}
			if len(objects) != want {
				t.Fatalf("%d kinds, not %d", len(objects), want)
			}
		})
	}
	var set appsv1.DaemonSet
	wrong := []byte("spec:\n  template:\n    spec:\n      hostProcess: true\n")
	if err := yaml.UnmarshalStrict(wrong, &set, yaml.DisallowUnknownFields); err == nil {
		t.Fatal("a field that does not exist passes")
	}
}

func TestOnlyWhatOpensDevicesIsPrivileged(t *testing.T) {
	set := strict[appsv1.DaemonSet](t, mustRender(t, everything())["DaemonSet"])
	pod := set.Spec.Template.Spec
	for _, container := range append(pod.InitContainers, pod.Containers...) {
		security := container.SecurityContext
		privileged := security.Privileged != nil && *security.Privileged
		if want := container.Name == "isolaned" || container.Name == "enforce"; privileged != want {
			t.Errorf("%s: privileged is %v", container.Name, privileged)
		}
		if !*security.ReadOnlyRootFilesystem {
			t.Errorf("%s may write its root", container.Name)
		}
		if !privileged && (security.Capabilities.Drop[0] != "ALL" || *security.AllowPrivilegeEscalation) {
			t.Errorf("%s has capabilities", container.Name)
		}
		account := slices.ContainsFunc(container.VolumeMounts, func(mount corev1.VolumeMount) bool { return mount.Name == "account" })
		if account != (container.Name == "pods") {
			t.Errorf("%s: mount of the account is %v", container.Name, account)
		}
	}
	if *pod.AutomountServiceAccountToken {
		t.Error("every container has the account's token")
	}
	role := strict[rbacv1.ClusterRole](t, mustRender(t, nil)["ClusterRole"])
	if len(role.Rules) != 1 || !slices.Equal(role.Rules[0].Verbs, []string{"list"}) || !slices.Equal(role.Rules[0].Resources, []string{"pods"}) {
		t.Errorf("the role may more than list pods: %v", role.Rules)
	}
}

func TestEachMountHasItsVolume(t *testing.T) {
	objects := mustRender(t, everything())
	for _, key := range []string{"DaemonSet", "DaemonSet dra"} {
		pod := strict[appsv1.DaemonSet](t, objects[key]).Spec.Template.Spec
		volumes := map[string]bool{}
		for _, volume := range pod.Volumes {
			volumes[volume.Name] = false
		}
		for _, container := range append(pod.InitContainers, pod.Containers...) {
			for _, mount := range container.VolumeMounts {
				if _, there := volumes[mount.Name]; !there {
					t.Errorf("%s mounts %s, which is no volume", container.Name, mount.Name)
				}
				volumes[mount.Name] = true
			}
		}
		for name, used := range volumes {
			if !used {
				t.Errorf("%s: nothing mounts %s", key, name)
			}
		}
	}
}

func TestTheDriverHasNoMoreRightsThanItNeeds(t *testing.T) {
	objects := mustRender(t, everything())
	set := strict[appsv1.DaemonSet](t, objects["DaemonSet dra"])
	security := set.Spec.Template.Spec.Containers[0].SecurityContext
	if security.Privileged != nil || !*security.ReadOnlyRootFilesystem || *security.AllowPrivilegeEscalation || security.Capabilities.Drop[0] != "ALL" {
		t.Errorf("the driver's rights: %v", security)
	}
	binding := strict[rbacv1.ClusterRoleBinding](t, objects["ClusterRoleBinding dra"])
	role := strict[rbacv1.ClusterRole](t, objects["ClusterRole dra"])
	account := set.Spec.Template.Spec.ServiceAccountName
	if binding.RoleRef.Name != role.Name || binding.Subjects[0].Name != account || strict[corev1.ServiceAccount](t, objects["ServiceAccount dra"]).Name != account {
		t.Error("the driver's account has not the driver's role")
	}
	rules := []rbacv1.PolicyRule{
		{APIGroups: []string{"resource.k8s.io"}, Resources: []string{"resourceclaims"}, Verbs: []string{"get"}},
		{APIGroups: []string{"resource.k8s.io"}, Resources: []string{"resourceslices"}, Verbs: []string{"get", "list", "watch", "create", "update", "patch", "delete"}},
		{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get"}},
	}
	if !reflect.DeepEqual(role.Rules, rules) {
		t.Errorf("the role: %v", role.Rules)
	}
	var folders []string
	for _, volume := range set.Spec.Template.Spec.Volumes {
		if volume.HostPath != nil {
			folders = append(folders, volume.HostPath.Path)
		}
	}
	if want := []string{"/run/isolane/control", "/var/run/cdi", "/var/lib/kubelet/plugins/isolane.dev", "/var/lib/kubelet/plugins_registry"}; !slices.Equal(folders, want) {
		t.Errorf("the driver's folders of the machine: %v", folders)
	}
	if selected := strict[appsv1.DaemonSet](t, objects["DaemonSet"]).Spec.Selector.MatchLabels; selected["app.kubernetes.io/name"] == set.Spec.Selector.MatchLabels["app.kubernetes.io/name"] {
		t.Error("both DaemonSets select the same pods")
	}
}

// The program of ISOLANE_DRA reads the options and the offers that the chart gives.
func TestTheDriverReadsTheOffersOfTheChart(t *testing.T) {
	program := os.Getenv("ISOLANE_DRA")
	if program == "" {
		t.Skip("ISOLANE_DRA does not name the program")
	}
	objects := mustRender(t, everything())
	offers := filepath.Join(t.TempDir(), "dra.yaml")
	config := strict[corev1.ConfigMap](t, objects["ConfigMap dra"])
	if err := os.WriteFile(offers, []byte(config.Data["dra.yaml"]), 0o644); err != nil {
		t.Fatal(err)
	}
	words := append(strict[appsv1.DaemonSet](t, objects["DaemonSet dra"]).Spec.Template.Spec.Containers[0].Args, "--print", "--offers="+offers)
	output, err := exec.Command(program, words...).CombinedOutput()
	if err != nil || bytes.Count(output, []byte("name: mlx5-0-bandwidth-4-")) != 8 {
		t.Errorf("%v: %s", err, output)
	}
}

func TestTheDriverNeedsAClusterThatHasItsInterface(t *testing.T) {
	old := *chartutil.DefaultCapabilities
	old.KubeVersion = chartutil.KubeVersion{Version: "v1.33.4", Major: "1", Minor: "33"}
	if _, err := renderFor(t, &old, everything()); err == nil || !strings.Contains(err.Error(), "needs 1.34") {
		t.Errorf("%v", err)
	}
	old.KubeVersion = chartutil.KubeVersion{Version: "v1.34.0-eks-1", Major: "1", Minor: "34"}
	if _, err := renderFor(t, &old, everything()); err != nil {
		t.Error(err)
	}
}

// A guarantee leaves room for othersWeight, so one label may not request more.
func TestALabelMayNotBreakAGuaranteeAlone(t *testing.T) {
	values := func(largest, others int) map[string]any {
		return map[string]any{
			"pods": map[string]any{"weightMax": largest},
			"dra":  map[string]any{"enabled": true, "othersWeight": others, "offers": []any{share()}},
		}
	}
	mustRender(t, values(16, 16))
	if _, err := render(t, values(17, 16)); err == nil || !strings.Contains(err.Error(), "dra.othersWeight 16: must be at least pods.weightMax (17)") {
		t.Errorf("%v", err)
	}
}

func TestTheSchemaRejectsWrongValues(t *testing.T) {
	for name, values := range map[string]map[string]any{
		"a key that does not exist":    {"pod": map[string]any{}},
		"no device":                    {"config": "[metrics]\n"},
		"a weight of zero":             {"pods": map[string]any{"weightMax": 0}},
		"a namespace that cannot be":   {"pods": map[string]any{"latencyNamespaces": []any{"A B"}}},
		"a driver without offers":      {"dra": map[string]any{"enabled": true}},
		"an offer without a weight":    {"dra": map[string]any{"enabled": true, "offers": []any{map[string]any{"rnic": "a", "rate": "1G", "class": "auto", "count": 1}}}},
		"enforcement without its file": {"enforce": map[string]any{"enabled": true}},
	} {
		if _, err := render(t, values); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

// isolane returns the program of ISOLANE; without it the test is skipped.
func isolane(t *testing.T) string {
	program := os.Getenv("ISOLANE")
	if program == "" {
		t.Skip("ISOLANE does not name the program")
	}
	return program
}

func TestTheCdiSpecificationEntersAContainer(t *testing.T) {
	folder := t.TempDir()
	library := filepath.Join(t.TempDir(), "shim.so")
	if err := os.WriteFile(library, []byte("library"), 0o644); err != nil {
		t.Fatal(err)
	}
	command := exec.Command(isolane(t), "rdma", "cdi", "--write", folder)
	command.Env = append(os.Environ(), "ISOLANE_SHIM="+library)
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	cache, err := cdi.NewCache(cdi.WithSpecDirs(folder))
	if err != nil {
		t.Fatal(err)
	}
	if errors := cache.GetErrors(); len(errors) > 0 {
		t.Fatal(errors)
	}
	container := &specs.Spec{}
	if _, err := cache.InjectDevices(container, "isolane.dev/rdma=paced"); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(container.Process.Env, "LD_PRELOAD=/opt/isolane/libisolane_shim.so") {
		t.Errorf("environment: %v", container.Process.Env)
	}
	text, _ := json.Marshal(container.Mounts)
	if len(container.Mounts) != 2 || !bytes.Contains(text, []byte(library)) || !bytes.Contains(text, []byte("/run/isolane/clients")) {
		t.Errorf("mounts: %s", text)
	}
	for _, mount := range container.Mounts {
		if !slices.Contains(mount.Options, "ro") {
			t.Errorf("%s is not read-only", mount.Destination)
		}
	}
}

func TestTheAnnotationOfTheGuideNamesTheDevice(t *testing.T) {
	annotations := map[string]string{"cdi.k8s.io/isolane": "isolane.dev/rdma=paced"}
	_, devices, err := cdi.ParseAnnotations(annotations)
	if err != nil || !slices.Equal(devices, []string{"isolane.dev/rdma=paced"}) {
		t.Fatal(devices, err)
	}
}
