package dev.isolane.rpc;

import io.grpc.ForwardingServerCall.SimpleForwardingServerCall;
import io.grpc.ForwardingServerCallListener.SimpleForwardingServerCallListener;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor.MethodType;
import io.grpc.ServerCall;
import io.grpc.ServerCallHandler;
import io.grpc.ServerInterceptor;

/**
 * Reports the time of unary methods to clients, so that clients can compute the network latency.
 *
 * <p>The time begins when the whole request has arrived and the method is called, and ends with the headers of the response.
 * A call without response headers, and a stream, report nothing.
 */
public final class ServerTime implements ServerInterceptor {
    @Override
    public <Q, R> ServerCall.Listener<Q> interceptCall(
            ServerCall<Q, R> call, Metadata headers, ServerCallHandler<Q, R> next) {
        if (call.getMethodDescriptor().getType() != MethodType.UNARY) {
            return next.startCall(call, headers);
        }
        Timed<Q, R> timed = new Timed<>(call);
        return new SimpleForwardingServerCallListener<>(next.startCall(timed, headers)) {
            @Override
            public void onHalfClose() {
                timed.begin = System.nanoTime();
                timed.running = true;
                super.onHalfClose();
            }
        };
    }

    private static final class Timed<Q, R> extends SimpleForwardingServerCall<Q, R> {
        /** The method may answer in another thread: {@code running} publishes {@code begin}. */
        private long begin;

        private volatile boolean running;

        private Timed(ServerCall<Q, R> call) {
            super(call);
        }

        @Override
        public void sendHeaders(Metadata headers) {
            // What the method itself reported stays.
            if (running && !headers.containsKey(Keys.SERVER_TIME)) {
                headers.put(Keys.SERVER_TIME, Long.toString(Math.max(System.nanoTime() - begin, 0) / 1000));
            }
            super.sendHeaders(headers);
        }
    }
}
