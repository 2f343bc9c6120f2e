package isolane

import (
	"fmt"
	"strings"
	"syscall"
)

// mark sets the code point of a socket before it connects, so that the first packet already carries it.
func mark(fd int, network string, dscp int) error {
	field := dscp << 2
	four := syscall.SetsockoptInt(fd, syscall.IPPROTO_IP, syscall.IP_TOS, field)
	if !strings.HasSuffix(network, "6") {
		return wrap(four, dscp)
	}
	return wrap(syscall.SetsockoptInt(fd, syscall.IPPROTO_IPV6, syscall.IPV6_TCLASS, field), dscp)
}

func wrap(err error, dscp int) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("isolane: cannot mark a socket with DSCP %d: %w", dscp, err)
}
