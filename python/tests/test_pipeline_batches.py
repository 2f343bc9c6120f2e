"""Operators that take several items at once: each item still has its own fate."""

from __future__ import annotations

import asyncio
import dataclasses
import pathlib

import numpy as np
import pytest
from kserve_server import InferenceServer
from pipeline_support import OPTIONS, fates, items, outcomes, pipeline, run, stage, until
from test_queries_onnx import write

from isolane import allowed
from isolane.pipeline.item import Item
from isolane.pipeline.operator import OperatorError, load
from isolane.pipeline.runner import Runner
from isolane.queries.kserve import KServeOperator
from isolane.queries.onnx import ModelError, OnnxOperator


async def fed(runner: Runner, go: pathlib.Path, count: int) -> None:
    """Item 0 first; the others wait while the operator is at it."""

    async def metric_above(name: str, least: float) -> None:
        while True:
            (metrics,) = await runner.metrics()
            if metrics[name] > least:
                return
            await asyncio.sleep(0.01)

    first, *rest = items(count)
    feeding = [runner.send(first)]
    await metric_above("busy_s", 0.0)
    feeding += [runner.send(item) for item in rest]
    await metric_above("waiting", len(rest) - 0.5)
    go.touch()
    await asyncio.wait(feeding)


def test_items_that_wait_share_a_call_and_keep_their_order(tmp_path: pathlib.Path) -> None:
    async def body() -> None:
        go = tmp_path / "go"
        async with Runner(pipeline(stage("b", "Batched", file=str(go))), None, OPTIONS) as runner:
            await fed(runner, go, 8)
            assert outcomes(runner) == ["delivered"] * 8
            found = [one.outputs[0] for _, one in sorted(fates(runner).items())]
            assert [item.id for item in found] == list(range(8))
            assert [item.payload["of"] for item in found] == [1.0, 4.0, 4.0, 4.0, 4.0, 3.0, 3.0, 3.0]
            (metrics,) = await runner.metrics()
            assert (metrics["batches"], metrics["received"]) == (2, 8)
            shared = [one.trace[0] for number, one in fates(runner).items() if number in (1, 2, 3, 4)]
            # Each waited for the whole call, and used a part of it.
            assert len({hop["process_ms"] for hop in shared}) == 1
            assert all(hop["processor_ms"] + hop["idle_ms"] < hop["process_ms"] / 2.0 for hop in shared)

    run(body())


def test_an_item_that_a_batch_fails_on_fails_alone(tmp_path: pathlib.Path) -> None:
    async def body() -> None:
        go = tmp_path / "go"
        async with Runner(pipeline(stage("b", "Batched", file=str(go), on="3")), None, OPTIONS) as runner:
            await fed(runner, go, 8)
            assert outcomes(runner) == ["failed" if number == 3 else "delivered" for number in range(8)]
            assert fates(runner)[3].reason == "RuntimeError: cannot bear 3"

    run(body())


@pytest.mark.parametrize("returns", ["None", "fewer", "flat"])
def test_a_batch_that_returns_something_else_is_tried_item_by_item(returns: str, tmp_path: pathlib.Path) -> None:
    async def body() -> None:
        go = tmp_path / "go"
        async with Runner(pipeline(stage("b", "Batched", file=str(go), returns=returns)), None, OPTIONS) as runner:
            await fed(runner, go, 4)
            assert outcomes(runner) == ["delivered"] * 4
            assert [one.outputs[0].payload["of"] for one in runner.records] == [1.0] * 4

    run(body())


def test_an_item_that_hangs_in_a_batch_is_found(tmp_path: pathlib.Path) -> None:
    """The process ends; the sender sends each item again, alone."""

    async def body() -> None:
        go = tmp_path / "go"
        options = dataclasses.replace(OPTIONS, hang_s=3.0)
        async with Runner(pipeline(stage("a", "Pass"), stage("b", "Batched", file=str(go), hangs="2")), None, options) as runner:
            feeding = asyncio.ensure_future(runner.feed(items(5), 10_000.0))
            await until(lambda: runner.sent == 5, "all are sent")
            go.touch()
            await feeding
            assert outcomes(runner) == ["failed" if number == 2 else "delivered" for number in range(5)]
            assert "did not come back in 3 s" in fates(runner)[2].reason

    run(body())


def test_a_model_runs_once_on_items_of_one_shape(tmp_path: pathlib.Path) -> None:
    path = write(tmp_path / "sum.onnx", 2.0, first="n", counts=False)
    one, several = load(str(path)), OnnxOperator(str(path), batch=8)
    draw = np.random.default_rng(1)
    frames = [Item(number, 0.0, {"frame": draw.integers(0, 256, (6, 8, 3)).astype(np.uint8)}) for number in range(5)]
    assert several.process_batch(frames) == [one.process(frame) for frame in frames]
    frames.append(Item(5, 0.0, {"frame": np.zeros((4, 4, 3), np.uint8)}))
    assert several.process_batch(frames) == [one.process(frame) for frame in frames]


def test_a_model_for_single_items_has_no_batches(tmp_path: pathlib.Path) -> None:
    path = str(write(tmp_path / "sum.onnx", 2.0))
    with pytest.raises(OperatorError, match=r"batch = 4, and its input has the sides \[1, 3, 'height', 'width'\]: the first must be free"):
        load(path, {"batch": 4})
    for wrong in (0, 257):
        with pytest.raises(OperatorError, match=f"batch = {wrong}: must be from 1 to 256"):
            load(path, {"batch": wrong})
    counts = OnnxOperator(str(write(tmp_path / "counts.onnx", 2.0, first="n")), batch=4)
    with pytest.raises(ModelError, match=r"output size has the sides \[4\] for 3 items; leave out batch"):
        counts.process_batch([Item(number, 0.0, {"frame": np.zeros((4, 4, 3), np.uint8)}) for number in range(3)])


def test_one_request_carries_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allowed, "_NAMED", {"isolane.queries.kserve"})
    with InferenceServer() as server:
        operator = KServeOperator(server.url, "double", batch=4)
        found = operator.process_batch([Item(number, 0.0, {"x": np.full(4, number, np.float32)}) for number in range(4)])
        assert [np.asarray(item.payload["y"]).tolist() for (item,) in found] == [[[2.0 * number] * 4] for number in range(4)]
        assert server.requests.count("/v2/models/double/infer") == 1
