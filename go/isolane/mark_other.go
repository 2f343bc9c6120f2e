//go:build !linux

package isolane

// mark does nothing: without Linux, calls are admitted and downgraded, but the network cannot distinguish classes.
func mark(int, string, int) error { return nil }
