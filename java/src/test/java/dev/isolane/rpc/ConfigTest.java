package dev.isolane.rpc;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.List;
import org.junit.jupiter.api.Test;

class ConfigTest {
    private static final ServiceClass HIGH = ServiceClass.of("high", 46, Duration.ofNanos(15_000));
    private static final ServiceClass LOW = ServiceClass.lowest("low", 8);

    private static void rejected(String part, Config config) {
        var error = assertThrows(IllegalArgumentException.class, () -> new Admission(config), part);
        assertTrue(error.getMessage().contains(part), part + " is not in " + error.getMessage());
    }

    private static ServiceClass with(double percentile, double alpha, double beta, double floor, double cut) {
        return new ServiceClass("high", 46, Duration.ofNanos(15_000), percentile, alpha, beta, floor, cut);
    }

    @Test
    void invalidValuesAreRejectedWithTheValue() {
        Config good = Config.of(HIGH, LOW);
        rejected("1 classes", Config.of(LOW));
        rejected("0 classes", Config.of());
        rejected("dscp is 64", Config.of(ServiceClass.of("high", 64, Duration.ofNanos(1)), LOW));
        rejected("targetPerMtu is PT0S", Config.of(ServiceClass.lowest("high", 46), LOW));
        rejected("targetPerMtu is PT-1S", Config.of(ServiceClass.of("high", 46, Duration.ofSeconds(-1)), LOW));
        rejected("both named \"low\"", Config.of(ServiceClass.of("low", 46, Duration.ofNanos(1)), LOW));
        rejected("both have DSCP 8", Config.of(ServiceClass.of("high", 8, Duration.ofNanos(1)), LOW));
        rejected("the lowest class takes", Config.of(HIGH, ServiceClass.of("low", 8, Duration.ofNanos(1))));
        rejected("travels in metadata", Config.of(ServiceClass.of("two words", 46, Duration.ofNanos(1)), LOW));
        rejected("travels in metadata", Config.of(ServiceClass.of("", 46, Duration.ofNanos(1)), LOW));
        rejected("mtuBytes is 1", good.withMtuBytes(1));
        rejected("mtuBytes is -5", good.withMtuBytes(-5));
        rejected("destinationsMax is -1", good.withDestinationsMax(-1));
        rejected("destinationsMax is 2147483647", good.withDestinationsMax(Integer.MAX_VALUE));
        rejected("idleAfter is PT-1S", good.withIdleAfter(Duration.ofSeconds(-1)));
        rejected("idleAfter is null", good.withIdleAfter(null));
        rejected("mode is null", good.withMode(null));
        rejected("algorithm is null", good.withAlgorithm(null));
    }

    @Test
    void invalidParametersAreRejectedWithTheValue() {
        rejected("percentile is 100.0", Config.of(with(100, 0, 0, 0, 0), LOW));
        rejected("percentile is -1.0", Config.of(with(-1, 0, 0, 0, 0), LOW));
        rejected("percentile is NaN", Config.of(with(Double.NaN, 0, 0, 0, 0), LOW));
        rejected("alpha is Infinity", Config.of(with(0, Double.POSITIVE_INFINITY, 0, 0, 0), LOW));
        rejected("beta is NaN", Config.of(with(0, 0, Double.NaN, 0, 0), LOW));
        rejected("floor is 2.0", Config.of(with(0, 0, 0, 2, 0), LOW));
        rejected("floor is 1.0E-10", Config.of(with(0, 0, 0, 1e-10, 0), LOW));
        rejected("cut is 0.5, which has no effect", Config.of(with(0, 0, 0, 0, 0.5), LOW));
        Config second = Config.of(with(0, 0.5, 0, 0, 0), LOW).withAlgorithm(Algorithm.AEQUITAS_2);
        rejected("alpha is 0.5, which has no effect", second);
        ServiceClass low = new ServiceClass("low", 8, Duration.ZERO, 0, 0, 0, 0.5, 0);
        rejected("floor is 0.5, which has no effect in the lowest class", Config.of(HIGH, low));
    }

    private static final String TEXT =
            """
            mode = "shadow"
            mtu_bytes = 4096
            idle_after = "30s"
            alpha = 0.02
            [[class]]
            name = "high"
            dscp = 46
            target_per_mtu = "1.5 us"
            percentile = 99
            [[class]]
            name = "low"
            dscp = 8
            """;

    @Test
    void theSettingsFileOfTheOtherLanguagesIsRead() {
        Config config = Config.parse(TEXT);
        ServiceClass high = new ServiceClass("high", 46, Duration.ofNanos(1500), 99, 0.02, 0.01, 0.1, 0);
        assertEquals(
                new Config(Mode.SHADOW, Algorithm.AEQUITAS, 4096, Duration.ofSeconds(30), 100_000, List.of(high, LOW)), config);
        assertEquals(config, new Admission(config).config());
        Config second = Config.parse(TEXT.replace("alpha = 0.02", "algorithm = \"aequitas-2\"\ncut = 0.125"));
        assertEquals(Algorithm.AEQUITAS_2, second.algorithm());
        assertEquals(0.125, second.classes().get(0).cut());
        assertEquals(0.01, second.classes().get(0).floor());
    }

    private static void unreadable(String part, String before, String after) {
        String text = TEXT.replaceFirst(before, after);
        assertNotEquals(TEXT, text, before);
        var error = assertThrows(IllegalArgumentException.class, () -> Config.parse(text), part);
        assertTrue(error.getMessage().contains(part), part + " is not in " + error.getMessage());
    }

    @Test
    void mistakesInTheFileAreRejectedWithKeyAndValue() {
        unreadable("mode is \"shado\"", "shadow", "shado");
        unreadable("unknown key \"alfa\"", "alpha", "alfa");
        unreadable("unknown key \"colour\"", "dscp = 46", "dscp = 46\ncolour = 1");
        unreadable("target_per_mtu is \"15\"", "1.5 us", "15");
        unreadable("target_per_mtu is \"0ns\"", "1.5 us", "0ns");
        unreadable("target_per_mtu is \"-1us\"", "1.5 us", "-1us");
        unreadable("target_per_mtu is \"99999999999999s\"", "1.5 us", "99999999999999s");
        unreadable("has no dscp", "dscp = 8", "");
        unreadable("dscp is 99999999999", "dscp = 8", "dscp = 99999999999");
        unreadable("alpha is 0.0", "0.02", "0.0");
        unreadable("alpha is NaN", "0.02", "nan");
        unreadable("alpha has no effect", "alpha", "algorithm = \"aequitas-2\"\nalpha");
        unreadable("algorithm is \"aequitas-3\"", "alpha = 0.02", "algorithm = \"aequitas-3\"");
        unreadable("mtu_bytes is 63", "4096", "63");
        unreadable("mtu_bytes", "4096", "\"4096\"");
        unreadable("percentile is 100.0", "percentile = 99", "percentile = 100");
        unreadable("remove floor", "dscp = 8", "dscp = 8\nfloor = 0.1");
        unreadable("line 2", "mtu_bytes = 4096", "mtu_bytes = ");
        unreadable("1 classes", "(?s)\\[\\[class]]\nname = \"high\".*(?=\\[\\[class]])", "");
        unreadable("no quotas; remove quota", "alpha = 0.02", "[quota]\nserver = \"unix:/q\"\n");
        unreadable("class", "(?s)\\[\\[class]].*", "class = 5\n");
    }
}
