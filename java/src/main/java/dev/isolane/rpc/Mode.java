package dev.isolane.rpc;

/** Whether decisions are applied. */
public enum Mode {
    /** Calls that are not admitted run in the lowest class. */
    ENFORCE,
    /** All calls run in the requested class; downgrades are counted and reported. */
    SHADOW,
    /** Nothing is decided or learned; calls are counted. */
    OFF
}
