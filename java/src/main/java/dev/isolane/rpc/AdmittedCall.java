package dev.isolane.rpc;

import io.grpc.Attributes;
import io.grpc.CallOptions;
import io.grpc.ClientCall;
import io.grpc.KnownLength;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.MethodDescriptor.MethodType;
import io.grpc.Status;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Consumer;

/**
 * A call that starts in the requested class and, if its backend does not admit it there, once more in the lowest class.
 *
 * <p>The size of a message is part of the decision. So a call whose client sends one message starts with this message. Until
 * the class is settled, which is at once where connections exist, the call keeps its messages for the second start. Limits: a
 * message that can be encoded only once, such as an {@code InputStream}, is not for such a call. A caller that waits for
 * {@code onReady} before its only message waits for ever; generated stubs do not, and {@code isReady} is true.
 */
final class AdmittedCall<Q, R> extends ClientCall<Q, R> {
    private final AdmittedChannel channel;
    private final MethodDescriptor<Q, R> method;
    private final CallOptions options;

    private Listener<R> application;
    private Metadata headers;
    /** Null until the decision is asked for. */
    private Issued issued;
    /** The call in one class; null until then. */
    private ClientCall<Q, R> inner;

    private Ears ears;
    private List<Q> kept;
    private int requested;
    private boolean halfClosed;
    private Boolean compression;
    private boolean cancelled;

    AdmittedCall(AdmittedChannel channel, MethodDescriptor<Q, R> method, CallOptions options) {
        this.channel = channel;
        this.method = method;
        this.options = options;
    }

    @Override
    public synchronized void start(Listener<R> listener, Metadata with) {
        if (application != null || cancelled) {
            throw new IllegalStateException(cancelled ? "call was cancelled" : "call was started already");
        }
        application = listener;
        headers = with;
        if (!method.getType().clientSendsOneMessage()) {
            begin(0);
        }
    }

    /** Asks for the decision and starts the call. */
    private void begin(long bytes) {
        issued = channel.issue(options, bytes, method.getType() == MethodType.UNARY);
        open();
        settle();
    }

    /** Starts the call in the class of the decision so far. */
    private void open() {
        Metadata sent = new Metadata();
        sent.merge(headers);
        int ran = issued.ran();
        channel.mark(sent, issued.asked, ran);
        ClientCall<Q, R> call = channel.of(ran).newCall(method, options.withStreamTracerFactory(issued));
        inner = call;
        ears = new Ears();
        if (compression != null) {
            call.setMessageCompression(compression);
        }
        call.start(ears, sent);
        // With an executor that runs at once, a call that is not admitted is already open in the lowest class.
        if (requested > 0 && inner == call) {
            call.request(requested);
        }
    }

    /** After each step: starts the call in the lowest class if its backend did not admit it. */
    private void settle() {
        if (issued.takeDowngrade()) {
            List<Q> again = kept == null ? List.of() : kept;
            open();
            for (Q message : again) {
                inner.sendMessage(message);
            }
            if (halfClosed) {
                inner.halfClose();
            }
            if (cancelled) {
                inner.cancel("the application cancelled the call", null);
            }
        }
        if (issued.settled()) {
            kept = null;
        }
    }

    @Override
    public synchronized void sendMessage(Q message) {
        if (issued == null) {
            begin(size(message));
        }
        if (!issued.settled()) {
            kept = kept == null ? new ArrayList<>(1) : kept;
            kept.add(message);
        }
        inner.sendMessage(message);
        settle();
    }

    @Override
    public synchronized void halfClose() {
        if (issued == null) {
            begin(0);
        }
        halfClosed = true;
        inner.halfClose();
        settle();
    }

    @Override
    public synchronized void request(int messages) {
        requested += messages;
        if (inner != null) {
            inner.request(messages);
        }
    }

    @Override
    public synchronized void cancel(String message, Throwable cause) {
        cancelled = true;
        if (application == null) {
            return;
        }
        if (issued == null) {
            begin(0);
        }
        inner.cancel(message, cause);
    }

    /** A call that starts with its message is ready for it. */
    @Override
    public synchronized boolean isReady() {
        return inner == null ? application != null : inner.isReady();
    }

    @Override
    public synchronized void setMessageCompression(boolean enabled) {
        compression = enabled;
        if (inner != null) {
            inner.setMessageCompression(enabled);
        }
    }

    @Override
    public synchronized Attributes getAttributes() {
        return inner == null ? Attributes.EMPTY : inner.getAttributes();
    }

    /** True if the call ended; false if it goes on in the lowest class or these are the ears of an earlier start. */
    private synchronized boolean ended(Ears of) {
        if (of != ears) {
            return false;
        }
        settle();
        return of == ears;
    }

    /** A message's size in bytes; 0, which counts as one MTU, if it is unknown before encoding. */
    private long size(Q message) {
        if (message instanceof byte[] bytes) {
            return bytes.length;
        }
        // Protocol buffers know their size without being encoded. Other messages would be encoded twice.
        if (!(method.getRequestMarshaller() instanceof MethodDescriptor.PrototypeMarshaller)) {
            return 0;
        }
        try (InputStream encoded = method.streamRequest(message)) {
            return encoded instanceof KnownLength ? encoded.available() : 0;
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    /** The listener of one start. */
    private final class Ears extends Listener<R> {
        @Override
        public void onHeaders(Metadata received) {
            application.onHeaders(received);
        }

        @Override
        public void onMessage(R message) {
            application.onMessage(message);
        }

        @Override
        public void onReady() {
            application.onReady();
        }

        @Override
        public void onClose(Status status, Metadata trailers) {
            if (!ended(this)) {
                return;
            }
            channel.learnGate(issued);
            try {
                report();
            } finally {
                application.onClose(status, trailers);
            }
        }
    }

    private void report() {
        Consumer<Outcome> wanted = options.getOption(Keys.OUTCOME);
        Consumer<Outcome> observer = issued.admission.observer();
        if (wanted == null && observer == null) {
            return;
        }
        Outcome outcome = issued.outcome();
        if (wanted != null) {
            wanted.accept(outcome);
        }
        if (observer != null) {
            observer.accept(outcome);
        }
    }
}
