package dev.isolane.rpc.lab;

import io.grpc.MethodDescriptor;
import io.grpc.MethodDescriptor.MethodType;

/** The methods of the lab's service, whose messages are bytes as they are. */
final class Methods {
    static final String SERVICE = "isolane.lab.Lab";

    /** The request is the payload, the response is empty. */
    static final MethodDescriptor<byte[], byte[]> WRITE = method("Write");

    /** No server has it: it only opens a connection. */
    static final MethodDescriptor<byte[], byte[]> OPEN = method("Open");

    private Methods() {}

    private static MethodDescriptor<byte[], byte[]> method(String name) {
        return MethodDescriptor.<byte[], byte[]>newBuilder()
                .setType(MethodType.UNARY)
                .setFullMethodName(SERVICE + "/" + name)
                .setRequestMarshaller(new Bytes())
                .setResponseMarshaller(new Bytes())
                .build();
    }
}
