package dev.isolane.rpc;

import java.time.Duration;

/**
 * The result of admission for one call.
 *
 * @param asked requested class; 0 is the highest
 * @param ran class that the call ran in
 * @param downgraded whether the call ran in a lower class than requested
 * @param wouldDowngrade whether it would run in a lower class outside shadow mode
 * @param latency of the last attempt: from the choice of its connection to its end, less the server's own time. Of a stream,
 *     from its start to its end
 * @param backend address of the last attempt's server; empty if no attempt had a connection
 */
public record Outcome(
        int asked, int ran, boolean downgraded, boolean wouldDowngrade, Duration latency, String backend) {}
