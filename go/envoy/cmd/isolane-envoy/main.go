// Command isolane-envoy serves Envoy's external processing with the admission of a settings file.
package main

import (
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"google.golang.org/grpc"

	"isolane.dev/isolane/go/envoy"
	"isolane.dev/isolane/go/isolane"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:7490", "`address` and port, or unix:/path")
	settings := flag.String("settings", "/etc/isolane/rpc.toml", "settings `file` of all languages; SIGHUP reads it again")
	flag.Parse()
	if err := run(*listen, *settings); err != nil {
		fmt.Fprintln(os.Stderr, "isolane-envoy:", err)
		os.Exit(3)
	}
}

func run(listen, settings string) error {
	config, err := isolane.ReadConfig(settings)
	if err != nil {
		return err
	}
	admission, err := isolane.New(config)
	if err != nil {
		return err
	}
	network, address := "tcp", listen
	if path, ok := strings.CutPrefix(listen, "unix:"); ok {
		network, address = "unix", path
	}
	listener, err := net.Listen(network, address)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
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
	return server.Serve(listener)
}

func reload(admission *isolane.Admission, settings string) error {
	config, err := isolane.ReadConfig(settings)
	if err != nil {
		return err
	}
	return admission.Reconfigure(config)
}
