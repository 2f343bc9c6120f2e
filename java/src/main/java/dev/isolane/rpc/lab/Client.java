package dev.isolane.rpc.lab;

import dev.isolane.rpc.Admission;
import dev.isolane.rpc.AdmittedChannel;
import dev.isolane.rpc.Config;
import dev.isolane.rpc.Keys;
import dev.isolane.rpc.Mode;
import dev.isolane.rpc.Outcome;
import dev.isolane.rpc.ServiceClass;
import dev.isolane.rpc.lab.Documents.ClientJob;
import io.grpc.CallOptions;
import io.grpc.ClientCall;
import io.grpc.Metadata;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.stub.ClientCalls;
import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.SplittableRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/** Issues the calls of one job. */
final class Client {
    private static final long CONNECT_S = 20;

    private final ClientJob job;
    private final AdmittedChannel channel;
    private final byte[] payload;
    /** Nanosecond clock at the start. */
    private final long begin;

    private long issued;
    private long failed;
    private String firstError;
    private long lateUsMax;
    private final List<long[]> calls = new ArrayList<>();

    private Client(ClientJob job, AdmittedChannel channel, long begin) {
        this.job = job;
        this.channel = channel;
        this.payload = new byte[job.callBytes()];
        this.begin = begin;
    }

    static void run() throws IOException {
        ClientJob job = Documents.read(ClientJob.class);
        WarmUp.run();
        Admission admission = new Admission(config(job));
        AdmittedChannel channel = AdmittedChannel.forTarget(
                admission, job.server(), builder -> builder.usePlaintext().directExecutor());
        for (int i = 0; i < job.dscp().length; i++) {
            connect(channel, i);
        }
        Documents.write(new Documents.Ready(true));
        long start = Documents.read(Documents.Start.class).startUnixUs();
        leaveWithController();
        long untilStart = start * 1000 - System.currentTimeMillis() * 1_000_000;
        Client client = new Client(job, channel, System.nanoTime() + untilStart);
        client.issueAll();
        client.awaitAnswers();
        Documents.write(client.result(admission));
        // Calls without an answer must not hold the program.
        Runtime.getRuntime().halt(0);
    }

    /** The job's admission; without one, everything is only counted. */
    private static Config config(ClientJob job) {
        ServiceClass[] classes = new ServiceClass[job.dscp().length];
        for (int i = 0; i < classes.length; i++) {
            String name = "class-" + i;
            int dscp = job.dscp()[i];
            if (i == classes.length - 1) {
                classes[i] = ServiceClass.lowest(name, dscp);
            } else if (job.admission() == null) {
                classes[i] = ServiceClass.of(name, dscp, Duration.ofSeconds(1));
            } else {
                Documents.AdmissionClass of = job.admission().classes().get(i);
                Duration target = Duration.ofNanos((long) Math.max(of.targetPerMtuUs() * 1000, 1));
                classes[i] = new ServiceClass(
                        name, dscp, target, of.percentile(), of.increment(), of.decrementPerMtu(), of.floor(), 0);
            }
        }
        Config config = Config.of(classes);
        if (job.admission() == null) {
            return config.withMode(Mode.OFF);
        }
        return config.withMode(job.admission().shadow() ? Mode.SHADOW : Mode.ENFORCE)
                .withMtuBytes(job.admission().mtuBytes());
    }

    private static void connect(AdmittedChannel channel, int index) {
        CallOptions options = CallOptions.DEFAULT.withWaitForReady().withDeadlineAfter(CONNECT_S, TimeUnit.SECONDS);
        try {
            ClientCalls.blockingUnaryCall(channel.of(index), Methods.OPEN, options, new byte[0]);
        } catch (StatusRuntimeException error) {
            if (error.getStatus().getCode() != Status.Code.UNIMPLEMENTED) {
                throw error;
            }
        }
    }

    private static void leaveWithController() {
        Thread watch = new Thread(() -> {
            try {
                Documents.awaitEnd();
            } catch (IOException error) {
                // The controller is gone.
            }
            Lab.fail("lost its controller");
        });
        watch.setDaemon(true);
        watch.start();
    }

    /** A Poisson stream that runs only while a burst lasts. */
    private void issueAll() {
        SplittableRandom draw = new SplittableRandom(job.seed());
        double clock = 0;
        while (true) {
            clock -= Math.log(1 - draw.nextDouble()) * 1e6 / job.burstCallsPerS();
            long us = (long) clock;
            long at = us / job.burstUs() * job.periodUs() + us % job.burstUs();
            if (at >= job.issueUs()) {
                return;
            }
            double point = draw.nextDouble();
            int asked = 0;
            while (asked < job.mix().length - 1 && point >= job.mix()[asked]) {
                point -= job.mix()[asked];
                asked++;
            }
            issue(at, asked);
        }
    }

    private void issue(long atUs, int asked) {
        long due = begin + atUs * 1000;
        for (long left = due - System.nanoTime(); left > 0; left = due - System.nanoTime()) {
            LockSupport.parkNanos(left);
        }
        long now = System.nanoTime();
        long lateUs = (now - due) / 1000;
        synchronized (this) {
            issued++;
            lateUsMax = Math.max(lateUsMax, lateUs);
        }
        Ears ears = new Ears(asked, atUs + lateUs, now);
        CallOptions options = CallOptions.DEFAULT
                .withOption(Keys.CLASS_NUMBER, asked)
                .withOption(Keys.OUTCOME, outcome -> ears.outcome = outcome);
        ClientCall<byte[], byte[]> call = channel.newCall(Methods.WRITE, options);
        call.start(ears, new Metadata());
        call.request(2);
        call.sendMessage(payload);
        call.halfClose();
    }

    private final class Ears extends ClientCall.Listener<byte[]> {
        private final int asked;
        private final long atUs;
        private final long begin;
        private Outcome outcome;

        private Ears(int asked, long atUs, long begin) {
            this.asked = asked;
            this.atUs = atUs;
            this.begin = begin;
        }

        @Override
        public void onClose(Status status, Metadata trailers) {
            long tookUs = (System.nanoTime() - begin) / 1000;
            synchronized (Client.this) {
                if (status.isOk()) {
                    boolean lower = outcome.downgraded() || outcome.wouldDowngrade();
                    calls.add(new long[] {asked, outcome.ran(), lower ? 1 : 0, atUs, tookUs});
                } else {
                    failed++;
                    firstError = firstError == null ? status.toString() : firstError;
                }
                Client.this.notifyAll();
            }
        }
    }

    private synchronized void awaitAnswers() {
        long end = begin + (job.issueUs() + job.drainUs()) * 1000;
        try {
            for (long left = end - System.nanoTime();
                    left > 0 && failed + calls.size() < issued;
                    left = end - System.nanoTime()) {
                TimeUnit.NANOSECONDS.timedWait(this, left);
            }
        } catch (InterruptedException error) {
            throw new IllegalStateException("nobody interrupts this thread", error);
        }
    }

    private synchronized Documents.ClientResult result(Admission admission) {
        List<Double> probability = new ArrayList<>();
        int controlled = job.admission() == null ? 0 : job.admission().classes().size();
        for (int i = 0; i < controlled; i++) {
            probability.add(admission.probability(job.server(), i));
        }
        return new Documents.ClientResult(
                issued, failed, issued - failed - calls.size(), firstError, lateUsMax, probability, calls);
    }
}
