package dev.isolane.rpc.lab;

import java.io.IOException;

/**
 * The Java client and server of {@code isolane rpc lab}.
 *
 * <p>It reads one JSON document a line on stdin and answers on stdout; crates/rpc/demo/src/job.rs describes them. Calls are
 * issued when they are due, whether earlier ones were answered or not. Times are microseconds after the start.
 */
public final class Lab {
    private Lab() {}

    public static void main(String[] arguments) {
        String role = arguments.length == 1 ? arguments[0] : "";
        try {
            switch (role) {
                case "client" -> Client.run();
                case "server" -> Server.run();
                case "version" -> System.out.println("isolane-rpc-lab-java 1");
                default -> {
                    System.err.println("usage: java -jar isolane-rpc-lab.jar client|server|version; isolane rpc lab starts it");
                    System.exit(2);
                }
            }
        } catch (IOException | RuntimeException error) {
            fail(error.toString());
        }
    }

    static void fail(String words) {
        System.err.println("isolane-rpc-lab-java: " + words);
        // Threads of gRPC may still run.
        Runtime.getRuntime().halt(3);
    }
}
