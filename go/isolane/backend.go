package isolane

import (
	"encoding/json"
	"fmt"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/pickfirst"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"
	"google.golang.org/grpc/status"
)

// BackendPolicy is the name of the load balancing policy that admits calls at the backend.
//
// Problem: a name may have many backends, each behind its own port, and only the load balancer knows the backend of a
// call. Method: the policy wraps another one, its child. The child chooses a connection, and the policy decides on the
// call with the address of that connection as the destination. A call that is not admitted leaves the pick with an
// error that the Conn catches; the Conn then sends the call in the lowest class, whose connections have their own
// balancer. Limits: with a service config without this policy, the target is the destination of all calls ([Balanced]
// adds the policy).
const BackendPolicy = "isolane_admission"

// errDowngraded ends a pick when the call must run in the lowest class. Callers of a Conn never see it.
var errDowngraded = status.Error(codes.Unavailable, "isolane: the call runs in the lowest class")

func init() { balancer.Register(gateBuilder{}) }

// Balanced is the DialOption that uses a service config (JSON, "" for none) and admits calls at the backend that its
// load balancing policy chooses. Dial uses Balanced("") by default. Pass your own service config to Balanced, not to
// grpc.WithDefaultServiceConfig.
func Balanced(config string) (grpc.DialOption, error) {
	text, err := gated(config)
	if err != nil {
		return nil, err
	}
	return grpc.WithDefaultServiceConfig(text), nil
}

// gated returns a service config with its load balancing policy wrapped in ours.
func gated(config string) (string, error) {
	keys := map[string]json.RawMessage{}
	if config != "" {
		if err := json.Unmarshal([]byte(config), &keys); err != nil {
			return "", fmt.Errorf("isolane: the service config is not a JSON object: %w", err)
		}
	}
	child := keys["loadBalancingConfig"]
	if child == nil {
		child = json.RawMessage(`[{"` + pickfirst.Name + `":{}}]`)
	}
	policy, err := json.Marshal([]map[string]gateJSON{{BackendPolicy: {Child: child}}})
	if err != nil {
		return "", fmt.Errorf("isolane: loadBalancingConfig of the service config: %w", err)
	}
	keys["loadBalancingConfig"] = policy
	text, err := json.Marshal(keys)
	return string(text), err
}

type gateJSON struct {
	Child json.RawMessage `json:"childPolicy"`
}

// gateConfig is the policy's configuration: the child and its own configuration.
type gateConfig struct {
	serviceconfig.LoadBalancingConfig
	child  balancer.Builder
	config serviceconfig.LoadBalancingConfig
}

type gateBuilder struct{}

func (gateBuilder) Name() string { return BackendPolicy }

// ParseConfig uses the first child policy that this program has.
func (gateBuilder) ParseConfig(text json.RawMessage) (serviceconfig.LoadBalancingConfig, error) {
	var read gateJSON
	var policies []map[string]json.RawMessage
	if err := json.Unmarshal(text, &read); err != nil {
		return nil, fmt.Errorf("%s: %w", BackendPolicy, err)
	}
	if err := json.Unmarshal(read.Child, &policies); err != nil {
		return nil, fmt.Errorf("%s: childPolicy: %w", BackendPolicy, err)
	}
	for _, policy := range policies {
		for name, text := range policy {
			builder := balancer.Get(name)
			if builder == nil {
				continue
			}
			config := &gateConfig{child: builder}
			if parser, ok := builder.(balancer.ConfigParser); ok {
				var err error
				if config.config, err = parser.ParseConfig(text); err != nil {
					return nil, fmt.Errorf("%s: childPolicy %s: %w", BackendPolicy, name, err)
				}
			}
			return config, nil
		}
	}
	return nil, fmt.Errorf("%s: childPolicy is %s, and this program has none of these; import one", BackendPolicy, read.Child)
}

func (gateBuilder) Build(client balancer.ClientConn, options balancer.BuildOptions) balancer.Balancer {
	return &gate{client: gateClient{ClientConn: client, addresses: new(sync.Map)}, options: options}
}

// gate is the policy in one grpc.ClientConn. gRPC calls it from one goroutine at a time.
type gate struct {
	client  gateClient
	options balancer.BuildOptions
	name    string
	child   balancer.Balancer
}

func (g *gate) UpdateClientConnState(state balancer.ClientConnState) error {
	config, ok := state.BalancerConfig.(*gateConfig)
	if !ok {
		return fmt.Errorf("%s: the configuration is %T", BackendPolicy, state.BalancerConfig)
	}
	if g.child == nil || g.name != config.child.Name() {
		if g.child != nil {
			g.child.Close()
		}
		g.name, g.child = config.child.Name(), config.child.Build(g.client, g.options)
	}
	state.BalancerConfig = config.config
	return g.child.UpdateClientConnState(state)
}

func (g *gate) ResolverError(err error) {
	if g.child != nil {
		g.child.ResolverError(err)
		return
	}
	g.client.ClientConn.UpdateState(balancer.State{
		ConnectivityState: connectivity.TransientFailure,
		Picker:            failing{err},
	})
}

func (g *gate) UpdateSubConnState(connection balancer.SubConn, state balancer.SubConnState) {
	if g.child != nil {
		g.child.UpdateSubConnState(connection, state)
	}
}

func (g *gate) Close() {
	if g.child != nil {
		g.child.Close()
	}
}

func (g *gate) ExitIdle() {
	if g.child != nil {
		g.child.ExitIdle()
	}
}

// failing is the picker for a name that cannot be resolved.
type failing struct{ err error }

func (f failing) Pick(balancer.PickInfo) (balancer.PickResult, error) {
	return balancer.PickResult{}, f.err
}

// gateClient is the child's view of its grpc.ClientConn: it records the addresses of connections and wraps pickers.
type gateClient struct {
	balancer.ClientConn
	addresses *sync.Map // balancer.SubConn to its address
}

func (g gateClient) NewSubConn(addresses []resolver.Address, options balancer.NewSubConnOptions) (balancer.SubConn, error) {
	var made balancer.SubConn
	if listener := options.StateListener; listener != nil {
		options.StateListener = func(state balancer.SubConnState) {
			if state.ConnectivityState == connectivity.Shutdown {
				g.addresses.Delete(made)
			}
			listener(state)
		}
	}
	made, err := g.ClientConn.NewSubConn(addresses, options)
	if err == nil && len(addresses) > 0 {
		g.addresses.Store(made, addresses[0].Addr)
	}
	return made, err
}

func (g gateClient) UpdateState(state balancer.State) {
	if state.Picker != nil {
		state.Picker = gatePicker{state.Picker, g.addresses}
	}
	g.ClientConn.UpdateState(state)
}

type gatePicker struct {
	child     balancer.Picker
	addresses *sync.Map
}

// Pick lets the child choose, and decides on a call without a decision.
func (g gatePicker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	result, err := g.child.Pick(info)
	tried, ok := info.Ctx.Value(attemptKey{}).(*attempt)
	if err != nil || !ok {
		return result, err
	}
	address, ok := g.addresses.Load(result.SubConn)
	if !ok || tried.admit(address.(string)) {
		return result, nil
	}
	if result.Done != nil {
		result.Done(balancer.DoneInfo{Err: errDowngraded})
	}
	return balancer.PickResult{}, errDowngraded
}
