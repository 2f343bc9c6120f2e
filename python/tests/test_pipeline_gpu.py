"""Times of operators on a real CUDA device; skipped where there is none."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest

from isolane.pipeline.item import Item
from isolane.planner.live import Live
from isolane.planner.model import Knob, OperatorResult, OperatorSpec, Query

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
if not torch.cuda.is_available():
    pytest.skip("there is no CUDA device", allow_module_level=True)


def measured(kind: str, depth: int) -> OperatorResult:
    """One launch of an operator."""
    knob = Knob("depth", "model", (depth,))
    operators = (
        OperatorSpec("source", "source", "gpu_operators:Frames"),
        OperatorSpec("model", "model", f"gpu_operators:{kind}", (knob,), gpu=True),
    )
    query = Query("frames", operators, 0.9, 1000.0, workload="gpu_operators:Data")
    return Live(query).launch(query.template, (0,)).operators["model"]


def kernels_ms(depth: int) -> float:
    """The time of all kernels and copies of one item, by CUPTI."""
    from torch.profiler import ProfilerActivity, profile

    import gpu_operators

    net = gpu_operators.Net()
    net.configure({"depth": depth})
    items: list[Item] = list(gpu_operators.Data().items())[:21]
    net.process(items[0])
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for item in items[1:]:
            net.process(item)
        torch.cuda.synchronize()
    return sum(event.device_time_total for event in seen.key_averages()) / 1000.0 / 20.0


@pytest.mark.parametrize("depth", [8, 64])
def test_the_time_of_the_device_is_told_apart_from_the_core(depth: int) -> None:
    found = {kind: measured(kind, depth) for kind in ("Net", "Tells", "Sleeps")}
    kernels = kernels_ms(depth)
    for kind, one in found.items():
        print(
            f"depth {depth}: {kind:6} wall {one.wall_ms:.3f} device {one.processing_ms:.3f} core {one.core_ms:.3f} "
            f"both {one.overlap_ms:.3f} wait {one.waiting_ms:.3f} ms; kernels {kernels:.3f} ms"
        )
    for kind in ("Tells", "Sleeps"):
        assert kernels <= found[kind].processing_ms <= found[kind].wall_ms, kind
    assert found["Tells"].overlap_ms > found["Sleeps"].overlap_ms


QUERY = """
version: 1
query: frames
workload: gpu_operators:Data
rate_items_per_s: 50
accuracy_min: 0.5
latency_max_ms: 200
operators:
  - {name: source, kind: source, implementation: "gpu_operators:Frames", gives: frame}
  - {name: model, kind: model, implementation: "gpu_operators:Sleeps", gpu: true, accepts: [frame], knobs: [{name: depth, values: [8, 32]}]}
"""
TIERS = "version: 1\ntiers:\n  - {name: node, capacity_cores: 16, capacity_gpus: 1}\nlinks: []\n"


def test_a_query_on_the_device_is_planned_in_processes_apart_and_runs(tmp_path: pathlib.Path) -> None:
    """`--budget-s` launches each configuration in a copy of the planner's process, in which CUDA must still work."""
    query, tiers, plan = tmp_path / "query.yaml", tmp_path / "tiers.yaml", tmp_path / "plan.json"
    query.write_text(QUERY)
    tiers.write_text(TIERS)
    mine = ["--allow-module", "gpu_operators"]
    planned = [sys.executable, "-m", "isolane.planner", "plan", str(query), "--infra", str(tiers), "--live", "--budget-s", "100", *mine]
    subprocess.run([*planned, "--quiet", "--out", str(plan)], check=True, timeout=200)
    assert 0.0 < json.loads(plan.read_text())["gpu_share"]["node"] < 1.0
    run = [sys.executable, "-m", "isolane.pipeline", "run", str(plan), "--tiers", "local", "--items", "100", "--json", *mine]
    result = json.loads(subprocess.run(run, check=True, timeout=200, stdout=subprocess.PIPE).stdout)
    (model,) = (hop for hop in result["hops"] if hop["operator"] == "model")
    assert 0.0 < model["accelerator_ms"] <= model["process_ms"]
