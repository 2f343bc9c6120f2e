package dev.isolane.rpc;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientCall;
import io.grpc.ClientInterceptors;
import io.grpc.Context;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor.MethodType;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import io.grpc.netty.shaded.io.netty.channel.ChannelOption;
import io.grpc.netty.shaded.io.netty.channel.MultiThreadIoEventLoopGroup;
import io.grpc.netty.shaded.io.netty.channel.nio.NioIoHandler;
import io.grpc.netty.shaded.io.netty.channel.socket.nio.NioSocketChannel;
import io.grpc.stub.ClientCalls;
import java.io.DataInputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Calls over real connections on loopback. */
@Timeout(60)
class CallsTest {
    private final AdmissionTest.Fixed fixed = new AdmissionTest.Fixed();
    private final List<Server> servers = new ArrayList<>();
    private final List<AdmittedChannel> channels = new ArrayList<>();

    @AfterEach
    void end() {
        channels.forEach(AdmittedChannel::shutdownNow);
        servers.forEach(Server::close);
    }

    private Server server(Server.Method method) {
        Server made = new Server(method);
        servers.add(made);
        return made;
    }

    private AdmittedChannel to(Admission admission, Server server) {
        AdmittedChannel made = AdmittedChannel.forTarget(admission, server.address(), builder -> builder.usePlaintext());
        channels.add(made);
        return made;
    }

    /** To two servers behind one name, with this service config. */
    private AdmittedChannel toBoth(Admission admission, Map<String, ?> config, Server... both) {
        String target = Server.name(both);
        AdmittedChannel made = AdmittedChannel.forTarget(admission, target, builder ->
                builder.usePlaintext().defaultServiceConfig(config).enableRetry());
        channels.add(made);
        return made;
    }

    private static CallOptions high(AtomicReference<Outcome> outcome) {
        return CallOptions.DEFAULT.withOption(Keys.CLASS, "high").withOption(Keys.OUTCOME, outcome::set);
    }

    private static Outcome call(Channel channel, byte[] request) {
        AtomicReference<Outcome> outcome = new AtomicReference<>();
        ClientCalls.blockingUnaryCall(channel, Server.UNARY, high(outcome), request);
        return outcome.get();
    }

    private static Status.Code failed(Channel channel, CallOptions options) {
        var error = assertThrows(
                StatusRuntimeException.class, () -> ClientCalls.blockingUnaryCall(channel, Server.UNARY, options, new byte[1]));
        return error.getStatus().getCode();
    }

    /** Objectives that loopback keeps even on a busy machine, and that no call keeps. */
    private static Config easy() {
        return Config.of(ServiceClass.of("high", 46, Duration.ofHours(1)), ServiceClass.lowest("low", 10)).withMtuBytes(1000);
    }

    private static Config impossible() {
        return Config.of(ServiceClass.of("high", 46, Duration.ofNanos(1)), ServiceClass.lowest("low", 10)).withMtuBytes(1000);
    }

    private static Report report(Admission admission, Server server) {
        return admission.reports().stream()
                .filter(one -> one.destination().equals(server.address()) && one.serviceClass().equals("high"))
                .findFirst()
                .orElseThrow();
    }

    @Test
    void aCallIsMarkedMeasuredAndReportedAtItsBackend() {
        Server server = server(Server.ECHO);
        Admission admission = fixed.admission(easy());
        List<Outcome> observed = new ArrayList<>();
        admission.observe(observed::add);
        AdmittedChannel channel = to(admission, server);
        Outcome outcome = call(channel, new byte[5]);
        assertEquals(0, outcome.ran());
        assertFalse(outcome.downgraded());
        assertEquals(server.address(), outcome.backend());
        assertEquals(List.of(outcome), observed);
        Report report = report(admission, server);
        assertEquals(1, report.asked());
        assertEquals(1, report.met());
        Metadata carried = server.carried.poll();
        assertEquals("high", carried.get(Keys.REQUESTED_CLASS));
        assertEquals("high", carried.get(Keys.RAN_CLASS));
        assertEquals(-1, Keys.downgradedFrom(carried));
    }

    @Test
    void forwardedMetadataOfAnotherCallIsReplaced() {
        Server server = server(Server.ECHO);
        Metadata forwarded = new Metadata();
        forwarded.put(Keys.RAN_CLASS, "urgent");
        forwarded.put(Keys.REQUESTED_CLASS, "urgent");
        forwarded.put(Keys.DOWNGRADED, "0");
        Channel channel = ClientInterceptors.intercept(
                to(fixed.admission(easy()), server), io.grpc.stub.MetadataUtils.newAttachHeadersInterceptor(forwarded));
        call(channel, new byte[1]);
        Metadata carried = server.carried.poll();
        assertEquals("high", carried.get(Keys.RAN_CLASS));
        assertEquals(1, size(carried.getAll(Keys.RAN_CLASS)));
        assertEquals(1, size(carried.getAll(Keys.REQUESTED_CLASS)));
        assertEquals(-1, Keys.downgradedFrom(carried));
        for (String text : List.of("3000000000", "-7", "two", "")) {
            Metadata hostile = new Metadata();
            hostile.put(Keys.DOWNGRADED, text);
            assertEquals(-1, Keys.downgradedFrom(hostile), text);
        }
    }

    /** The first call of a fresh channel is decided before any connection exists. */
    @Test
    void aCallThatIsNotAdmittedRunsInTheLowestClassWithItsMessage() {
        Server server = server(Server.ECHO);
        Admission admission = fixed.admission(impossible());
        admission.complete(admission.decide(server.address(), 0, 1_000_000), 0, AdmissionTest.SECOND);
        fixed.random = -1;
        AdmittedChannel channel = to(admission, server);
        for (int i = 0; i < 2; i++) {
            AtomicReference<Outcome> outcome = new AtomicReference<>();
            byte[] reply = ClientCalls.blockingUnaryCall(channel, Server.UNARY, high(outcome), new byte[] {1, 2, 3});
            assertArrayEquals(new byte[] {1, 2, 3}, reply);
            assertTrue(outcome.get().downgraded(), "call " + i);
            assertEquals(1, outcome.get().ran());
            Metadata carried = server.carried.poll();
            assertEquals("high", carried.get(Keys.REQUESTED_CLASS));
            assertEquals("low", carried.get(Keys.RAN_CLASS));
            assertEquals(0, Keys.downgradedFrom(carried));
            assertEquals(1, size(carried.getAll(Keys.RAN_CLASS)));
        }
        Report report = report(admission, server);
        assertEquals(3, report.asked());
        assertEquals(2, report.downgraded());
        // Only the call that this test completed has missed: the lowest class has no objective.
        assertEquals(1, report.missed());
    }

    private static int size(Iterable<?> values) {
        int count = 0;
        for (Object ignored : values) {
            count++;
        }
        return count;
    }

    @Test
    void aStreamThatIsNotAdmittedKeepsItsMessagesAndIsNotMeasured() throws Exception {
        Server server = server(Server.ECHO);
        Admission admission = fixed.admission(impossible());
        admission.complete(admission.decide(server.address(), 0, 1_000_000), 0, AdmissionTest.SECOND);
        fixed.random = -1;
        AdmittedChannel channel = to(admission, server);
        AtomicReference<Outcome> outcome = new AtomicReference<>();
        CompletableFuture<Integer> bytes = new CompletableFuture<>();
        var requests = ClientCalls.asyncClientStreamingCall(
                channel.newCall(Server.STREAM, high(outcome)), Server.future(bytes));
        for (int i = 1; i <= 3; i++) {
            requests.onNext(new byte[i]);
        }
        requests.onCompleted();
        assertEquals(6, bytes.get(30, TimeUnit.SECONDS));
        assertTrue(outcome.get().downgraded());
        fixed.random = 0;
        CompletableFuture<Integer> second = new CompletableFuture<>();
        ClientCalls.asyncClientStreamingCall(channel.newCall(Server.STREAM, high(outcome)), Server.future(second))
                .onCompleted();
        assertEquals(0, second.get(30, TimeUnit.SECONDS));
        assertFalse(outcome.get().downgraded());
        Report report = report(admission, server);
        assertEquals(1, report.missed());
        assertEquals(0, report.met());
    }

    /** Goal: the second start does not request more messages than the application did, also with an immediate executor. */
    @Test
    void aDowngradedStreamDeliversOnlyRequestedMessages() throws Exception {
        Server server = server(Server.ECHO);
        Admission admission = fixed.admission(impossible());
        AdmittedChannel channel = AdmittedChannel.forTarget(
                admission, server.address(), builder -> builder.usePlaintext().directExecutor());
        channels.add(channel);
        // Connects both classes.
        for (int i = 0; i < 2; i++) {
            ClientCalls.blockingUnaryCall(
                    channel, Server.UNARY, CallOptions.DEFAULT.withOption(Keys.CLASS_NUMBER, i), new byte[1]);
        }
        fixed.random = -1;
        admission.complete(admission.decide(server.address(), 1, 1), 0, AdmissionTest.SECOND);
        AtomicInteger allowed = new AtomicInteger(1);
        AtomicInteger delivered = new AtomicInteger();
        AtomicInteger early = new AtomicInteger();
        Semaphore arrived = new Semaphore(0);
        AtomicReference<Outcome> outcome = new AtomicReference<>();
        var call = channel.newCall(Server.THREE, high(outcome));
        call.start(new ClientCall.Listener<byte[]>() {
            @Override
            public void onMessage(byte[] message) {
                if (delivered.incrementAndGet() > allowed.get()) {
                    early.incrementAndGet();
                }
                arrived.release();
            }

            @Override
            public void onClose(Status status, Metadata trailers) {
                arrived.release();
            }
        }, new Metadata());
        call.request(1);
        call.sendMessage(new byte[1]);
        call.halfClose();
        for (int i = 0; i < 3; i++) {
            assertTrue(arrived.tryAcquire(30, TimeUnit.SECONDS));
            allowed.incrementAndGet();
            call.request(1);
        }
        assertTrue(arrived.tryAcquire(30, TimeUnit.SECONDS));
        assertEquals(0, early.get());
        assertTrue(outcome.get().downgraded());
    }

    @Test
    void socketsHaveTheCodePointOfTheirClass() throws Exception {
        Server server = server(Server.ECHO);
        ConcurrentLinkedQueue<NioSocketChannel> sockets = new ConcurrentLinkedQueue<>();
        MultiThreadIoEventLoopGroup group = new MultiThreadIoEventLoopGroup(1, NioIoHandler.newFactory());
        AdmittedChannel channel = AdmittedChannel.forTarget(fixed.admission(easy()), server.address(), builder -> {
            NettyChannelBuilder netty = (NettyChannelBuilder) builder;
            netty.usePlaintext().eventLoopGroup(group).channelFactory(() -> {
                NioSocketChannel made = new NioSocketChannel();
                sockets.add(made);
                return made;
            });
        });
        channels.add(channel);
        for (int i = 0; i < 2; i++) {
            CallOptions options = CallOptions.DEFAULT.withOption(Keys.CLASS_NUMBER, i);
            ClientCalls.blockingUnaryCall(channel, Server.UNARY, options, new byte[1]);
        }
        List<Integer> marks = new ArrayList<>();
        for (NioSocketChannel socket : sockets) {
            marks.add(socket.config().getOption(ChannelOption.IP_TOS) >> 2);
        }
        channel.shutdownNow();
        group.shutdownGracefully(0, 1, TimeUnit.SECONDS);
        assertEquals(List.of(46, 10), marks);
    }

    @Test
    void callsThatTheirDeadlineEndsLowerTheProbability() throws Exception {
        AtomicInteger arrived = new AtomicInteger();
        Server server = server((request, reply, headers) -> arrived.incrementAndGet());
        Admission admission = fixed.admission(impossible());
        AdmittedChannel channel = to(admission, server);
        // On a busy machine a deadline can pass before its call is sent; such a call says nothing about the network, and the
        // next one has more time.
        for (int ms = 10; arrived.get() < 5; ms += 10) {
            CallOptions options =
                    CallOptions.DEFAULT.withOption(Keys.CLASS, "high").withDeadlineAfter(ms, TimeUnit.MILLISECONDS);
            assertEquals(Status.Code.DEADLINE_EXCEEDED, failed(channel, options));
        }
        assertTrue(report(admission, server).missed() > 0);
        assertTrue(admission.probability(server.address(), 0) < 1);
    }

    /** Cancels a call after it arrived; returns the report of its backend. */
    private Report cancelled(Config config) throws Exception {
        CountDownLatch arrived = new CountDownLatch(1);
        Server server = server((request, reply, headers) -> arrived.countDown());
        Admission admission = fixed.admission(config);
        AdmittedChannel channel = to(admission, server);
        CompletableFuture<Status> end = new CompletableFuture<>();
        Context.CancellableContext context = Context.current().withCancellation();
        context.run(() -> ClientCalls.asyncUnaryCall(
                channel.newCall(Server.UNARY, CallOptions.DEFAULT.withOption(Keys.CLASS, "high")),
                new byte[1],
                Server.status(end)));
        assertTrue(arrived.await(30, TimeUnit.SECONDS));
        context.cancel(null);
        assertEquals(Status.Code.CANCELLED, end.get(30, TimeUnit.SECONDS).getCode());
        return report(admission, server);
    }

    @Test
    void aCallThatIsCancelledBeforeItsObjectiveSaysNothing() throws Exception {
        Report report = cancelled(easy());
        assertEquals(0, report.met() + report.missed());
    }

    @Test
    void aCallThatIsCancelledAfterItsObjectiveMissesIt() throws Exception {
        assertEquals(1, cancelled(impossible()).missed());
    }

    /** Accepts one connection, and closes it when the headers of a call have arrived. */
    private static void loseOneCall(ServerSocket listener) {
        try (Socket socket = listener.accept()) {
            DataInputStream frames = new DataInputStream(socket.getInputStream());
            // An empty frame of HTTP/2 settings, without which the client sends no call.
            socket.getOutputStream().write(new byte[] {0, 0, 0, 4, 0, 0, 0, 0, 0});
            frames.skipNBytes("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".length());
            final int headers = 1;
            for (int kind = -1; kind != headers; ) {
                int length = frames.readUnsignedShort() << 8 | frames.readUnsignedByte();
                kind = frames.readUnsignedByte();
                frames.skipNBytes(5 + length);
            }
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    @Test
    void aCallWhoseConnectionIsLostIsAMiss() throws Exception {
        Admission admission = fixed.admission(impossible());
        try (ServerSocket listener = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            Thread server = new Thread(() -> loseOneCall(listener));
            server.start();
            String address = "127.0.0.1:" + listener.getLocalPort();
            AdmittedChannel channel = AdmittedChannel.forTarget(admission, address, builder -> builder.usePlaintext());
            channels.add(channel);
            Status.Code code = failed(channel, high(new AtomicReference<>()));
            // Which one depends on whether gRPC was reading or writing.
            assertTrue(code == Status.Code.UNAVAILABLE || code == Status.Code.UNKNOWN, code.toString());
            server.join();
            assertEquals(1, admission.reports().get(0).missed());
        }
    }

    @Test
    void aCallThatTheServerFailsSaysNothing() {
        for (Status status : List.of(
                Status.UNAVAILABLE, Status.UNKNOWN, Status.CANCELLED, Status.INTERNAL, Status.DEADLINE_EXCEEDED)) {
            Server server = server((request, reply, headers) -> reply.onError(status.asRuntimeException()));
            Admission admission = fixed.admission(impossible());
            assertEquals(status.getCode(), failed(to(admission, server), high(new AtomicReference<>())));
            Report report = report(admission, server);
            assertEquals(1, report.asked());
            assertEquals(0, report.met() + report.missed(), status.toString());
        }
    }

    @Test
    void aCallWithoutAConnectionSaysNothing() {
        Server server = server(Server.ECHO);
        server.close();
        Admission admission = fixed.admission(impossible());
        AdmittedChannel channel = to(admission, server);
        AtomicReference<Outcome> outcome = new AtomicReference<>();
        assertEquals(Status.Code.UNAVAILABLE, failed(channel, high(outcome)));
        assertEquals(List.of(), admission.reports());
        assertEquals("", outcome.get().backend());
    }

    /** Goal: a large response on an idle network is no miss. The server says that its time was all of the call's. */
    @Test
    void aResponseRaisesTheObjectiveAndTheServersTimeIsSubtracted() {
        Server server = server((request, reply, headers) -> {
            headers.put(Keys.SERVER_TIME, "60000000");
            reply.onNext(new byte[3_000_000]);
            reply.onCompleted();
        });
        Admission admission = fixed.admission(impossible());
        Outcome outcome = call(to(admission, server), new byte[1]);
        assertEquals(Duration.ZERO, outcome.latency());
        assertEquals(1, report(admission, server).met());
    }

    @Test
    void aServerReportsTheTimeOfItsMethod() {
        Server server = server(Server.ECHO);
        AtomicReference<Metadata> headers = new AtomicReference<>();
        Channel channel = ClientInterceptors.intercept(
                to(fixed.admission(easy()), server),
                io.grpc.stub.MetadataUtils.newCaptureMetadataInterceptor(headers, new AtomicReference<>()));
        ClientCalls.blockingUnaryCall(channel, Server.UNARY, CallOptions.DEFAULT, new byte[1]);
        assertTrue(Long.parseLong(headers.get().get(Keys.SERVER_TIME)) >= 0);
    }

    @Test
    void hostileServerTimesCountAsNone() {
        for (String text : List.of("-1", "soon", "99999999999999999999", "9223372036854775807", "", "1.5")) {
            Metadata metadata = new Metadata();
            metadata.put(Keys.SERVER_TIME, text);
            assertEquals(0, Attempt.serverTime(metadata), text);
        }
    }

    private static final Map<String, ?> ROUND_ROBIN = Map.of("loadBalancingConfig", List.of(Map.of("round_robin", Map.of())));

    @Test
    void eachBackendBehindANameIsADestination() {
        Server one = server(Server.ECHO);
        Server other = server(Server.ECHO);
        Admission admission = fixed.admission(easy());
        AdmittedChannel channel = toBoth(admission, AdmittedChannel.serviceConfig(ROUND_ROBIN), one, other);
        // Until both connections exist, one backend has all calls.
        while (admission.destinations() < 2) {
            call(channel, new byte[1]);
        }
        assertTrue(report(admission, one).met() > 0);
        assertTrue(report(admission, other).met() > 0);
    }

    @Test
    void withAnotherPolicyTheTargetIsTheDestination() {
        Server one = server(Server.ECHO);
        Admission admission = fixed.admission(easy());
        AdmittedChannel channel = toBoth(admission, ROUND_ROBIN, one);
        // The first call shows that no gate decides.
        call(channel, new byte[1]);
        call(channel, new byte[1]);
        Report report = admission.reports().get(0);
        assertTrue(report.destination().startsWith("isolane-test:"), report.toString());
        assertEquals(1, report.met());
    }

    private static Map<String, ?> attempts(String policy, Map<String, ?> parameters) {
        return AdmittedChannel.serviceConfig(Map.of(
                "methodConfig", List.of(Map.of("name", List.of(Map.of()), policy, parameters))));
    }

    @Test
    void aRetryIsMeasuredAtItsBackendInTheClassOfItsCall() {
        AtomicInteger attempts = new AtomicInteger();
        Server server = server((request, reply, headers) -> {
            if (attempts.incrementAndGet() < 3) {
                reply.onError(Status.UNAVAILABLE.asRuntimeException());
            } else {
                Server.ECHO.answer(request, reply, headers);
            }
        });
        Admission admission = fixed.admission(easy());
        AdmittedChannel channel = toBoth(
                admission,
                attempts("retryPolicy", Map.of(
                        "maxAttempts", 3.0, "initialBackoff", "0.01s", "maxBackoff", "0.01s", "backoffMultiplier", 1.0,
                        "retryableStatusCodes", List.of("UNAVAILABLE"))),
                server);
        call(channel, new byte[1]);
        assertEquals(3, attempts.get());
        Report report = report(admission, server);
        assertEquals(1, report.asked());
        assertEquals(1, report.met());
        assertEquals(0, report.missed());
    }

    /** The hedge that is answered is measured; the one that gRPC cancels lasted at least as long as it did. */
    @Test
    void eachHedgeIsMeasured() throws Exception {
        CountDownLatch cancelled = new CountDownLatch(1);
        AtomicInteger attempts = new AtomicInteger();
        Server server = server((request, reply, headers) -> {
            if (attempts.incrementAndGet() == 1) {
                Context.current().addListener(context -> cancelled.countDown(), Runnable::run);
            } else {
                Server.ECHO.answer(request, reply, headers);
            }
        });
        Admission admission = fixed.admission(impossible());
        AdmittedChannel channel = toBoth(
                admission, attempts("hedgingPolicy", Map.of("maxAttempts", 2.0, "hedgingDelay", "0.1s")), server);
        call(channel, new byte[1]);
        assertTrue(cancelled.await(30, TimeUnit.SECONDS));
        assertEquals(2, report(admission, server).missed());
        assertEquals(1, report(admission, server).asked());
    }

    @Test
    void aPlainChannelCanBeIntercepted() {
        Server server = server(Server.ECHO);
        Admission admission = fixed.admission(easy());
        AdmittedChannel channel = to(admission, server);
        Channel plain = NettyChannelBuilder.forAddress("127.0.0.1", 1).usePlaintext().build();
        call(ClientInterceptors.intercept(plain, channel.interceptor()), new byte[1]);
        assertEquals(1, report(admission, server).met());
        ((io.grpc.ManagedChannel) plain).shutdownNow();
    }

    @Test
    void anUnknownClassIsTheLowest() {
        Server server = server(Server.ECHO);
        AdmittedChannel channel = to(fixed.admission(easy()), server);
        CallOptions urgent = CallOptions.DEFAULT.withOption(Keys.CLASS, "urgent");
        for (CallOptions options : List.of(urgent, CallOptions.DEFAULT, CallOptions.DEFAULT.withOption(Keys.CLASS_NUMBER, 9))) {
            ClientCalls.blockingUnaryCall(channel, Server.UNARY, options, new byte[1]);
            assertEquals("low", server.carried.poll().get(Keys.REQUESTED_CLASS));
        }
        assertEquals(MethodType.UNARY, Server.UNARY.getType());
    }

    @Test
    void endsAreClassified() {
        record Case(Status.Code code, boolean answered, boolean due, Attempt.Ending want) {}
        List<Case> cases = List.of(
                new Case(Status.Code.OK, true, false, Attempt.Ending.MEASURED),
                new Case(Status.Code.DEADLINE_EXCEEDED, false, false, Attempt.Ending.LOWER_BOUND),
                new Case(Status.Code.DEADLINE_EXCEEDED, true, true, Attempt.Ending.LOWER_BOUND),
                new Case(Status.Code.DEADLINE_EXCEEDED, true, false, Attempt.Ending.UNKNOWN),
                new Case(Status.Code.CANCELLED, false, false, Attempt.Ending.LOWER_BOUND),
                new Case(Status.Code.CANCELLED, true, false, Attempt.Ending.UNKNOWN),
                new Case(Status.Code.UNAVAILABLE, false, false, Attempt.Ending.LOWER_BOUND),
                new Case(Status.Code.UNAVAILABLE, true, true, Attempt.Ending.UNKNOWN),
                new Case(Status.Code.UNKNOWN, false, false, Attempt.Ending.LOWER_BOUND),
                new Case(Status.Code.UNKNOWN, true, false, Attempt.Ending.UNKNOWN),
                new Case(Status.Code.RESOURCE_EXHAUSTED, false, true, Attempt.Ending.UNKNOWN));
        for (Case one : cases) {
            assertEquals(one.want, Attempt.ending(one.code, one.answered, one.due), one.toString());
        }
    }
}
