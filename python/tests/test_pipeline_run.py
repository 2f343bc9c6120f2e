"""A pipeline of real processes: order, knobs, moves, and the fate of every item."""

from __future__ import annotations

import asyncio
import itertools
import pathlib
import sys
import time
from collections.abc import Iterator

import pytest

from isolane.pipeline.deployment import Stage
from isolane.pipeline.item import Item
from isolane.pipeline.records import summarize
from isolane.pipeline.runner import Options, Runner, RunnerError

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from pipeline_support import HERE, OPTIONS, fates, items, outcomes, pipeline, run, stage, until  # noqa: E402


def test_items_pass_in_order_and_each_hop_is_traced() -> None:
    async def body() -> None:
        async with Runner(pipeline(stage("count", "Counter"), stage("even", "Even"), stage("two", "Twice")), None, OPTIONS) as r:
            await r.feed(items(20), 1000.0)
            assert outcomes(r) == ["delivered", "filtered"] * 10
            for number, one in fates(r).items():
                assert [hop["operator"] for hop in one.trace] == ["count", "even", "two"][: 2 + (number + 1) % 2]
                assert [output.payload["seen"] for output in one.outputs] == [number + 1.0] * len(one.outputs)
                assert [output.payload["half"] for output in one.outputs] == ([0.0, 1.0] if number % 2 == 0 else [])
                assert one.operator == ("even" if number % 2 else "")
            hops = summarize(r.sent, r.records).hops
            assert [(hop["operator"], hop["items"], hop["passed"]) for hop in hops] == [
                ("count", 20, 20),
                ("even", 20, 10),
                ("two", 10, 10),
            ]

    run(body())


@pytest.mark.parametrize("step_s", [-3600.0, 3600.0])
def test_a_step_of_the_wall_clock_neither_stops_a_source_nor_makes_items_late(step_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the wall clock, a step back made a source wait an hour for its next item, and its items an hour late."""
    wall = time.time

    def stepping() -> Iterator[Item]:
        for number, item in enumerate(items(10)):
            if number == 5:
                monkeypatch.setattr(time, "time", lambda: wall() + step_s)
            yield item

    async def body() -> None:
        async with Runner(pipeline(stage("a", "Pass"), stage("b", "Pass")), None, OPTIONS) as r:
            await r.feed(stepping(), 100.0)
            assert outcomes(r) == ["delivered"] * 10
            assert all(0.0 <= (one.latency_ms or -1.0) < 60_000.0 for one in r.records)
            assert all(later.seen_s >= earlier.seen_s for earlier, later in itertools.pairwise(fates(r)[n] for n in range(10)))

    run(body())


def test_a_knob_holds_from_the_next_item_on_and_a_refused_one_changes_nothing() -> None:
    async def body() -> None:
        async with Runner(pipeline(stage("a", "Pass"), stage("b", "Pass")), None, OPTIONS) as r:
            for mark in range(4):
                await r.configure("b", {"mark": mark})
                await r.send(items(1)[0])
            with pytest.raises(RunnerError, match="refused.*mark = -1 is negative"):
                await r.configure("b", {"mark": -1})
            with pytest.raises(RunnerError, match="no knob 'colour'"):
                await r.configure("b", {"colour": 1})
            await r.send(items(1)[0])
            marks = [one.outputs[0].payload["mark"] for one in r.records]
            assert marks == [0.0, 1.0, 2.0, 3.0, 3.0]

    run(body())


def test_knobs_change_under_load_and_no_item_is_lost_or_sees_an_older_value() -> None:
    async def body() -> None:
        async with Runner(pipeline(stage("a", "Pass", knobs={"work_s": 0.001}), stage("b", "Pass")), None, OPTIONS) as r:
            feeding = asyncio.ensure_future(r.feed(itertools.cycle(items(200)), 200.0))

            def last_mark() -> object:
                return r.records[-1].outputs[0].payload["mark"] if r.records else None

            for mark in range(10):
                if mark:
                    await r.configure("b", {"mark": mark})
                await until(lambda mark=mark: last_mark() == mark, f"items with mark {mark}")  # type: ignore[misc]
            feeding.cancel()
            await asyncio.wait([feeding])
            await r.settle()
            assert set(outcomes(r)) == {"delivered"}
            marks = [one.outputs[0].payload["mark"] for _, one in sorted(fates(r).items())]
            assert marks == sorted(marks) and set(marks) == set(range(10))

    run(body())


@pytest.mark.parametrize("name", ["first", "middle", "last"])
def test_an_operator_moves_under_load_without_losing_items_or_its_memory(name: str) -> None:
    async def body() -> None:
        stages = [stage(one, "Counter", knobs={"work_s": 0.002, "mark": 7}) for one in ("first", "middle", "last")]
        async with Runner(pipeline(*stages), None, OPTIONS) as r:
            feeding = asyncio.ensure_future(r.feed(items(400), 200.0))
            await asyncio.sleep(0.3)
            moved = await r.migrate(name, "cloud")
            assert (moved.source, moved.target) == ("edge", "cloud")
            await feeding
            assert set(outcomes(r)) == {"delivered"}
            by_number = [one for _, one in sorted(fates(r).items())]
            tiers = [next(hop["tier"] for hop in one.trace if hop["operator"] == name) for one in by_number]
            # Whether the last items are late enough to see the new place depends on how fast a process starts here.
            assert tiers == sorted(tiers, reverse=True) and tiers[0] == "edge"
            assert all(one.outputs[0].payload["mark"] == 7.0 for one in by_number)
            if name == "last" and "cloud" in tiers:
                first = tiers.index("cloud")
                assert float(by_number[first].outputs[0].payload["seen"]) > 1  # type: ignore[arg-type]
            metrics = await r.metrics()
            assert {one["tier"] for one in metrics if one["operator"] == name} == {"cloud"}

    run(body())


def test_another_order_is_built_beside_the_old_one() -> None:
    async def body() -> None:
        a, b = stage("a", "Counter", knobs={"work_s": 0.002}), stage("b", "Even")
        async with Runner(pipeline(a, b), None, OPTIONS) as r:
            feeding = asyncio.ensure_future(r.feed(items(300), 150.0))
            await asyncio.sleep(0.2)
            await r.apply(pipeline(b, a))
            await feeding
            await r.feed(items(2), 100.0)
            assert outcomes(r) == ["delivered", "filtered"] * 151
            orders = [[hop["operator"] for hop in one.trace] for _, one in sorted(fates(r).items())]
            assert orders[0] == ["a", "b"] and orders[-2] == ["b", "a"]

    run(body())


def test_a_full_window_refuses_items_with_the_reason(tmp_path: pathlib.Path) -> None:
    async def body() -> None:
        options = Options(hang_s=60.0, deadline_s=60.0, window=4, python_path=(HERE,))
        async with Runner(pipeline(stage("slow", "Waits", file=str(tmp_path / "go"))), None, options) as r:
            feeding = asyncio.ensure_future(r.feed(items(20), 10000.0))
            await until(lambda: len(r.records) == 16, "items are refused")
            (tmp_path / "go").touch()
            await feeding
            found = fates(r)
            assert outcomes(r) == ["delivered"] * 4 + ["refused"] * 16
            assert "slower than its source" in found[19].reason

    run(body())


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (stage("x", "Missing"), "has no Missing"),
        (Stage("x", "pipeline_operators.inner:X", "edge"), "cannot import pipeline_operators.inner"),
        (Stage("x", "subprocess:Popen", "edge", options={"args": "true"}), "add --allow-module subprocess"),
        (Stage("x", "nonsense", "edge"), "write module:Class"),
        (stage("x", "Pass", knobs={"mark": -5}), "mark = -5 is negative"),
    ],
)
def test_what_cannot_start_says_why(bad: Stage, words: str) -> None:
    async def body() -> None:
        with pytest.raises(RunnerError, match=words):
            async with Runner(pipeline(stage("ok", "Pass"), bad), None, OPTIONS):
                raise AssertionError("started")

    run(body())


