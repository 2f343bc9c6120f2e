package dev.isolane.rpc.lab;

import dev.isolane.rpc.Keys;
import io.grpc.Metadata;
import io.grpc.ServerCall;
import io.grpc.ServerCallHandler;
import io.grpc.ServerInterceptor;
import io.grpc.ServerInterceptors;
import io.grpc.ServerServiceDefinition;
import io.grpc.netty.shaded.io.grpc.netty.NettyServerBuilder;
import io.grpc.stub.ServerCalls;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.util.concurrent.atomic.LongAdder;

/** Answers every call with an empty message until stdin ends. */
final class Server {
    private static final int WINDOW_BYTES = 4 << 20;

    private final LongAdder calls = new LongAdder();
    private final LongAdder bytes = new LongAdder();
    private final LongAdder downgraded = new LongAdder();

    Server() {}

    static void run() throws IOException {
        String listen = Documents.read(Documents.ServerJob.class).listen();
        int colon = listen.lastIndexOf(':');
        InetSocketAddress address =
                new InetSocketAddress(listen.substring(0, colon), Integer.parseInt(listen.substring(colon + 1)));
        WarmUp.run();
        Server counts = new Server();
        io.grpc.Server server = counts.start(address);
        Documents.write(new Documents.Ready(true));
        Documents.awaitEnd();
        server.shutdownNow();
        Documents.write(new Documents.ServerResult(counts.calls.sum(), counts.bytes.sum(), counts.downgraded.sum()));
        Runtime.getRuntime().halt(0);
    }

    io.grpc.Server start(InetSocketAddress address) throws IOException {
        return NettyServerBuilder.forAddress(address)
                .addService(service())
                .flowControlWindow(WINDOW_BYTES)
                .directExecutor()
                .build()
                .start();
    }

    private ServerServiceDefinition service() {
        byte[] nothing = new byte[0];
        ServerServiceDefinition service = ServerServiceDefinition.builder(Methods.SERVICE)
                .addMethod(Methods.WRITE, ServerCalls.asyncUnaryCall((request, reply) -> {
                    calls.increment();
                    bytes.add(request.length);
                    reply.onNext(nothing);
                    reply.onCompleted();
                }))
                .build();
        return ServerInterceptors.intercept(service, new ServerInterceptor() {
            @Override
            public <Q, R> ServerCall.Listener<Q> interceptCall(
                    ServerCall<Q, R> call, Metadata headers, ServerCallHandler<Q, R> next) {
                if (Keys.downgradedFrom(headers) >= 0) {
                    downgraded.increment();
                }
                return next.startCall(call, headers);
            }
        });
    }
}
