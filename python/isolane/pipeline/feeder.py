"""`python -m isolane.pipeline.feeder`: a camera or microphone as a process that sends its items to the first operator.

Problem: on a cluster no `runner` starts operators and feeds them. Method: reads a source (`live`), sends items over TLS (`link`), and writes
each delivered result as a JSON line on standard output, where a cluster collects logs. The source's address is in the environment
variable `ISOLANE_SOURCE`, since it may hold a password and arguments are visible to others. Health and metrics are served as an operator's are:
unhealthy without an item for `SILENT_S`. The process ends with status 1 when its source has ended, and with 0 after SIGTERM, when what is on its
way has an outcome or `DRAIN_S` have passed.

Units: as in `runner`. Limits: arrays of more than `SHOWN` numbers are written as their type and shape.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import math
import os
import pathlib
import secrets
import signal
import sys
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from isolane import allowed
from isolane.pipeline import clock, live
from isolane.pipeline import link as links
from isolane.pipeline.address import AddressError, split_address
from isolane.pipeline.host import DRAIN_S, STATUS_LIMITS
from isolane.pipeline.identity import Identity, IdentityError
from isolane.pipeline.item import Item, ItemError, Value, encode_batch
from isolane.pipeline.messages import Answer, Message
from isolane.pipeline.metrics import prometheus_of
from isolane.pipeline.operator import describe
from isolane.pipeline.records import REFUSED, Record, record
from isolane.pipeline.server import Server
from isolane.pipeline.source import open_source
from isolane.planner.model import PlanError

#: Without an item for so long the source counts as silent.
SILENT_S = 10.0
#: Numbers of an array that are written.
SHOWN = 1000
_HELP = {
    "sent": ("counter", "items taken from the source"),
    "delivered": ("counter", "items with a result"),
    "filtered": ("counter", "items that an operator removed"),
    "failed": ("counter", "items that failed"),
    "refused": ("counter", "items that did not enter because too many were on their way"),
    "dropped": ("counter", "frames that came faster than this process took them"),
    "breaks": ("counter", "times that the source was opened again"),
    "on_their_way": ("gauge", "items without an outcome"),
}


@dataclass(frozen=True)
class Settings:
    """What a feeder is started with."""

    target: tuple[str, str]
    rate_per_s: float
    deadline_s: float = 15.0
    window: int = 32
    status: tuple[str, ...] = ()
    identity: Identity | None = None


class Feeder:
    """Sends the items of one source."""

    def __init__(self, settings: Settings, stream: live.Stream) -> None:
        self.settings = settings
        self.stream = stream
        stream.note = self._note
        self.counts: Counter[str] = Counter()
        self._link = links.Link(*settings.target, settings.identity)
        self._token = secrets.token_hex(8)
        self._waiting: set[asyncio.Task[None]] = set()
        self._heard_s = time.monotonic()
        self._server = Server(settings.identity)
        self._stop = asyncio.Event()

    async def start(self) -> list[str]:
        """Serves health and metrics; returns the addresses."""
        return [await self._server.listen(address, self.status, True, STATUS_LIMITS) for address in self.settings.status]

    def stop(self) -> None:
        """Takes no more items."""
        self._stop.set()

    async def run(self) -> int:
        """Until the source ends (1) or `stop` (0)."""
        reading = asyncio.ensure_future(self._read())
        stopping = asyncio.ensure_future(self._stop.wait())
        await asyncio.wait([reading, stopping], return_when=asyncio.FIRST_COMPLETED)
        status = 0 if self._stop.is_set() else 1
        for one in (reading, stopping):
            one.cancel()
        await asyncio.wait([reading, stopping])
        if not reading.cancelled() and (error := reading.exception()) is not None:
            self._note(describe(error))
        if self._waiting:
            await asyncio.wait(self._waiting, timeout=DRAIN_S)
        self._link.close()
        if self._waiting:
            await asyncio.wait(self._waiting)
        self._server.close()
        return status

    async def _read(self) -> None:
        async with contextlib.aclosing(self.stream.items()) as items:
            try:
                async for item in items:
                    self._heard_s = time.monotonic()
                    self.send(item)
            except live.SourceLost as error:
                self._note(str(error))

    def send(self, item: Item) -> None:
        """Sends one item, or refuses it where too many are on their way."""
        number = self.counts["sent"]
        self.counts["sent"] += 1
        if len(self._waiting) >= self.settings.window:
            self.counts[REFUSED] += 1
            return
        task = asyncio.ensure_future(self._send(number, item))
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

    async def _send(self, number: int, item: Item) -> None:
        try:
            body = encode_batch([item])
        except ItemError as error:
            self.counts[REFUSED] += 1
            self._note(f"item {item.id}: {error}")
            return
        answer = await self._link.send(f"{self._token}-{number}", body, time.monotonic() + self.settings.deadline_s)
        found = record(number, item, clock.now(), answer)
        self.counts[found.outcome] += 1
        if found.outcome != links.FILTERED:
            _say(shown(found))

    def _note(self, text: str) -> None:
        self.counts["breaks"] += "opened again" in text
        print(f"{self.stream.address.name}: {text}", file=sys.stderr, flush=True)

    async def status(self, message: Message) -> Answer:
        """The state that any client may read."""
        match (message.method, message.path):
            case ("GET", "/healthz"):
                silent_s = time.monotonic() - self._heard_s
                state = "ready" if silent_s < SILENT_S else "silent"
                document = {"source": self.stream.address.name, "state": state, "silent_s": round(silent_s, 3)}
                return Answer.of(document, 200 if state == "ready" else 503)
            case ("GET", "/metrics"):
                counts = self.metrics()
                if "json" in message.headers.get("accept", ""):
                    return Answer.of(counts)
                text = prometheus_of("isolane_feeder", _HELP, {"source": self.stream.address.name}, counts)
                return Answer(200, (text + "\n").encode(), {"content-type": "text/plain; version=0.0.4"})
        return Answer.error(404, f"{message.method} {message.path[:80]}: there are GET /metrics, GET /healthz")

    def metrics(self) -> dict[str, int]:
        """The counts by name."""
        found = {name: self.counts[name] for name in _HELP}
        return {**found, "dropped": self.stream.dropped, "on_their_way": len(self._waiting)}


def shown(one: Record) -> dict[str, Any]:
    """A result for a log."""
    document: dict[str, Any] = {"item": one.item_id, "time_s": round(one.seen_s, 6), "outcome": one.outcome}
    if one.outcome != links.DELIVERED:
        return {**document, "operator": one.operator, "reason": one.reason}
    outputs = [{name: _plain(value) for name, value in item.payload.items()} for item in one.outputs]
    return {**document, "latency_ms": round(one.latency_ms or 0.0, 3), "outputs": outputs}


def _plain(value: Value) -> Any:
    if isinstance(value, np.ndarray):
        if value.size > SHOWN:
            return {"dtype": str(value.dtype), "shape": list(value.shape)}
        return _finite(value.tolist())
    return _finite(value)


def _finite(value: Any) -> Any:
    """JSON has no infinite numbers."""
    if isinstance(value, list):
        return [_finite(one) for one in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _say(document: dict[str, Any]) -> None:
    print(json.dumps(document, separators=(",", ":")), flush=True)


async def serve(settings: Settings, stream: live.Stream) -> int:
    """Runs a feeder until a signal or the end of its source."""
    feeder = Feeder(settings, stream)
    await feeder.start()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, feeder.stop)
    return await feeder.run()


def main() -> None:
    """See --help."""
    parser = argparse.ArgumentParser(prog="isolane.pipeline.feeder", description=f"Sends what the source in {live.SOURCE} gives.")
    parser.add_argument("--workload", required=True, metavar="MODULE:CLASS", help="its items say the size of frames, or the length of clips")
    parser.add_argument("--allow-module", action="append", default=[], metavar="M", help="also accept a workload of this module")
    parser.add_argument("--to", required=True, metavar="NAME=ADDRESS", help="the first operator and where it listens")
    parser.add_argument("--rate", type=float, required=True, metavar="PER_S", help="items per second at most")
    parser.add_argument("--deadline-s", type=float, default=15.0, help="seconds after which an item fails (15)")
    parser.add_argument("--window", type=int, default=32, help="largest number of items in flight (32)")
    parser.add_argument("--status", action="append", default=[], help="address for /healthz and /metrics, without a key")
    parser.add_argument("--identity", type=pathlib.Path, metavar="DIR", help="certificates for https (isolane rdma agent init)")
    words = parser.parse_args()
    name, equals, address = words.to.partition("=")
    try:
        if not (name and equals and 0.0 < words.rate <= 10_000.0 and words.deadline_s > 0.0 and words.window >= 1):
            raise PlanError("--to is NAME=ADDRESS, --rate from 0 to 10000 a second, --deadline-s above 0, --window at least 1")
        if live.SOURCE not in os.environ:
            raise PlanError(f"{live.SOURCE} is not set; it is the source's address: {live.ADDRESSES}")
        split_address(address)
        allowed.allow(words.allow_module)
        form = live.form_of(open_source(words.workload, 1).items[0])
        identity = None if words.identity is None else Identity.load(words.identity)
        stream = live.Stream(live.parse(os.environ[live.SOURCE].strip()), form, words.rate)
        settings = Settings((name, address), words.rate, words.deadline_s, words.window, tuple(words.status), identity)
    except (allowed.NameRefused, IdentityError, AddressError, PlanError) as error:
        parser.error(str(error))
    sys.exit(asyncio.run(serve(settings, stream)))


if __name__ == "__main__":
    main()
