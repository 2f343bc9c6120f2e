package dev.isolane.rpc;

import io.grpc.CallOptions;
import io.grpc.ClientStreamTracer;
import io.grpc.ConnectivityState;
import io.grpc.LoadBalancer;
import io.grpc.LoadBalancerProvider;
import io.grpc.LoadBalancerRegistry;
import io.grpc.NameResolver.ConfigOrError;
import io.grpc.Status;
import io.grpc.util.ForwardingLoadBalancerHelper;
import io.grpc.util.GracefulSwitchLoadBalancer;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * The load balancing policy that admits calls at the backend.
 *
 * <p>Problem: a name may have many backends, each behind its own port, and only the load balancer knows the backend of a
 * call. Method: the policy wraps another one, its child. The child chooses a connection, and the policy decides on the call
 * with the address of that connection as the destination. A call that is not admitted leaves the pick as a drop, which
 * {@link AdmittedCall} catches; it then starts the call in the lowest class, whose connections have their own balancer.
 * Limits: with a service config that names another policy, the target is the destination of all calls.
 */
final class Gate extends LoadBalancer {
    static final String POLICY = "isolane_admission";

    /** Ends a pick when the call must run in the lowest class. Applications never see it. */
    private static final PickResult DOWNGRADED =
            PickResult.withDrop(Status.UNAVAILABLE.withDescription("isolane: the call runs in the lowest class"));

    private final GracefulSwitchLoadBalancer child;

    private Gate(Helper helper) {
        child = new GracefulSwitchLoadBalancer(new Watching(helper));
    }

    /** Makes the policy known to this process. */
    static void register() {
        // The registry is a set: to register the same provider again has no effect.
        LoadBalancerRegistry.getDefaultRegistry().register(Provider.ONE);
    }

    /** A service config with its load balancing policy wrapped in this one. */
    static Map<String, Object> gated(Map<String, ?> config) {
        Map<String, Object> keys = new HashMap<>(config);
        Object inner = keys.get("loadBalancingConfig");
        Map<String, Object> own = inner == null ? Map.of() : Map.of("childPolicy", inner);
        keys.put("loadBalancingConfig", List.of(Map.of(POLICY, own)));
        return keys;
    }

    @Override
    public Status acceptResolvedAddresses(ResolvedAddresses addresses) {
        Object config = addresses.getLoadBalancingPolicyConfig();
        return child.acceptResolvedAddresses(addresses.toBuilder()
                .setLoadBalancingPolicyConfig(config == null ? Provider.firstOf(Map.of()).getConfig() : config)
                .build());
    }

    @Override
    public void handleNameResolutionError(Status error) {
        child.handleNameResolutionError(error);
    }

    @Override
    public void requestConnection() {
        child.requestConnection();
    }

    @Override
    public void shutdown() {
        child.shutdown();
    }

    private static final class Provider extends LoadBalancerProvider {
        private static final Provider ONE = new Provider();

        @Override
        public LoadBalancer newLoadBalancer(Helper helper) {
            return new Gate(helper);
        }

        @Override
        public boolean isAvailable() {
            return true;
        }

        @Override
        public int getPriority() {
            return 5;
        }

        @Override
        public String getPolicyName() {
            return POLICY;
        }

        @Override
        public ConfigOrError parseLoadBalancingPolicyConfig(Map<String, ?> text) {
            return firstOf(text);
        }

        /** The first child policy that this program has; pick_first if none is named. */
        @SuppressWarnings("unchecked")
        private static ConfigOrError firstOf(Map<String, ?> text) {
            Object named = text.containsKey("childPolicy") ? text.get("childPolicy") : List.of(Map.of("pick_first", Map.of()));
            if (!(named instanceof List<?> list) || !list.stream().allMatch(Map.class::isInstance)) {
                return ConfigOrError.fromError(
                        Status.UNAVAILABLE.withDescription(POLICY + ": childPolicy is not a list of policies"));
            }
            return GracefulSwitchLoadBalancer.parseLoadBalancingPolicyConfig((List<Map<String, ?>>) named);
        }
    }

    /** The child's view of its channel: it notes the addresses of subchannels, and wraps pickers. */
    private static final class Watching extends ForwardingLoadBalancerHelper {
        private final Helper channel;

        private Watching(Helper channel) {
            this.channel = channel;
        }

        @Override
        protected Helper delegate() {
            return channel;
        }

        @Override
        public Subchannel createSubchannel(CreateSubchannelArgs args) {
            var attributes = args.getAttributes().toBuilder().set(Backend.KEY, new Backend(args.getAddresses()));
            return channel.createSubchannel(args.toBuilder().setAttributes(attributes.build()).build());
        }

        @Override
        public void updateBalancingState(ConnectivityState state, SubchannelPicker picker) {
            channel.updateBalancingState(state, new Picker(picker));
        }
    }

    private static final class Picker extends SubchannelPicker {
        private final SubchannelPicker child;

        private Picker(SubchannelPicker child) {
            this.child = child;
        }

        @Override
        public PickResult pickSubchannel(PickSubchannelArgs args) {
            PickResult result = child.pickSubchannel(args);
            Subchannel chosen = result.getSubchannel();
            Backend backend = chosen == null ? null : chosen.getAttributes().get(Backend.KEY);
            Issued call = backend == null ? null : issued(args.getCallOptions());
            return call == null || call.admit(backend) ? result : DOWNGRADED;
        }

        @Override
        public int hashCode() {
            return child.hashCode();
        }

        /** gRPC keeps the old picker if the new one is equal. */
        @Override
        public boolean equals(Object other) {
            return other instanceof Picker picker && child.equals(picker.child);
        }
    }

    /** The admitted call with these options; null for another call. */
    private static Issued issued(CallOptions options) {
        List<ClientStreamTracer.Factory> factories = options.getStreamTracerFactories();
        for (int i = 0; i < factories.size(); i++) {
            if (factories.get(i) instanceof Issued call) {
                return call;
            }
        }
        return null;
    }
}
