"""What a running query does, in the planner's words: latency, accuracy, use of tiers and links, and how fast the links are.

Problem: adaptation needs the utility of what runs now, and when that changed, the conditions to plan for. Method: a period's
records give latency, and, with the work and bytes in their traces, a measured launch for the planner's estimates of compute and
network. Accuracy on live data has no truth: now and then a stretch of items also goes through the most expensive configuration,
here beside the pipeline, and its outputs replace the truth (section 4.5.1). Links are measured by `probes`: one small process per tier
sends to the next tier's, which says how fast it came; what items took of the link in that time is added.

Units: `_ms`, `_mbit_per_s`. Limits: items that failed or were refused count with the deadline as their latency; what waits in
queues is in the latency but in no estimate of the planner.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
import multiprocessing
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor


import numpy as np

from isolane import allowed
from isolane.pipeline import processes
from isolane.pipeline.context import Context
from isolane.pipeline.deployment import Deployment
from isolane.pipeline.item import Item, decode_batch, encode_batch
from isolane.pipeline.messages import request_json
from isolane.pipeline.operator import KnobValue, Operator, load
from isolane.pipeline.records import Record
from isolane.pipeline.runner import Runner, RunnerError
from isolane.pipeline.spaces import Spaces
from isolane.pipeline.stopwatch import Spent, mean_parts
from isolane.planner.estimate import Estimator, Table
from isolane.planner.live import configured, pass_through
from isolane.planner.model import Configuration, Infrastructure, Launch, OperatorResult, Query, Workload
from isolane.planner.online import Observation

#: Bytes of a measurement, one after the other until one is enough: a connection starts slowly, and a large transfer disturbs.
PROBE_BYTES = (128 * 1024, 512 * 1024, 2 * 1024 * 1024, 8 * 1024 * 1024)
#: The later half of a measurement is enough if it took so long, or if it is at least this part of the known speed.
TELLING_S, TELLING_PART = 0.25, 0.8
PROBE_TIMEOUT_S = 20.0
ATTEMPTS = 2


class Idle:
    """The operator of a probe: it is never sent items."""

    def configure(self, knobs: Mapping[str, KnobValue]) -> None:
        """Has none."""

    def process(self, item: Item) -> list[Item]:
        """Passes on."""
        return [item]


class Probes(Context):
    """One process per tier that measures the link to the next. Use as an asynchronous context manager."""

    def __init__(self, spaces: Spaces) -> None:
        self._spaces = spaces
        self._folder = pathlib.Path(tempfile.mkdtemp(prefix="isolane-probes-"))
        self._processes: list[asyncio.subprocess.Process] = []
        self._addresses: list[str] = []

    async def _open(self) -> None:
        tiers = range(len(self._spaces.tiers))
        self._addresses = list(await asyncio.gather(*(self._start(index) for index in tiers)))

    def _control(self, index: int) -> str:
        return f"unix:{self._folder}/{index}"

    async def _start(self, index: int) -> str:
        tier = self._spaces.tiers[index]
        words = [*self._spaces.enter(tier), sys.executable, "-m", "isolane.pipeline.host", "--leave-with-parent"]
        words += ["--name", f"probe-{tier}", "--implementation", f"{__name__}:Idle"]
        words += ["--control", self._control(index), "--listen", f"http://{self._spaces.address(tier)}:0", "--private-network"]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        process = await asyncio.create_subprocess_exec(
            *words, stdout=pipe, stdin=nothing, env=environment, start_new_session=True
        )
        self._processes.append(process)
        assert process.stdout is not None
        said = json.loads(await process.stdout.readline() or b"{}")
        if "ready" not in said:
            raise RunnerError(f"the probe of tier {tier} cannot start: {said.get('error', said)}")
        return str(said["ready"][-1])

    async def measure(
        self, index: int, known_mbit_per_s: float, received: Callable[[], Awaitable[float]], enough: float = TELLING_PART
    ) -> float:
        """Megabits per second from tier `index` to the next: what the last transfer got, and what items got during this transfer.

        `received` are the bytes of items that have crossed the link so far. A measurement looks for `enough` of the known speed.
        """
        speed = 0.0
        for size in PROBE_BYTES:
            document = {"address": self._addresses[index + 1], "bytes": size}
            before, begin = await received(), time.monotonic()
            try:
                found = await request_json("POST", self._control(index), "/measure", document, PROBE_TIMEOUT_S)
            except (OSError, TimeoutError) as error:
                raise RunnerError(f"the link after {self._spaces.tiers[index]} cannot be measured: {error}") from error
            taken, spent = await received() - before, time.monotonic() - begin
            own = max(float(found["mbit_per_s"]), 1e-6)
            speed = own + 8e-6 * max(taken, 0.0) / spent
            if 4e-6 * size / own >= TELLING_S or own >= enough * known_mbit_per_s:
                break
        return speed

    async def close(self) -> None:
        """Ends the processes."""
        for process in self._processes:
            processes.kill(process)
            await process.wait()
        self._processes = []
        shutil.rmtree(self._folder, ignore_errors=True)


async def bandwidth(
    runner: Runner, probes: Probes, index: int, tiers: Sequence[str], known: float, enough: float = TELLING_PART
) -> float:
    """The speed of the link after tier `index`: what a probe got, and what items took of it meanwhile.

    A link counts as slower only when `ATTEMPTS` measurements agree: a busy machine can make a measurement slower, never faster.
    """
    best = 0.0
    for _ in range(ATTEMPTS):
        best = max(best, await _once(runner, probes, index, tiers, known, enough))
        if best >= enough * known:
            break
    return best


async def _once(
    runner: Runner, probes: Probes, index: int, tiers: Sequence[str], known: float, enough: float
) -> float:
    crossing = _behind(runner, index, tiers)
    return await probes.measure(index, known, lambda: _received(runner, crossing), enough)


def _behind(runner: Runner, index: int, tiers: Sequence[str]) -> str | None:
    """The first operator behind a link, if items cross it."""
    stages = runner.deployment.stages
    for before, after in zip(stages, stages[1:], strict=False):
        if tiers.index(before.tier) <= index < tiers.index(after.tier):
            return after.name
    return None


async def _received(runner: Runner, name: str | None) -> float:
    found = [one for one in await runner.metrics() if one["operator"] == name]
    return float(found[0].get("bytes_in", 0)) if found else 0.0


def launch_of(deployment: Deployment, records: Sequence[Record], accuracy: float) -> Launch | None:
    """Records as a launch of this deployment on the profiling machine; None if no item reached one of its operators."""
    results: dict[str, OperatorResult] = {}
    for stage in deployment.stages:
        here = (stage.name, stage.tier)
        hops = [hop for one in records for hop in one.trace if (hop["operator"], hop["tier"]) == here and "ended_s" in hop]
        if not hops:
            return None
        passed = [hop for hop in hops if hop["bytes_out"]]
        slow = deployment.place(stage.tier).slowdown(stage)
        waits = slow if stage.gpu else 1.0
        calls = [(hop["processor_ms"] / slow, hop["idle_ms"] / waits, hop.get("accelerator_ms")) for hop in hops]
        spent = [Spent(core + idle, core, 0.0, None if worked is None else worked / slow) for core, idle, worked in calls]
        own = mean_parts(spent, stage.gpu)
        results[stage.name] = OperatorResult(
            own.processing_ms,
            float(np.mean([hop["bytes_out"] for hop in passed])) if passed else 0.0,
            len(passed) / len(hops),
            core_ms=own.core_ms,
            waiting_ms=own.waiting_ms,
            overlap_ms=own.overlap_ms,
        )
    order = tuple(stage.name for stage in deployment.stages)
    return Launch(order, (), accuracy, results, 0.0)


def observation(
    deployment: Deployment,
    records: Sequence[Record],
    query: Query,
    infrastructure: Infrastructure,
    accuracy: float,
    deadline_s: float,
) -> Observation | None:
    """What this deployment did with the items of these records, on links as in `infrastructure`; None if no item says anything."""
    deadline = 1000.0 * deadline_s
    late = [one.latency_ms if one.outcome == "delivered" else deadline for one in records if one.outcome != "filtered"]
    known = [value for value in late if value is not None]
    launch = launch_of(deployment, records, accuracy)
    if not known:
        return None
    latency = float(np.mean(known))
    if launch is None:
        # Items end before the last operator: what they use is unknown, and that they fail says enough.
        return Observation(accuracy, latency, 1.0, 1.0, 1.0)
    names = [tier.name for tier in infrastructure.tiers]
    where = tuple(names.index(stage.tier) for stage in deployment.stages)
    found = Estimator(query, launch.order, infrastructure, [where]).estimates(Table.of([launch], launch.order))
    # Overload is the planner's forecast of queues; here they are in the latency already.
    return Observation(accuracy, latency, float(found.compute[0, 0]), float(found.network[0, 0]))


class Reference:
    """The most expensive configuration, run beside the pipeline on a stretch of items; its outputs replace the truth.

    It has a process of its own with the lowest priority, so the comparison does not slow down the pipeline.
    """

    def __init__(self, query: Query, order: Sequence[str], workload: Workload) -> None:
        self.workload = workload
        spawn = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(1, spawn, initializer=_prepare, initargs=(query, tuple(order), allowed.allowed()))

    async def outputs(self, items: Sequence[Item]) -> list[Item]:
        """What the most expensive pipeline makes of these items."""
        # The first call starts the process, which keeps this: an interrupt from the keyboard is for the one that ends it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            work = asyncio.get_running_loop().run_in_executor(self._pool, _process, encode_batch(items))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        data = await work
        return decode_batch(data)

    def launch(
        self, query: Query, order: Sequence[str], configuration: Configuration, items: Sequence[Item], limit_s: float
    ) -> tuple[list[Item], dict[str, OperatorResult]]:
        """What a configuration makes of these items, and what its operators took; `TimeoutError` after `limit_s`. Blocks."""
        work = self._pool.submit(_launch, query, tuple(order), configuration, encode_batch(items))
        try:
            data, results = work.result(limit_s)
        except concurrent.futures.TimeoutError:
            work.cancel()
            raise TimeoutError from None
        return decode_batch(data) if data else [], results

    def close(self) -> None:
        """Ends the process."""
        self._pool.shutdown(wait=False, cancel_futures=True)


#: The operators of the process that runs the most expensive configuration.
_OPERATORS: list[Operator] = []
#: The nice value of that process.
NICENESS = 15


def _prepare(query: Query, order: tuple[str, ...], modules: Sequence[str]) -> None:
    """In the reference's process: makes the operators."""
    allowed.allow(modules)
    os.nice(NICENESS)
    settings = query.settings(query.most_expensive)
    for name in order:
        operator = load(query.operator(name).implementation, query.operator(name).options)
        if settings[name]:
            operator.configure(settings[name])
        _OPERATORS.append(operator)


def _launch(query: Query, order: tuple[str, ...], configuration: Configuration, data: bytes) -> tuple[bytes, dict[str, OperatorResult]]:
    """In the reference's process: a batch through new operators with these settings."""
    current, settings = decode_batch(data), query.settings(configuration)
    results: dict[str, OperatorResult] = {}
    for name in order:
        specification = query.operator(name)
        current, results[name] = pass_through(specification, configured(specification, settings[name]), current)
    return encode_batch(current) if current else b"", results


def _process(data: bytes) -> bytes:
    """In the reference's process: a batch through all operators."""
    found = decode_batch(data)
    for operator in _OPERATORS:
        found = [made for item in found for made in operator.process(item)]
    return encode_batch(found)
