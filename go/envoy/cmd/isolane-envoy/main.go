// Command isolane-envoy serves Envoy's external processing with the admission of a settings file.
package main

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/net/netutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"isolane.dev/isolane/go/envoy"
	"isolane.dev/isolane/go/isolane"
)

// Limits for all processes that reach the socket. Envoy has a connection for each of its worker threads, and a stream for each request
// that it has not answered yet.
const (
	connections   = 256
	streams       = 10_000
	messageBytes  = 1 << 20
	headerBytes   = 1 << 20
	firstPatience = 5 * time.Second
	idle          = 5 * time.Minute
	probe         = 30 * time.Second
)

func main() {
	listen := flag.String("listen", "unix:/run/isolane/envoy.sock",
		"unix:/path, or `address` and port; who reaches it can change the admit probability")
	settings := flag.String("settings", "/etc/isolane/rpc.toml", "settings `file` of all languages; SIGHUP reads it again")
	flag.Parse()
	config, err := read(*settings)
	if err != nil {
		fmt.Fprintln(os.Stderr, "isolane-envoy:", err)
		os.Exit(2)
	}
	if err := run(*listen, *settings, config); err != nil {
		fmt.Fprintln(os.Stderr, "isolane-envoy:", err)
		os.Exit(3)
	}
}

// read reads settings that this program can keep.
func read(path string) (isolane.Config, error) {
	config, err := isolane.ReadConfig(path)
	if err == nil && (config.Quota != nil || len(config.Groups) > 0) {
		return config, fmt.Errorf("%s: isolane-envoy has no quotas; remove group and quota", path)
	}
	return config, err
}

// open listens. The socket of a process that has ended is replaced.
func open(listen string) (net.Listener, error) {
	path, isUnix := strings.CutPrefix(listen, "unix:")
	if !isUnix {
		return net.Listen("tcp", listen)
	}
	if conn, err := net.Dial("unix", path); err == nil {
		conn.Close()
		return nil, fmt.Errorf("another process serves on %s", path)
	} else if at, gone := os.Lstat(path); gone == nil && at.Mode()&os.ModeSocket != 0 && errors.Is(err, syscall.ECONNREFUSED) {
		// Linux refuses connections to ordinary files too: those stay.
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	// Envoy runs as another user of the same group. The kernel makes the socket with mode 0660: a later change by the path
	// would follow a link that another user put there. The umask belongs to the process, which makes no other file meanwhile.
	before := syscall.Umask(0o117)
	defer syscall.Umask(before)
	return net.Listen("unix", path)
}

func run(listen, settings string, config isolane.Config) error {
	admission, err := isolane.New(config)
	if err != nil {
		return err
	}
	listener, err := open(listen)
	if err != nil {
		return err
	}
	server := grpc.NewServer(
		grpc.ConnectionTimeout(firstPatience),
		grpc.MaxConcurrentStreams(streams),
		grpc.MaxRecvMsgSize(messageBytes),
		grpc.MaxHeaderListSize(headerBytes),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: idle, Time: probe, Timeout: probe}),
	)
	isolaneenvoy.New(admission).Register(server)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		for got := range signals {
			if got != syscall.SIGHUP {
				server.Stop()
				return
			}
			if err := reload(admission, settings); err != nil {
				fmt.Fprintln(os.Stderr, "isolane-envoy: the old settings stay:", err)
			}
		}
	}()
	fmt.Printf("isolane-envoy: serving on %s\n", listener.Addr())
	return server.Serve(netutil.LimitListener(listener, connections))
}

func reload(admission *isolane.Admission, settings string) error {
	config, err := read(settings)
	if err != nil {
		return err
	}
	return admission.Reconfigure(config)
}
