"""Operators that crash, hang, return garbage or end in the middle, and networks that are cut: no item is lost silently."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import pathlib
import random
import re
import signal
import sys
import time

import pytest

from isolane.pipeline.item import encode_batch
from isolane.pipeline.link import LOSSES, OUTCOME, WAITING_MAX, Link
from isolane.pipeline.messages import Answer, Message, request
from isolane.pipeline.runner import Options, Runner
from isolane.pipeline.server import Server
from isolane.pipeline.spaces import Spaces, Wire, missing
from isolane.pipeline.worker import BREAK_AFTER

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from pipeline_support import HERE, OPTIONS, fates, items, outcomes, pipeline, run, stage  # noqa: E402


def test_an_exception_fails_the_item_after_a_second_try_and_no_other() -> None:
    async def body() -> None:
        async with Runner(pipeline(stage("a", "Pass"), stage("bad", "Raises", on="3,5"), stage("c", "Pass")), None, OPTIONS) as r:
            await r.feed(items(8), 500.0)
            expected = ["failed" if number in (3, 5) else "delivered" for number in range(8)]
            assert outcomes(r) == expected
            assert fates(r)[3].operator == "bad" and fates(r)[3].reason == "RuntimeError: cannot bear 3"
            assert [one["raised"] for one in await r.metrics()] == [0, 4, 0]

    run(body())


def test_an_exception_that_passes_costs_nothing() -> None:
    async def body() -> None:
        async with Runner(pipeline(stage("bad", "Raises", on="3", times=1)), None, OPTIONS) as r:
            await r.feed(items(8), 500.0)
            assert outcomes(r) == ["delivered"] * 8

    run(body())


def test_an_operator_that_always_raises_rests_and_reports_it() -> None:
    async def body() -> None:
        broken = ",".join(str(number) for number in range(BREAK_AFTER + 10))
        async with Runner(pipeline(stage("bad", "Raises", on=broken)), None, OPTIONS) as r:
            await r.feed(items(BREAK_AFTER + 10), 1000.0)
            assert set(outcomes(r)) == {"failed"}
            reasons = [one.reason for _, one in sorted(fates(r).items())]
            assert all("cannot bear" in reason for reason in reasons)
            assert not any("rests after" in reason for reason in reasons[:BREAK_AFTER])
            tried = sum("rests after" not in reason for reason in reasons)
            assert tried < len(reasons)
            # On a busy machine a rest may be over before the last items come: one of them is tried, and the next rest begins.
            (metrics,) = await r.metrics()
            assert metrics["rests"] == 1 + tried - BREAK_AFTER
            await r.send(items(100)[99])
            while outcomes(r)[-1] != "delivered":
                assert "rests after" in fates(r)[r.sent - 1].reason
                await asyncio.sleep(0.1)
                await r.send(items(100)[99])

    run(body())


def test_garbage_from_an_operator_is_reported_with_its_kind() -> None:
    async def body() -> None:
        async with Runner(pipeline(stage("bad", "Garbage"), stage("c", "Pass")), None, OPTIONS) as r:
            await r.feed(items(5), 500.0)
            assert outcomes(r) == ["delivered"] + ["failed"] * 4
            words = ["", "returned a NoneType", "returned a list of other things", "returned a Item", "'bad' is a object"]
            for number, expected in enumerate(words):
                assert expected in fates(r)[number].reason

    run(body())


def test_a_death_in_the_middle_is_mended_and_every_item_delivered(tmp_path: pathlib.Path) -> None:
    """Items that were on the way to the dead process are sent to the one that takes its place."""

    async def body() -> None:
        once = str(tmp_path / "died")
        dies = stage("dies", "Dies", on="20", once=once, knobs={"work_s": 0.002})
        async with Runner(pipeline(stage("a", "Pass"), dies, stage("c", "Even")), None, OPTIONS) as r:
            await r.feed(items(60), 200.0)
            assert outcomes(r) == ["delivered", "filtered"] * 30
            assert [event.what for event in r.events] == ["ended: by SIGKILL", "started again"]

    run(body())


@pytest.mark.parametrize("position", [0, 1])
def test_an_item_that_kills_its_operator_every_time_fails_alone(position: int) -> None:
    async def body() -> None:
        stages = [stage("a", "Pass"), stage("b", "Pass")]
        stages.insert(position, stage("dies", "Dies", on="10"))
        async with Runner(pipeline(*stages), None, OPTIONS) as r:
            await r.feed(items(30), 300.0)
            assert outcomes(r) == ["failed" if number == 10 else "delivered" for number in range(30)]
            assert f"broke {LOSSES} times with this item on it" in fates(r)[10].reason
            assert fates(r)[10].operator == "dies"

    run(body())


def test_a_hang_fails_the_item_and_the_others_go_on() -> None:
    async def body() -> None:
        options = dataclasses.replace(OPTIONS, hang_s=3.0)
        async with Runner(pipeline(stage("a", "Pass"), stage("hangs", "Hangs", on="7"), stage("c", "Pass")), None, options) as r:
            await r.feed(items(20), 200.0)
            assert outcomes(r) == ["failed" if number == 7 else "delivered" for number in range(20)]
            assert fates(r)[7].operator == "hangs" and "did not come back in 3 s" in fates(r)[7].reason
            assert "ended: because its operator hung" in [event.what for event in r.events]

    run(body())


def test_a_process_without_progress_is_replaced() -> None:
    """SIGSTOP: the kernel still acknowledges bytes, so only its silence shows."""

    async def body() -> None:
        async with Runner(pipeline(stage("a", "Pass"), stage("b", "Pass")), None, OPTIONS) as r:
            await r.feed(items(5), 200.0)
            os.kill(r.pid("b"), signal.SIGSTOP)
            await r.feed(items(5), 200.0)
            assert outcomes(r) == ["delivered"] * 10
            assert any("did not answer /healthz" in event.what for event in r.events)

    run(body())


def test_an_operator_that_cannot_stay_up_is_given_up_and_items_say_why() -> None:
    async def body() -> None:
        options = Options(hang_s=10.0, deadline_s=8.0, window=1000, python_path=(HERE,))
        everything = ",".join(str(number) for number in range(100))
        async with Runner(pipeline(stage("a", "Pass"), stage("dies", "Dies", on=everything)), None, options) as r:
            await r.feed(items(12), 200.0)
            assert set(outcomes(r)) == {"failed"}
            assert any("stays down" in event.what for event in r.events) or len(r.events) > 2

    run(body())


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"\x00\xff\x13 nonsense\r\n\r\n", "no HTTP"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", "answered with garbage"),
        (b"HTTP/1.1 500 Oh\r\ncontent-length: 0\r\n\r\n", "answered with garbage"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\nshort", "closed the connection"),
        (b"", "closed the connection"),
    ],
)
def test_a_foreign_service_that_answers_nonsense_costs_its_items_and_no_more(answer: bytes, words: str) -> None:
    """The listener at the next operator's address may be any program."""
    async def body() -> None:
        async def nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1)
            writer.write(answer)
            writer.close()

        server = await asyncio.start_server(nonsense, "127.0.0.1", 0)
        link = Link("next", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        answers = await asyncio.gather(*(link.send(f"k{n}", b"item", time.monotonic() + 20.0) for n in range(3)))
        for one in answers:
            assert one.headers[OUTCOME] == "failed"
            assert f"broke {LOSSES} times" in json.loads(bytes(one.body))["reason"]
            assert words in json.loads(bytes(one.body))["reason"]
        link.close()
        server.close()

    run(body())


def test_without_a_listener_the_circuit_opens_and_items_fail_at_their_deadline_with_the_reason(tmp_path: pathlib.Path) -> None:
    async def body() -> None:
        link = Link("next", f"unix:{tmp_path}/nobody")
        sends = [link.send(f"k{n}", b"item", time.monotonic() + 4.0) for n in range(WAITING_MAX + 1)]
        reasons = [json.loads(bytes((await one).body))["reason"] for one in sends]
        assert link.metrics()["circuit"] == "open" and link.metrics()["circuit_opened"] == 1
        assert "already wait" in reasons[-1]
        assert all("could not be sent" in reason and "No such file" in reason for reason in reasons[:-1])
        link.close()

    run(body())


def test_an_item_that_comes_again_gets_the_first_answer() -> None:
    """The receiver's side of sending again: equal keys are processed once."""
    async def body() -> None:
        async with Runner(pipeline(stage("count", "Counter")), None, OPTIONS) as r:
            address = r._running[0].data
            data, key = encode_batch(items(1)), {"x-isolane-key": "one"}
            first, second = [await request("POST", address, "/process", data, headers=key) for _ in range(2)]
            assert first.body == second.body
            (metrics,) = await r.metrics()
            assert (metrics["received"], metrics["again"]) == (1, 1)

    run(body())


SPACES = missing()
needs_spaces = pytest.mark.skipif(bool(SPACES), reason=f"tiers cannot be made here: {SPACES}")


@needs_spaces
def test_a_cut_network_delays_items_and_loses_none() -> None:
    async def body() -> None:
        chain = pipeline(stage("a", "Pass"), stage("b", "Pass", "cloud"))
        async with Spaces(["edge", "cloud"], [Wire(50.0, 5.0)]) as spaces, Runner(chain, spaces, OPTIONS) as r:
            feeding = asyncio.ensure_future(r.feed(items(60), 30.0))
            await asyncio.sleep(0.5)
            await spaces.cut(0)
            # Certainly on its way while the network is cut, however seldom a busy machine lets the source run.
            cut_off = r.send(items(1)[0])
            await asyncio.sleep(1.0)
            await spaces.cut(0, False)
            await asyncio.gather(feeding, cut_off)
            assert outcomes(r) == ["delivered"] * 61
            assert max(one.latency_ms or 0.0 for one in r.records) > 300.0

    run(body())


@needs_spaces
def test_a_network_that_stays_cut_is_reported_for_every_item() -> None:
    async def body() -> None:
        options = Options(hang_s=10.0, deadline_s=8.0, window=1000, python_path=(HERE,))
        chain = pipeline(stage("a", "Pass"), stage("b", "Pass", "cloud"))
        async with Spaces(["edge", "cloud"], [Wire(50.0, 5.0)]) as spaces, Runner(chain, spaces, options) as r:
            await r.feed(items(5), 100.0)
            await spaces.cut(0)
            await r.feed(items(20), 50.0)
            assert outcomes(r) == ["delivered"] * 5 + ["failed"] * 20
            assert all("deadline passed" in fates(r)[number].reason for number in range(5, 25))

    run(body())


@needs_spaces
def test_a_slower_link_is_felt_and_measured() -> None:
    async def body() -> None:
        chain = pipeline(stage("a", "Pass"), stage("b", "Pass", "cloud"))
        async with Spaces(["edge", "cloud"], [Wire(80.0, 2.0)]) as spaces, Runner(chain, spaces, OPTIONS) as r:
            await r.feed(items(20, 100_000), 20.0)
            quick = await r.measure("a", 500_000)
            await spaces.set_wire(0, Wire(1.0, 2.0))
            slow = await r.measure("a", 100_000)
            # How near each is to the truth depends on what else the machine does; which is the slower link does not.
            assert quick > 3.0 * slow
            (_, last) = await r.metrics()
            assert last["inbound_mbit_per_s"] > slow
            assert set(outcomes(r)) == {"delivered"}

    run(body())


@needs_spaces
def test_namespaces_are_gone_after_an_error() -> None:
    async def body() -> None:
        with pytest.raises(ZeroDivisionError):
            async with Spaces(["edge", "cloud"], [Wire(50.0, 5.0)]) as spaces:
                assert pathlib.Path("/run/netns", spaces.space("edge")).exists()
                raise ZeroDivisionError
        assert not list(pathlib.Path("/run/netns").glob(f"isot{os.getpid()}_*"))

    run(body())


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/3.0\r\n\r\n", 400),
        (b"POST /process HTTP/1.1\r\n\r\n", 411),
        (b"POST /process HTTP/1.1\r\ncontent-length: -1\r\n\r\n", 400),
        (b"POST /process HTTP/1.1\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n", 400),
        (b"POST /process HTTP/1.1\r\ncontent-length: 999999999999\r\n\r\n", 413),
        (b"POST /process HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n", 501),
        (b"GET / HTTP/1.1\r\nbad header\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nx: " + b"y" * 70_000, 431),
    ],
)
def test_what_is_no_request_is_answered_with_the_reason(raw: bytes, status: int, tmp_path: pathlib.Path) -> None:
    async def body() -> None:
        async def handler(message: Message) -> Answer:
            return Answer.of({"path": message.path})

        server = Server()
        await server.listen(f"unix:{tmp_path}/s", handler)
        reader, writer = await asyncio.open_unix_connection(f"{tmp_path}/s")
        writer.write(b"GET /first HTTP/1.1\r\n\r\n" + raw)
        said = await reader.read()
        assert re.findall(rb"HTTP/1.1 (\d+)", said) == [b"200", str(status).encode()]
        writer.close()
        server.close()

    if status == 411:
        # The connection stays open: say that it is the last.
        raw = raw.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")
    run(body())


@pytest.mark.parametrize("seed", range(40))
def test_requests_in_any_pieces_are_answered_in_order(seed: int, tmp_path: pathlib.Path) -> None:
    """Pipelined requests with bodies of all sizes, cut anywhere, whose handlers end in another order."""
    draw = random.Random(seed)

    async def body() -> None:
        async def handler(message: Message) -> Answer:
            await asyncio.sleep(draw.choice([0.0, 0.001, 0.003]))
            return Answer.of({"path": message.path, "sum": sum(message.body)})

        server = Server()
        await server.listen(f"unix:{tmp_path}/s", handler)
        reader, writer = await asyncio.open_unix_connection(f"{tmp_path}/s")
        expected, stream = [], b""
        for number in range(12):
            content = draw.randbytes(draw.choice([0, 1, 100, 70_000]))
            stream += f"POST /{number}?q HTTP/1.1\r\nContent-Length: {len(content)}\r\n\r\n".encode() + content
            expected.append({"path": f"/{number}", "sum": sum(content)})
        while stream:
            cut = draw.choice([1, 10, 1000, 100_000])
            writer.write(stream[:cut])
            stream = stream[cut:]
            await writer.drain()
        for one in expected:
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.decode().lower().split("content-length: ")[1].split("\r\n")[0])
            assert json.loads(await reader.readexactly(length)) == one, f"seed {seed}"
        writer.close()
        server.close()

    run(body())
