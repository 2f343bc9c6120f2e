"""Random disturbances, many at once, and kills one after the other (`make kills PROGRAM=operators`): every item still has exactly
one fate, and the pipeline is whole in the end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import random
import signal
import sys

import pytest

from isolane.pipeline import runner as runners
from isolane.pipeline.runner import Options, Runner, RunnerError
from isolane.pipeline.spaces import Spaces, Wire, missing

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from pipeline_support import HERE, OPTIONS, fates, items, pipeline, run, stage, until  # noqa: E402

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


def process_is_gone(pid: int) -> bool:
    """No process has this number, or another one has it now."""
    try:
        return b"isolane.pipeline" not in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return True


async def kill(draw: random.Random, runner: Runner, name: str, killed: set[int]) -> None:
    """Kills an operator, and in one case of four the next process while it starts; returns when another one is started."""
    for delay_s in [0.05, 0.2] if draw.randrange(4) == 0 else [0.05]:
        await asyncio.sleep(draw.uniform(0.0, delay_s))
        pid = runner.pid(name)
        killed.add(pid)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        await until(lambda pid=pid: runner.pid(name) != pid, f"another process for {name}")


#: Rounds with one runner: its records are read after each.
ROUNDS_OF_A_RUNNER = 50


def test_a_killed_operator_loses_no_item_and_leaves_no_process(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """As many rounds as `ISOLANE_KILLS` says, 6 without it. Prints every 500."""
    rounds, seed = int(os.environ.get("ISOLANE_KILLS", "6")), random.randrange(1 << 32)
    # So many ends are expected here, and no operator may stay down.
    monkeypatch.setattr(runners, "RESTARTS_MAX", 1000)
    draw, killed = random.Random(seed), 0

    async def some_rounds(count: int) -> int:
        processes = set[int]()
        chain = pipeline(stage("first", "Counter"), stage("middle", "Even"), stage("last", "Twice"))
        async with Runner(chain, None, OPTIONS) as runner:
            for _ in range(count):
                sent = [runner.send(item) for item in items(20)]
                await kill(draw, runner, draw.choice(NAMES), processes)
                await asyncio.gather(*sent)
                for number, fate in list(fates(runner).items())[-20:]:
                    expected = "filtered" if number % 2 else "delivered"
                    assert fate.outcome == expected or "with this item on it" in fate.reason, f"seed {seed}: {fate}"
            ended = len(processes)
            processes.update(runner.pid(name) for name in NAMES)
        left = [pid for pid in processes if not process_is_gone(pid)]
        assert not left, f"seed {seed}: {left}"
        return ended

    done = 0
    while done < rounds:
        count = min(ROUNDS_OF_A_RUNNER, rounds - done)
        killed += asyncio.run(some_rounds(count))
        done += count
        if done % 500 == 0:
            print(f"{done} rounds, {killed} processes killed", flush=True)
    assert not [one.getMessage() for one in caplog.records if one.name == "asyncio"]
