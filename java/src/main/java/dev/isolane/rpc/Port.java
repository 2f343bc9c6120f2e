package dev.isolane.rpc;

/**
 * The state of a host and class, shared by the destinations that differ only in their port number (aequitas-2). It has a
 * gap, the shortest mean time between two MTUs of one destination. Times are picoseconds, the budget is misses in parts of
 * 2^32.
 */
final class Port {
    /** Most misses that a budget saves, and lacks: at first, and after the first lack has been made good. */
    private static final long SAVED_MAX = 2 * Arithmetic.ONE;

    private static final long FIRST_LACK_MAX = 2 * Arithmetic.ONE;
    private static final long LACK_MAX = 4 * Arithmetic.ONE;

    private long gap;
    private long budget;
    private boolean descended;
    private long answered;
    private long lastEnd;
    private long naturalNow;
    private long naturalBefore;
    private long windowFrom;

    /** The port begins a little earlier than its first call, so that this call is evidence. */
    Port(long now) {
        begin(now);
    }

    private void begin(long now) {
        gap = 0;
        budget = 0;
        descended = false;
        answered = now;
        lastEnd = now;
        windowFrom = now;
        naturalNow = Arithmetic.NEVER;
        naturalBefore = Arithmetic.NEVER;
    }

    synchronized long gap() {
        return gap;
    }

    /** Learns from the end of a call that ran in the class. {@code own} is the time between two MTUs of its destination. */
    synchronized void complete(Options options, long now, long latency, boolean met, long own) {
        if (Arithmetic.less(options.idleAfter(), Arithmetic.since(now, lastEnd))) {
            begin(now);
        }
        lastEnd = now;
        note(now, options.rateWindow(), own);
        if (met) {
            boolean lacked = budget < 0;
            budget = Math.min(budget + options.allowed(), SAVED_MAX);
            descended = descended || lacked && budget >= 0;
            grow(options);
            return;
        }
        budget = Math.max(budget - Arithmetic.ONE, descended ? -LACK_MAX : -FIRST_LACK_MAX);
        // No call is older than the clock.
        long took = Arithmetic.min(latency, now);
        if (Arithmetic.less(answered, now - took)) {
            lengthen(options);
            answered = Arithmetic.saturatingAdd(now, took);
        }
    }

    private void note(long now, long window, long own) {
        long passed = Arithmetic.since(now, windowFrom);
        if (!Arithmetic.less(passed, window)) {
            boolean next = Arithmetic.less(passed, Arithmetic.saturatingMul(2, window));
            naturalBefore = next ? naturalNow : Arithmetic.NEVER;
            naturalNow = Arithmetic.NEVER;
            windowFrom = now;
        }
        naturalNow = Arithmetic.min(naturalNow, own);
    }

    /** Shortens the gap by cut x allowed x 2^budget. */
    private void grow(Options options) {
        if (!Arithmetic.less(1, gap)) {
            return;
        }
        // A product of 128 bits in two halves. cut and allowed are below 2^33, so that it does not overflow.
        long high = Arithmetic.multiplyHigh(gap, options.cut());
        long low = gap * options.cut();
        high = high * options.allowed() + Arithmetic.multiplyHigh(low, options.allowed());
        low *= options.allowed();
        low = high << 32 | low >>> 32;
        high >>>= 32;
        // The whole misses shift, the rest is a straight line between two powers.
        long line = Arithmetic.ONE + (budget & Arithmetic.ONE - 1);
        high = high * line + Arithmetic.multiplyHigh(low, line);
        low *= line;
        // From 62 to 68, because the budget is from -4 to 2 misses.
        int shift = (int) (64 - (budget >> 32));
        long step = shift >= 64 ? high >>> (shift - 64) : high << (64 - shift) | low >>> shift;
        gap -= Arithmetic.min(Arithmetic.max(step, 1), gap - 1);
    }

    /** Makes the gap longer by a cut, at least from that of the fastest destination. */
    private void lengthen(Options options) {
        long natural = Arithmetic.min(naturalNow, naturalBefore);
        long from = natural == Arithmetic.NEVER ? gap : Arithmetic.max(gap, natural);
        long more = Arithmetic.multiplyHigh(from, options.cut()) << 32 | from * options.cut() >>> 32;
        long longer = Arithmetic.saturatingAdd(Arithmetic.saturatingAdd(from, more), 1);
        gap = Arithmetic.min(longer, options.longestGap());
    }
}
