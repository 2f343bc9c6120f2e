"""What strangers may do to a running operator: nothing but read its health.

Goal: an operator takes items and orders from those who may send them, and memory only for what has come. Method: one host in this
process, real sockets, requests as a stranger writes them. Certificates are those of `isolane rdma agent init` (ISOLANE names the program).
"""

from __future__ import annotations

import asyncio
import json
import os
import pathlib
import shutil
import ssl
import subprocess
import time
from collections.abc import Awaitable, Callable

import pytest
from pipeline_support import items, run

from isolane.pipeline import messages
from isolane.pipeline.host import Host, Settings
from isolane.pipeline.identity import Identity, IdentityError
from isolane.pipeline.item import encode_batch
from isolane.pipeline.link import DELIVERED, LEFT, OUTCOME, Link
from isolane.pipeline.messages import AddressError, Answer, Message, Server, request, request_json

PASS = "pipeline_operators:Pass"


def with_host(settings: Settings, body: Callable[[Host, list[str]], Awaitable[None]]) -> None:
    """A host for as long as the body runs."""

    async def whole() -> None:
        host = Host(settings)
        addresses = await host.start()
        try:
            await body(host, addresses)
        finally:
            host.server.close()

    run(whole())


ORDERS = [("PUT", "/config", b'{"slowdown": 1000}'), ("POST", "/drain", b""), ("PUT", "/state", b""), ("GET", "/state", b"")]
ORDERS += [("POST", "/measure", json.dumps({"address": "http://127.0.0.1:1", "bytes": 10}).encode())]


def test_orders_are_taken_on_the_control_port_alone(tmp_path: pathlib.Path) -> None:
    settings = Settings("x", PASS, ("http://127.0.0.1:0",), (f"unix:{tmp_path}/control",), ("http://127.0.0.1:0",))

    async def body(host: Host, addresses: list[str]) -> None:
        control, status, data = addresses
        for port in (data, status):
            for method, path, document in ORDERS:
                assert (await request(method, port, path, document)).status == 404
        assert (await request("POST", status, "/process", encode_batch(items(1)))).status == 404
        assert (await request("GET", data, "/metrics")).status == 404
        assert host.state == "ready" and host.worker.slowdown == 1.0
        assert (await request("GET", status, "/healthz")).status == 200
        assert (await request("POST", data, "/process", encode_batch(items(1)))).status == 200
        assert (await request_json("PUT", control, "/config", {"slowdown": 2.0}))["operator"] == "x"
        assert host.worker.slowdown == 2.0

    with_host(settings, body)


@pytest.mark.parametrize("address", ["http://0.0.0.0:0", "http://10.0.0.1:8080", "http://[::]:0"])
def test_without_certificates_other_machines_reach_nothing(address: str) -> None:
    async def body() -> None:
        with pytest.raises(AddressError, match="other machines reach it"):
            await Host(Settings("x", PASS, (address,))).start()
        with pytest.raises(AddressError, match="other machines reach it"):
            await Host(Settings("x", PASS, ("http://127.0.0.1:0",), (address,))).start()
        with pytest.raises(AddressError, match="https needs certificates"):
            await Host(Settings("x", PASS, ("https://127.0.0.1:0",))).start()

    run(body())


async def announce(port: int, count: int) -> list[asyncio.StreamWriter]:
    """Strangers that announce the largest body and send nothing of it."""
    writers = []
    for _ in range(count):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /process HTTP/1.1\r\ncontent-length: 268435456\r\n\r\n")
        await writer.drain()
        writers.append(writer)
    return writers


def test_an_announced_body_takes_no_memory_before_it_comes() -> None:
    async def body(host: Host, addresses: list[str]) -> None:
        writers = await announce(int(addresses[0].rsplit(":", 1)[1]), 8)
        while sum(one.is_amid for one in host.server._open) < 8:
            await asyncio.sleep(0)
        assert sum(one.held_bytes for one in host.server._open) <= 8 * messages.FIRST_BYTES
        assert (await request("POST", addresses[0], "/process", encode_batch(items(1, 300_000)))).status == 200
        for writer in writers:
            writer.close()

    with_host(Settings("x", PASS, ("http://127.0.0.1:0",)), body)


def test_bodies_on_their_way_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "BODIES_BYTES", 400_000)

    async def body(host: Host, addresses: list[str]) -> None:
        writers = await announce(int(addresses[0].rsplit(":", 1)[1]), 1)
        writers[0].write(bytes(200_000))
        await writers[0].drain()
        while sum(one.held_bytes for one in host.server._open) < 200_000:
            await asyncio.sleep(0)
        assert (await request("POST", addresses[0], "/process", encode_batch(items(1, 300_000)))).status == 503
        writers[0].transport.abort()
        while host.server._open:
            await asyncio.sleep(0)
        assert (await request("POST", addresses[0], "/process", encode_batch(items(1, 300_000)))).status == 200

    with_host(Settings("x", PASS, ("http://127.0.0.1:0",)), body)


def test_the_newcomer_takes_the_place_of_the_one_that_was_silent_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "CONNECTIONS_MAX", 4)

    async def body(host: Host, addresses: list[str]) -> None:
        writers = await announce(int(addresses[0].rsplit(":", 1)[1]), 12)
        assert (await request("POST", addresses[0], "/process", encode_batch(items(1)))).status == 200
        assert len(host.server._open) <= 4
        for writer in writers:
            writer.transport.abort()

    with_host(Settings("x", PASS, ("http://127.0.0.1:0",)), body)


def test_a_message_that_stands_still_ends_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "STANDSTILL_S", 0.1)

    async def body(host: Host, addresses: list[str]) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(addresses[0].rsplit(":", 1)[1]))
        writer.write(b"POST /process HTT")
        with pytest.raises(ConnectionResetError):
            if await reader.read() == b"":
                raise ConnectionResetError
        writer.close()

    with_host(Settings("x", PASS, ("http://127.0.0.1:0",)), body)


def test_a_clock_that_is_set_ends_no_item(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wall clock jumps a day at each look; deadlines are of another clock."""
    looks = iter(range(0, 10**9, 86_400))
    monkeypatch.setattr("time.time", lambda: float(next(looks)))

    async def body(host: Host, addresses: list[str]) -> None:
        link = Link("x", addresses[0])
        answer = await link.send("k", encode_batch(items(1)), time.monotonic() + 60.0)
        assert answer.headers[OUTCOME] == DELIVERED
        link.close()
        for wrong in ("nan", "-1", "1e9", "x"):
            assert (await request("POST", addresses[0], "/process", b"x", headers={LEFT: wrong})).status == 400

    with_host(Settings("x", PASS, ("http://127.0.0.1:0",)), body)


def certificates(folder: pathlib.Path, *names: str) -> list[Identity]:
    """Certificates of one authority."""
    program = os.environ.get("ISOLANE") or shutil.which("isolane")
    if program is None:
        pytest.skip("no isolane to make certificates with; set ISOLANE")
    subprocess.run([program, "rdma", "agent", "init", str(folder), *names], check=True, capture_output=True)
    return [Identity.load(folder / name) for name in names]


def test_only_the_deployments_own_certificates_pass(tmp_path: pathlib.Path) -> None:
    ours, next_one = certificates(tmp_path / "ours", "a", "b")
    (theirs,) = certificates(tmp_path / "theirs", "c")
    server = Settings("x", PASS, ("https://127.0.0.1:0",), identity=ours)
    batch = encode_batch(items(1, 300_000))

    async def body(host: Host, addresses: list[str]) -> None:
        assert (await request("POST", addresses[0], "/process", batch, identity=next_one)).status == 200
        nobody = Identity(theirs.server, ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
        nobody.client.check_hostname, nobody.client.verify_mode = False, ssl.CERT_NONE
        for stranger in (theirs, nobody):
            with pytest.raises(OSError):
                await request("POST", addresses[0], "/process", batch, identity=stranger)
        with pytest.raises(OSError):
            await request("POST", addresses[0].replace("https", "http"), "/process", batch)
        assert host.counts.received == 1

    with_host(server, body)


def test_an_operator_sends_items_only_to_a_holder_of_a_certificate(tmp_path: pathlib.Path) -> None:
    ours, _ = certificates(tmp_path / "ours", "a", "b")
    (theirs,) = certificates(tmp_path / "theirs", "c")

    async def body() -> None:
        got: list[Message] = []

        async def handler(message: Message) -> Answer:
            got.append(message)
            return Answer()

        evil = Server(theirs)
        address = await evil.listen("https://127.0.0.1:0", handler)
        with pytest.raises(OSError):
            await request("POST", address, "/process", b"x", identity=ours)
        assert not got
        evil.close()

    run(body())


def test_a_key_that_others_can_read_is_refused(tmp_path: pathlib.Path) -> None:
    certificates(tmp_path / "ours", "a")
    (tmp_path / "ours/a/key.pem").chmod(0o644)
    with pytest.raises(IdentityError, match="can be read or changed by others"):
        Identity.load(tmp_path / "ours/a")
