package dev.isolane.rpc;

/** The state of one destination. */
final class Destination {
    /** The state of one destination and class. Its monitor is its lock. */
    static final class Cell {
        final AdmitState state;
        final Level level = new Level();
        long asked;
        long downgraded;
        long met;
        long missed;

        private Cell(long now) {
            state = new AdmitState(now);
        }
    }

    final String name;
    final Cell[] cells;
    /** The ports of its host, with aequitas-2 only. */
    final Hosts.Host host;
    /** Time of the last call, ps. */
    volatile long lastCall;

    Destination(String name, int classes, Hosts.Host host, long now) {
        this.name = name;
        this.host = host;
        this.lastCall = now;
        cells = new Cell[classes];
        for (int i = 0; i < classes; i++) {
            cells[i] = new Cell(now);
        }
    }

    /** The part of its calls that a class admits, in parts of 2^32. The cell's lock is held. */
    long probability(Options[] options, int index) {
        if (host == null || index >= options.length) {
            return cells[index].state.probability();
        }
        return cells[index].level.probability(options[index], host.ports[index].gap());
    }
}
