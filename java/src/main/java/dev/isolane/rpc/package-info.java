/**
 * Admission control for gRPC clients: keeps the latency objectives of classes in an overloaded network (Aequitas).
 *
 * <p>Problem: a weighted fair network keeps the delay of a class only while its share of the traffic stays small, and no
 * client sees the others' traffic. Method: for each destination and class the client keeps an admit probability. A call is
 * admitted with it; otherwise the call runs in the lowest class, and request metadata and {@link dev.isolane.rpc.Outcome}
 * report this. Calls that miss the class's objective lower the probability, calls that meet it raise it, at most once in a
 * window. Nothing is dropped or delayed. Each class has its own connection, whose packets carry the class's code point
 * (DSCP). {@link dev.isolane.rpc.AdmittedChannel} does all this.
 *
 * <p>Units: {@link java.time.Duration} at the borders. The algorithms count picoseconds in unsigned longs and parts of
 * 2^32, and decide bit for bit as the Rust library does.
 *
 * <p>Limits: the client's side only. A latency is the time from the choice of a connection to the end of the attempt, less
 * the time that the server reports for its method ({@link dev.isolane.rpc.ServerTime}). Quotas are not part of this
 * library.
 *
 * <p>Source: Aequitas (in the thesis "cloud QoS"), section 3.5, algorithm 2.
 */
package dev.isolane.rpc;
