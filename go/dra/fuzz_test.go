package main

import (
	"slices"
	"testing"
)

// A claim's parameters are those of its author. What is accepted is within the bounds of a share.
func FuzzParameters(f *testing.F) {
	f.Add([]byte(`{"apiVersion":"` + parametersVersion + `","kind":"` + parametersKind + `","class":"latency","weight":2}`))
	f.Add([]byte("apiVersion: " + parametersVersion + "\nkind: " + parametersKind + "\nweight: 1\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		wanted, err := parseParameters(raw)
		if err != nil {
			return
		}
		if wanted.Class != "" && !slices.Contains(classes, wanted.Class) || wanted.Weight != nil && (*wanted.Weight < 1 || *wanted.Weight > weightMax) {
			t.Errorf("%q is accepted: %+v", raw, wanted)
		}
	})
}

// The operator's file of offers: what is accepted has at least one device.
func FuzzOffers(f *testing.F) {
	f.Add([]byte("othersWeight: 1\noffers:\n- rnic: mlx5_0\n  rate: 100G\n  class: bandwidth\n  weight: 2\n  count: 3\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		made, err := parseOffers("dra.yaml", text)
		if err == nil && (len(made.devices) == 0 || len(made.devices) > devicesMax) {
			t.Errorf("%q is accepted with %d devices", text, len(made.devices))
		}
	})
}
