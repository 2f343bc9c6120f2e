package dev.isolane.rpc;

import io.grpc.Attributes;
import io.grpc.ClientStreamTracer;
import io.grpc.Grpc;
import io.grpc.Metadata;
import io.grpc.Status;
import java.util.concurrent.TimeUnit;

/**
 * Measures one attempt of a call on one connection.
 *
 * <p>Problem: the latency of a call that ends by its deadline is unknown, and a retry hides the slow attempt. Method: an
 * attempt begins when the load balancer has chosen its connection, and ends with its status. An attempt that succeeds is
 * measured, less the server's own time. For an attempt that ended by its deadline, by cancellation or with its connection,
 * the elapsed time is a lower bound. Hedges are attempts like others: gRPC cancels those that another one overtook. Limits:
 * streams are decided on and not measured, because their time is the application's. An attempt that the server failed is not
 * measured, because it may have failed before the request had arrived.
 */
final class Attempt extends ClientStreamTracer {
    /** What the end of an attempt says about its latency. */
    enum Ending {
        UNKNOWN,
        /** The latency is the elapsed time. */
        MEASURED,
        /** The latency is at least the elapsed time. */
        LOWER_BOUND
    }

    private final Issued call;
    private Destination at;
    /** Whether the attempt has a connection. Its time begins then. */
    private boolean sent;

    private long begin;
    private long serverTime;
    private long requestBytes;
    private long responseBytes;
    private boolean answered;

    Attempt(Issued call) {
        this.call = call;
    }

    // gRPC calls from the application's thread and from the connection's.
    @Override
    public synchronized void streamCreated(Attributes transport, Metadata headers) {
        begin = System.nanoTime();
        sent = true;
        at = call.sentTo(transport.get(Grpc.TRANSPORT_ATTR_REMOTE_ADDR));
    }

    @Override
    public synchronized void outboundMessageSent(int number, long wireBytes, long bytes) {
        requestBytes += Math.max(wireBytes, 0);
    }

    @Override
    public synchronized void inboundMessageRead(int number, long wireBytes, long bytes) {
        responseBytes += Math.max(wireBytes, 0);
    }

    @Override
    public synchronized void inboundHeaders(Metadata headers) {
        serverTime = serverTime(headers);
    }

    @Override
    public synchronized void inboundTrailers(Metadata trailers) {
        answered = true;
        serverTime = Math.max(serverTime, serverTime(trailers));
    }

    @Override
    public synchronized void streamClosed(Status status) {
        if (!sent) {
            return;
        }
        sent = false;
        long now = System.nanoTime();
        long took = Math.max(now - begin - serverTime, 0);
        call.took(took);
        Verdict verdict = call.verdict();
        if (!call.unary || verdict == null) {
            return;
        }
        long latency = Arithmetic.ps(took);
        long request = requestBytes > 0 ? call.admission.mtusOf(requestBytes) : verdict.mtus;
        long mtus = call.admission.withResponse(request, responseBytes);
        switch (ending(status.getCode(), answered, due(now))) {
            case MEASURED -> call.admission.learn(verdict, at, latency, mtus);
            case LOWER_BOUND -> call.admission.giveUp(verdict, at, latency, mtus);
            case UNKNOWN -> {}
        }
    }

    /**
     * Whether the deadline of the call has passed. Servers count from the arrival of the call and in coarse units, so up to a
     * tenth of the time may be left.
     */
    private boolean due(long now) {
        if (call.deadline == null) {
            return false;
        }
        long left = call.deadline.timeRemaining(TimeUnit.NANOSECONDS);
        return left < (left + (now - begin)) / 10;
    }

    /** Classifies a status. {@code answered}: the server sent it. {@code due}: the deadline of the call has passed. */
    static Ending ending(Status.Code code, boolean answered, boolean due) {
        return switch (code) {
            case OK -> Ending.MEASURED;
            // A server enforces the deadline too, and may report it first. A server's own deadline elsewhere says nothing
            // about ours.
            case DEADLINE_EXCEEDED -> !answered || due ? Ending.LOWER_BOUND : Ending.UNKNOWN;
            // grpc-java reports a lost connection as UNAVAILABLE, and as UNKNOWN where it found out by writing.
            case CANCELLED, UNAVAILABLE, UNKNOWN -> answered ? Ending.UNKNOWN : Ending.LOWER_BOUND;
            default -> Ending.UNKNOWN;
        };
    }

    /** The server's own time in nanoseconds, from its metadata. */
    static long serverTime(Metadata metadata) {
        String text = metadata.get(Keys.SERVER_TIME);
        if (text == null) {
            return 0;
        }
        try {
            long us = Long.parseLong(text);
            return us >= 0 && us <= Long.MAX_VALUE / 1000 ? us * 1000 : 0;
        } catch (NumberFormatException error) {
            return 0;
        }
    }
}
