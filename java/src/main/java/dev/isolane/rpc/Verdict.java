package dev.isolane.rpc;

/** The decision on one call. {@link Admission} makes it, and learns by it at the call's end. */
public final class Verdict {
    private final int asked;
    private final int ran;
    private final boolean wouldDowngrade;
    final long mtus;
    /** The destination that learns from the call; null for none. */
    final Destination at;

    Verdict(int asked, int ran, boolean wouldDowngrade, long mtus, Destination at) {
        this.asked = asked;
        this.ran = ran;
        this.wouldDowngrade = wouldDowngrade;
        this.mtus = mtus;
        this.at = at;
    }

    /** The class that the application requested; 0 is the highest. */
    public int asked() {
        return asked;
    }

    /** The class to run in. */
    public int ran() {
        return ran;
    }

    /** Whether the call runs in a lower class than it requested. */
    public boolean downgraded() {
        return asked != ran;
    }

    /** Whether the call would run in a lower class outside shadow mode. */
    public boolean wouldDowngrade() {
        return wouldDowngrade;
    }
}
