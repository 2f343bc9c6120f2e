package dev.isolane.rpc;

/**
 * The admit probability of one destination and class (algorithm 2). Times are picoseconds of a clock that never runs
 * backwards. The caller holds the lock.
 */
final class AdmitState {
    private long probability = Arithmetic.ONE;
    private long lastIncrease;
    private long lastCall;

    AdmitState(long now) {
        lastIncrease = now;
        lastCall = now;
    }

    /** In parts of 2^32. */
    long probability() {
        return probability;
    }

    /** Whether a call may run in the requested class (lines 5 to 12). {@code random} is a uniform unsigned number. */
    boolean decide(Options options, long now, int random) {
        if (Arithmetic.less(options.idleAfter(), Arithmetic.since(now, lastCall))) {
            probability = Arithmetic.ONE;
            lastIncrease = now;
        }
        lastCall = now;
        return Integer.toUnsignedLong(random) < probability;
    }

    /** Learns from a call that ran in the class (lines 13 to 20). */
    void complete(Options options, long now, long latency, long mtus) {
        if (options.meets(latency, mtus)) {
            if (Arithmetic.less(options.window(), Arithmetic.since(now, lastIncrease))) {
                probability = Math.min(probability + options.increment(), Arithmetic.ONE);
                lastIncrease = now;
            }
            return;
        }
        long lowered = Arithmetic.min(Arithmetic.saturatingMul(options.decrement(), Math.max(mtus, 1)), probability);
        probability = Math.max(probability - lowered, options.floor());
    }
}
