package dev.isolane.rpc;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;

/**
 * The operator's configuration. A value of zero takes its default.
 *
 * @param mode whether decisions are applied
 * @param algorithm how calls are admitted
 * @param mtuBytes payload of one packet, 64 to 65535; 1460 if zero
 * @param idleAfter how long a destination without calls keeps its state and its entry; a minute if zero
 * @param destinationsMax bounds the memory, up to 10,000,000; 100,000 if zero. Calls to further destinations are admitted
 *     and not learned from
 * @param classes from the highest to the lowest, 2 to 8
 */
public record Config(
        Mode mode, Algorithm algorithm, int mtuBytes, Duration idleAfter, int destinationsMax, List<ServiceClass> classes) {

    private static final int CLASSES_MIN = 2;
    private static final int CLASSES_MAX = 8;
    private static final int DESTINATIONS_MAX_MAX = 10_000_000;

    public Config {
        classes = List.copyOf(classes);
    }

    /** Classes from the highest to the lowest, with the defaults for the rest. */
    public static Config of(ServiceClass... classes) {
        return new Config(Mode.ENFORCE, Algorithm.AEQUITAS, 0, Duration.ZERO, 0, List.of(classes));
    }

    /**
     * Parses settings in the TOML form of the other languages.
     *
     * @throws IllegalArgumentException with key, value and remedy
     */
    public static Config parse(String text) {
        return Settings.parse(text);
    }

    /**
     * Reads a settings file.
     *
     * @throws IllegalArgumentException with file, key, value and remedy
     * @throws IOException if the file cannot be read
     */
    public static Config read(Path path) throws IOException {
        try {
            return parse(Files.readString(path));
        } catch (IllegalArgumentException error) {
            throw new IllegalArgumentException(path + ": " + error.getMessage(), error);
        }
    }

    public Config withMode(Mode other) {
        return new Config(other, algorithm, mtuBytes, idleAfter, destinationsMax, classes);
    }

    public Config withAlgorithm(Algorithm other) {
        return new Config(mode, other, mtuBytes, idleAfter, destinationsMax, classes);
    }

    public Config withMtuBytes(int other) {
        return new Config(mode, algorithm, other, idleAfter, destinationsMax, classes);
    }

    public Config withIdleAfter(Duration other) {
        return new Config(mode, algorithm, mtuBytes, other, destinationsMax, classes);
    }

    public Config withDestinationsMax(int other) {
        return new Config(mode, algorithm, mtuBytes, idleAfter, other, classes);
    }

    /** With the defaults filled in, checked. */
    Config checked() {
        // The lowest class has no objective, so its parameters stay as they are: another value than zero is an error.
        List<ServiceClass> filled = new ArrayList<>(classes);
        for (int i = 0; i < filled.size() - 1; i++) {
            filled.set(i, filled.get(i).withDefaults(algorithm));
        }
        Config config = new Config(
                mode,
                algorithm,
                mtuBytes == 0 ? 1460 : mtuBytes,
                idleAfter != null && idleAfter.isZero() ? Duration.ofMinutes(1) : idleAfter,
                destinationsMax == 0 ? 100_000 : destinationsMax,
                filled);
        config.check();
        return config;
    }

    private void check() {
        if (classes.size() < CLASSES_MIN || classes.size() > CLASSES_MAX) {
            throw wrong(classes.size() + " classes; give " + CLASSES_MIN + " to " + CLASSES_MAX + ", the lowest last");
        }
        if (mode == null || algorithm == null) {
            throw wrong("mode is " + mode + " and algorithm is " + algorithm + "; give both");
        }
        if (mtuBytes < 64 || mtuBytes > 65_535) {
            throw wrong("mtuBytes is " + mtuBytes + "; give the payload of a packet, 64 to 65535");
        }
        if (idleAfter == null || idleAfter.isNegative()) {
            throw wrong("idleAfter is " + idleAfter + "; give a time above zero");
        }
        if (destinationsMax < 1 || destinationsMax > DESTINATIONS_MAX_MAX) {
            throw wrong("destinationsMax is " + destinationsMax + "; give 1 to " + DESTINATIONS_MAX_MAX);
        }
        for (int i = 0; i < classes.size(); i++) {
            classes.get(i).check(i == classes.size() - 1, algorithm);
            for (int j = 0; j < i; j++) {
                checkApart(j, i);
            }
        }
    }

    private void checkApart(int first, int second) {
        ServiceClass one = classes.get(first);
        ServiceClass other = classes.get(second);
        if (one.name().equals(other.name())) {
            throw wrong("classes " + first + " and " + second + " are both named \"" + one.name() + "\"; rename one");
        }
        if (one.dscp() == other.dscp()) {
            throw wrong("classes " + first + " and " + second + " both have DSCP " + one.dscp()
                    + ", so the network could not distinguish them; give another");
        }
    }

    private static IllegalArgumentException wrong(String what) {
        return new IllegalArgumentException("isolane: " + what);
    }
}
