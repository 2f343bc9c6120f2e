package dev.isolane.rpc;

import java.math.BigInteger;
import java.time.Duration;

/** Unsigned 64-bit arithmetic of the algorithms: times in picoseconds, probabilities in parts of 2^32. */
final class Arithmetic {
    /** The probability 1. */
    static final long ONE = 1L << 32;

    /** Later than every time. */
    static final long NEVER = -1L;

    static final long PS_PER_NS = 1000;

    private Arithmetic() {}

    static boolean less(long a, long b) {
        return Long.compareUnsigned(a, b) < 0;
    }

    static long min(long a, long b) {
        return less(a, b) ? a : b;
    }

    static long max(long a, long b) {
        return less(a, b) ? b : a;
    }

    /** The time from {@code then} to {@code now}, zero if {@code then} is later. */
    static long since(long now, long then) {
        return less(now, then) ? 0 : now - then;
    }

    static long saturatingAdd(long a, long b) {
        long sum = a + b;
        return less(sum, a) ? NEVER : sum;
    }

    static long saturatingMul(long a, long b) {
        return multiplyHigh(a, b) == 0 ? a * b : NEVER;
    }

    /** The upper 64 bits of an unsigned product. */
    static long multiplyHigh(long a, long b) {
        return Math.multiplyHigh(a, b) + (a >> 63 & b) + (b >> 63 & a);
    }

    /** A value from 0 to 1 in parts of 2^32, rounded down. Values outside, and no number, become the nearer bound. */
    static long partsOf(double value) {
        return value > 0 ? (long) (Math.min(value, 1) * ONE) : 0;
    }

    static long ps(long nanoseconds) {
        return nanoseconds <= 0 ? 0 : saturatingMul(nanoseconds, PS_PER_NS);
    }

    /** A duration in picoseconds; more than the largest number of picoseconds is that number. */
    static long ps(Duration duration) {
        if (duration.isNegative()) {
            return 0;
        }
        BigInteger ns = BigInteger.valueOf(duration.getSeconds())
                .multiply(BigInteger.valueOf(1_000_000_000))
                .add(BigInteger.valueOf(duration.getNano()));
        BigInteger ps = ns.multiply(BigInteger.valueOf(PS_PER_NS));
        return ps.bitLength() > 64 ? NEVER : ps.longValue();
    }

    static BigInteger big(long value) {
        BigInteger lower = BigInteger.valueOf(value & Long.MAX_VALUE);
        return value < 0 ? lower.setBit(63) : lower;
    }

    /** As a floating point number, rounded as an unsigned conversion rounds. */
    static double real(long value) {
        return value >= 0 ? (double) value : big(value).doubleValue();
    }
}
