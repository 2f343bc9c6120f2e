"""Bytes of any kind from peers: no exception in a protocol, no answer without a meaning, nothing kept.

Method: valid messages, changed at random by a seed, over real sockets; an event loop reports what a callback raises. A failure names its
seed; `-k 'name and [SEED]'` runs it again.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import pathlib
import random
import re
import time
from typing import Any

import pytest
from fuzz_targets import HOP, changed
from pipeline_support import items, run, until

from isolane.pipeline.item import encode_batch
from isolane.pipeline.link import DELIVERED, FAILED, FILTERED, OUTCOME, TRACE, Link
from isolane.pipeline.listener import Limits
from isolane.pipeline.messages import STATUS, Answer, Message, request
from isolane.pipeline.records import record, summarize
from isolane.pipeline.server import Server

OUTCOMES = {DELIVERED, FILTERED, FAILED}


@contextlib.asynccontextmanager
async def watched() -> Any:
    """What callbacks of the event loop raise is an error of the test."""
    raised: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: raised.append(context))
    yield
    assert not raised, raised


@pytest.mark.parametrize("seed", range(150))
def test_any_bytes_to_a_server_are_answered_in_its_own_words_or_closed(seed: int, tmp_path: pathlib.Path) -> None:
    draw = random.Random(seed)

    async def body() -> None:
        async def handler(message: Message) -> Answer:
            return Answer.of({"path": message.path, "bytes": len(message.body)})

        server = Server()
        address = await server.listen(f"unix:{tmp_path}/s", handler, limits=Limits(body_bytes=50_000, bodies_bytes=100_000))
        async with watched():
            for _ in range(4):
                content = draw.randbytes(draw.choice([0, 5, 3000]))
                one = f"POST /{draw.randrange(9)} HTTP/1.1\r\nx: y\r\ncontent-length: {len(content)}\r\n\r\n".encode() + content
                stream = changed(one * draw.randint(1, 3), draw)
                reader, writer = await asyncio.open_unix_connection(f"{tmp_path}/s")
                while stream:
                    cut = draw.choice([1, 7, 100, 10_000])
                    writer.write(stream[:cut])
                    stream = stream[cut:]
                    await asyncio.sleep(0)
                writer.write_eof()
                said = b""
                with contextlib.suppress(ConnectionError):
                    said = await reader.read()
                assert all(int(status) in {100, *STATUS} for status in re.findall(rb"HTTP/1.1 (\d+)", said)), f"seed {seed}"
                writer.close()
            assert (await request("GET", address, "/alive")).status == 200
            (port,) = server.ports
            await until(lambda: not port.open and not port.bodies_bytes(), "nothing is kept")
        server.close()

    run(body())


@pytest.mark.parametrize("seed", range(60))
def test_any_bytes_from_the_next_operator_end_in_an_outcome(seed: int, tmp_path: pathlib.Path) -> None:
    draw = random.Random(seed)
    good = Answer(200, encode_batch(items(1, 100)), {OUTCOME: DELIVERED, TRACE: "[]"})

    async def body() -> None:
        async def garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(ConnectionError):
                await reader.read(1)
                writer.write(changed((good.head() + bytes(good.body)) * draw.randint(1, 3), draw))
                writer.close()

        async with watched():
            server = await asyncio.start_unix_server(garbage, f"{tmp_path}/s")
            link = Link("next", f"unix:{tmp_path}/s")
            answers = await asyncio.gather(*(link.send(f"k{n}", b"item", time.monotonic() + 20.0) for n in range(3)))
            assert all(answer.headers[OUTCOME] in OUTCOMES for answer in answers), f"seed {seed}"
            for number, answer in enumerate(answers):
                found = record(number, items(1)[0], 0.0, answer)
                assert found.outcome != FAILED or found.reason, f"seed {seed}"
            link.close()
            server.close()

    run(body())


def document(draw: random.Random, depth: int = 0) -> Any:
    """Any JSON, small."""
    kinds = [None, True, -1, 10**400, 0.5, float("nan"), "x", "operator", ""]
    if depth > 3 or draw.random() < 0.4:
        return draw.choice(kinds)
    if draw.random() < 0.5:
        return [document(draw, depth + 1) for _ in range(draw.randrange(4))]
    return {draw.choice([*HOP, "reason"]): document(draw, depth + 1) for _ in range(draw.randrange(12))}


def almost(draw: random.Random) -> Any:
    """A valid trace with one value of another kind, or any JSON."""
    return [HOP, {**HOP, draw.choice([*HOP]): document(draw, 3)}] if draw.random() < 0.5 else document(draw)


@pytest.mark.parametrize("seed", range(300))
def test_any_trace_and_any_reason_make_a_record(seed: int) -> None:
    draw = random.Random(seed)
    for outcome in (DELIVERED, FILTERED, FAILED, "", "other"):
        trace = json.dumps(almost(draw))
        answer = Answer(200, json.dumps(document(draw)).encode(), {OUTCOME: outcome, TRACE: trace})
        found = record(1, items(1, 10)[0], 0.0, answer)
        assert found.outcome in (DELIVERED, FILTERED, FAILED) and (found.outcome != FAILED or found.reason), f"seed {seed}"
        summarize(1, [found])
