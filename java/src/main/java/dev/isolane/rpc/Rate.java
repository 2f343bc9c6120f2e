package dev.isolane.rpc;

/** Counts MTUs in two consecutive windows. Times are picoseconds. The caller holds the lock. */
final class Rate {
    private long start;
    private long now;
    private long before;

    void count(long at, long window, long mtus) {
        long passed = Arithmetic.since(at, start);
        if (!Arithmetic.less(passed, window)) {
            before = Arithmetic.less(passed, Arithmetic.saturatingMul(2, window)) ? now : 0;
            start = at;
            now = 0;
        }
        now += mtus;
    }

    /** MTUs of the last whole window. */
    long before() {
        return before;
    }

    /** The time between two MTUs, the shorter one of both windows. */
    long gap(long at, long window) {
        long passed = Arithmetic.max(Arithmetic.since(at, start), window >>> 4);
        return Arithmetic.min(gapOf(passed, now), gapOf(window, before));
    }

    private static long gapOf(long time, long mtus) {
        return mtus == 0 ? Arithmetic.NEVER : Long.divideUnsigned(time, mtus);
    }
}
