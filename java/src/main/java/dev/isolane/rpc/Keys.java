package dev.isolane.rpc;

import io.grpc.CallOptions;
import io.grpc.Metadata;
import java.util.function.Consumer;

/** Options of calls and the metadata that they carry. */
public final class Keys {
    /**
     * The name of the class that a call requests: {@code stub.withOption(Keys.CLASS, "critical")}. Without a class, and with
     * a name that the configuration does not have, calls request the lowest class; {@link Admission#classNumber} checks a
     * name.
     */
    public static final CallOptions.Key<String> CLASS = CallOptions.Key.create("isolane-class");

    /** The number of the class that a call requests, 0 for the highest; {@link #CLASS} takes precedence. */
    public static final CallOptions.Key<Integer> CLASS_NUMBER = CallOptions.Key.create("isolane-class-number");

    /** Receives the outcome of a call before its application sees its end. */
    public static final CallOptions.Key<Consumer<Outcome>> OUTCOME = CallOptions.Key.create("isolane-outcome");

    /** Request metadata of a downgraded call: the number of the requested class. */
    public static final Metadata.Key<String> DOWNGRADED = key("isolane-downgraded");

    /** Request metadata of every call: the name of the requested class. */
    public static final Metadata.Key<String> REQUESTED_CLASS = key("isolane-requested-class");

    /** Request metadata of every call: the name of the class that the call runs in. */
    public static final Metadata.Key<String> RAN_CLASS = key("isolane-class");

    /** Response metadata, or a trailer: the time in the server in microseconds. */
    public static final Metadata.Key<String> SERVER_TIME = key("isolane-server-us");

    private Keys() {}

    private static Metadata.Key<String> key(String name) {
        return Metadata.Key.of(name, Metadata.ASCII_STRING_MARSHALLER);
    }

    /** In a server: the number of the class that an incoming call requested, if its client downgraded it, otherwise -1. */
    public static int downgradedFrom(Metadata headers) {
        String text = headers.get(DOWNGRADED);
        try {
            return text == null ? -1 : Math.max(Integer.parseInt(text), -1);
        } catch (NumberFormatException error) {
            return -1;
        }
    }
}
