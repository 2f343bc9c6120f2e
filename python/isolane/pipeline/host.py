"""The process of one operator, with its contract over HTTP.

    POST /process   a batch of items (`isolane.pipeline.item`); answers when everything made of it is delivered, filtered out or
                    has failed: `x-isolane-outcome` says which, `x-isolane-trace` has one entry per operator passed (JSON), the
                    body is the last operator's batch, or {"operator", "reason"}. Headers in: `x-isolane-key` (equal keys are
                    the same item sent again), `x-isolane-left-s` (seconds that the item has left).
    PUT  /config    {"knobs": {...}, "downstream": {"name", "address"} or null, "slowdown": 1.0}; each optional. Answers when it
                    holds: from the next item on.
    GET  /metrics   Prometheus text, or JSON for `accept: application/json`
    GET  /healthz   200 while it works; 503 while it starts, drains or is stuck, with the reason
    GET  /state, PUT /state    an operator's memory as an item, where it has one
    POST /measure   {"address", "bytes"}: sends so much to another operator's /probe and says what arrived per second
    POST /probe     takes and forgets a body

Problem: an operator must be configured, watched, moved and replaced while items flow, and after any failure each item's sender
must learn the fate of the item. Method: `worker` runs the operator, `link` keeps the items that were sent on, this file joins
them and keeps keys: an item that arrives again (its sender's connection broke) gets the answer of the first time. An operator
that does not come back from an item for `hang_s` has hung: the item fails, the process ends itself with `EXIT_HUNG`, and the
senders of the items behind it send them again to the process that replaces it.

Units are in the names. Limits: keys are remembered for `KEYS` items and `KEYS_BYTES` of answers.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import json
import os
import pathlib
import signal
import sys
import time
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import Any

from isolane import allowed
from isolane.pipeline import link as links
from isolane.pipeline.address import AddressError, split_address
from isolane.pipeline.identity import Identity, IdentityError
from isolane.pipeline.item import Item, ItemError, decode, encode
from isolane.pipeline.listener import Limits
from isolane.pipeline.messages import Answer, Message, read_json, request
from isolane.pipeline.metrics import Counts, prometheus
from isolane.pipeline.operator import OperatorError, Remembers, load
from isolane.pipeline.records import hops_of
from isolane.pipeline.server import Server
from isolane.pipeline.worker import Failure, Worker

#: Answers that are remembered, and their bytes.
KEYS, KEYS_BYTES = 1024, 64 * 1024 * 1024
#: How long an item may take in all if its sender names no deadline.
DEADLINE_S = 30.0
#: The longest time that a sender may give an item.
LEFT_MAX_S = 86_400.0
#: After a hang: how long answers of other items may still take before the process ends.
GRACE_S = 2.0
#: A drain ends after this even if items are unanswered; senders keep those.
DRAIN_S = 30.0
#: The exit status that says that an operator hung.
EXIT_HUNG = 70
#: The longest stretch in which another thread keeps the interpreter: the default of 5 ms would be added to each hop.
SWITCH_S = 0.0005
#: A body of this size or more is a measurement of its link's speed.
TELLING_BYTES = 32 * 1024
#: Bytes of one measurement at most.
PROBE_MAX = 16 * 1024 * 1024
#: One runner sends the orders; a memory that moves may be as large as an item.
CONTROL_LIMITS = Limits(open=32, entering=16, per_address=32, pipelined=links.WINDOW)
#: Any client may read the state: requests without bodies, and answers of some kilobytes.
STATUS_LIMITS = Limits(open=64, entering=64, per_address=16, pipelined=8, body_bytes=0, bodies_bytes=1024 * 1024, idle_s=60.0)


@dataclass(frozen=True)
class Settings:
    """What a host is started with."""

    name: str
    implementation: str
    listen: tuple[str, ...]
    control: tuple[str, ...] = ()
    status: tuple[str, ...] = ()
    knobs: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    downstream: tuple[str, str] | None = None
    tier: str = ""
    slowdown: float = 1.0
    hang_s: float = 10.0
    identity: Identity | None = None
    private_network: bool = False
    gpu: bool = False


class Host:
    """Serves one operator until the order or the signal to stop."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.operator = load(settings.implementation, settings.options)
        self.worker = Worker(self.operator, settings.slowdown, settings.gpu)
        self.server = Server(settings.identity)
        self.link: links.Link | None = None
        if settings.downstream is not None:
            self.link = links.Link(*settings.downstream, settings.identity)
        self.counts = Counts()
        self.state = "starting"
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._known: OrderedDict[str, asyncio.Future[Answer]] = OrderedDict()
        self._known_bytes = 0
        self._active = 0
        self._in_worker = 0
        self._inbound: deque[float] = deque(maxlen=15)

    async def start(self) -> list[str]:
        """Configures the operator and listens; returns the addresses."""
        if self.settings.knobs:
            await self.worker.configure(self.settings.knobs)
        mine = self.settings
        for address in mine.control:
            if split_address(address).path is None:
                raise AddressError(f"--control {address}: other users reach it; write unix:/path")
        # Any client may read a status port; it accepts no orders.
        addresses = [await self.server.listen(address, self.control, limits=CONTROL_LIMITS) for address in mine.control]
        addresses += [await self.server.listen(address, self.status, True, STATUS_LIMITS) for address in mine.status]
        addresses += [await self.server.listen(address, self.data, mine.private_network) for address in mine.listen]
        self.state = "ready"
        asyncio.ensure_future(self._watch())
        return addresses

    async def _watch(self) -> None:
        limit = self.settings.hang_s
        while self.state != "stuck":
            await asyncio.sleep(min(limit / 4, 0.25))
            if self.worker.busy_s() > limit:
                self.state = "stuck"
                self.counts.hangs += 1
        self.server.stop_listening()
        self.worker.give_up_current(f"the operator did not come back in {limit:g} s; its process is ended")
        until = time.monotonic() + GRACE_S
        while self._active > self._in_worker and time.monotonic() < until:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)  # the last answer leaves
        self.end(EXIT_HUNG)

    def end(self, status: int) -> None:
        """Lets `ended` say that the process should stop."""
        if not self.ended.done():
            self.ended.set_result(status)

    async def drain(self) -> None:
        """Takes no more items, finishes those that are here, and ends."""
        if self.state == "ready":
            self.state = "draining"
        until = time.monotonic() + DRAIN_S
        while self._active and time.monotonic() < until:
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.02)  # the last answer leaves
        self.end(0)

    async def data(self, message: Message) -> Answer:
        """What other operators may send: items, and bytes that measure the way."""
        match (message.method, message.path):
            case ("POST", "/process"):
                return await self._process(message)
            case ("POST", "/probe"):
                return Answer.of({"bytes": len(message.body) - message.half_bytes, "s": message.last_s - message.half_s})
        return self._unknown(message, "POST /process, POST /probe; the rest is on the control port")

    async def status(self, message: Message) -> Answer:
        """The state that any client may read."""
        match (message.method, message.path):
            case ("GET", "/metrics"):
                document = self.metrics()
                if "json" in message.headers.get("accept", ""):
                    return Answer.of(document)
                return Answer(200, prometheus(document).encode(), {"content-type": "text/plain; version=0.0.4"})
            case ("GET", "/healthz"):
                health = {"operator": self.settings.name, "state": self.state, "busy_s": round(self.worker.busy_s(), 3)}
                return Answer.of(health, 200 if self.state == "ready" else 503)
        return self._unknown(message, "GET /metrics, GET /healthz")

    async def control(self, message: Message) -> Answer:
        """The requests of the operator's runner, and those of the other ports."""
        match (message.method, message.path):
            case ("PUT", "/config"):
                return await self._configure(message)
            case ("GET" | "PUT", "/state"):
                return await self._state(message)
            case ("POST", "/measure"):
                return await self._measure(message)
            case ("POST", "/drain"):
                asyncio.ensure_future(self.drain())
                return Answer.of({"state": "draining"})
            case ("POST", "/process" | "/probe"):
                return await self.data(message)
            case ("GET", "/metrics" | "/healthz"):
                return await self.status(message)
        known = "POST /process, PUT /config, GET /metrics, GET /healthz, GET|PUT /state, POST /measure, /probe, /drain"
        return self._unknown(message, known)

    @staticmethod
    def _unknown(message: Message, known: str) -> Answer:
        return Answer.error(404, f"{message.method} {message.path[:80]}: there are {known}")

    async def _process(self, message: Message) -> Answer:
        key = message.headers.get(links.KEY, "")
        known = self._known.get(key) if key else None
        if known is not None:
            self.counts.again += 1
            return await asyncio.shield(known)
        if self.state != "ready":
            return Answer.error(503, f"operator {self.settings.name} is {self.state}")
        try:
            left_s = float(message.headers.get(links.LEFT, DEADLINE_S))
            if not 0.0 <= left_s <= LEFT_MAX_S:
                raise ValueError
        except ValueError:
            rule = f"must be a number of seconds from 0 to {LEFT_MAX_S:g}"
            return Answer.error(400, f"{links.LEFT} = {message.headers[links.LEFT][:40]!r}: {rule}")
        deadline = time.monotonic() + left_s
        spent = message.last_s - message.half_s
        if len(message.body) >= TELLING_BYTES and spent > 0.0:
            self._inbound.append(8e-6 * (len(message.body) - message.half_bytes) / spent)
        work = asyncio.ensure_future(self._through(message, key or "-", deadline))
        if key:
            self._remember(key, work)
        return await asyncio.shield(work)

    def _remember(self, key: str, work: asyncio.Future[Answer]) -> None:
        self._known[key] = work

        def weigh(done: asyncio.Future[Answer]) -> None:
            self._known_bytes += _weight(done)
            # Those in work stay: each is a request that a port counts.
            for other, oldest in list(self._known.items()):
                if len(self._known) <= KEYS and self._known_bytes <= KEYS_BYTES:
                    return
                if oldest.done():
                    del self._known[other]
                    self._known_bytes -= _weight(oldest)

        work.add_done_callback(weigh)

    async def _through(self, message: Message, key: str, deadline_s: float) -> Answer:
        """One item through this operator and all that follow."""
        self._active += 1
        self.counts.received += 1
        self.counts.bytes_in += len(message.body)
        name = self.settings.name
        hop: dict[str, Any] = {"operator": name, "tier": self.settings.tier, "received_s": message.last_s}
        hop["bytes_in"] = len(message.body)
        try:
            self._in_worker += 1
            try:
                done = await self.worker.process(message.body, deadline_s)
            finally:
                self._in_worker -= 1
            hop.update(begun_s=done.begun_s, ended_s=done.ended_s, process_ms=done.process_ms, bytes_out=len(done.body))
            hop.update(processor_ms=done.processor_ms, idle_ms=done.idle_ms)
            if done.accelerator_ms is not None:
                hop["accelerator_ms"] = done.accelerator_ms
            self.counts.took(done.process_ms, len(done.body))
            if not done.count:
                self.counts.filtered += 1
                return Answer(200, b"", {links.OUTCOME: links.FILTERED, links.TRACE: _trace([hop])})
            if self.link is None:
                self.counts.passed += 1
                return Answer(200, done.body, {links.OUTCOME: links.DELIVERED, links.TRACE: _trace([hop])})
            answer = await self.link.send(key, done.body, deadline_s)
            self.counts.passed += 1
            rest = hops_of(answer.headers.get(links.TRACE, "[]"))
            return Answer(200, answer.body, {**answer.headers, links.TRACE: _trace([hop, *rest])})
        except Failure as failure:
            self.counts.failed += 1
            return links.failed(name, str(failure), [hop])
        except ValueError:
            self.counts.failed += 1
            return links.failed(name, "the operator after it sent an invalid trace", [hop])
        finally:
            self._active -= 1

    async def _configure(self, message: Message) -> Answer:
        try:
            document = read_json(message.body)
        except ValueError as error:
            return Answer.error(422, f"the configuration is no JSON: {error}")
        unknown = sorted(set(document) - {"knobs", "downstream", "slowdown"}) if isinstance(document, dict) else ["it"]
        if unknown:
            return Answer.error(422, f"{unknown[0]!r} is unknown; there are knobs, downstream, slowdown")
        knobs, slowdown = document.get("knobs", {}), document.get("slowdown", self.worker.slowdown)
        if not isinstance(knobs, dict) or not isinstance(slowdown, (int, float)) or not 0 < slowdown <= 1000:
            return Answer.error(422, "knobs is an object of values by name, slowdown a number above 0, 1000 at most")
        downstream = document.get("downstream")
        try:
            new = None if downstream is None else links.Link(str(downstream["name"]), _address(downstream["address"]), self.settings.identity)
        except (KeyError, TypeError, AddressError) as error:
            return Answer.error(422, f"downstream needs a name and an address (http://host:port or unix:/path): {error}")
        if new is None and "downstream" in document and self.link is not None and self.link.unanswered:
            return Answer.error(422, f"{self.link.unanswered} items are on the way downstream; drain it before taking it away")
        try:
            if knobs:
                await self.worker.configure(knobs)
        except OperatorError as error:
            return Answer.error(422, f"operator {self.settings.name} {error}")
        self.worker.slowdown = float(slowdown)
        self.counts.configured += 1
        if "downstream" in document:
            self._point(new)
        return Answer.of({"operator": self.settings.name, "knobs": self.worker.knobs})

    def _point(self, new: links.Link | None) -> None:
        if new is None:
            if self.link is not None:
                self.link.close()
            self.link = None
        elif self.link is None:
            self.link = new
        else:
            self.link.switch(new.address, new.target)

    async def _state(self, message: Message) -> Answer:
        operator = self.operator
        if not isinstance(operator, Remembers):
            return Answer.error(404, f"operator {self.settings.name} has no memory that could move")
        try:
            if message.method == "GET":
                memory = await self.worker.change(operator.state)
                return Answer(200, encode(Item(0, 0.0, dict(memory))), {"content-type": "application/x-isolane-item"})
            memory = decode(message.body).payload
            await self.worker.change(lambda: operator.restore(memory))
        except Exception as error:
            return Answer.error(422, f"the memory of operator {self.settings.name}: {error}")
        return Answer.of({"operator": self.settings.name})

    async def _measure(self, message: Message) -> Answer:
        try:
            document = read_json(message.body)
            address, size = _address(document["address"]), min(int(document["bytes"]), PROBE_MAX)
        except (ValueError, KeyError, TypeError, OverflowError) as error:
            return Answer.error(422, f"a measurement needs an address and a number of bytes: {error}")
        try:
            found = (await request("POST", address, "/probe", bytes(size), 20.0, None, self.settings.identity)).json()
            rate = 8e-6 * float(found["bytes"]) / max(float(found["s"]), 1e-6)
        except (OSError, ValueError, KeyError, TypeError, OverflowError) as error:
            return Answer.error(502, f"{address} cannot be measured: {error}")
        return Answer.of({"address": address, "bytes": size, "mbit_per_s": rate})

    def metrics(self) -> dict[str, Any]:
        """What `GET /metrics` says."""
        found = sorted(self._inbound)
        return {
            "operator": self.settings.name,
            "tier": self.settings.tier,
            "state": self.state,
            "knobs": self.worker.knobs,
            "slowdown": self.worker.slowdown,
            "in_flight": self._active,
            "waiting": self.worker.waiting,
            "busy_s": self.worker.busy_s(),
            "raised": self.worker.raised,
            "rests": self.worker.rests,
            "batches": self.worker.batches,
            "circuit": self.worker.circuit,
            "inbound_mbit_per_s": found[len(found) // 2] if found else None,
            **self.counts.document(),
            "listener": self.server.counts(),
            "link": None if self.link is None else self.link.metrics(),
        }


def _weight(done: asyncio.Future[Answer]) -> int:
    return 0 if done.cancelled() or done.exception() else len(done.result().body)


def _trace(hops: list[dict[str, Any]]) -> str:
    return json.dumps(hops, separators=(",", ":"))


def _address(value: Any) -> str:
    split_address(str(value))
    return str(value)


def leave_with_parent() -> None:
    """Makes the kernel end this process when its parent has ended."""
    pr_set_pdeathsig = 1
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


async def serve(settings: Settings) -> int:
    """Runs a host until a signal or its own end; says where it listens on standard output."""
    try:
        host = Host(settings)
        addresses = await host.start()
    except (OperatorError, AddressError, OSError, ItemError) as error:
        print(json.dumps({"error": str(error)}), flush=True)
        return 2
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, lambda: asyncio.ensure_future(host.drain()))
    print(json.dumps({"ready": addresses, "pid": os.getpid()}), flush=True)
    status = await host.ended
    host.server.close()
    await asyncio.sleep(0)
    return status


def main() -> None:
    """`python -m isolane.pipeline.host`: see --help."""
    parser = argparse.ArgumentParser(prog="isolane.pipeline.host", description="Serves one operator over HTTP.")
    parser.add_argument("--name", required=True, help="the operator's name in reasons and metrics")
    parser.add_argument("--implementation", required=True, help="module:Class")
    parser.add_argument("--allow-module", action="append", default=[], metavar="M", help="also accept operators of this module")
    where = "https://host:port, http://127.0.0.1:port or unix:/path; may be repeated"
    parser.add_argument("--listen", action="append", required=True, help=f"where items come in: {where}")
    parser.add_argument("--control", action="append", default=[], help="where knobs, memory and drains are: unix:/path")
    parser.add_argument("--status", action="append", default=[], help="address for /healthz and /metrics, without a key")
    parser.add_argument("--identity", type=pathlib.Path, metavar="DIR", help="certificates for https (isolane rdma agent init)")
    parser.add_argument("--private-network", action="store_true", help="no other machine reaches these addresses: allow http on them")
    parser.add_argument("--knobs", type=json.loads, default={}, help="JSON object")
    parser.add_argument("--options", type=json.loads, default={}, help="JSON object: what the class is made with")
    parser.add_argument("--downstream", help="NAME=ADDRESS of the next operator; none: answers carry the items")
    parser.add_argument("--tier", default="", help="where this process runs, for traces")
    parser.add_argument("--slowdown", type=float, default=1.0, help="imitates a machine so many times slower")
    parser.add_argument("--gpu", action="store_true", help="the operator's idle time is an accelerator's, which --slowdown slows too")
    parser.add_argument("--hang-s", type=float, default=10.0, help="an operator at one item for so many seconds has hung")
    parser.add_argument("--leave-with-parent", action="store_true", help="end when the starting process ends")
    words = parser.parse_args()
    if words.leave_with_parent:
        leave_with_parent()
    sys.setswitchinterval(SWITCH_S)
    try:
        allowed.allow(words.allow_module)
        identity = None if words.identity is None else Identity.load(words.identity)
    except (allowed.NameRefused, IdentityError) as error:
        parser.error(str(error))
    downstream = tuple(words.downstream.split("=", 1)) if words.downstream else None
    settings = Settings(
        words.name,
        words.implementation,
        tuple(words.listen),
        tuple(words.control),
        tuple(words.status),
        words.knobs,
        words.options,
        downstream if downstream is None else (downstream[0], downstream[-1]),
        words.tier,
        words.slowdown,
        words.hang_s,
        identity,
        words.private_network,
        words.gpu,
    )
    status = asyncio.run(serve(settings))
    sys.stdout.flush()
    # A hung operator's thread would keep the interpreter from ending.
    os._exit(status)


if __name__ == "__main__":
    main()
