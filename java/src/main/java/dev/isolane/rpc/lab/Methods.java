package dev.isolane.rpc.lab;

import io.grpc.KnownLength;
import io.grpc.MethodDescriptor;
import io.grpc.MethodDescriptor.MethodType;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;

/** The methods of the lab's service, whose messages are bytes as they are. */
final class Methods {
    static final String SERVICE = "isolane.lab.Lab";

    /** The request is the payload, the response is empty. */
    static final MethodDescriptor<byte[], byte[]> WRITE = method("Write");

    /** No server has it: it only opens a connection. */
    static final MethodDescriptor<byte[], byte[]> OPEN = method("Open");

    private Methods() {}

    private static final class Known extends ByteArrayInputStream implements KnownLength {
        private Known(byte[] bytes) {
            super(bytes);
        }
    }

    private static final class Bytes implements MethodDescriptor.Marshaller<byte[]> {
        @Override
        public InputStream stream(byte[] value) {
            return new Known(value);
        }

        @Override
        public byte[] parse(InputStream stream) {
            try {
                return stream.readAllBytes();
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }
    }

    private static MethodDescriptor<byte[], byte[]> method(String name) {
        return MethodDescriptor.<byte[], byte[]>newBuilder()
                .setType(MethodType.UNARY)
                .setFullMethodName(SERVICE + "/" + name)
                .setRequestMarshaller(new Bytes())
                .setResponseMarshaller(new Bytes())
                .build();
    }
}
