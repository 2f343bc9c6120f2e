package dev.isolane.rpc;

import java.math.BigInteger;

/**
 * The part of one destination and class in its port's rate (aequitas-2; docs/internals/calls.md explains the rules). Times
 * are picoseconds. The caller holds the lock.
 */
final class Level {
    /** The time up to which the admitted calls use the destination's part. */
    private long used;

    private final Rate admitted = new Rate();
    private final Rate asked = new Rate();

    /** Whether a call may run in its class, at the port's gap. */
    boolean decide(Options options, long gap, long now, long mtus) {
        long size = Math.max(mtus, 1);
        asked.count(now, options.rateWindow(), size);
        if (Arithmetic.less(now, used)) {
            return false;
        }
        long cost = Arithmetic.saturatingMul(gap, size);
        used = Arithmetic.saturatingAdd(Arithmetic.max(used, Arithmetic.since(now, cost)), cost);
        admitted.count(now, options.rateWindow(), size);
        return true;
    }

    /** The time between two admitted MTUs. */
    long gap(Options options, long now) {
        return admitted.gap(now, options.rateWindow());
    }

    /** The part of its calls that the destination admits, estimated from the last whole window, in parts of 2^32. */
    long probability(Options options, long gap) {
        if (gap == 0 || asked.before() == 0) {
            return Arithmetic.ONE;
        }
        BigInteger time = Arithmetic.big(gap).multiply(Arithmetic.big(asked.before()));
        BigInteger part = Arithmetic.big(options.rateWindow()).shiftLeft(32).divide(time);
        return part.bitLength() > 33 ? Arithmetic.ONE : Math.min(part.longValue(), Arithmetic.ONE);
    }
}
