"""What the runtime itself costs: a hop, and a move of an operator, measured on this machine.

Problem: both must be small beside real work, and a busy machine must not be mistaken for a slow runtime. Method: operators that
do nothing, real items. Of a hop, what the threads waited for a core that other programs had (the kernel's `schedstat`) is told
apart: on an idle machine it is nothing. What is left is at least the processor time that they took. Of a move, the longest gap
in results is compared with the longest one in as long a stretch without a move, in the same run.

Units: milliseconds. Limits: waits of all threads count as waits of the item, also those that would have overlapped, so that
on a busy machine what is left is what a hop costs at least; below `CLEAR_MS` of waits it is what a hop costs.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import os
import pathlib
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from isolane.pipeline.deployment import Deployment, Place, Stage
from isolane.pipeline.item import Item
from isolane.pipeline.records import Record, pause_ms
from isolane.pipeline.runner import Options, Runner
from isolane.pipeline.spaces import Spaces, Wire

#: What a hop may add, and what a move may delay: what the runtime promises.
HOP_MAX_MS, PAUSE_MAX_MS = 2.0, 200.0

#: Rounds of a hop at most, of 1.6 s each.
ROUNDS_MAX = 9

#: Rounds of moves at most, of 6 to 10 s each; and items that may be on their way meanwhile: ten seconds of them.
PAUSE_ROUNDS_MAX, STANDSTILL = 3, 500

#: Waits below this are an idle machine's.
CLEAR_MS = 0.1

IDLE = "isolane.pipeline.observe:Idle"


@dataclass(frozen=True)
class Hop:
    """What a hop adds to an item; how long its threads waited for a core in that time, and how long they had one."""

    added_ms: float
    waited_ms: float
    worked_ms: float

    @property
    def own_ms(self) -> float:
        """Without the waits, but no less than the work."""
        return max(self.added_ms - self.waited_ms, min(self.worked_ms, self.added_ms))

    def check(self) -> tuple[bool, str]:
        """Question and answer."""
        text = f"a hop adds {self.own_ms:.2f} ms (258 KB, {HOP_MAX_MS:g} ms at most)"
        if self.waited_ms >= CLEAR_MS:
            text += f", {self.added_ms:.2f} ms with waits for cores that other programs have"
        return self.own_ms < HOP_MAX_MS, text


def spent_s(processes: Iterable[int]) -> tuple[float, float]:
    """Seconds that all threads of these processes had a core, and waited for one; 0 where the kernel does not say."""
    worked = waited = 0
    for process in processes:
        for file in pathlib.Path(f"/proc/{process}/task").glob("*/schedstat"):
            try:
                had, lacked = file.read_text(encoding="ascii").split()[:2]
                worked, waited = worked + int(had), waited + int(lacked)
            except (OSError, ValueError):
                # The thread ended, or the kernel keeps no such account.
                continue
    return 1e-9 * worked, 1e-9 * waited


async def hop(hops: int = 4, items: int = 40, rounds: int = 3) -> Hop:
    """What a hop adds: all that is not work, per hop, of items of 258 KB.

    The median over the items of a round, and of the rounds the cheapest: what other programs do to caches and clocks only ever
    adds. After `rounds`, more of them, `ROUNDS_MAX` at most, are made only while none is within what a hop may add.
    """
    stages = tuple(Stage(f"idle-{index}", IDLE, "here") for index in range(hops))
    deployment = Deployment("hops", stages, (Place("here"),), ())
    item = Item(0, 0.0, {"frame": np.zeros((224, 384, 3), np.uint8)})
    found: list[Hop] = []
    async with Runner(deployment) as runner:
        # The first items also open connections.
        await runner.feed([item] * 10, 50.0)
        processes = [os.getpid(), *(runner.pid(stage.name) for stage in stages)]
        while more(found, rounds):
            runner.records.clear()
            before = spent_s(processes)
            await runner.feed([item] * items, 25.0)
            worked, waited = (1000.0 * (b - a) / items / hops for a, b in zip(before, spent_s(processes), strict=True))
            late = [one for one in runner.records if one.latency_ms is not None]
            added = [(one.latency_ms or 0.0) - sum(step["process_ms"] for step in one.trace) for one in late]
            found.append(Hop(float(statistics.median(added)) / hops, waited, worked))
    return min(found, key=lambda one: one.own_ms)


def more(found: Sequence[Hop], rounds: int) -> bool:
    """Whether another round may settle more."""
    if len(found) < rounds:
        return True
    return len(found) < ROUNDS_MAX and not any(one.check()[0] for one in found)


@dataclass(frozen=True)
class Pause:
    """The longest gap in results around moves, and without them; and items that were not delivered."""

    moving_ms: float
    still_ms: float
    lost: int = 0

    @property
    def own_ms(self) -> float:
        """What the moves add."""
        return max(self.moving_ms - self.still_ms, 0.0)

    def check(self) -> tuple[bool, str]:
        """Question and answer."""
        text = (
            f"moving an operator pauses results for {self.own_ms:.0f} ms ({PAUSE_MAX_MS:g} ms at most), "
            f"besides the {self.still_ms:.0f} ms that they pause without a move"
        )
        if self.lost:
            text += f"; {self.lost} items were not delivered"
        return self.own_ms < PAUSE_MAX_MS and not self.lost, text


async def pause(moves: int = 3) -> Pause:
    """How long a move holds up results: the worst of some moves of the middle one of three operators.

    Fifty items a second of 10 KB cross two tiers. What counts is the longest time without a result around a move, less the
    usual one between two; the same stretch of time before anything of the move began is what it is compared with. As with hops,
    more such rounds, `PAUSE_ROUNDS_MAX` at most, are made only while none is within what a move may delay.
    """
    stages = tuple(Stage(f"idle-{index}", IDLE, "edge") for index in range(3))
    wires = (Wire(100.0, 2.0),)
    deployment = Deployment("moves", stages, (Place("edge"), Place("cloud")), wires)
    item = Item(0, 0.0, {"frame": np.zeros(10_000, np.uint8)})
    found: list[Pause] = []
    # A machine that stalls for seconds delays items; with a small window they would be rejected, as by a slow pipeline.
    async with Spaces(["edge", "cloud"], wires) as spaces, Runner(deployment, spaces, Options(window=STANDSTILL)) as runner:
        feeding = asyncio.ensure_future(runner.feed(itertools.repeat(item), 50.0))
        try:
            while not found or (len(found) < PAUSE_ROUNDS_MAX and not any(one.check()[0] for one in found)):
                stretches = []
                for index in range(moves):
                    await asyncio.sleep(1.0)
                    moved = await runner.migrate("idle-1", "edge" if (index + len(found) * moves) % 2 else "cloud")
                    await asyncio.sleep(0.4)
                    begun = moved.begin_s - moved.start_ms / 1000.0
                    stretches.append((moved.begin_s - 0.2, moved.end_s + 0.3, begun))
                found.append(worst(runner.records, stretches))
        finally:
            feeding.cancel()
            await asyncio.wait([feeding])
        await runner.settle()
        lost = sum(one.outcome != "delivered" for one in runner.records)
        return dataclasses.replace(min(found, key=lambda one: one.own_ms), lost=lost)


def worst(records: Sequence[Record], stretches: Sequence[tuple[float, float, float]]) -> Pause:
    """The longest pause in the stretches (begin, end), and in those of the same length before a third moment of each."""
    moving = max(pause_ms(records, begin, end) for begin, end, _ in stretches)
    first = min(one.known_s for one in records)
    still = [pause_ms(records, max(begun - (end - begin), first), begun) for begin, end, begun in stretches]
    return Pause(moving, max(still))
