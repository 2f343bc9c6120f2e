package isolane

import (
	"bufio"
	"bytes"
	"encoding/json"
	"testing"
)

// Lines of a quota server. The fuzzer has no key, so the one line that it got with a seal is the only one that is proven.
func FuzzQuotaAnswer(f *testing.F) {
	key := bytes.Repeat([]byte{7}, 32)
	known := []byte(`{"leases":[{"serial":1,"rate_bytes_per_s":10,"term_ms":3000}]}`)
	f.Add(append(newSeals(key, "server", "a", "b").seal(known), '\n'))
	f.Add([]byte("\"done\"\n{\"leases\":[{\"serial\":1,\"rate_bytes_per_s\":10,\"term_ms\":3000}]}\n"))
	f.Add([]byte("{\"error\":\"full\"}\n"))
	f.Fuzz(func(t *testing.T, received []byte) {
		from := bufio.NewReader(bytes.NewReader(received))
		seals := newSeals(key, "client", "a", "b")
		for {
			line, err := readLine(from)
			if err != nil {
				return
			}
			var answer quotaAnswer
			_ = json.Unmarshal(line, &answer)
			if text, proven := seals.open(line); proven && !bytes.Equal(text, known) {
				t.Errorf("%q is proven", text)
			}
		}
	})
}

// A service config, as a name server sends it, with our policy around it.
func FuzzServiceConfig(f *testing.F) {
	f.Add(`{"loadBalancingConfig":[{"round_robin":{}}],"methodConfig":[]}`)
	f.Add("")
	f.Fuzz(func(t *testing.T, config string) {
		text, err := gated(config)
		if err != nil {
			return
		}
		var read struct {
			Policies []map[string]json.RawMessage `json:"loadBalancingConfig"`
		}
		if err := json.Unmarshal([]byte(text), &read); err != nil {
			t.Fatalf("%q becomes %q: %v", config, text, err)
		}
		_, _ = gateBuilder{}.ParseConfig(read.Policies[0][BackendPolicy])
	})
}
