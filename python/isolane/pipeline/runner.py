"""Runs a deployment: starts operators, feeds items, watches, restarts, reconfigures, moves.

Problem: a pipeline must continue while its operators end, hang and move, and the fate of each item must be known. Method: one
process per operator (`host`), with a Unix socket each for orders; items enter over the same socket of the first, and travel from
operator to operator over TCP, in namespaces if there are `Spaces`. A process that ends is started again at the same addresses
(its senders keep unanswered items); one that does not answer `/healthz` is killed first. After `RESTARTS_MAX` ends within
`RESTARTS_S` it stays down, and items fail with that reason at their deadlines.

Moving an operator: the new process starts with the same knobs and takes the old one's memory if it has one, the upstream is
pointed to it, the old one answers what it has, and ends. New items never wait for that.

Units: `_s` since the epoch (`clock`) where a name says `at`, else durations. Limits: one machine; several are for Kubernetes or Ray.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import pathlib
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from isolane import allowed
from isolane.pipeline import clock, processes
from isolane.pipeline import link as links
from isolane.pipeline.context import Context
from isolane.pipeline.deployment import Deployment, Stage
from isolane.pipeline.item import Item, ItemError, encode_batch
from isolane.pipeline.messages import request, request_json
from isolane.pipeline.operator import KnobValue
from isolane.pipeline.records import REFUSED, Record, record
from isolane.pipeline.spaces import Spaces

#: Ends of one operator within `RESTARTS_S` after which it stays down.
RESTARTS_MAX, RESTARTS_S = 6, 30.0
#: Between looks at an operator's health; unanswered looks after which it is killed; and how long one may take.
HEALTH_S, HEALTH_MISSES, HEALTH_TIMEOUT_S = 0.5, 3, 2.0
#: Starting an interpreter with its libraries on a busy machine.
START_S = 60.0
#: How long a former operator may take to answer what it has.
DRAIN_S = 15.0


class RunnerError(Exception):
    """An operator that cannot be started or takes no orders."""


@dataclass(frozen=True)
class Event:
    """Something that happened to the pipeline, for people."""

    at_s: float
    operator: str
    what: str


@dataclass(frozen=True)
class Moved:
    """A migration: durations in milliseconds, and begin and end of its pause."""

    operator: str
    source: str
    target: str
    start_ms: float
    switch_ms: float
    drain_ms: float
    begin_s: float
    end_s: float


@dataclass(frozen=True)
class Options:
    """How a runner behaves; times in seconds."""

    hang_s: float = 10.0
    deadline_s: float = 15.0
    window: int = 32
    python_path: tuple[str, ...] = ()


@dataclass(eq=False)
class _Running:
    """A process and how to reach it."""

    stage: Stage
    control: str
    data: str = ""
    downstream: tuple[str, str] | None = None
    process: asyncio.subprocess.Process | None = None
    expected_end: bool = False
    ends: list[float] = field(default_factory=list)
    guard: asyncio.Task[None] | None = None


class Runner(Context):
    """A running pipeline. Use as an asynchronous context manager."""

    def __init__(self, deployment: Deployment, spaces: Spaces | None = None, options: Options = Options()) -> None:
        clock.one_machine()
        self.deployment = deployment
        self.options = options
        self.events: list[Event] = []
        self.records: list[Record] = []
        self.sent = 0
        self._spaces = spaces
        # Runners in two containers have the same process number, and so has one that starts again.
        self._token = secrets.token_hex(8)
        self._folder = pathlib.Path(tempfile.mkdtemp(prefix="isolane-"))
        self._running: list[_Running] = []
        self._old: set[_Running] = set()
        self._link: links.Link | None = None
        self._started = 0
        self._waiting: set[asyncio.Task[None]] = set()
        self._changing = asyncio.Lock()

    async def _open(self) -> None:
        self._running = await self._start_chain(self.deployment.stages)
        first = self._running[0]
        self._link = links.Link(first.stage.name, first.control)

    async def _start_chain(self, stages: Iterable[Stage]) -> list[_Running]:
        """Starts processes at once, since each takes long to import its libraries, and then joins them."""
        chain = list(await asyncio.gather(*(self._start(stage, None) for stage in stages), return_exceptions=True))
        made = [one for one in chain if isinstance(one, _Running)]
        for one in chain:
            if isinstance(one, BaseException):
                raise one
        for here, after in zip(made, made[1:], strict=False):
            await self._point(here, after)
        self._old.difference_update(made)
        return made

    async def _start(self, stage: Stage, downstream: tuple[str, str] | None) -> _Running:
        self._started += 1
        running = _Running(stage, f"unix:{self._folder}/{self._started}", downstream=downstream)
        # Until it takes its place it is one that `close` ends, also if its start is interrupted.
        self._old.add(running)
        await self._launch(running)
        running.guard = asyncio.ensure_future(self._guard(running))
        return running

    async def _launch(self, running: _Running) -> None:
        """Starts the process of `running`; at the addresses that it had, if it had any."""
        stage = running.stage
        words = [] if self._spaces is None else self._spaces.enter(stage.tier)
        words += [sys.executable, "-m", "isolane.pipeline.host", "--leave-with-parent"]
        words += ["--name", stage.name, "--implementation", stage.implementation, "--tier", stage.tier]
        words += [word for module in allowed.allowed() for word in ("--allow-module", module)]
        words += ["--knobs", json.dumps(stage.knobs), "--options", json.dumps(stage.options)]
        # Without namespaces every user of this machine reaches loopback; this folder is this user's alone.
        data = f"{running.control}.data" if self._spaces is None else f"http://{self._spaces.address(stage.tier)}:0"
        words += ["--control", running.control, "--listen", running.data or data]
        words += [] if self._spaces is None else ["--private-network"]
        words += ["--hang-s", str(self.options.hang_s)]
        words += ["--slowdown", str(self.deployment.place(stage.tier).slowdown(stage)), *(["--gpu"] if stage.gpu else [])]
        if running.downstream is not None:
            words += ["--downstream", "=".join(running.downstream)]
        path = os.pathsep.join([*self.options.python_path, *filter(None, sys.path)])
        # One core per operator: a profile's milliseconds are those of one thread.
        single = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
        environment = {**os.environ, **single, **clock.one_machine(), "PYTHONPATH": path}
        pipe = asyncio.subprocess.PIPE
        # In a session of its own: an interrupt from the keyboard is for this process, which then ends that one.
        process = await asyncio.create_subprocess_exec(
            *words, stdout=pipe, stdin=asyncio.subprocess.DEVNULL, env=environment, start_new_session=True
        )
        running.process = process
        assert process.stdout is not None
        try:
            line = await asyncio.wait_for(process.stdout.readline(), START_S)
            said = json.loads(line or b'{"error": "it ended without a word"}')
        except (asyncio.TimeoutError, ValueError) as error:
            said = {"error": f"no word from it in {START_S:g} s ({error})"}
        if "ready" not in said:
            processes.kill(process)
            await process.wait()
            raise RunnerError(f"operator {stage.name} on {stage.tier} cannot start: {said.get('error', said)}")
        running.data = said["ready"][-1]

    async def _guard(self, running: _Running) -> None:
        """Keeps one operator alive until its end is expected."""
        name = running.stage.name
        while True:
            assert running.process is not None
            health = asyncio.ensure_future(self._watch_health(running))
            status = await running.process.wait()
            health.cancel()
            if running.expected_end:
                return
            self._note(name, f"ended: {_status(status)}")
            now = time.monotonic()
            running.ends = [at for at in running.ends if now - at < RESTARTS_S] + [now]
            if len(running.ends) >= RESTARTS_MAX:
                self._note(name, f"ended {RESTARTS_MAX} times in {RESTARTS_S:g} s and stays down")
                return
            try:
                await self._launch(running)
            except RunnerError as error:
                self._note(name, f"not started again: {error}")
                continue
            if running.expected_end:
                processes.kill(running.process)
            self._note(name, "started again")

    async def _watch_health(self, running: _Running) -> None:
        misses = 0
        while misses < HEALTH_MISSES:
            await asyncio.sleep(HEALTH_S)
            try:
                await request("GET", running.control, "/healthz", timeout_s=HEALTH_TIMEOUT_S)
                misses = 0
            except (OSError, TimeoutError):
                misses += 1
        self._note(running.stage.name, f"did not answer /healthz {HEALTH_MISSES} times; killed")
        assert running.process is not None
        processes.kill(running.process)

    def _note(self, operator: str, what: str) -> None:
        self.events.append(Event(clock.now(), operator, what))

    async def _point(self, upstream: _Running, target: _Running) -> None:
        document = {"downstream": {"name": target.stage.name, "address": target.data}}
        await self._tell(upstream, document)
        upstream.downstream = (target.stage.name, target.data)

    async def _tell(self, running: _Running, document: dict[str, Any]) -> None:
        try:
            await request_json("PUT", running.control, "/config", document, timeout_s=self.options.hang_s + 5.0)
        except (OSError, TimeoutError) as error:
            raise RunnerError(f"operator {running.stage.name}: {error}") from error

    def send(self, item: Item) -> asyncio.Task[None]:
        """Sends one item; its record is appended when its fate is known."""
        number = self.sent
        self.sent += 1
        task = asyncio.ensure_future(self._send(number, item))
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)
        return task

    async def _send(self, number: int, item: Item) -> None:
        assert self._link is not None
        if len(self._waiting) > self.options.window:
            reason = f"{self.options.window} items were on their way: the pipeline is slower than its source"
            self.records.append(Record(number, item.id, item.time_s, clock.now(), REFUSED, "", reason))
            return
        try:
            body = encode_batch([item])
        except ItemError as error:
            self.records.append(Record(number, item.id, item.time_s, clock.now(), REFUSED, "", str(error)))
            return
        answer = await self._link.send(f"{self._token}-{number}", body, time.monotonic() + self.options.deadline_s)
        self.records.append(record(number, item, clock.now(), answer))

    async def feed(self, items: Iterable[Item], rate_items_per_s: float) -> None:
        """Sends items at a rate, each with the moment at which it is due as its time, and waits for their fates."""
        begin = clock.now()
        for index, item in enumerate(items):
            due = begin + index / rate_items_per_s
            await asyncio.sleep(max(due - clock.now(), 0.0))
            self.send(Item(item.id, max(due, clock.now()), item.payload))
        await self.settle()

    async def settle(self) -> None:
        """Waits until the fate of every item is known."""
        while self._waiting:
            await asyncio.wait(self._waiting)

    async def configure(self, name: str, knobs: dict[str, KnobValue]) -> None:
        """Sets knobs of one operator, from its next item on."""
        async with self._changing:
            await self._configure(self._find(name), knobs)

    async def _configure(self, running: _Running, knobs: dict[str, KnobValue]) -> None:
        await self._tell(running, {"knobs": knobs})
        running.stage = dataclasses.replace(running.stage, knobs={**running.stage.knobs, **knobs})
        self.deployment = self.deployment.with_stage(running.stage)

    def _find(self, name: str) -> _Running:
        stage = self.deployment.stage(name)
        return next(one for one in self._running if one.stage.name == stage.name)

    async def migrate(self, name: str, tier: str) -> Moved:
        """Moves one operator to another tier without losing or delaying items."""
        async with self._changing:
            stage = self.deployment.stage(name)
            self.deployment.place(tier)
            return await self._replace(dataclasses.replace(stage, tier=tier))

    async def _replace(self, stage: Stage) -> Moved:
        """Puts a new process in the place of the stage's namesake."""
        assert self._link is not None
        old = self._find(stage.name)
        index = self._running.index(old)
        begin = clock.now()
        new = await self._start(stage, old.downstream)
        await self._hand_over_memory(old, new)
        started = clock.now()
        try:
            if index == 0:
                self._link.switch(new.control, stage.name)
            else:
                await self._point(self._running[index - 1], new)
        except RunnerError:
            await self._stop(new)
            raise
        switched = clock.now()
        self._running[index] = new
        self._old.discard(new)
        self.deployment = self.deployment.with_stage(stage)
        self._old.add(old)
        await self._drain(old, index)
        end = clock.now()
        self._note(stage.name, f"moved from {old.stage.tier} to {stage.tier}")
        durations = (1000.0 * (started - begin), 1000.0 * (switched - started), 1000.0 * (end - switched))
        return Moved(stage.name, old.stage.tier, stage.tier, *durations, started, end)

    async def _hand_over_memory(self, old: _Running, new: _Running) -> None:
        try:
            memory = await request("GET", old.control, "/state")
            if memory.status == 200:
                taken = await request("PUT", new.control, "/state", bytes(memory.body))
                if taken.status != 200:
                    self._note(new.stage.name, f"begins without its memory: {bytes(taken.body)[:200].decode(errors='replace')}")
        except (OSError, TimeoutError) as error:
            self._note(new.stage.name, f"begins without its memory: {error}")

    async def _drain(self, old: _Running, index: int) -> None:
        """Lets a former operator answer what it has, and ends it. What it does not answer in time is sent again."""
        assert self._link is not None
        until = time.monotonic() + DRAIN_S
        while time.monotonic() < until and old.process is not None and old.process.returncode is None:
            if index == 0:
                left = self._link.draining
            else:
                left = int(((await self._ask(self._running[index - 1])).get("link") or {}).get("draining", 0))
            if left == 0:
                break
            await asyncio.sleep(0.02)
        await self._stop(old)

    async def _stop(self, running: _Running) -> None:
        running.expected_end = True
        process = running.process
        if process is not None and process.returncode is None:
            with contextlib.suppress(OSError, TimeoutError):
                await request("POST", running.control, "/drain", timeout_s=1.0)
            try:
                await asyncio.wait_for(process.wait(), 2.0)
            except asyncio.TimeoutError:
                processes.kill(process)
                await process.wait()
        if running.guard is not None:
            await asyncio.wait([running.guard])
        self._old.discard(running)

    async def apply(self, deployment: Deployment) -> list[Moved]:
        """Makes the running pipeline this one: knobs are set, operators moved; another order is built beside the old one."""
        async with self._changing:
            if [one.name for one in deployment.stages] != [one.name for one in self.deployment.stages]:
                return await self._rebuild(deployment)
            moved = []
            # Settings first, since they shrink or grow what moves; then from the last operator to the first.
            for stage in deployment.stages:
                running = self._find(stage.name)
                if stage.tier == running.stage.tier and stage.knobs != running.stage.knobs:
                    await self._configure(running, stage.knobs)
            for stage in reversed(deployment.stages):
                if stage.tier != self._find(stage.name).stage.tier:
                    moved.append(await self._replace(stage))
            self.deployment = deployment
            return moved

    async def _rebuild(self, deployment: Deployment) -> list[Moved]:
        assert self._link is not None
        begin = clock.now()
        before, self.deployment = self.deployment, deployment
        try:
            chain = await self._start_chain(deployment.stages)
        except BaseException:
            self.deployment = before
            raise
        started = clock.now()
        old, self._running = self._running, chain
        self._link.switch(chain[0].control, chain[0].stage.name)
        switched = clock.now()
        self._old.update(old)
        await self._drain(old[0], 0)
        for one in old[1:]:
            await self._stop(one)
        end = clock.now()
        durations = (1000.0 * (started - begin), 1000.0 * (switched - started), 1000.0 * (end - switched))
        self._note("pipeline", f"rebuilt as {', '.join(stage.name for stage in deployment.stages)}")
        return [Moved("pipeline", "", "", *durations, started, end)]

    async def metrics(self) -> list[dict[str, Any]]:
        """`GET /metrics` of every operator, in order; what does not answer says why."""
        return list(await asyncio.gather(*(self._ask(one) for one in self._running)))

    async def _ask(self, running: _Running) -> dict[str, Any]:
        try:
            document: dict[str, Any] = await request_json("GET", running.control, "/metrics", timeout_s=HEALTH_TIMEOUT_S)
            return document
        except (OSError, TimeoutError) as error:
            return {"operator": running.stage.name, "tier": running.stage.tier, "state": f"unreachable: {error}"}

    async def measure(self, name: str, size: int) -> float:
        """Megabits per second from an operator to the next, with so many bytes over the way that items take."""
        running = self._find(name)
        if running.downstream is None:
            raise RunnerError(f"operator {name} is the last: nothing follows it")
        document = {"address": running.downstream[1], "bytes": size}
        try:
            found = await request_json("POST", running.control, "/measure", document, timeout_s=30.0)
        except (OSError, TimeoutError) as error:
            raise RunnerError(f"operator {name}: {error}") from error
        return float(found["mbit_per_s"])

    def pid(self, name: str) -> int:
        """The process of an operator."""
        process = self._find(name).process
        return 0 if process is None else process.pid

    async def close(self) -> None:
        """Ends everything; items without a fate have failed."""
        if self._link is not None:
            self._link.close()
        await self.settle()
        for running in [*self._running, *self._old]:
            running.expected_end = True
            if running.process is not None:
                processes.kill(running.process)
                await running.process.wait()
        guards = [one.guard for one in [*self._running, *self._old] if one.guard is not None]
        if guards:
            await asyncio.wait(guards)
        self._running, self._old = [], set()
        shutil.rmtree(self._folder, ignore_errors=True)


def _status(status: int) -> str:
    if status < 0:
        with contextlib.suppress(ValueError):
            return f"by {signal.Signals(-status).name}"
    return "because its operator hung" if status == 70 else f"with status {status}"
