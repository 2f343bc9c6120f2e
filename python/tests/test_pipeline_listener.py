"""What peers may take of a listening port: places, time and memory, each up to a stated limit.

Goal: a peer that sends nothing, sends slowly, sends much or takes no answers keeps no other peer out. Method: one host in this process and
real sockets; the limits of time are made short, and nothing is timed. Loopback has many addresses, so one machine is several peers.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import resource
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable

import pytest
from pipeline_support import OPTIONS, PASS, certificates, items, pipeline, run, stage, until, with_host

from isolane.pipeline import host as hosts
from isolane.pipeline import listener, messages, server
from isolane.pipeline.host import Host, Settings
from isolane.pipeline.item import encode_batch
from isolane.pipeline.listener import Limits, Port
from isolane.pipeline.messages import Answer, Message, request, request_json
from isolane.pipeline.runner import Runner
from isolane.pipeline.server import Server

#: A head that announces the largest body.
HUGE = b"POST /process HTTP/1.1\r\ncontent-length: 268435456\r\n\r\n"


def number_of(address: str) -> int:
    """The port of an address."""
    return int(address.rsplit(":", 1)[1])


@contextlib.asynccontextmanager
async def peers(address: str, count: int, say: bytes = b"", source: str = "127.0.0.1") -> AsyncIterator[list[asyncio.StreamWriter]]:
    """Connections of one peer that send this, and then nothing."""
    writers = []
    try:
        for _ in range(count):
            _, writer = await asyncio.open_connection("127.0.0.1", number_of(address), local_addr=(source, 0))
            writer.write(say)
            writers.append(writer)
        yield writers
    finally:
        for writer in writers:
            writer.transport.abort()


async def ended(reader: asyncio.StreamReader) -> None:
    """Waits until the other side ends the connection."""
    with contextlib.suppress(ConnectionError):
        while await reader.read(65536):
            pass


LOOPBACK = Settings("x", PASS, ("http://127.0.0.1:0",))


def limited(monkeypatch: pytest.MonkeyPatch, limits: Limits) -> None:
    """Ports without limits of their own have these."""
    monkeypatch.setattr(Server.listen, "__defaults__", (False, limits))


def test_strangers_without_a_certificate_have_bounded_places_and_exclude_no_peer(tmp_path: pathlib.Path) -> None:
    ours, next_one = certificates(tmp_path, "a", "b")
    batch = encode_batch(items(1))

    async def body(host: Host, addresses: list[str]) -> None:
        (port,) = host.server.ports
        async with peers(addresses[0], 300):
            await until(lambda: port.counts["accepted"] >= 300, "all are accepted")
            assert port.entering <= Limits().entering and not port.open
            for _ in range(20):
                assert (await request("POST", addresses[0], "/process", batch, 60.0, identity=next_one)).status == 200
            assert port.counts["shed"] >= 300 - Limits().entering

    with_host(Settings("x", PASS, ("https://127.0.0.1:0",), identity=ours), body)


def test_a_newcomer_that_never_shows_a_certificate_is_closed(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "HANDSHAKE_S", 0.1)
    (ours,) = certificates(tmp_path, "a")

    async def body(host: Host, addresses: list[str]) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", number_of(addresses[0]))
        await ended(reader)
        await until(lambda: host.server.ports[0].entering == 0, "its place is free")
        assert host.server.counts()["unproven"] == 1
        writer.close()

    with_host(Settings("x", PASS, ("https://127.0.0.1:0",), identity=ours), body)


def test_a_flood_of_newcomers_sheds_its_own_address(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    limited(monkeypatch, Limits(entering=4))
    (ours,) = certificates(tmp_path, "a")

    async def body(host: Host, addresses: list[str]) -> None:
        (port,) = host.server.ports
        async with peers(addresses[0], 1, source="127.0.0.2") as (slow,), peers(addresses[0], 40):
            await until(lambda: port.counts["accepted"] == 41, "all are accepted")
            assert "127.0.0.2" in [one.peer for one in port._entering]
            assert not slow.transport.is_closing()

    with_host(Settings("x", PASS, ("https://127.0.0.1:0",), identity=ours), body)


def test_a_full_status_port_leaves_the_other_ports_their_places(tmp_path: pathlib.Path) -> None:
    settings = Settings("x", PASS, ("http://127.0.0.1:0",), (f"unix:{tmp_path}/control",), ("http://127.0.0.1:0",))

    async def body(host: Host, addresses: list[str]) -> None:
        control, status, data = addresses
        async with peers(data, 1, b"P") as (sender,), peers(status, 200, b"G"):
            await until(lambda: host.server.ports[1].counts["accepted"] == 200, "all are accepted")
            assert len(host.server.ports[1].open) <= hosts.STATUS_LIMITS.per_address
            assert not sender.transport.is_closing() and len(host.server.ports[2].open) == 1
            assert (await request_json("PUT", control, "/config", {"slowdown": 2.0}))["operator"] == "x"
            assert (await request("POST", data, "/process", encode_batch(items(1)))).status == 200
            assert (await request("GET", status, "/healthz")).status == 200

    with_host(settings, body)


def test_bodies_that_fill_the_data_port_leave_room_for_orders(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limited(monkeypatch, Limits(bodies_bytes=200_000))
    settings = Settings("x", PASS, ("http://127.0.0.1:0",), (f"unix:{tmp_path}/control",))

    async def body(host: Host, addresses: list[str]) -> None:
        control, data = addresses
        async with peers(data, 1, HUGE + bytes(130_000)):
            await until(lambda: host.server.ports[1].bodies_bytes() > 130_000, "they are here")
            assert (await request("POST", data, "/process", encode_batch(items(1, 100_000)))).status == 503
            assert (await request_json("PUT", control, "/config", {"slowdown": 2.0}))["operator"] == "x"

    with_host(settings, body)


def test_one_address_keeps_no_other_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The address with the most places loses them, also where the other one has been silent for longer."""
    limited(monkeypatch, Limits(open=8, per_address=8))

    async def body(host: Host, addresses: list[str]) -> None:
        (port,) = host.server.ports
        async with peers(addresses[0], 2, b"GET / HTTP/1.1\r\n\r\n", "127.0.0.2") as old:
            await until(lambda: sum(one.served for one in port.open) == 2, "they have places")
            async with peers(addresses[0], 30, b"P") as _, peers(addresses[0], 1, b"P", "127.0.0.3"):
                await until(lambda: port.counts["accepted"] == 33, "all are accepted")
                places = [one.peer for one in port.open]
                assert (places.count("127.0.0.2"), places.count("127.0.0.3"), len(places)) == (2, 1, 8)
                assert not any(one.transport.is_closing() for one in old)

    with_host(LOOPBACK, body)


def test_a_connection_without_a_request_goes_before_a_silent_one_with_some(monkeypatch: pytest.MonkeyPatch) -> None:
    limited(monkeypatch, Limits(open=3))

    async def body(host: Host, addresses: list[str]) -> None:
        (port,) = host.server.ports
        async with peers(addresses[0], 1, b"GET / HTTP/1.1\r\n\r\n"):
            await until(lambda: any(one.served for one in port.open), "it was answered")
            async with peers(addresses[0], 20, b"P"):
                await until(lambda: port.counts["accepted"] == 21, "all are accepted")
                assert sum(one.served for one in port.open) == 1

    with_host(LOOPBACK, body)


def test_an_announced_body_takes_no_memory_before_it_comes() -> None:
    async def body(host: Host, addresses: list[str]) -> None:
        (port,) = host.server.ports
        async with peers(addresses[0], 8, HUGE):
            await until(lambda: sum(one.held_bytes > 0 for one in port.open) == 8, "all heads are here")
            assert port.bodies_bytes() <= 8 * messages.FIRST_BYTES
            assert (await request("POST", addresses[0], "/process", encode_batch(items(1, 300_000)))).status == 200

    with_host(LOOPBACK, body)


def test_bodies_on_their_way_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    limited(monkeypatch, Limits(bodies_bytes=400_000))

    async def body(host: Host, addresses: list[str]) -> None:
        (port,) = host.server.ports
        async with peers(addresses[0], 1, HUGE + bytes(200_000)):
            await until(lambda: port.bodies_bytes() >= 200_000, "they are here")
            assert (await request("POST", addresses[0], "/process", encode_batch(items(1, 300_000)))).status == 503
        await until(lambda: not port.open and not port.bodies_bytes(), "they are given up")
        assert (await request("POST", addresses[0], "/process", encode_batch(items(1, 300_000)))).status == 200

    with_host(LOOPBACK, body)


def test_bodies_count_until_they_are_answered(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    """Also where their sender is gone: the operator still has them."""
    limited(monkeypatch, Limits(bodies_bytes=400_000))
    go = tmp_path / "go"
    settings = Settings("x", "pipeline_operators:Waits", ("http://127.0.0.1:0",), options={"file": str(go)}, hang_s=100.0)
    batch = encode_batch(items(1, 300_000))

    async def body(host: Host, addresses: list[str]) -> None:
        (port,) = host.server.ports
        async with peers(addresses[0], 1, b"POST /process HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % len(batch) + batch):
            await until(lambda: port.owed_bytes == len(batch), "it is in work")
            assert (await request("POST", addresses[0], "/process", batch)).status == 503
        await until(lambda: not port.open, "the sender is gone")
        assert port.bodies_bytes() == len(batch)
        assert (await request("POST", addresses[0], "/process", batch)).status == 503
        go.touch()
        await until(lambda: port.bodies_bytes() == 0, "it is done")
        assert (await request("POST", addresses[0], "/process", batch)).status == 200

    with_host(settings, body)


@pytest.mark.parametrize("say", [b"P", b"POST /process HTTP/1.1\r\ncontent-length: 100000\r\n\r\n"])
def test_a_peer_that_sends_a_byte_now_and_then_loses_its_place(say: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the head and in the body; something always comes before the time without anything is over."""
    monkeypatch.setattr(server, "HEAD_S", 0.2)
    monkeypatch.setattr(server, "STANDSTILL_S", 0.2)

    async def body(host: Host, addresses: list[str]) -> None:
        async with peers(addresses[0], 1, say) as (writer,):
            while host.server.counts()["late"] == 0:
                writer.write(b"x")
                await asyncio.sleep(0.02)
        await until(lambda: not host.server.ports[0].open, "the peer's place is free")

    with_host(LOOPBACK, body)


@pytest.mark.parametrize("say", [b"", b"POST /process HTT", HUGE, b"GET / HTTP/1.1\r\n\r\nGET"])
def test_an_exchange_without_progress_ends_its_connection(say: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HEAD_S", 0.1)
    monkeypatch.setattr(server, "STANDSTILL_S", 0.1)

    async def body(host: Host, addresses: list[str]) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", number_of(addresses[0]))
        writer.write(say)
        await ended(reader)
        assert host.server.counts()["late"] == 1
        writer.close()

    with_host(LOOPBACK, body)


def test_a_connection_that_was_answered_may_be_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """An upstream whose camera sees nothing keeps its connection; on the status port it does not."""
    monkeypatch.setattr(server, "HEAD_S", 0.05)
    monkeypatch.setattr(server, "STANDSTILL_S", 0.05)
    status = hosts.STATUS_LIMITS
    monkeypatch.setattr(hosts, "STATUS_LIMITS", Limits(status.open, status.entering, body_bytes=0, idle_s=0.1))
    settings = Settings("x", PASS, ("http://127.0.0.1:0",), (), ("http://127.0.0.1:0",))

    async def body(host: Host, addresses: list[str]) -> None:
        one = b"GET /healthz HTTP/1.1\r\n\r\n"
        async with peers(addresses[1], 1, one), peers(addresses[0], 1, one):
            ports = host.server.ports
            await until(lambda: (len(ports[0].open), len(ports[1].open)) == (0, 1), "the one of the status port ends")
            assert host.server.counts()["late"] == 1

    with_host(settings, body)


def answering(size: int) -> Callable[[Message], object]:
    """A handler whose answers have so many bytes."""

    async def handler(_: Message) -> Answer:
        return Answer(200, bytes(size))

    return handler


def test_a_peer_that_takes_no_answers_holds_a_bounded_number_of_them(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All requests come in a few reads; those beyond the limit begin when answers have left."""
    begun = 0

    async def handler(_: Message) -> Answer:
        nonlocal begun
        begun += 1
        return Answer(200, bytes(100_000))

    async def body() -> None:
        serving = Server()
        await serving.listen(f"unix:{tmp_path}/s", handler, limits=Limits(pipelined=8))
        (port,) = serving.ports
        reader, writer = await asyncio.open_unix_connection(f"{tmp_path}/s")
        writer.write(b"GET / HTTP/1.1\r\n\r\n" * 3000)
        await until(lambda: begun > 0 and not any(one.is_busy for one in port.open), "the first ones are answered")
        for _ in range(100):
            await asyncio.sleep(0)
        (guest,) = port.open
        waiting = guest.transport.get_write_buffer_size()  # type: ignore[attr-defined]
        assert waiting <= server.MOST_WRITTEN_BYTES + 100_200 and port.bodies_bytes() <= 8 * 100_000
        # What the kernel took, what waits to leave, and what is answered and not written.
        assert begun < 100
        for _ in range(3000):
            await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(100_000)
        assert begun == 3000 and port.bodies_bytes() == 0
        writer.close()
        serving.close()

    run(body())


def test_a_peer_that_takes_answers_too_slowly_loses_its_place(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes some bytes of them before each look, and never enough."""
    monkeypatch.setattr(server, "STANDSTILL_S", 0.1)
    monkeypatch.setattr(server, "LEAST_BYTES_PER_S", 1e9)

    async def body() -> None:
        serving = Server()
        await serving.listen(f"unix:{tmp_path}/s", answering(10_000_000))  # type: ignore[arg-type]
        with socket.socket(socket.AF_UNIX) as slow:
            slow.connect(f"{tmp_path}/s")
            slow.sendall(b"GET / HTTP/1.1\r\n\r\n")
            slow.setblocking(False)
            while serving.counts()["late"] == 0:
                with contextlib.suppress(BlockingIOError):
                    slow.recv(100)
                await asyncio.sleep(0.01)
        await until(lambda: serving.counts()["open"] == 0 and serving.counts()["body_bytes"] == 0, "the peer's place is free")
        serving.close()

    run(body())


def test_without_descriptors_a_port_sheds_and_goes_on() -> None:
    async def body() -> None:
        async with Runner(pipeline(stage("a", "Pass")), None, OPTIONS) as runner:
            process, path = runner.pid("a"), runner._running[0].control.removeprefix("unix:")
            most = len(os.listdir(f"/proc/{process}/fd")) + 3
            resource.prlimit(process, resource.RLIMIT_NOFILE, (most, most))
            made = []
            for _ in range(20):
                _, writer = await asyncio.open_unix_connection(path)
                writer.write(b"G")
                made.append(writer)
            found = await request_json("GET", f"unix:{path}", "/metrics", timeout_s=60.0)
            assert found["listener"]["starved"] > 0 and found["listener"]["shed"] > 0
            for writer in made:
                writer.close()

    run(body())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_another_user_sends_no_orders_over_a_socket_whose_mode_was_changed(tmp_path: pathlib.Path) -> None:
    program = "import os, socket, sys; os.setuid(65534); s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); "
    program += "s.sendall(b'GET /healthz HTTP/1.1\\r\\n\\r\\n'); sys.exit(len(s.recv(10)))"

    async def body(host: Host, addresses: list[str]) -> None:
        path = addresses[0].removeprefix("unix:")
        assert os.stat(path).st_mode & 0o777 == 0o600
        os.chmod(path, 0o666)
        for folder in (tmp_path, *tmp_path.parents):
            if folder.stat().st_uid == os.geteuid() and folder != pathlib.Path("/"):
                folder.chmod(folder.stat().st_mode | 0o011)
        other = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", program, path], timeout=60.0, stderr=subprocess.PIPE)
        # A reset or an end without a byte.
        assert other.returncode == 0 or b"ConnectionResetError" in other.stderr or b"BrokenPipe" in other.stderr, other.stderr
        assert host.server.counts()["refused"] == 1
        assert (await request("GET", addresses[0], "/healthz")).status == 200

    with_host(Settings("x", PASS, ("http://127.0.0.1:0",), (f"unix:{tmp_path}/control",)), body)


def test_a_socket_that_a_process_listens_on_is_not_taken_away(tmp_path: pathlib.Path) -> None:
    async def body(host: Host, addresses: list[str]) -> None:
        with pytest.raises(OSError, match="cannot listen on unix:.*in use"):
            await Server().listen(addresses[0], host.data)
        (tmp_path / "file").write_text("kept")
        with pytest.raises(OSError, match="cannot listen"):
            await Server().listen(f"unix:{tmp_path}/file", host.data)
        assert (tmp_path / "file").read_text() == "kept"
        host.server.stop_listening()
        again = Server()
        await again.listen(addresses[0], host.data)
        again.close()

    with_host(Settings("x", PASS, (f"unix:{tmp_path}/data",)), body)


def test_metrics_say_what_a_listener_did() -> None:
    async def body(host: Host, addresses: list[str]) -> None:
        async with peers(addresses[1], 3, b"G"):
            await until(lambda: host.server.counts()["open"] == 3, "they are open")
            text = bytes((await request("GET", addresses[0], "/metrics")).body).decode()
            assert 'isolane_listener_open{operator="x",tier=""} 4' in text
            assert 'isolane_listener_accepted_total{operator="x",tier=""} 4' in text

    with_host(Settings("x", PASS, ("http://127.0.0.1:0",), (), ("http://127.0.0.1:0",)), body)


def test_a_port_is_bound_on_every_address_of_a_name() -> None:
    async def body(host: Host, addresses: list[str]) -> None:
        ports: list[Port] = host.server.ports
        assert {port.address[1] for port in ports} == {number_of(addresses[0])}
        assert (await request("POST", addresses[0], "/process", encode_batch(items(1)))).status == 200

    with_host(Settings("x", PASS, ("http://localhost:0",)), body)
