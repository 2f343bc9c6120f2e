package dev.isolane.rpc;

import io.grpc.ClientStreamTracer;
import io.grpc.Deadline;
import io.grpc.Metadata;
import java.net.SocketAddress;
import java.time.Duration;

/**
 * One call of an application, shared by its attempts: the decision on it, and what its attempts measured.
 *
 * <p>gRPC asks it for a tracer of each attempt.
 */
final class Issued extends ClientStreamTracer.Factory {
    final Admission admission;
    final Deadline deadline;
    final boolean unary;
    final int asked;
    private final long bytes;
    private final long begin = System.nanoTime();

    private Verdict verdict;
    private Backend picked;
    /** The gate sent the call away from the requested class, and no one has started it in the lowest class yet. */
    private boolean downgrade;
    /** An attempt was sent without passing a gate. */
    private boolean ungated;

    private String backend = "";
    private long latency;

    Issued(Admission admission, int asked, long bytes, boolean unary, Deadline deadline) {
        this.admission = admission;
        this.asked = asked;
        this.bytes = bytes;
        this.unary = unary;
        this.deadline = deadline;
    }

    @Override
    public ClientStreamTracer newClientStreamTracer(ClientStreamTracer.StreamInfo info, Metadata headers) {
        return new Attempt(this);
    }

    /** Decides with the target as the destination. */
    synchronized void decide(String target) {
        verdict = admission.decide(target, asked, bytes);
    }

    /** Decides in the pick, unless it is decided. False means that the call leaves its class; a retry keeps the class. */
    synchronized boolean admit(Backend at) {
        picked = at;
        if (verdict == null) {
            verdict = admission.decide(at.name(), asked, bytes);
            downgrade = verdict.downgraded();
            return !downgrade;
        }
        return true;
    }

    /** Notes that an attempt is sent to {@code remote}; returns the destination that learns from it, null for none. */
    synchronized Destination sentTo(SocketAddress remote) {
        ungated |= verdict == null;
        if (remote != null) {
            backend = picked == null ? Backend.nameOf(remote) : picked.connectedTo(remote);
        }
        if (verdict == null || verdict.at == null || verdict.downgraded()) {
            return null;
        }
        // Without a gate the destination is the target. With one, a retry or a reconnection may have chosen another backend.
        boolean same = picked == null || remote == null || verdict.at.name.equals(backend);
        return same ? verdict.at : admission.destination(backend);
    }

    synchronized void took(long nanoseconds) {
        latency = nanoseconds;
    }

    /** The decision; null before it. */
    synchronized Verdict verdict() {
        return verdict;
    }

    /** The class of the next attempts. */
    synchronized int ran() {
        return verdict == null ? asked : verdict.ran();
    }

    /** True once, after the gate sent the call to the lowest class. */
    synchronized boolean takeDowngrade() {
        boolean was = downgrade;
        downgrade = false;
        return was;
    }

    /** Whether the class can no longer change. */
    synchronized boolean settled() {
        return ungated || verdict != null && !downgrade;
    }

    /** Whether an attempt passed a gate, null if none was sent. */
    synchronized Boolean gated() {
        return picked != null ? Boolean.TRUE : ungated ? Boolean.FALSE : null;
    }

    synchronized Outcome outcome() {
        long took = unary ? latency : System.nanoTime() - begin;
        int ran = verdict == null ? asked : verdict.ran();
        boolean would = verdict != null && verdict.wouldDowngrade();
        return new Outcome(asked, ran, ran != asked, would, Duration.ofNanos(took), backend);
    }
}
