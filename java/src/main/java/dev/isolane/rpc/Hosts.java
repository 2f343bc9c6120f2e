package dev.isolane.rpc;

import java.util.HashMap;
import java.util.Map;

/** The ports of all hosts, for aequitas-2. Destinations find theirs when they are made. */
final class Hosts {
    /** One port for each class with an objective. */
    static final class Host {
        final Port[] ports;
        private int destinations;

        private Host(int classes, long now) {
            ports = new Port[classes];
            for (int i = 0; i < classes; i++) {
                ports[i] = new Port(Arithmetic.since(now, Arithmetic.PS_PER_NS));
            }
        }
    }

    private final Map<String, Host> known = new HashMap<>();

    synchronized Host join(String destination, int classes, long now) {
        Host host = known.computeIfAbsent(hostOf(destination), name -> new Host(classes, now));
        host.destinations++;
        return host;
    }

    synchronized void part(String destination) {
        known.computeIfPresent(hostOf(destination), (name, host) -> --host.destinations == 0 ? null : host);
    }

    synchronized int count() {
        return known.size();
    }

    /**
     * A destination's name without its port number. A name that is not host:number or [host]:number is a host as a whole.
     */
    static String hostOf(String name) {
        int colon = name.lastIndexOf(':');
        if (colon < 0) {
            return name;
        }
        String before = name.substring(0, colon);
        String number = name.substring(colon + 1);
        boolean isNumber = !number.isEmpty() && number.chars().allMatch(c -> c >= '0' && c <= '9');
        return isNumber && (before.endsWith("]") || before.indexOf(':') < 0) ? before : name;
    }
}
