package dev.isolane.rpc;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Consumer;
import java.util.function.IntSupplier;
import java.util.function.LongSupplier;

/**
 * A process's state of its destinations. Safe for use by many threads; known destinations share no lock, except those of one
 * host with {@link Algorithm#AEQUITAS_2}.
 */
public final class Admission {
    /** A checked configuration with its classes in the algorithms' units. */
    record Active(Config config, Options[] options) {
        int lowest() {
            return options.length;
        }
    }

    /** Limits how often a full table is searched, so that newcomers do not search at every call. */
    private static final long SWEEPS_IN_IDLE_TIME = 64;

    private static final long MTUS_MAX = 1L << 31;

    private final ConcurrentHashMap<String, Destination> known = new ConcurrentHashMap<>();
    private final AtomicInteger count = new AtomicInteger();
    private final Hosts hosts = new Hosts();
    private final ReentrantLock sweeping = new ReentrantLock();
    private final IntSupplier random;
    private final LongSupplier clock;
    private volatile long swept;
    private volatile Active active;
    private volatile Consumer<Outcome> observer;

    /**
     * With this configuration.
     *
     * @throws IllegalArgumentException with object, value and remedy
     */
    public Admission(Config config) {
        this(config, () -> ThreadLocalRandom.current().nextInt(), sinceNow());
    }

    /** With uniform 32-bit numbers and a clock in picoseconds. */
    Admission(Config config, IntSupplier random, LongSupplier clock) {
        this.random = random;
        this.clock = clock;
        active = activate(config);
    }

    private static LongSupplier sinceNow() {
        long begin = System.nanoTime();
        return () -> Arithmetic.ps(System.nanoTime() - begin);
    }

    private static Active activate(Config config) {
        Config checked = config.checked();
        Options[] options = new Options[checked.classes().size() - 1];
        for (int i = 0; i < options.length; i++) {
            options[i] = Options.of(checked.classes().get(i), Arithmetic.ps(checked.idleAfter()));
        }
        return new Active(checked, options);
    }

    /**
     * Applies another configuration while calls run. The number, names and code points of the classes and the algorithm
     * cannot change.
     *
     * @throws IllegalArgumentException with the reason; the old configuration then stays
     */
    public void reconfigure(Config config) {
        Active next = activate(config);
        List<ServiceClass> before = config().classes();
        List<ServiceClass> after = next.config.classes();
        boolean same = before.size() == after.size();
        for (int i = 0; same && i < after.size(); i++) {
            same = before.get(i).name().equals(after.get(i).name()) && before.get(i).dscp() == after.get(i).dscp();
        }
        if (!same || next.config.algorithm() != config().algorithm()) {
            throw new IllegalArgumentException("isolane: the algorithm and the classes' number, names and DSCPs cannot change "
                    + "while the program runs; restart it to apply the change");
        }
        active = next;
    }

    /** The current configuration with its defaults filled in. */
    public Config config() {
        return active.config;
    }

    /** The number of the class with this name, -1 for none. */
    public int classNumber(String name) {
        List<ServiceClass> classes = config().classes();
        for (int i = 0; i < classes.size(); i++) {
            if (classes.get(i).name().equals(name)) {
                return i;
            }
        }
        return -1;
    }

    /**
     * Decides on a call of {@code bytes} that requests {@code asked}; an unknown class counts as the lowest. It waits only
     * while another thread decides on, learns from or reports calls of the same destination (with aequitas-2: host) and
     * class.
     */
    public Verdict decide(String to, int asked, long bytes) {
        Active now = active;
        int lowest = now.lowest();
        int requested = asked < 0 || asked > lowest ? lowest : asked;
        long mtus = mtusOf(bytes);
        Destination at = destination(to);
        if (at == null) {
            return new Verdict(requested, requested, false, mtus, null);
        }
        long time = clock.getAsLong();
        at.lastCall = time;
        Destination.Cell cell = at.cells[requested];
        synchronized (cell) {
            cell.asked++;
            boolean admitted = requested == lowest
                    || now.config.mode() == Mode.OFF
                    || admits(at, requested, now.options[requested], time, mtus);
            if (!admitted) {
                cell.downgraded++;
            }
            boolean shadow = now.config.mode() == Mode.SHADOW;
            int ran = admitted || shadow ? requested : lowest;
            return new Verdict(requested, ran, !admitted && shadow, mtus, at);
        }
    }

    private boolean admits(Destination at, int index, Options options, long time, long mtus) {
        Destination.Cell cell = at.cells[index];
        if (at.host == null) {
            return cell.state.decide(options, time, random.getAsInt());
        }
        return cell.level.decide(options, at.host.ports[index].gap(), time, mtus);
    }

    /**
     * Learns from a call that succeeded. The objective covers the packets of the request and the full packets of the
     * response. Subtract the server's own time from the latency.
     */
    public void complete(Verdict verdict, long responseBytes, Duration latency) {
        learn(verdict, verdict.at, Arithmetic.ps(latency), withResponse(verdict.mtus, responseBytes));
    }

    /**
     * Learns from a call that ended without an answer, by its deadline, by cancellation or with its connection. Its latency
     * is at least {@code elapsed}: beyond the objective the call counts as a miss, below it as nothing. Returns whether the
     * call missed.
     */
    public boolean giveUp(Verdict verdict, Duration elapsed) {
        return giveUp(verdict, verdict.at, Arithmetic.ps(elapsed), verdict.mtus);
    }

    boolean giveUp(Verdict verdict, Destination at, long elapsed, long mtus) {
        Options[] options = active.options;
        if (verdict.ran() >= options.length || options[verdict.ran()].meets(elapsed, mtus)) {
            return false;
        }
        learn(verdict, at, elapsed, mtus);
        return true;
    }

    void learn(Verdict verdict, Destination at, long latency, long mtus) {
        Active now = active;
        int ran = verdict.ran();
        if (at == null || now.config.mode() == Mode.OFF || ran >= now.options.length) {
            return;
        }
        Options options = now.options[ran];
        Destination.Cell cell = at.cells[ran];
        synchronized (cell) {
            long time = clock.getAsLong();
            boolean met = options.meets(latency, mtus);
            if (at.host == null) {
                cell.state.complete(options, time, latency, mtus);
            } else {
                at.host.ports[ran].complete(options, time, latency, met, cell.level.gap(options, time));
            }
            if (met) {
                cell.met++;
            } else {
                cell.missed++;
            }
        }
    }

    /** Receives the outcome of every call of every {@link AdmittedChannel} at its end, for metrics. It must not block. */
    public void observe(Consumer<Outcome> function) {
        observer = function;
    }

    Consumer<Outcome> observer() {
        return observer;
    }

    /** The admit probability of a destination and class, 1 for an unknown one. */
    public double probability(String to, int index) {
        Destination at = known.get(to);
        if (at == null || index < 0 || index >= at.cells.length) {
            return 1;
        }
        synchronized (at.cells[index]) {
            return (double) at.probability(active.options, index) / Arithmetic.ONE;
        }
    }

    /** All destinations and classes, sorted by name and rank. */
    public List<Report> reports() {
        Active now = active;
        List<Report> reports = new ArrayList<>();
        List<Destination> all = new ArrayList<>(known.values());
        all.sort(Comparator.comparing(at -> at.name));
        for (Destination at : all) {
            for (int i = 0; i < at.cells.length; i++) {
                Destination.Cell cell = at.cells[i];
                synchronized (cell) {
                    reports.add(new Report(
                            at.name,
                            now.config.classes().get(i).name(),
                            (double) at.probability(now.options, i) / Arithmetic.ONE,
                            cell.asked,
                            cell.downgraded,
                            cell.met,
                            cell.missed));
                }
            }
        }
        return reports;
    }

    /** Removes a destination that has departed. */
    public void forget(String to) {
        Destination gone = known.remove(to);
        if (gone != null) {
            count.decrementAndGet();
            if (gone.host != null) {
                hosts.part(to);
            }
        }
    }

    /** Finds or makes the entry of a destination; null when destinations in use take all entries. */
    Destination destination(String to) {
        Destination found = known.get(to);
        if (found != null) {
            return found;
        }
        Active now = active;
        if (count.get() >= now.config.destinationsMax()) {
            sweep(now);
            if (count.get() >= now.config.destinationsMax()) {
                return null;
            }
        }
        // Two callers may both find the last free entry: concurrent callers can exceed the bound by their number.
        return known.computeIfAbsent(to, name -> {
            count.incrementAndGet();
            long time = clock.getAsLong();
            boolean second = now.config.algorithm() == Algorithm.AEQUITAS_2;
            Hosts.Host host = second ? hosts.join(name, now.options.length, time) : null;
            return new Destination(name, now.config.classes().size(), host, time);
        });
    }

    /**
     * Removes destinations without a call for the idle time. A caller does not wait for another one's search, and returns at
     * once after a recent search.
     */
    private void sweep(Active now) {
        if (!sweeping.tryLock()) {
            return;
        }
        try {
            long time = clock.getAsLong();
            long idle = Arithmetic.ps(now.config.idleAfter());
            boolean recent = !Arithmetic.less(Long.divideUnsigned(idle, SWEEPS_IN_IDLE_TIME), Arithmetic.since(time, swept));
            if (swept != 0 && recent) {
                return;
            }
            swept = Arithmetic.max(time, 1);
            for (Destination at : known.values()) {
                if (Arithmetic.less(idle, Arithmetic.since(time, at.lastCall))) {
                    forget(at.name);
                }
            }
        } finally {
            sweeping.unlock();
        }
    }

    /** Number of destinations with an entry. */
    int destinations() {
        return count.get();
    }

    Hosts hosts() {
        return hosts;
    }

    /** The size of a message in packets, rounded up. */
    long mtusOf(long bytes) {
        int mtu = active.config.mtuBytes();
        return bytes <= 0 ? 1 : Math.min((bytes - 1) / mtu + 1, MTUS_MAX);
    }

    /**
     * Adds the full packets of a response to the packets of its request. The rest of the response, below one packet, is not
     * counted, because every call has a response.
     */
    long withResponse(long mtus, long responseBytes) {
        return Math.min(mtus + Math.max(responseBytes, 0) / active.config.mtuBytes(), MTUS_MAX);
    }
}
