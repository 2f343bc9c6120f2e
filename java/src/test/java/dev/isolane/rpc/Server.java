package dev.isolane.rpc;

import dev.isolane.rpc.lab.Bytes;
import io.grpc.Context;
import io.grpc.Contexts;
import io.grpc.EquivalentAddressGroup;
import io.grpc.ForwardingServerCall.SimpleForwardingServerCall;
import io.grpc.Grpc;
import io.grpc.InsecureServerCredentials;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.MethodDescriptor.MethodType;
import io.grpc.NameResolver;
import io.grpc.NameResolverProvider;
import io.grpc.NameResolverRegistry;
import io.grpc.ServerCall;
import io.grpc.ServerCallHandler;
import io.grpc.ServerInterceptor;
import io.grpc.ServerInterceptors;
import io.grpc.ServerServiceDefinition;
import io.grpc.Status;
import io.grpc.StatusOr;
import io.grpc.stub.ServerCalls;
import io.grpc.stub.StreamObserver;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetSocketAddress;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;

/** A server on loopback for tests. */
final class Server {
    /** Answers a unary call. {@code headers} go before the reply. */
    interface Method {
        void answer(byte[] request, StreamObserver<byte[]> reply, Metadata headers);
    }

    static final Method ECHO = (request, reply, headers) -> {
        reply.onNext(request);
        reply.onCompleted();
    };

    static final MethodDescriptor<byte[], byte[]> UNARY = method("Unary", MethodType.UNARY);

    /** Answers with the sum of the sizes. */
    static final MethodDescriptor<byte[], byte[]> STREAM = method("Stream", MethodType.CLIENT_STREAMING);

    /** Answers with three messages. */
    static final MethodDescriptor<byte[], byte[]> THREE = method("Three", MethodType.SERVER_STREAMING);

    private static final Context.Key<Metadata> HEADERS = Context.key("headers");

    /** What each call carried. */
    final ConcurrentLinkedQueue<Metadata> carried = new ConcurrentLinkedQueue<>();

    private final io.grpc.Server server;
    private final int port;

    Server(Method method) {
        ServerServiceDefinition service = ServerServiceDefinition.builder("test.Test")
                .addMethod(UNARY, ServerCalls.asyncUnaryCall((request, reply) -> method.answer(request, reply, HEADERS.get())))
                .addMethod(STREAM, ServerCalls.asyncClientStreamingCall(Server::sum))
                .addMethod(THREE, ServerCalls.asyncServerStreamingCall((request, reply) -> {
                    for (int i = 0; i < 3; i++) {
                        reply.onNext(request);
                    }
                    reply.onCompleted();
                }))
                .build();
        try {
            server = Grpc.newServerBuilderForPort(0, InsecureServerCredentials.create())
                    .addService(ServerInterceptors.intercept(service, new ServerTime(), new Headers()))
                    .build()
                    .start();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        port = server.getPort();
    }

    String address() {
        return "127.0.0.1:" + port;
    }

    void close() {
        server.shutdownNow();
    }

    /** Keeps what calls carried, and sends the method's headers. */
    private final class Headers implements ServerInterceptor {
        @Override
        public <Q, R> ServerCall.Listener<Q> interceptCall(
                ServerCall<Q, R> call, Metadata received, ServerCallHandler<Q, R> next) {
            carried.add(received);
            Metadata own = new Metadata();
            ServerCall<Q, R> with = new SimpleForwardingServerCall<>(call) {
                @Override
                public void sendHeaders(Metadata headers) {
                    headers.merge(own);
                    super.sendHeaders(headers);
                }
            };
            return Contexts.interceptCall(Context.current().withValue(HEADERS, own), with, received, next);
        }
    }

    private static StreamObserver<byte[]> sum(StreamObserver<byte[]> reply) {
        return new StreamObserver<>() {
            private int bytes;

            @Override
            public void onNext(byte[] request) {
                bytes += request.length;
            }

            @Override
            public void onError(Throwable error) {}

            @Override
            public void onCompleted() {
                reply.onNext(Integer.toString(bytes).getBytes(StandardCharsets.US_ASCII));
                reply.onCompleted();
            }
        };
    }

    /** Completes with the number in the reply at the end of the call. */
    static StreamObserver<byte[]> future(CompletableFuture<Integer> number) {
        return new StreamObserver<>() {
            private int received;

            @Override
            public void onNext(byte[] reply) {
                received = Integer.parseInt(new String(reply, StandardCharsets.US_ASCII));
            }

            @Override
            public void onError(Throwable error) {
                number.completeExceptionally(error);
            }

            @Override
            public void onCompleted() {
                number.complete(received);
            }
        };
    }

    /** Completes with the status of the call. */
    static StreamObserver<byte[]> status(CompletableFuture<Status> end) {
        return new StreamObserver<>() {
            @Override
            public void onNext(byte[] reply) {}

            @Override
            public void onError(Throwable error) {
                end.complete(Status.fromThrowable(error));
            }

            @Override
            public void onCompleted() {
                end.complete(Status.OK);
            }
        };
    }

    private static MethodDescriptor<byte[], byte[]> method(String name, MethodType type) {
        return MethodDescriptor.<byte[], byte[]>newBuilder()
                .setType(type)
                .setFullMethodName("test.Test/" + name)
                .setRequestMarshaller(new Bytes())
                .setResponseMarshaller(new Bytes())
                .build();
    }

    private static final Map<String, List<EquivalentAddressGroup>> NAMES = new ConcurrentHashMap<>();

    static {
        NameResolverRegistry.getDefaultRegistry().register(new Names());
    }

    /** A name with the addresses of these servers. */
    static String name(Server... servers) {
        String name = "isolane-test:///" + servers[0].port;
        NAMES.put(
                "/" + servers[0].port,
                Arrays.stream(servers)
                        .map(one -> new EquivalentAddressGroup(new InetSocketAddress("127.0.0.1", one.port)))
                        .toList());
        return name;
    }

    private static final class Names extends NameResolverProvider {
        @Override
        protected boolean isAvailable() {
            return true;
        }

        @Override
        protected int priority() {
            return 5;
        }

        @Override
        public String getDefaultScheme() {
            return "isolane-test";
        }

        @Override
        public NameResolver newNameResolver(URI target, NameResolver.Args args) {
            if (!"isolane-test".equals(target.getScheme())) {
                return null;
            }
            return new NameResolver() {
                @Override
                public String getServiceAuthority() {
                    return "test";
                }

                @Override
                public void start(Listener2 listener) {
                    listener.onResult2(ResolutionResult.newBuilder()
                            .setAddressesOrError(StatusOr.fromValue(NAMES.get(target.getPath())))
                            .build());
                }

                @Override
                public void shutdown() {}
            };
        }
    }
}
