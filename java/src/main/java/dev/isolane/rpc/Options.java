package dev.isolane.rpc;

import java.math.BigInteger;

/**
 * Parameters of one class with an objective, in the algorithms' units: times in unsigned picoseconds, the others in parts
 * of 2^32.
 */
record Options(
        long targetPerMtu,
        long window,
        long increment,
        long decrement,
        long floor,
        long idleAfter,
        long rateWindow,
        long longestGap,
        long cut,
        long allowed) {

    /** Length of the window in which rates are counted, in objectives. */
    private static final long RATE_TARGETS = 256;

    /** The part of the allowed misses that aequitas-2 keeps in reserve. */
    private static final double MARGIN = 0.4;

    static Options of(ServiceClass of, long idleAfter) {
        long target = Arithmetic.ps(of.targetPerMtu());
        long floor = Arithmetic.partsOf(of.floor());
        return new Options(
                target,
                incrementWindow(target, of.percentile()),
                Arithmetic.partsOf(of.alpha()),
                Arithmetic.partsOf(of.beta()),
                floor,
                idleAfter,
                Arithmetic.saturatingMul(target, RATE_TARGETS),
                longestGap(target, floor),
                Arithmetic.partsOf(of.cut()),
                allowed(of.percentile()));
    }

    /** target / (1 - percentile / 100), in which about one miss is allowed (line 4). */
    static long incrementWindow(long target, double percentile) {
        double factor = 100.0 / (100.0 - percentile);
        double window = Arithmetic.real(target) * factor;
        if (window >= 0x1p64) {
            return Arithmetic.NEVER;
        }
        return window < 0x1p63 ? (long) window : (long) (window - 0x1p63) + Long.MIN_VALUE;
    }

    /** One MTU in each objective, divided by the floor. */
    private static long longestGap(long target, long floor) {
        BigInteger gap = Arithmetic.big(target).shiftLeft(32).divide(Arithmetic.big(Math.max(floor, 1)));
        return gap.bitLength() > 64 ? Arithmetic.NEVER : Arithmetic.max(gap.longValue(), 1);
    }

    /** The part of misses to keep: what the percentile allows, less the margin. */
    private static long allowed(double percentile) {
        return Math.max(Arithmetic.partsOf((1 - percentile / 100) * (1 - MARGIN)), 1);
    }

    /** Whether a call of {@code mtus} packets met the objective. */
    boolean meets(long latency, long mtus) {
        return Arithmetic.less(latency, Arithmetic.saturatingMul(targetPerMtu, Math.max(mtus, 1)));
    }
}
