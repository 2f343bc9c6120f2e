package dev.isolane.rpc;

/** How calls are admitted. */
public enum Algorithm {
    /** The paper's algorithm 2: an admit probability for each destination and class. */
    AEQUITAS,
    /** A level for each host and class; docs/internals/calls.md explains it. */
    AEQUITAS_2
}
