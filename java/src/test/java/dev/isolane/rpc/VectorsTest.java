package dev.isolane.rpc;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.IOException;
import java.math.BigInteger;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import org.junit.jupiter.api.Test;

/**
 * Goal: the Java algorithms make the same decisions as the Rust ones, bit for bit. Method: replay the vectors of the Rust
 * tests (crates/rpc/demo/tests/vectors.rs), which the Go tests replay too.
 */
class VectorsTest {
    private static JsonArray cases(String file) throws IOException {
        String text = Files.readString(Path.of("../go/isolane/testdata", file));
        return JsonParser.parseString(text).getAsJsonObject().getAsJsonArray("cases");
    }

    /** Unsigned 64-bit numbers. */
    private static long[] numbers(JsonElement array) {
        JsonArray from = array.getAsJsonArray();
        long[] numbers = new long[from.size()];
        for (int i = 0; i < numbers.length; i++) {
            numbers[i] = unsigned(from.get(i));
        }
        return numbers;
    }

    private static long unsigned(JsonElement number) {
        return new BigInteger(number.getAsString()).longValue();
    }

    @Test
    void aequitasDecidesAsTheRustLibrary() throws IOException {
        JsonArray cases = cases("admission.json");
        assertTrue(cases.size() >= 10, "the file is not whole");
        int admitted = 0;
        int absurd = 0;
        for (int i = 0; i < cases.size(); i++) {
            JsonObject one = cases.get(i).getAsJsonObject();
            long target = unsigned(one.get("target_ps"));
            Options options = new Options(
                    target,
                    Options.incrementWindow(target, one.get("percentile").getAsDouble()),
                    Arithmetic.partsOf(one.get("increment").getAsDouble()),
                    Arithmetic.partsOf(one.get("decrement").getAsDouble()),
                    Arithmetic.partsOf(one.get("floor").getAsDouble()),
                    unsigned(one.get("idle_after_ps")),
                    0,
                    0,
                    0,
                    0);
            assertEquals(unsigned(one.get("window_ps")), options.window(), "window of case " + i);
            AdmitState state = new AdmitState(unsigned(one.get("begin_ps")));
            JsonArray steps = one.getAsJsonArray("steps");
            for (int j = 0; j < steps.size(); j++) {
                long[] step = numbers(steps.get(j));
                String at = "case " + i + ", step " + j;
                boolean got = state.decide(options, step[0], (int) step[1]);
                assertEquals(step[2] == 1, got, at);
                state.complete(options, step[0], step[3], step[4]);
                assertEquals(step[5], state.probability(), at);
                admitted += got ? 1 : 0;
                absurd += step[3] < 0 ? 1 : 0;
            }
        }
        assertTrue(admitted > 0 && absurd > 0, admitted + " admitted, " + absurd + " beyond 2^63");
    }

    /** With the locks and the places of hosts: through {@link Admission}. */
    @Test
    void aequitas2DecidesAsTheRustLibrary() throws IOException {
        JsonArray cases = cases("aequitas2.json");
        assertTrue(cases.size() >= 8, "the file is not whole");
        for (int i = 0; i < cases.size(); i++) {
            replay(i, cases.get(i).getAsJsonObject());
        }
    }

    private static void replay(int index, JsonObject one) {
        ServiceClass high = new ServiceClass(
                "high",
                46,
                Duration.ofNanos(one.get("target_ns").getAsLong()),
                one.get("percentile").getAsDouble(),
                0,
                0,
                one.get("floor").getAsDouble(),
                one.get("cut").getAsDouble());
        Config config = Config.of(high, ServiceClass.lowest("low", 8))
                .withAlgorithm(Algorithm.AEQUITAS_2)
                .withMtuBytes(1000)
                .withIdleAfter(Duration.ofNanos(one.get("idle_after_ns").getAsLong()));
        long[] now = new long[1];
        Admission admission = new Admission(config, () -> 0, () -> now[0] * Arithmetic.PS_PER_NS);
        JsonArray steps = one.getAsJsonArray("steps");
        Map<Long, Verdict> verdicts = new HashMap<>();
        int refused = 0;
        for (int j = 0; j < steps.size(); j++) {
            long[] step = numbers(steps.get(j));
            String at = "case " + index + ", step " + j;
            now[0] = step[0];
            if (step.length == 4) {
                Verdict verdict = admission.decide("host:" + step[1], 0, step[2] * 1000);
                assertEquals(step[3] == 0, verdict.downgraded(), at);
                refused += verdict.downgraded() ? 1 : 0;
                verdicts.put((long) j, verdict);
                continue;
            }
            Verdict verdict = verdicts.get(step[1]);
            admission.complete(verdict, 0, Duration.ofNanos(step[2]));
            assertEquals(step[3], verdict.at.host.ports[0].gap(), at);
            long part = (long) (admission.probability(verdict.at.name, 0) * Arithmetic.ONE);
            assertEquals(step[4], part, at);
        }
        assertTrue(refused > 0, "case " + index + " exercises nothing");
    }

    @Test
    void decimalsBecomePartsWithinBounds() {
        double[] values = {-1, 0, 0.5, 1, 7, Double.NaN};
        long[] parts = {0, 0, Arithmetic.ONE / 2, Arithmetic.ONE, Arithmetic.ONE, 0};
        for (int i = 0; i < values.length; i++) {
            assertEquals(parts[i], Arithmetic.partsOf(values[i]), "value " + values[i]);
        }
    }

    @Test
    void arithmeticIsUnsignedAndSaturates() {
        assertEquals(Arithmetic.NEVER, Arithmetic.saturatingMul(1L << 40, 1L << 40));
        assertEquals(-2L, Arithmetic.saturatingMul(Long.MAX_VALUE, 2));
        assertEquals(Arithmetic.NEVER, Arithmetic.saturatingAdd(-2, 5));
        assertEquals(0, Arithmetic.since(1, -1L));
        assertEquals(Arithmetic.NEVER, Arithmetic.ps(Duration.ofDays(1_000_000)));
        assertEquals(Arithmetic.NEVER, Options.incrementWindow(-1L, 99.9));
        assertEquals(0x1p64 - 0x1p12, Arithmetic.real(-1L << 12));
    }

    @Test
    void hostOfADestinationHasNoPortNumber() {
        String[][] names = {
            {"10.0.0.2:443", "10.0.0.2"}, {"storage:50051", "storage"}, {"[fd00::1]:443", "[fd00::1]"},
            {"fd00::1", "fd00::1"}, {"storage", "storage"}, {"unix:/run/s", "unix:/run/s"}, {"storage:", "storage:"}, {"", ""},
        };
        for (String[] name : names) {
            assertEquals(name[1], Hosts.hostOf(name[0]), name[0]);
        }
    }
}
