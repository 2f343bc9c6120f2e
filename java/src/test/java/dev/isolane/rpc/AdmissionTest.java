package dev.isolane.rpc;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

class AdmissionTest {
    static final Duration SECOND = Duration.ofSeconds(1);

    static Config threeClasses() {
        return Config.of(
                        ServiceClass.of("high", 46, Duration.ofNanos(15_000)),
                        ServiceClass.of("medium", 26, Duration.ofNanos(25_000)),
                        ServiceClass.lowest("low", 10))
                .withMtuBytes(1000);
    }

    /** Sets clock and random numbers. */
    static final class Fixed {
        volatile long now;
        volatile int random;

        Admission admission(Config config) {
            return new Admission(config, () -> random, () -> now);
        }
    }

    @Test
    void aSlowCallLowersTheProbabilityOfItsDestination() {
        Fixed fixed = new Fixed();
        Admission admission = fixed.admission(threeClasses());
        Verdict first = admission.decide("host:1", 0, 7000);
        assertEquals(0, first.ran());
        admission.complete(first, 0, SECOND);
        // 7 MTUs of a miss cost 0.07.
        assertEquals(0.93, admission.probability("host:1", 0), 1e-4);
        fixed.random = -1;
        Verdict second = admission.decide("host:1", 0, 7000);
        assertTrue(second.downgraded());
        assertEquals(2, second.ran());
        assertFalse(admission.decide("host:2", 0, 7000).downgraded());
        Report report = admission.reports().get(0);
        assertEquals(new Report("host:1", "high", report.probability(), 2, 1, 0, 1), report);
    }

    @Test
    void aResponseRaisesTheObjectiveByItsFullPackets() {
        Admission admission = new Fixed().admission(threeClasses());
        Duration took = Duration.ofNanos(15_000 * 11 - 1);
        admission.complete(admission.decide("host:1", 0, 1), 10_999, took);
        assertEquals(1, admission.reports().get(0).met());
        admission.complete(admission.decide("host:1", 0, 1), 9_999, took);
        assertEquals(1, admission.reports().get(0).missed());
    }

    @Test
    void aCallWithoutAnAnswerIsAMissOnlyBeyondItsObjective() {
        Admission admission = new Fixed().admission(threeClasses());
        Verdict verdict = admission.decide("host:1", 0, 2000);
        assertFalse(admission.giveUp(verdict, Duration.ofNanos(29_999)));
        assertTrue(admission.giveUp(verdict, Duration.ofNanos(30_000)));
        Report report = admission.reports().get(0);
        assertEquals(0, report.met());
        assertEquals(1, report.missed());
    }

    @Test
    void shadowReportsAndOffDecidesNothing() {
        Fixed fixed = new Fixed();
        Admission admission = fixed.admission(threeClasses().withMode(Mode.SHADOW));
        admission.complete(admission.decide("host:1", 0, 7000), 0, SECOND);
        fixed.random = -1;
        Verdict verdict = admission.decide("host:1", 0, 7000);
        assertFalse(verdict.downgraded());
        assertTrue(verdict.wouldDowngrade());
        admission.reconfigure(threeClasses().withMode(Mode.OFF));
        assertFalse(admission.decide("host:1", 0, 7000).wouldDowngrade());
    }

    @Test
    void memoryIsBoundedAndIdleEntriesAreReused() {
        Fixed fixed = new Fixed();
        Admission admission = fixed.admission(threeClasses().withDestinationsMax(100).withIdleAfter(SECOND));
        for (int i = 0; i < 150; i++) {
            Verdict verdict = admission.decide("host:" + i, 0, 1);
            assertFalse(verdict.downgraded());
            admission.complete(verdict, 0, SECOND);
        }
        assertEquals(100, admission.destinations());
        fixed.now = Arithmetic.ps(Duration.ofSeconds(2));
        admission.decide("late:1", 0, 1);
        assertEquals(1, admission.destinations());
        admission.forget("late:1");
        assertEquals(0, admission.destinations());
    }

    /** Goal: the evidence of a host ends with its last destination. */
    @Test
    void departedDestinationsFreeTheirHost() {
        Admission admission = new Fixed().admission(threeClasses().withAlgorithm(Algorithm.AEQUITAS_2));
        admission.decide("a:1", 0, 1);
        admission.decide("a:2", 0, 1);
        admission.forget("a:1");
        assertEquals(1, admission.hosts().count());
        admission.forget("a:2");
        assertEquals(0, admission.hosts().count());
    }

    @Test
    void manyThreadsCountEveryCall() throws InterruptedException {
        Admission admission = new Admission(threeClasses());
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < 8; i++) {
            int index = i % 3;
            threads.add(new Thread(() -> {
                for (int call = 0; call < 1000; call++) {
                    Verdict verdict = admission.decide("host:" + call % 3, index, 1500);
                    admission.complete(verdict, 0, Duration.ofNanos(call));
                }
            }));
        }
        threads.forEach(Thread::start);
        for (Thread thread : threads) {
            thread.join();
        }
        assertEquals(8000, admission.reports().stream().mapToLong(Report::asked).sum());
    }

    @Test
    void classesStayWhileCallsRun() {
        Admission admission = new Admission(threeClasses());
        Config other = Config.of(
                ServiceClass.of("high", 34, Duration.ofNanos(15_000)),
                ServiceClass.of("medium", 26, Duration.ofNanos(25_000)),
                ServiceClass.lowest("low", 10));
        assertThrows(IllegalArgumentException.class, () -> admission.reconfigure(other));
        admission.reconfigure(admission.config());
    }

    @Test
    void unknownClassesCountAsTheLowest() {
        Admission admission = new Admission(threeClasses());
        for (int asked : new int[] {-1, 3, Integer.MAX_VALUE, Integer.MIN_VALUE}) {
            assertEquals(2, admission.decide("host:1", asked, Long.MAX_VALUE).asked());
        }
        assertEquals(-1, admission.classNumber("urgent"));
        assertEquals(1, admission.classNumber("medium"));
    }
}
