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
	"sigs.k8s.io/yaml"
	"tags.cncf.io/container-device-interface/pkg/cdi"
)

const chart = "../isolane"

// render returns the rendered objects by kind, as YAML.
func render(t *testing.T, values map[string]any) (map[string]string, error) {
	t.Helper()
	loaded, err := loader.Load(chart)
	if err != nil {
		t.Fatal(err)
	}
	options := chartutil.ReleaseOptions{Name: "isolane", Namespace: "isolane-system", Revision: 1, IsInstall: true}
	rendered, err := chartutil.ToRenderValues(loaded, values, options, chartutil.DefaultCapabilities)
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
			var kind struct {
				Kind string `json:"kind"`
			}
			if err := yaml.Unmarshal([]byte(document), &kind); err != nil {
				t.Fatalf("%s: %v\n%s", name, err, document)
			}
			if kind.Kind != "" {
				objects[kind.Kind] = document
			}
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
	}
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
				want = 6
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
	pod := strict[appsv1.DaemonSet](t, mustRender(t, everything())["DaemonSet"]).Spec.Template.Spec
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
			t.Errorf("nothing mounts %s", name)
		}
	}
}

func TestTheSchemaRejectsWrongValues(t *testing.T) {
	for name, values := range map[string]map[string]any{
		"a key that does not exist":    {"pod": map[string]any{}},
		"no device":                    {"config": "[metrics]\n"},
		"a weight of zero":             {"pods": map[string]any{"weightMax": 0}},
		"a namespace that cannot be":   {"pods": map[string]any{"latencyNamespaces": []any{"A B"}}},
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
