package main

import "fmt"

// raw sends payloads as they are, without protocol buffers.
type raw struct{}

func (raw) Marshal(v any) ([]byte, error) {
	payload, ok := v.(*[]byte)
	if !ok {
		return nil, fmt.Errorf("a payload is *[]byte, not %T", v)
	}
	return *payload, nil
}

func (raw) Unmarshal(data []byte, v any) error {
	payload, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("a payload is *[]byte, not %T", v)
	}
	*payload = append([]byte(nil), data...)
	return nil
}

func (raw) Name() string { return "isolane-raw" }
