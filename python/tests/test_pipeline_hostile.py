"""What strangers may do to a running operator: nothing but read its health.

Goal: an operator takes items and orders from those who may send them, and memory only for what has come. Method: one host in this
process, real sockets, requests as a stranger writes them. Certificates are those of `isolane rdma agent init` (ISOLANE names the program).
"""

from __future__ import annotations

import asyncio
import json
import pathlib
import ssl
import time

import pytest
from pipeline_support import PASS, certificates, items, pipeline, run, stage, until, with_host

from isolane.pipeline.address import AddressError
from isolane.pipeline.host import Host, Settings
from isolane.pipeline.identity import Identity, IdentityError
from isolane.pipeline.item import encode_batch
from isolane.pipeline.link import DELIVERED, FAILED, FILTERED, KEY, LEFT, OUTCOME, TRACE, Link
from isolane.pipeline.messages import Answer, Message, request, request_json
from isolane.pipeline.records import record
from isolane.pipeline.runner import Runner
from isolane.pipeline.server import Server


ORDERS = [("PUT", "/config", b'{"slowdown": 1000}'), ("POST", "/drain", b""), ("PUT", "/state", b""), ("GET", "/state", b"")]
ORDERS += [("POST", "/measure", json.dumps({"address": "http://127.0.0.1:1", "bytes": 10}).encode())]


def test_orders_are_taken_on_the_control_port_alone(tmp_path: pathlib.Path) -> None:
    settings = Settings("x", PASS, ("http://127.0.0.1:0",), (f"unix:{tmp_path}/control",), ("http://127.0.0.1:0",))

    async def body(host: Host, addresses: list[str]) -> None:
        control, status, data = addresses
        for port in (data, status):
            for method, path, document in ORDERS:
                assert (await request(method, port, path, document)).status in (404, 413)
        assert (await request("POST", status, "/process", encode_batch(items(1)))).status == 413
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
        with pytest.raises(AddressError, match="other users reach it; write unix:/path"):
            await Host(Settings("x", PASS, ("http://127.0.0.1:0",), (address,))).start()
        with pytest.raises(AddressError, match="https needs certificates"):
            await Host(Settings("x", PASS, ("https://127.0.0.1:0",))).start()

    run(body())


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


@pytest.mark.parametrize("address", ["http://127.0.0.1:0", "http://localhost:0", "https://127.0.0.1:0"])
def test_other_users_of_the_machine_send_no_orders(address: str) -> None:
    """Every user reaches loopback, so orders come over a Unix socket."""

    async def body() -> None:
        with pytest.raises(AddressError, match="other users reach it; write unix:/path"):
            await Host(Settings("x", PASS, ("http://127.0.0.1:0",), (address,))).start()

    run(body())


def test_a_page_of_a_browser_sends_nothing() -> None:
    async def body(host: Host, addresses: list[str]) -> None:
        headers = {"origin": "http://page.example"}
        assert (await request("POST", addresses[0], "/process", encode_batch(items(1)), headers=headers)).status == 403
        assert host.counts.received == 0

    with_host(Settings("x", PASS, ("http://127.0.0.1:0",)), body)


GARBAGE = ["5", "{}", "[5]", '[{"operator": 5, "tier": ""}]', '[{"operator": "y", "tier": "", "received_s": "soon", "bytes_in": 0}]']
GARBAGE += ["[" * 8000, "nonsense", '[{"operator": "y", "tier": "", "received_s": 1%s, "bytes_in": 0}]' % ("0" * 400)]


@pytest.mark.parametrize("trace", GARBAGE)
def test_a_trace_of_a_wrong_type_fails_its_item_alone(trace: str, tmp_path: pathlib.Path) -> None:
    """At the host that gets it from the next operator, and at the source."""

    async def body(host: Host, addresses: list[str]) -> None:
        async def garbage(_: Message) -> Answer:
            return Answer(200, b"", {OUTCOME: DELIVERED, TRACE: trace})

        evil = Server()
        address = await evil.listen(f"unix:{tmp_path}/next", garbage)
        assert (await request_json("PUT", addresses[0], "/config", {"downstream": {"name": "y", "address": address}}))
        answer = await request("POST", addresses[1], "/process", encode_batch(items(1)))
        assert answer.status == 200 and answer.headers[OUTCOME] == FAILED
        assert answer.json()["reason"] == "the operator after it sent an invalid trace"
        found = record(0, items(1)[0], 0.0, await garbage(answer))
        assert found.outcome == FAILED and "garbage" in found.reason
        evil.close()

    with_host(Settings("x", PASS, (f"unix:{tmp_path}/data",), (f"unix:{tmp_path}/control",)), body)


def test_items_of_two_sources_have_different_keys(tmp_path: pathlib.Path) -> None:
    """Sources in two containers have the same process number: the second one's items are no repetitions."""

    async def body(host: Host, addresses: list[str]) -> None:
        for _ in range(2):
            source = Runner(pipeline(stage("x", "Pass")))
            source._link = Link("x", addresses[0])
            await source.feed(items(3), 1000.0)
            await source.close()
        assert (host.counts.received, host.counts.again) == (6, 0)

    with_host(Settings("x", PASS, (f"unix:{tmp_path}/data",)), body)


def test_remembered_answers_are_bounded_though_the_first_item_never_ends(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isolane.pipeline.host.KEYS", 4)

    async def body(host: Host, addresses: list[str]) -> None:
        async def held(message: Message) -> Answer:
            await (go.wait() if message.headers[KEY] == "held" else asyncio.sleep(0))
            return Answer(200, b"", {OUTCOME: FILTERED, TRACE: "[]"})

        go = asyncio.Event()
        after = Server()
        host.link = Link("y", await after.listen(f"unix:{tmp_path}/next", held))
        batch = encode_batch(items(1))
        # On a connection of its own to the next operator, where answers keep their order.
        waits = asyncio.ensure_future(request("POST", addresses[0], "/process", batch, 60.0, {KEY: "held"}))
        await until(lambda: host.link.unanswered == 1, "the first item is on its way")  # type: ignore[union-attr]
        host.link = Link("y", host.link.address)
        for number in range(20):
            await request("POST", addresses[0], "/process", batch, 60.0, {KEY: str(number)})
        assert len(host._known) <= 5 and "held" in host._known
        go.set()
        assert (await waits).headers[OUTCOME] == FILTERED
        after.close()

    with_host(Settings("x", PASS, (f"unix:{tmp_path}/data",)), body)


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
    # As a pod has it, whose group is its own.
    (tmp_path / "ours/a/key.pem").chmod(0o440)
    Identity.load(tmp_path / "ours/a")
