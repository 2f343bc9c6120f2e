package dev.isolane.rpc;

import io.grpc.Attributes;
import io.grpc.EquivalentAddressGroup;
import java.net.Inet6Address;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.util.List;

/**
 * The server behind a subchannel of the load balancer. A subchannel may have several addresses, of which one is connected:
 * until a call has shown which one, it is the first.
 */
final class Backend {
    static final Attributes.Key<Backend> KEY = Attributes.Key.create("isolane-backend");

    private record Connected(SocketAddress address, String name) {}

    private final List<EquivalentAddressGroup> addresses;
    private volatile Connected connected;

    Backend(List<EquivalentAddressGroup> addresses) {
        this.addresses = addresses;
        SocketAddress first = addresses.get(0).getAddresses().get(0);
        connected = new Connected(first, nameOf(first));
    }

    /** Name of the destination. */
    String name() {
        return connected.name;
    }

    /** The name of {@code address}, to which a call was sent; made only when it changes. */
    String connectedTo(SocketAddress address) {
        Connected last = connected;
        if (last.address.equals(address)) {
            return last.name;
        }
        String name = nameOf(address);
        if (addresses.stream().anyMatch(group -> group.getAddresses().contains(address))) {
            connected = new Connected(address, name);
        }
        return name;
    }

    static String nameOf(SocketAddress address) {
        if (!(address instanceof InetSocketAddress internet)) {
            return address.toString();
        }
        if (internet.getAddress() == null) {
            return internet.getHostString() + ":" + internet.getPort();
        }
        String host = internet.getAddress().getHostAddress();
        return (internet.getAddress() instanceof Inet6Address ? "[" + host + "]:" : host + ":") + internet.getPort();
    }
}
