package dev.isolane.rpc;

import java.time.Duration;
import java.util.regex.Pattern;

/**
 * One class of the network and its parameters. A parameter of zero takes its default.
 *
 * @param name name of the class in applications and metadata
 * @param dscp marks its packets, 0 to 63
 * @param targetPerMtu the objective: the longest latency of a call per MTU of its size; zero for the lowest class only
 * @param percentile of the calls that must meet the objective; 99.9 if zero
 * @param alpha increase of the admit probability after a window without a miss, for {@link Algorithm#AEQUITAS} only; 0.01 if
 *     zero
 * @param beta decrease of the admit probability per MTU of a miss, for {@link Algorithm#AEQUITAS} only; 0.01 if zero
 * @param floor smallest admit probability; 0.1 if zero. With {@link Algorithm#AEQUITAS_2} the smallest level, in MTUs for
 *     each {@code targetPerMtu}; 0.01 if zero
 * @param cut relative change of the level by one congestion, for {@link Algorithm#AEQUITAS_2} only; 0.0625 if zero
 */
public record ServiceClass(
        String name, int dscp, Duration targetPerMtu, double percentile, double alpha, double beta, double floor, double cut) {

    private static final Pattern NAME = Pattern.compile("[A-Za-z0-9._-]{1,64}");

    /** A class with an objective and default parameters. */
    public static ServiceClass of(String name, int dscp, Duration targetPerMtu) {
        return new ServiceClass(name, dscp, targetPerMtu, 0, 0, 0, 0, 0);
    }

    /** The lowest class, which has no objective. */
    public static ServiceClass lowest(String name, int dscp) {
        return of(name, dscp, Duration.ZERO);
    }

    ServiceClass withDefaults(Algorithm algorithm) {
        boolean second = algorithm == Algorithm.AEQUITAS_2;
        // A parameter of the other algorithm stays zero: another value is an error.
        return new ServiceClass(
                name,
                dscp,
                targetPerMtu,
                or(percentile, 99.9),
                second ? alpha : or(alpha, 0.01),
                second ? beta : or(beta, 0.01),
                or(floor, second ? 0.01 : 0.1),
                second ? or(cut, 0.0625) : cut);
    }

    private static double or(double value, double other) {
        return value == 0 ? other : value;
    }

    /** Rejects invalid values. */
    void check(boolean isLowest, Algorithm algorithm) {
        if (name == null || !NAME.matcher(name).matches()) {
            throw wrong("a name is 1 to 64 letters, digits, '-', '_' or '.': it travels in metadata");
        }
        if (dscp < 0 || dscp > 63) {
            throw wrong("dscp is " + dscp + "; give a code point from 0 to 63");
        }
        boolean second = algorithm == Algorithm.AEQUITAS_2;
        if (isLowest) {
            checkLowest();
            return;
        }
        if (targetPerMtu == null || targetPerMtu.isZero() || targetPerMtu.isNegative()) {
            throw wrong("targetPerMtu is " + targetPerMtu + "; give the longest latency of a call for each of its MTUs");
        }
        if (!(percentile > 0 && percentile < 100)) {
            throw wrong("percentile is " + percentile + "; give one above 0 and below 100, like 99.9");
        }
        checkStep("alpha", alpha, !second);
        checkStep("beta", beta, !second);
        checkStep("floor", floor, true);
        checkStep("cut", cut, second);
    }

    private void checkLowest() {
        if (targetPerMtu == null || !targetPerMtu.isZero()) {
            throw wrong("targetPerMtu is " + targetPerMtu + ", but the lowest class takes all calls that are not admitted and "
                    + "has no objective; leave it zero");
        }
        String[] names = {"percentile", "alpha", "beta", "floor", "cut"};
        double[] values = {percentile, alpha, beta, floor, cut};
        for (int i = 0; i < names.length; i++) {
            if (values[i] != 0) {
                throw wrong(names[i] + " is " + values[i] + ", which has no effect in the lowest class; leave it zero");
            }
        }
    }

    private void checkStep(String parameter, double value, boolean used) {
        if (!used) {
            if (value == 0) {
                return;
            }
            throw wrong(parameter + " is " + value + ", which has no effect with this algorithm; leave it zero: alpha and beta "
                    + "are for AEQUITAS, cut is for AEQUITAS_2");
        }
        if (!(value > 0 && value <= 1) || Arithmetic.partsOf(value) == 0) {
            throw wrong(parameter + " is " + value + "; give a value above 0 and at most 1");
        }
    }

    private IllegalArgumentException wrong(String what) {
        return new IllegalArgumentException("isolane: class \"" + name + "\": " + what);
    }
}
