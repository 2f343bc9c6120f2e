"""Admission in front of real grpcio servers on loopback: what calls say, what is learned, which packets carry which mark."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import grpc
import pytest

from isolane import aio, rpc

SETTINGS = """
mtu_bytes = 1000
alpha = 0.01
beta = 0.01
floor = 0.1
[[class]]
name = "high"
dscp = 46
target_per_mtu = "15us"
[[class]]
name = "medium"
dscp = 26
target_per_mtu = "10s"
[[class]]
name = "low"
dscp = 10
"""

#: Drives the probability of class 0 down to its floor: a hundred misses of ten MTUs.
SLOW_CALLS = 100


class Server:
    """Answers with the request, and remembers what calls said of themselves."""

    def __init__(self) -> None:
        self.seen: list[int | None] = []
        self.server = grpc.server(futures.ThreadPoolExecutor(4))
        handlers = {
            "Say": grpc.unary_unary_rpc_method_handler(self.say),
            "Told": grpc.unary_unary_rpc_method_handler(self.told),
            "Stream": grpc.stream_stream_rpc_method_handler(self.stream),
        }
        self.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Echo", handlers),))
        self.address = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
        self.server.start()

    def say(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        self.seen.append(rpc.downgraded_from(context))
        if request == b"fail":
            context.abort(grpc.StatusCode.INTERNAL, "asked to fail")
        if request == b"slow":
            context.set_trailing_metadata(((rpc.SERVER_TIME, "999000000"),))
        return request

    def told(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        """What the call's metadata says of its class."""
        metadata = dict(context.invocation_metadata())
        context.send_initial_metadata(((rpc.SERVER_TIME, "999000000"),))
        return ",".join(metadata.get(key, "-") for key in (rpc.REQUESTED_CLASS, rpc.CLASS, rpc.DOWNGRADED)).encode()

    def stream(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        self.seen.append(rpc.downgraded_from(context))
        yield from requests


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.server.stop(0).wait()


def overload(admission: rpc.Admission, destination: str) -> None:
    """As after many calls that missed the objective of class 0."""
    for _ in range(SLOW_CALLS):
        decision = admission.decide(destination, 0, 10_000)
        admission.complete(decision.ticket, 10.0)
    assert admission.probability(destination, 0) == pytest.approx(0.1, abs=1e-6)


def test_a_call_that_misses_lowers_what_the_next_ones_get(server: Server) -> None:
    admission = rpc.Admission(SETTINGS)
    with rpc.channel(server.address, admission) as channel:
        say = channel.unary_unary("/test.Echo/Say")
        with rpc.asking("high") as asked:
            assert say(b"x" * 7000, timeout=60) == b"x" * 7000
    # Seven MTUs each way, of 15 us each.
    assert asked.outcome is not None and asked.outcome.latency is not None
    assert (asked.outcome.asked, asked.outcome.ran, asked.outcome.downgraded) == (0, 0, False)
    missed = asked.outcome.latency >= 210e-6
    assert admission.probability(server.address, "high") == pytest.approx(0.86 if missed else 1.0, abs=1e-6)
    assert server.seen == [None]


def test_downgraded_calls_say_so_to_server_and_application(server: Server) -> None:
    admission = rpc.Admission(SETTINGS)
    overload(admission, server.address)
    told = []
    with rpc.channel(server.address, admission) as channel:
        say = channel.unary_unary("/test.Echo/Say")
        for _ in range(100):
            with rpc.asking(0):
                reply, call = say.with_call(b"hello", timeout=60)
            outcome = rpc.outcome(call)
            assert reply == b"hello" and outcome is not None
            assert outcome.ran == (2 if outcome.downgraded else 0)
            told.append(outcome.downgraded)
    assert server.seen == [0 if down else None for down in told]
    # Nine of ten are downgraded; fewer than 60 of 100 would come once in 10^15 runs.
    assert sum(told) >= 60
    assert 'class="high"' in admission.metrics()


def test_futures_and_streams_are_measured_at_their_end(server: Server) -> None:
    admission = rpc.Admission(SETTINGS)
    with rpc.channel(server.address, admission, default="medium") as channel:
        call = channel.unary_unary("/test.Echo/Say").future(b"later", timeout=60)
        assert call.result() == b"later"
        stream = channel.stream_stream("/test.Echo/Stream")(iter([b"a", b"b"]), timeout=60)
        assert list(stream) == [b"a", b"b"]
        for one in (call, stream):
            ended = threading.Event()
            if hasattr(one, "add_done_callback"):
                one.add_done_callback(lambda _: ended.set())
            else:
                one.add_callback(ended.set)
            assert ended.wait(60)
            outcome = rpc.outcome(one)
            assert outcome is not None and outcome.ran == 1 and outcome.latency is not None


def test_a_stream_is_decided_on_and_teaches_nothing(server: Server) -> None:
    admission = rpc.Admission(SETTINGS)
    with rpc.channel(server.address, admission, default="high") as channel:
        stream = channel.stream_stream("/test.Echo/Stream")(iter([b"a", b"b"]), timeout=60)
        assert list(stream) == [b"a", b"b"]
        outcome = rpc.outcome(stream)
        assert outcome is not None
        for _ in range(1000):
            if outcome.latency is not None:
                break
            time.sleep(0.01)
        assert outcome.latency is not None
    # It took longer than the 15 us of one MTU, but who knows whose time that was.
    assert admission.probability(server.address, "high") == 1.0
    assert 'isolane_rpc_issued_total{class="high"} 1' in admission.metrics()


def test_a_context_that_lasts_keeps_the_last_outcomes_only() -> None:
    gate = rpc.AdmissionInterceptor(rpc.Admission(SETTINGS), "host:1")
    with rpc.asking("medium") as asked:
        for size in range(rpc.OUTCOMES_MAX + 10):
            gate.begin("/test.Echo/Say", size)
    assert len(asked.outcomes) == rpc.OUTCOMES_MAX
    assert asked.outcomes[-1] is asked.outcome


def test_calls_say_their_classes_as_in_the_other_languages(server: Server) -> None:
    """Also that a server's time in its metadata, where the Rust server puts it, is taken off."""
    admission = rpc.Admission(SETTINGS)
    overload(admission, server.address)
    told = set()
    with rpc.channel(server.address, admission) as channel, rpc.asking("high") as asked:
        for _ in range(60):
            told.add(channel.unary_unary("/test.Echo/Told")(b"x", timeout=60))
            assert asked.outcome is not None and asked.outcome.latency == 0.0
    assert told <= {b"high,low,0", b"high,high,-"} and b"high,low,0" in told

    async def run() -> bytes:
        async with aio.channel(server.address, admission, default="medium") as channel:
            reply: bytes = await channel.unary_unary("/test.Echo/Told")(b"x", timeout=60)
            return reply

    assert asyncio.run(run()) == b"medium,medium,-"


def test_a_failed_call_teaches_nothing_and_is_passed_on(server: Server) -> None:
    admission = rpc.Admission(SETTINGS)
    with rpc.channel(server.address, admission, methods={"/test.Echo/Say": "high"}) as channel:
        with pytest.raises(grpc.RpcError, match="asked to fail"):
            channel.unary_unary("/test.Echo/Say")(b"fail", timeout=60)
    assert admission.probability(server.address, "high") == 1.0


def test_the_servers_own_time_is_not_the_networks(server: Server) -> None:
    admission = rpc.Admission(SETTINGS)
    with rpc.channel(server.address, admission, default=0) as channel, rpc.asking(0) as asked:
        channel.unary_unary("/test.Echo/Say")(b"slow", timeout=60)
    assert asked.outcome is not None and asked.outcome.latency == 0.0
    assert admission.probability(server.address, 0) == 1.0


def test_the_second_algorithm_gives_a_class_a_level() -> None:
    """A miss gives the class a level, and a large call uses the level up for minutes."""
    settings = SETTINGS.replace("alpha = 0.01\nbeta = 0.01\n", 'algorithm = "aequitas-2"\n').replace("15us", "100us")
    admission = rpc.Admission(settings)
    assert admission.decide("host:1", 0, 1).ran == 0
    begin = time.monotonic_ns()
    while time.monotonic_ns() - begin < 1_000_000:
        pass
    missed = admission.decide("host:2", 0, 1)
    admission.complete(missed.ticket, 200e-6)
    assert admission.decide("host:1", 0, 1_000 * 100_000).ran == 0
    assert admission.decide("host:1", 0, 1).ran == 2
    with pytest.raises(ValueError, match="alpha = 0.01: has no effect"):
        rpc.Admission('algorithm = "aequitas-2"\n' + SETTINGS)


def test_shadow_mode_reports_and_does_not_act(server: Server) -> None:
    admission = rpc.Admission('mode = "shadow"\n' + SETTINGS)
    overload(admission, server.address)
    outcomes: list[rpc.Outcome] = []
    with rpc.channel(server.address, admission) as channel, rpc.asking(0) as asked:
        for _ in range(50):
            channel.unary_unary("/test.Echo/Say")(b"hello", timeout=60)
        outcomes = asked.outcomes
    assert all(outcome.ran == 0 and not outcome.downgraded for outcome in outcomes)
    assert any(outcome.would_downgrade for outcome in outcomes)
    assert server.seen == [None] * 50


def test_aio_calls_are_downgraded_and_measured_too(server: Server) -> None:
    admission = rpc.Admission(SETTINGS)
    overload(admission, server.address)

    async def run() -> list[rpc.Outcome]:
        outcomes = []
        async with aio.channel(server.address, admission) as channel:
            say = channel.unary_unary("/test.Echo/Say")
            with rpc.asking("high") as asked:
                for _ in range(60):
                    assert await say(b"hello", timeout=60) == b"hello"
            outcomes = asked.outcomes
            with pytest.raises(grpc.aio.AioRpcError, match="asked to fail"):
                await say(b"fail", timeout=60)
            await asyncio.sleep(0)
            stream = channel.stream_stream("/test.Echo/Stream")(iter([b"a", b"b"]), timeout=60)
            assert [message async for message in stream] == [b"a", b"b"]
            while any(outcome.latency is None for outcome in outcomes):
                await asyncio.sleep(0.001)
        return outcomes

    outcomes = asyncio.run(run())
    assert [seen is not None for seen in server.seen[:60]] == [outcome.downgraded for outcome in outcomes]
    assert any(outcome.downgraded for outcome in outcomes)


def test_connections_carry_the_code_points_of_their_classes(server: Server) -> None:
    """Goal: a packet has its class. Method: read IP_TOS of grpcio's own sockets in this process."""
    admission = rpc.Admission(SETTINGS)
    with rpc.ClassChannel(server.address, admission) as channel:
        channel.connect(10)
        port = int(server.address.split(":")[1])
        assert {46 << 2, 26 << 2, 10 << 2} <= fields_of_sockets_to(port)


def fields_of_sockets_to(port: int) -> set[int]:
    import os

    fields = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            copy = socket.socket(fileno=os.dup(int(name)))
        except OSError:
            continue
        with copy:
            try:
                if copy.getpeername()[1] == port:
                    fields.add(copy.getsockopt(socket.IPPROTO_IP, socket.IP_TOS) & 0xFC)
                    fields.add(copy.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS) & 0xFC)
            except (OSError, IndexError, TypeError):
                continue
    return fields


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (SETTINGS.replace("dscp = 46", "dscp = 64"), "64"),
        (SETTINGS.replace('"15us"', '"15"'), "target_per_mtu"),
        ("", "class"),
        (SETTINGS.replace("alpha", "alfa"), "alpha"),
    ],
)
def test_settings_with_a_mistake_are_refused(text: str, part: str) -> None:
    with pytest.raises(ValueError, match=part):
        rpc.Admission(text)


def test_settings_change_while_calls_run_or_stay_as_they_were(tmp_path: Any) -> None:
    file = tmp_path / "rpc.toml"
    file.write_text(SETTINGS)
    admission = rpc.Admission.from_file(file)
    assert admission.mode == "enforce" and admission.reload() is False
    admission.reload('mode = "off"\n' + SETTINGS)
    assert admission.mode == "off"
    with pytest.raises(ValueError, match="restart"):
        admission.reload(SETTINGS.replace("46", "34"))
    with pytest.raises(OSError, match="absent.toml"):
        rpc.Admission.from_file(tmp_path / "absent.toml")


def test_classes_are_named_or_numbered_and_others_refused() -> None:
    admission = rpc.Admission(SETTINGS)
    assert admission.number("medium") == admission.number(1) == 1
    assert admission.lowest == 2
    with pytest.raises(ValueError, match=r"'urgent' is none.*0 \(high\)"):
        admission.decide("host:1", "urgent", 1)
    assert admission.forget("host:1") is False


#: An objective of a millisecond for each packet, so that calls of ten milliseconds miss it.
BRIEF = SETTINGS.replace("15us", "1ms")


class Hanging:
    """Keeps calls until their client has left, or the server stops; answers `read` with 16 MiB."""

    def __init__(self) -> None:
        self.server = grpc.server(futures.ThreadPoolExecutor(4))
        self.stopped = threading.Event()
        handlers = {
            "Hang": grpc.unary_unary_rpc_method_handler(self.hang),
            "Read": grpc.unary_unary_rpc_method_handler(lambda *_: b"x" * (16 << 20)),
        }
        self.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Echo", handlers),))
        self.address = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
        self.server.start()

    def hang(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        while context.is_active() and not self.stopped.wait(0.01):
            pass
        return request


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    made = Hanging()
    yield made
    made.stopped.set()
    made.server.stop(0).wait()


def missed(admission: rpc.Admission) -> int:
    line = next(line for line in admission.metrics().splitlines() if line.startswith('isolane_rpc_missed_total{class="high"'))
    return int(line.split()[-1])


def test_calls_that_their_deadline_ends_lower_the_probability(hanging: Hanging) -> None:
    admission = rpc.Admission(BRIEF)
    with rpc.channel(hanging.address, admission, default="high") as channel:
        hang = channel.unary_unary("/test.Echo/Hang")
        for _ in range(10):
            with pytest.raises(grpc.RpcError):
                hang(b"x", timeout=0.02)
    assert admission.probability(hanging.address, "high") < 1.0 and missed(admission) > 0


def test_a_call_that_its_application_cancels_is_as_slow_as_it_lasted(hanging: Hanging) -> None:
    for settings, misses in ((SETTINGS, 1), (SETTINGS.replace("15us", "10s"), 0)):
        admission = rpc.Admission(settings)
        with rpc.channel(hanging.address, admission, default="high") as channel:
            call = channel.unary_unary("/test.Echo/Hang").future(b"x", timeout=60)
            over = threading.Event()
            call.cancel()
            call.add_done_callback(lambda _, over=over: over.set())
            assert over.wait(60)
        assert missed(admission) == misses


def sent_headers(heard: bytes) -> bool:
    """Whether a client's first bytes have a frame of headers, after the preface of 24 bytes."""
    at = 24
    while len(heard) >= at + 9:
        if heard[at + 3] == 1:
            return True
        at += 9 + int.from_bytes(heard[at : at + 3])
    return False


def test_a_call_whose_connection_is_lost_is_as_slow_as_it_lasted() -> None:
    """The server closes each connection after the first bytes of the call."""
    admission = rpc.Admission(SETTINGS)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"

        def serve() -> None:
            peer, _ = listener.accept()
            settings = b"\0\0\0\x04\0\0\0\0\0"
            peer.sendall(settings)
            heard = b""
            while not sent_headers(heard):
                heard += peer.recv(65536)
            peer.close()

        server = threading.Thread(target=serve)
        server.start()
        with rpc.channel(address, admission, options=[("grpc.enable_retries", 0)], default="high") as channel:
            with pytest.raises(grpc.RpcError) as error:
                channel.unary_unary("/test.Echo/Hang")(b"x", timeout=60)
        server.join()
    assert error.value.code() is grpc.StatusCode.UNAVAILABLE
    assert missed(admission) == 1


def test_aio_calls_that_their_deadline_ends_lower_the_probability(hanging: Hanging) -> None:
    admission = rpc.Admission(BRIEF)

    async def run() -> None:
        async with aio.channel(hanging.address, admission, default="high") as channel:
            with rpc.asking("high") as asked:
                with pytest.raises(grpc.aio.AioRpcError):
                    await channel.unary_unary("/test.Echo/Hang")(b"x", timeout=0.05)
                while asked.outcome is None or asked.outcome.latency is None:
                    await asyncio.sleep(0.001)

    asyncio.run(run())
    assert admission.probability(hanging.address, "high") < 1.0


def test_a_read_counts_the_bytes_of_its_response(hanging: Hanging) -> None:
    """16,777 packets may take 16.8 s; the one packet of the request, a millisecond."""
    options = [("grpc.max_receive_message_length", 64 << 20)]
    admission = rpc.Admission(BRIEF)
    with rpc.channel(hanging.address, admission, options=options, default="high") as channel:
        channel.unary_unary("/test.Echo/Read")(b"x", timeout=60)
    assert admission.probability(hanging.address, "high") == 1.0 and missed(admission) == 0

    async def run() -> None:
        async with aio.channel(hanging.address, admission, options=options, default="high") as channel:
            await channel.unary_unary("/test.Echo/Read")(b"x", timeout=60)

    asyncio.run(run())
    assert admission.probability(hanging.address, "high") == 1.0 and missed(admission) == 0


def test_each_backend_behind_a_name_is_a_destination(server: Server) -> None:
    other = Server()
    nobody = "127.0.0.1:1"
    admission = rpc.Admission(SETTINGS)
    overload(admission, other.address)
    outcomes = []
    backends = [server.address, other.address, nobody]
    with rpc.channel("storage:443", admission, default="high", backends=backends) as channel:
        failed = 0
        for _ in range(60):
            with rpc.asking("high") as asked:
                try:
                    # The server takes its whole time on itself, so that the network has none.
                    channel.unary_unary("/test.Echo/Told")(b"x", timeout=60)
                except grpc.RpcError:
                    failed += 1
            outcomes.append(asked.outcome)
    other.server.stop(0).wait()
    by = {backend: [one for one in outcomes if one is not None and one.destination == backend] for backend in backends}
    assert len(by[server.address]) >= 20 and not any(one.downgraded for one in by[server.address])
    assert any(one.downgraded for one in by[other.address])
    # A backend that is not there loses its turn for a second.
    assert failed == len(by[nobody]) < 20


def test_a_name_has_the_addresses_of_its_backends() -> None:
    assert "127.0.0.1:443" in rpc.backends_of("localhost:443")
    with pytest.raises(ValueError, match="has no port"):
        rpc.backends_of("localhost")


def test_the_span_of_a_call_has_its_classes(server: Server) -> None:
    sdk = pytest.importorskip("opentelemetry.sdk.trace")
    admission = rpc.Admission(SETTINGS)
    with sdk.TracerProvider().get_tracer("test").start_as_current_span("operation") as span:
        with rpc.channel(server.address, admission, default="medium") as channel:
            channel.unary_unary("/test.Echo/Say")(b"x", timeout=60)
        found = dict(span.attributes)
    assert found["isolane.requested_class"] == found["isolane.class"] == "medium"
    assert found["isolane.downgraded"] is False and found["isolane.backend"] == server.address
    assert found["isolane.latency_us"] > 0


@pytest.mark.parametrize(
    ("code", "details", "cancelled", "known"),
    [
        ("DEADLINE_EXCEEDED", "Deadline Exceeded", False, True),
        ("CANCELLED", "", True, True),
        ("CANCELLED", "the server's", False, False),
        ("UNAVAILABLE", "Socket closed", False, True),
        ("UNAVAILABLE", "failed to connect to all addresses; last error: Socket closed", False, False),
        ("UNAVAILABLE", "maintenance", False, False),
        ("INTERNAL", "", False, False),
    ],
)
def test_the_end_of_a_call_says_what_is_known_of_its_latency(code: str, details: str, cancelled: bool, known: bool) -> None:
    from isolane.measuring import End

    end = End(grpc.StatusCode[code], 0.0, details=details, cancelled=cancelled)
    assert end.is_lower_bound(timeout=1.0, elapsed=1.0) is known
    # A deadline that has not come is the server's.
    assert end.is_lower_bound(timeout=1.0, elapsed=0.5) is (known and code != "DEADLINE_EXCEEDED")
