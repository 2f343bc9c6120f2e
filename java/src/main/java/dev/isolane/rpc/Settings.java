package dev.isolane.rpc;

import java.math.BigDecimal;
import java.math.RoundingMode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.tomlj.Toml;
import org.tomlj.TomlArray;
import org.tomlj.TomlInvalidTypeException;
import org.tomlj.TomlParseResult;
import org.tomlj.TomlTable;

/** The settings file of all languages; docs/guides/rpc.md describes its keys. */
final class Settings {
    private static final Set<String> TOP = Set.of(
            "mode", "algorithm", "mtu_bytes", "idle_after", "destinations_max", "metrics_destinations", "alpha", "beta",
            "floor", "cut", "class");

    private static final Set<String> CLASS =
            Set.of("name", "dscp", "target_per_mtu", "percentile", "alpha", "beta", "floor", "cut");

    private static final Pattern DURATION = Pattern.compile("([0-9]+(?:\\.[0-9]+)?) *(ns|us|µs|ms|s)");

    private static final Map<String, Long> NANOSECONDS =
            Map.of("ns", 1L, "us", 1000L, "µs", 1000L, "ms", 1_000_000L, "s", 1_000_000_000L);

    private final TomlTable top;
    private final Algorithm algorithm;

    private Settings(TomlTable top) {
        this.top = top;
        this.algorithm = switch (text(top, "algorithm", "aequitas")) {
            case "aequitas" -> Algorithm.AEQUITAS;
            case "aequitas-2" -> Algorithm.AEQUITAS_2;
            default -> throw wrong("algorithm is \"" + text(top, "algorithm", "") + "\"; give aequitas or aequitas-2");
        };
    }

    static Config parse(String text) {
        TomlParseResult read = Toml.parse(text);
        if (read.hasErrors()) {
            throw wrong(read.errors().get(0).toString());
        }
        try {
            return new Settings(read).config();
        } catch (TomlInvalidTypeException error) {
            throw wrong(error.getMessage());
        }
    }

    private Config config() {
        for (String key : List.of("group", "quota")) {
            if (top.contains(key)) {
                throw wrong("the Java library has no quotas; remove " + key + ", or use the library of another language");
            }
        }
        reject(top, TOP);
        Mode mode = switch (text(top, "mode", "enforce")) {
            case "enforce" -> Mode.ENFORCE;
            case "shadow" -> Mode.SHADOW;
            case "off" -> Mode.OFF;
            default -> throw wrong("mode is \"" + text(top, "mode", "") + "\"; give enforce, shadow or off");
        };
        List<ServiceClass> classes = new ArrayList<>();
        TomlArray tables = top.getArray("class");
        int count = tables == null ? 0 : tables.size();
        for (int i = 0; i < count; i++) {
            classes.add(serviceClass(tables.getTable(i), i == count - 1));
        }
        whole(top, "metrics_destinations", 0, 0, 10_000);
        return new Config(
                        mode,
                        algorithm,
                        whole(top, "mtu_bytes", 1460, 64, 65_535),
                        duration(top, "idle_after"),
                        whole(top, "destinations_max", 100_000, 1, 10_000_000),
                        classes)
                .checked();
    }

    private ServiceClass serviceClass(TomlTable table, boolean isLowest) {
        reject(table, CLASS);
        String name = text(table, "name", "");
        if (!table.contains("dscp")) {
            throw wrong("class \"" + name + "\" has no dscp; give 0 to 63");
        }
        int dscp = whole(table, "dscp", 0, 0, 63);
        if (isLowest) {
            for (String key : CLASS) {
                if (!key.equals("name") && !key.equals("dscp") && table.contains(key)) {
                    throw wrong("the last class, \"" + name + "\", has no target; it takes name and dscp only, so remove " + key);
                }
            }
            return ServiceClass.lowest(name, dscp);
        }
        Double percentile = number(table, "percentile");
        if (percentile != null && !(percentile > 0 && percentile < 100)) {
            throw wrong("percentile is " + percentile + "; give one above 0 and below 100, like 99.9");
        }
        return new ServiceClass(
                name,
                dscp,
                duration(table, "target_per_mtu"),
                percentile == null ? 0 : percentile,
                part(table, "alpha", algorithm == Algorithm.AEQUITAS),
                part(table, "beta", algorithm == Algorithm.AEQUITAS),
                part(table, "floor", true),
                part(table, "cut", algorithm == Algorithm.AEQUITAS_2));
    }

    /** A parameter of the class, or else of all classes; zero if neither is given. */
    private double part(TomlTable table, String key, boolean used) {
        Double own = number(table, key);
        Double value = own == null ? number(top, key) : own;
        if (value == null) {
            return 0;
        }
        if (!used) {
            throw wrong(key + " has no effect with this algorithm; remove the key: alpha and beta are for aequitas, cut is for "
                    + "aequitas-2");
        }
        if (!(value <= 1) || Arithmetic.partsOf(value) == 0) {
            throw wrong(key + " is " + value + "; give a value above 0 and at most 1");
        }
        return value;
    }

    private static void reject(TomlTable table, Set<String> known) {
        for (String key : table.keySet()) {
            if (!known.contains(key)) {
                throw wrong("unknown key \"" + key + "\"; remove it, or give one of " + String.join(", ", sorted(known)));
            }
        }
    }

    private static List<String> sorted(Set<String> names) {
        return names.stream().sorted().toList();
    }

    private static String text(TomlTable table, String key, String other) {
        String value = table.getString(key);
        return value == null ? other : value;
    }

    private static int whole(TomlTable table, String key, int other, int least, int most) {
        Long value = table.getLong(key);
        if (value != null && (value < least || value > most)) {
            throw wrong(key + " is " + value + "; give " + least + " to " + most);
        }
        return value == null ? other : Math.toIntExact(value);
    }

    private static Double number(TomlTable table, String key) {
        return table.get(key) instanceof Long whole ? Double.valueOf(whole) : table.getDouble(key);
    }

    /** Rounded down to nanoseconds; zero if not given. */
    private static Duration duration(TomlTable table, String key) {
        String text = table.getString(key);
        if (text == null) {
            return Duration.ZERO;
        }
        Matcher parts = DURATION.matcher(text.strip());
        // A longer text is no time of this file, and its decimal would be expensive.
        if (text.length() <= 40 && parts.matches()) {
            BigDecimal ns = new BigDecimal(parts.group(1)).multiply(BigDecimal.valueOf(NANOSECONDS.get(parts.group(2))));
            BigDecimal rounded = ns.setScale(0, RoundingMode.DOWN);
            if (rounded.signum() > 0 && rounded.compareTo(BigDecimal.valueOf(Long.MAX_VALUE)) <= 0) {
                return Duration.ofNanos(rounded.longValueExact());
            }
        }
        throw wrong(key + " is \"" + text + "\"; write a time of at least 1 ns with its unit, like \"15us\"");
    }

    private static IllegalArgumentException wrong(String what) {
        return new IllegalArgumentException("isolane: settings: " + what);
    }
}
