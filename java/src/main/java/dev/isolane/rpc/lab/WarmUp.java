package dev.isolane.rpc.lab;

import dev.isolane.rpc.Admission;
import dev.isolane.rpc.AdmittedChannel;
import dev.isolane.rpc.Config;
import dev.isolane.rpc.Keys;
import dev.isolane.rpc.ServiceClass;
import io.grpc.CallOptions;
import io.grpc.stub.ClientCalls;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.time.Duration;

/**
 * Calls from this process to itself before the first run.
 *
 * <p>Problem: a virtual machine interprets its first calls, which take many times as long as later ones, and a service that
 * runs for days has none of them. Method: the calls of the lab, over the loopback interface of the program's namespace, so
 * that the port sees none of them.
 */
final class WarmUp {
    private static final int CALLS = 3000;
    private static final int CALL_BYTES = 32_768;
    /** Well below the time that the controller waits for a program. */
    private static final long LIMIT_NS = 15_000_000_000L;

    private WarmUp() {}

    static void run() throws IOException {
        Admission admission = new Admission(Config.of(
                ServiceClass.of("class-0", 1, Duration.ofMillis(1)), ServiceClass.lowest("class-1", 2)));
        io.grpc.Server server = new Server().start(new InetSocketAddress("127.0.0.1", 0));
        AdmittedChannel channel = AdmittedChannel.forTarget(
                admission, "127.0.0.1:" + server.getPort(), builder -> builder.usePlaintext().directExecutor());
        byte[] payload = new byte[CALL_BYTES];
        long begin = System.nanoTime();
        for (int i = 0; i < CALLS && System.nanoTime() - begin < LIMIT_NS; i++) {
            CallOptions options =
                    CallOptions.DEFAULT.withOption(Keys.CLASS_NUMBER, i % 2).withOption(Keys.OUTCOME, outcome -> {});
            ClientCalls.blockingUnaryCall(channel, Methods.WRITE, options, payload);
        }
        channel.shutdownNow();
        server.shutdownNow();
    }
}
