package dev.isolane.rpc;

/**
 * The state of one destination and class, for metrics.
 *
 * @param destination address or name
 * @param serviceClass name of the class
 * @param probability the admit probability
 * @param asked number of calls that requested the class
 * @param downgraded number of these calls that ran in the lowest class (in shadow mode: would have run)
 * @param met number of calls that ran in the class and met its objective
 * @param missed number of calls that ran in the class and missed it
 */
public record Report(
        String destination, String serviceClass, double probability, long asked, long downgraded, long met, long missed) {}
