package dev.isolane.rpc;

import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientCall;
import io.grpc.ClientInterceptor;
import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelBuilder;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import io.grpc.netty.shaded.io.netty.channel.ChannelOption;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.function.IntFunction;

/**
 * One channel per class to one target, each with its code point on every packet; use it wherever a channel goes.
 *
 * <pre>{@code
 * Admission admission = new Admission(Config.read(Path.of("/etc/isolane/rpc.toml")));
 * AdmittedChannel channel = AdmittedChannel.forTarget(admission, "storage:443", builder -> {});
 * var stub = StorageGrpc.newBlockingStub(channel).withOption(Keys.CLASS, "critical");
 * }</pre>
 */
public final class AdmittedChannel extends Channel {
    private final Admission admission;
    private final String target;
    private final List<ManagedChannel> channels;
    /** Whether the last sent call passed a {@link Gate}; null before the first one. */
    private volatile Boolean gated;

    private AdmittedChannel(Admission admission, String target, List<ManagedChannel> channels) {
        this.admission = admission;
        this.target = target;
        this.channels = channels;
    }

    /**
     * Makes the channels with grpc-netty-shaded. {@code options} configures each, for example with {@code usePlaintext} or
     * {@link #serviceConfig}; a load balancing policy that it sets directly makes the target the destination.
     */
    public static AdmittedChannel forTarget(
            Admission admission, String target, Consumer<ManagedChannelBuilder<?>> options) {
        return of(admission, target, dscp -> {
            ManagedChannelBuilder<?> builder =
                    NettyChannelBuilder.forTarget(target).withOption(ChannelOption.IP_TOS, dscp << 2);
            Gate.register();
            builder.defaultLoadBalancingPolicy(Gate.POLICY);
            options.accept(builder);
            return builder.build();
        });
    }

    /**
     * Makes the channels with another transport: {@code channels} returns a channel to {@code target} whose sockets have a
     * DSCP. For admission at the backend, and not at the target, set {@link #policy} as the load balancing policy.
     */
    public static AdmittedChannel of(Admission admission, String target, IntFunction<ManagedChannel> channels) {
        Gate.register();
        List<ManagedChannel> made = new ArrayList<>();
        try {
            for (ServiceClass one : admission.config().classes()) {
                made.add(channels.apply(one.dscp()));
            }
        } catch (RuntimeException error) {
            made.forEach(ManagedChannel::shutdownNow);
            throw error;
        }
        return new AdmittedChannel(admission, target, List.copyOf(made));
    }

    /** Name of the load balancing policy that admits calls at the backend which its child policy chooses. */
    public static String policy() {
        return Gate.POLICY;
    }

    /**
     * A service config whose load balancing policy admits calls at the backend: pass the result, not the config, to {@code
     * defaultServiceConfig}.
     */
    public static Map<String, Object> serviceConfig(Map<String, ?> config) {
        return Gate.gated(config);
    }

    /** Runs the calls of a plain channel over these channels, for programs that cannot replace their channel. */
    public ClientInterceptor interceptor() {
        return new ClientInterceptor() {
            @Override
            public <Q, R> ClientCall<Q, R> interceptCall(
                    MethodDescriptor<Q, R> method, CallOptions options, Channel plain) {
                return newCall(method, options);
            }
        };
    }

    @Override
    public <Q, R> ClientCall<Q, R> newCall(MethodDescriptor<Q, R> method, CallOptions options) {
        return new AdmittedCall<>(this, method, options);
    }

    @Override
    public String authority() {
        return channels.get(0).authority();
    }

    /** The channel of one class, for callers with their own decisions. */
    public ManagedChannel of(int index) {
        return channels.get(index);
    }

    /** Connects all classes now, instead of at their first calls. */
    public void connect() {
        channels.forEach(channel -> channel.getState(true));
    }

    /** Ends all channels; calls that run may end. */
    public void shutdown() {
        channels.forEach(ManagedChannel::shutdown);
    }

    /** Ends all channels and calls. */
    public void shutdownNow() {
        channels.forEach(ManagedChannel::shutdownNow);
    }

    /** Waits for the end of all channels, each at most this long. */
    public boolean awaitTermination(long time, TimeUnit unit) throws InterruptedException {
        boolean all = true;
        for (ManagedChannel channel : channels) {
            all &= channel.awaitTermination(time, unit);
        }
        return all;
    }

    Issued issue(CallOptions options, long bytes, boolean unary) {
        Issued issued = new Issued(admission, asked(options), bytes, unary, options.getDeadline());
        if (Boolean.FALSE.equals(gated)) {
            issued.decide(target);
        }
        return issued;
    }

    private int asked(CallOptions options) {
        int lowest = channels.size() - 1;
        String name = options.getOption(Keys.CLASS);
        Integer number = options.getOption(Keys.CLASS_NUMBER);
        int asked = name != null ? admission.classNumber(name) : number != null ? number : lowest;
        return asked < 0 || asked > lowest ? lowest : asked;
    }

    /** Sets what servers read, in place of what the application may have forwarded. */
    void mark(Metadata headers, int asked, int ran) {
        headers.discardAll(Keys.REQUESTED_CLASS);
        headers.discardAll(Keys.RAN_CLASS);
        headers.discardAll(Keys.DOWNGRADED);
        List<ServiceClass> classes = admission.config().classes();
        headers.put(Keys.REQUESTED_CLASS, classes.get(asked).name());
        headers.put(Keys.RAN_CLASS, classes.get(ran).name());
        if (ran != asked) {
            headers.put(Keys.DOWNGRADED, Integer.toString(asked));
        }
    }

    /** Records whether calls pass a gate: the name's resolver may bring another service config. */
    void learnGate(Issued call) {
        Boolean now = call.gated();
        if (now != null && !now.equals(gated)) {
            gated = now;
        }
    }
}
