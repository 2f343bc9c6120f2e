package isolaneenvoy

import (
	"os"
	"strings"
	"testing"

	bootstrap "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/http/early_header_mutation/header_mutation/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"sigs.k8s.io/yaml"
)

// Goal: the example is a configuration of Envoy. Method: decode it into Envoy's published types, which check their values.
func TestTheExampleIsAConfigurationOfEnvoy(t *testing.T) {
	text, err := os.ReadFile("../../examples/envoy/envoy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	json, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		t.Fatal(err)
	}
	read := &bootstrap.Bootstrap{}
	if err := protojson.Unmarshal(json, read); err != nil {
		t.Fatal(err)
	}
	if err := read.ValidateAll(); err != nil {
		t.Fatal(err)
	}
	// Calls pass without a decision when the service is down: a client must not choose the cluster then.
	for _, key := range []string{"isolane-class", "isolane-downgraded"} {
		if !strings.Contains(string(json), `{"remove":"`+key+`"}`) {
			t.Errorf("%s of a client stays", key)
		}
	}
	dscp := map[string]int64{"storage-critical": 46, "storage-normal": 26, "storage-scavenger": 8}
	for _, one := range read.StaticResources.Clusters {
		if want, ok := dscp[one.Name]; ok {
			checkMark(t, one, want)
			delete(dscp, one.Name)
		}
	}
	if len(dscp) > 0 {
		t.Fatalf("classes without a cluster: %v", dscp)
	}
}

func checkMark(t *testing.T, one *cluster.Cluster, dscp int64) {
	t.Helper()
	options := one.UpstreamBindConfig.SocketOptions
	const ipprotoIP, ipTOS = 0, 1
	if len(options) != 1 || options[0].Level != ipprotoIP || options[0].Name != ipTOS || options[0].GetIntValue() != dscp<<2 {
		t.Errorf("%s: %v; want DSCP %d", one.Name, options, dscp)
	}
}
