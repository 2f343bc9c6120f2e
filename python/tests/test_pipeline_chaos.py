"""Random disturbances, many at once: every item still has exactly one fate, and the pipeline is whole in the end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import random
import signal
import sys

import pytest

from isolane.pipeline.runner import Options, Runner, RunnerError
from isolane.pipeline.spaces import Spaces, Wire, missing

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from pipeline_support import HERE, fates, items, pipeline, run, stage  # noqa: E402

SPACES = missing()
NAMES = ("first", "middle", "last")


async def disturb(draw: random.Random, runner: Runner, spaces: Spaces) -> str:
    """One disturbance; returns what it was."""
    name, kind = draw.choice(NAMES), draw.choice(["kill", "move", "move", "knob", "cut", "slow"])
    if kind == "kill":
        with contextlib.suppress(ProcessLookupError):
            os.kill(runner.pid(name), signal.SIGKILL)
    elif kind == "move":
        tier = draw.choice(["edge", "cloud"])
        await runner.migrate(name, tier)
        return f"move {name} {tier}"
    elif kind == "knob":
        # An operator during a restart takes no orders.
        with contextlib.suppress(RunnerError):
            await runner.configure(name, {"mark": draw.randrange(100)})
    elif kind == "cut":
        await spaces.cut(0)
        await asyncio.sleep(draw.uniform(0.0, 0.4))
        await spaces.cut(0, False)
    else:
        await spaces.set_wire(0, Wire(draw.choice([2.0, 20.0, 200.0]), draw.choice([0.5, 5.0, 20.0])))
    return f"{kind} {name}"


@pytest.mark.skipif(bool(SPACES), reason=f"tiers cannot be made here: {SPACES}")
@pytest.mark.parametrize("seed", range(3))
def test_every_item_has_one_fate(seed: int) -> None:
    draw = random.Random(seed)

    async def body() -> None:
        happened = []
        options = Options(hang_s=10.0, deadline_s=15.0, window=1000, python_path=(HERE,))
        chain = pipeline(stage("first", "Counter"), stage("middle", "Even", "cloud"), stage("last", "Twice", "cloud"))
        async with Spaces(["edge", "cloud"], [Wire(50.0, 2.0)]) as spaces, Runner(chain, spaces, options) as runner:
            feeding = asyncio.ensure_future(runner.feed(items(300), 60.0))
            while not feeding.done():
                await asyncio.sleep(draw.uniform(0.0, 0.5))
                try:
                    happened.append(await disturb(draw, runner, spaces))
                except RunnerError as error:
                    # A move whose neighbour ended meanwhile fails, and the old operator stays.
                    happened.append(f"refused: {error}")
            await feeding
            found = fates(runner)
            context = f"seed {seed}: {happened}"
            for number, one in found.items():
                assert one.outcome in ("delivered", "filtered", "failed"), context
                if one.outcome != "failed":
                    assert one.outcome == ("filtered" if number % 2 else "delivered"), context
                if one.outcome == "delivered":
                    assert [output.payload["half"] for output in one.outputs] == [0.0, 1.0], context
            # Whole again: once nothing disturbs it, everything passes.
            await spaces.set_wire(0, Wire(100.0, 1.0))
            while any(one["state"].startswith("unreachable") for one in await runner.metrics()):
                await asyncio.sleep(0.1)
            before = len(runner.records)
            await runner.feed(items(20), 60.0)
            ends = sorted(runner.records[before:], key=lambda one: one.number)
            assert [one.outcome for one in ends] == ["delivered", "filtered"] * 10, context

    run(body())
