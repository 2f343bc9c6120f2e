package dev.isolane.rpc.lab;

import com.google.gson.FieldNamingPolicy;
import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonParseException;
import java.io.BufferedReader;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.List;

/** The documents between the controller and the lab's programs. Units end the names. */
final class Documents {
    record AdmissionClass(
            double targetPerMtuUs, double percentile, double increment, double decrementPerMtu, double floor) {}

    record AdmissionJob(boolean shadow, int mtuBytes, List<AdmissionClass> classes) {}

    record ClientJob(
            String server,
            int callBytes,
            long periodUs,
            long burstUs,
            double burstCallsPerS,
            double[] mix,
            int[] dscp,
            long issueUs,
            long drainUs,
            long seed,
            AdmissionJob admission) {}

    record ServerJob(String listen) {}

    record Ready(boolean ready) {}

    record Start(long startUnixUs) {}

    record ClientResult(
            long issued,
            long failed,
            long unanswered,
            String firstError,
            long lateUsMax,
            List<Double> probability,
            List<long[]> calls) {}

    record ServerResult(long calls, long bytes, long downgraded) {}

    private static final Gson GSON = new GsonBuilder()
            .setFieldNamingPolicy(FieldNamingPolicy.LOWER_CASE_WITH_UNDERSCORES)
            .serializeNulls()
            .create();

    private static final BufferedReader STDIN =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));

    private Documents() {}

    /** The next document. */
    static <T> T read(Class<T> of) throws IOException {
        String line = STDIN.readLine();
        if (line == null) {
            throw new EOFException("stdin ended before a document");
        }
        try {
            T document = GSON.fromJson(line, of);
            if (document == null) {
                throw new IOException("got no document");
            }
            return document;
        } catch (JsonParseException error) {
            throw new IOException("got no document: " + error.getMessage(), error);
        }
    }

    static void write(Object document) {
        System.out.println(GSON.toJson(document));
        System.out.flush();
    }

    /** Returns when stdin ends: the controller is done or has ended. */
    static void awaitEnd() throws IOException {
        while (STDIN.readLine() != null) {
            // The controller sends nothing more.
        }
    }
}
