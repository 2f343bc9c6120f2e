// Command isolane-dra is the driver of Isolane for dynamic resource allocation (resource.k8s.io/v1, Kubernetes 1.34). It publishes
// shares of the machine's RDMA NICs as devices, and gives the pods of a claim the class and the weight of the claim's device.
//
// The scheduler chooses the devices of a claim. The kubelet then calls this driver, which writes a CDI specification for the claim
// and one assignment for each pod that the claim is reserved for. isolaned reads the assignments. The library kubeletplugin of
// Kubernetes has the sockets, the protocol and the publication.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"sigs.k8s.io/yaml"
)

// settings are the options of the command line.
type settings struct {
	node              string
	offers            string
	latencyNamespaces words
	cdi               string
	assignments       string
	plugins           string
	registry          string
	kubeconfig        string
	interval          time.Duration
	print             bool
}

// words is an option that may be repeated.
type words []string

func (w *words) String() string         { return strings.Join(*w, ",") }
func (w *words) Set(value string) error { *w = append(*w, value); return nil }

func parse(arguments []string) (settings, error) {
	var s settings
	flags := flag.NewFlagSet("isolane-dra", flag.ContinueOnError)
	flags.StringVar(&s.node, "node-name", os.Getenv("NODE_NAME"), "name of this machine in the cluster (NODE_NAME)")
	flags.StringVar(&s.offers, "offers", "/etc/isolane/dra.yaml", "file with the shares that this machine offers")
	flags.Var(&s.latencyNamespaces, "latency-namespace", "a namespace whose claims may have the latency class; repeat it, or * for all")
	flags.StringVar(&s.cdi, "cdi-folder", "/var/run/cdi", "folder for CDI specifications, which isolane rdma cdi has written into")
	flags.StringVar(&s.assignments, "assignments", "/run/isolane/control/assignments", "folder that isolaned reads")
	flags.StringVar(&s.plugins, "plugins", kubeletplugin.KubeletPluginsDir, "the kubelet's folder of plugins")
	flags.StringVar(&s.registry, "registry", kubeletplugin.KubeletRegistryDir, "the kubelet's folder of registration sockets")
	flags.StringVar(&s.kubeconfig, "kubeconfig", "", "file that names the API server; the pod's account unless given")
	flags.DurationVar(&s.interval, "interval", time.Minute, "time between two comparisons of prepared claims with the API server")
	flags.BoolVar(&s.print, "print", false, "print the devices that the offers make, as YAML, and end")
	flags.SetOutput(io.Discard)
	err := flags.Parse(arguments)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Println("isolane-dra publishes shares of this machine's RDMA NICs in Kubernetes and prepares the claims of pods.\n\nOptions:")
		flags.SetOutput(os.Stdout)
		flags.PrintDefaults()
	}
	if err != nil {
		return s, err
	}
	if flags.NArg() > 0 {
		return s, fmt.Errorf("%s: isolane-dra has options only; see isolane-dra --help", flags.Arg(0))
	}
	if s.interval <= 0 {
		return s, fmt.Errorf("--interval %s: must be more than zero", s.interval)
	}
	if s.node == "" && !s.print {
		return s, errors.New("--node-name is empty: give the machine's name, or set NODE_NAME")
	}
	return s, nil
}

func main() {
	s, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fail(2, err)
	}
	offers, err := readOffers(s.offers)
	if err != nil {
		fail(2, err)
	}
	if s.print {
		text, err := yaml.Marshal(offers.devices)
		if err != nil {
			fail(3, err)
		}
		os.Stdout.Write(text)
		return
	}
	client, err := connect(s.kubeconfig)
	if err != nil {
		fail(3, err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, s, offers, client); err != nil {
		stop()
		fail(3, err)
	}
}

func fail(status int, err error) {
	fmt.Fprintf(os.Stderr, "isolane-dra: %s\n", strings.ReplaceAll(err.Error(), "\n", " "))
	os.Exit(status)
}

func connect(kubeconfig string) (kubernetes.Interface, error) {
	config, err := rest.InClusterConfig()
	if kubeconfig != "" {
		config, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
	}
	if err != nil {
		return nil, fmt.Errorf("no API server: run in a pod with an account, or give --kubeconfig: %w", err)
	}
	// A comparison asks for each prepared claim: a machine has at most a few hundred.
	config.QPS, config.Burst = 50, 100
	return kubernetes.NewForConfig(config)
}

// serve runs the driver until the context ends or an error is fatal.
func serve(ctx context.Context, s settings, offers *offers, client kubernetes.Interface) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	store := newStore(s.cdi, s.assignments)
	driver := &driver{
		node:              s.node,
		offers:            offers,
		latencyNamespaces: s.latencyNamespaces,
		store:             store,
		claims:            client.ResourceV1(),
		fatal:             cancel,
	}
	data := filepath.Join(s.plugins, driverName)
	if err := os.MkdirAll(data, 0o750); err != nil {
		return err
	}
	// Before the kubelet's first call: a claim that ended while no driver ran must not keep a pod from starting.
	driver.reconcile(ctx)
	helper, err := kubeletplugin.Start(ctx, driver,
		kubeletplugin.DriverName(driverName),
		kubeletplugin.NodeName(s.node),
		kubeletplugin.KubeClient(client),
		kubeletplugin.NodeV1beta1(false),
		kubeletplugin.PluginDataDirectoryPath(data),
		kubeletplugin.RegistrarDirectoryPath(s.registry))
	if err != nil {
		return err
	}
	defer helper.Stop()
	if err := helper.PublishResources(ctx, offers.resources(s.node)); err != nil {
		return err
	}
	ticker := time.NewTicker(s.interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
				return cause
			}
			return nil
		case <-ticker.C:
			driver.reconcile(ctx)
		}
	}
}
