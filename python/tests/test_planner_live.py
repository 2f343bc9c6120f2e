"""Live launches measure what operators do; a broken operator is named with the item that it broke at."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import time

import pytest

from isolane.pipeline.item import encode
from isolane.pipeline.stopwatch import Parts, Spent, parts
from isolane.planner import live
from isolane.planner.estimate import Estimator, Table
from isolane.planner.live import Live, Reference, measured
from isolane.planner.model import Infrastructure, Knob, Launch, OperatorResult, OperatorSpec, PlanError, Query, Tier
from isolane.planner.planning import plan_query
from isolane.planner.search.problem import BudgetSpent, Options
from planner_data import four_tiers
from planner_operators import COUNT, REMOTE_S, Data


def query(model: str = "Even", workload: str = "planner_operators:Data", least: tuple[int, ...] = (20, 0)) -> Query:
    return Query(
        "numbers",
        (
            OperatorSpec("source", "source", "planner_operators:Numbers", (Knob("every", "source", (2, 1)),), gives="n"),
            OperatorSpec("big", "filter", "planner_operators:Big", (Knob("least", "big", least),), accepts=("n",)),
            OperatorSpec("model", "model", f"planner_operators:{model}", (Knob("size", "model", ("small", "large")),), True),
        ),
        0.9,
        1000.0,
        workload=workload,
    )


def test_a_launch_measures_accuracy_bytes_and_pass_rates() -> None:
    launcher = Live(query())
    launch = launcher.launch(query().template, (1, 0, 1))
    assert launch.operators["source"].pass_rate == 1.0
    assert launch.operators["big"].pass_rate == pytest.approx(0.5)
    assert launch.operators["source"].output_bytes == len(encode(Data().items()[0]))
    assert launch.operators["big"].output_bytes < launch.operators["source"].output_bytes
    # The filter drops 10 of the 20 even numbers; half of what it passes is even.
    assert launch.accuracy == pytest.approx(1.0 - 10 / COUNT)
    assert (launch.precision, launch.recall) == (0.5, 0.5)
    assert launch.launch_cost_s > 0.0
    score = launcher.filters(query().template, (1, 0, 1))
    assert (score.precision, score.recall) == (0.5, 0.5)


def test_an_operator_that_waits_is_planned_with_its_wait_wherever_it_runs() -> None:
    """Its processor time alone says that a remote model takes no time."""
    remote = query("Remote")
    remote = dataclasses.replace(remote, operators=(*remote.operators[:2], dataclasses.replace(remote.operators[2], gpu=False)))
    launcher = Live(remote)
    found = launcher.launch(remote.template, remote.most_expensive).operators["model"]
    # A part of the wait's 4 ms is processor time: that of the call which waits.
    assert found.wall_ms >= 1000.0 * REMOTE_S and found.waiting_ms > found.processing_ms and found.core_ms == 0.0
    for tiers in (four_tiers(), four_tiers(0.01)):
        table = Table.of([launcher.launch(remote.template, remote.most_expensive)], remote.template)
        estimates = Estimator(remote, remote.template, tiers).estimates(table)
        assert estimates.latency_ms.min() >= 1000.0 * REMOTE_S
    # As a GPU's it is the accelerator's time, which a slower accelerator makes longer, and the processor's comes besides.
    model = Live(query("Remote")).launch(query().template, query().most_expensive).operators["model"]
    assert model.wall_ms >= 1000.0 * REMOTE_S and model.processing_ms > model.core_ms > 0.0 == model.waiting_ms


def test_times_are_apart_by_what_was_used() -> None:
    assert Spent(90.0, 0.7, 9.0).idle_ms == pytest.approx(80.3)
    assert Spent(1.0, 1.1, 0.0).idle_ms == 0.0, "clocks are read one after the other"
    assert parts(0.7, 80.0, False) == Parts(0.7, 0.0, 80.0)
    assert parts(0.7, 80.0, True) == Parts(80.0, 0.7, 0.0)
    assert parts(20.0, 1.0, True) == Parts(21.0, 0.0, 0.0), "a thread that counts as the accelerator"
    assert parts(20.0, 0.01, False) == Parts(20.0, 0.0, 0.0), "what the clocks take"
    # A thread that waits for the device computes; one that sleeps does not; a device that waits for the thread is idle time of neither.
    assert parts(20.0, 0.0, True, 15.0) == Parts(15.0, 5.0, 0.0, 15.0)
    assert parts(5.0, 15.0, True, 15.0) == Parts(15.0, 5.0, 0.0, 0.0)
    assert parts(5.0, 15.0, True, 10.0) == Parts(10.0, 5.0, 5.0, 0.0)
    assert parts(5.0, 15.0, True, 30.0) == Parts(20.0, 0.0, 0.0, 5.0), "no longer than the call"
    calls = [Spent(80.7, 0.7), Spent(81.0, 1.0), Spent(90.7, 0.7, 10.0)]
    found = measured(query().operators[1], calls, [100, 300], 4)
    assert (found.processing_ms, found.waiting_ms, found.pass_rate) == (pytest.approx(0.8), pytest.approx(80.0), 0.5)
    assert found.wall_ms == pytest.approx(80.8) and found.processing_p99_ms == pytest.approx(0.994)


def test_an_accelerator_that_an_operator_tells_is_planned_with_the_core_that_waits() -> None:
    model = query().operators[2]
    found = measured(model, [Spent(20.0, 20.0, 0.0, 15.0), Spent(22.0, 22.0, 0.0, 15.0)], [100], 2)
    assert (found.processing_ms, found.core_ms, found.overlap_ms, found.wall_ms) == (15.0, 6.0, 15.0, 21.0)
    with pytest.raises(PlanError, match="operator big: an accelerator worked for it, 15 ms per item: its query must have `gpu: true`"):
        measured(query().operators[1], [Spent(20.0, 20.0, 0.0, 15.0)], [100], 1)


def test_a_core_that_is_planned_as_the_accelerator_is_named_once(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for found, expected in ((tmp_path, 1), (tmp_path / "none", 0)):
        monkeypatch.setattr(live, "DEVICES", found)
        lines: list[str] = []
        launcher = Live(query(), progress=lines.append)
        for configuration in ((0, 0, 0), (1, 1, 1)):
            launcher.launch(query().template, configuration)
        assert sum("operator model: its thread hardly waits" in line for line in lines) == expected


def test_a_model_file_is_opened_where_it_will_run(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is opened with CUDA in this process could not be run in a copy of it."""
    seen = tmp_path / "seen"
    monkeypatch.setattr(live, "made", lambda _: seen.write_text(str(os.getpid())))
    file = dataclasses.replace(query().operators[2], implementation="model.onnx")
    asked = dataclasses.replace(query(), operators=(*query().operators[:2], file))
    for apart_s in (0.0, 60.0):
        live.check_operators(asked, apart_s)
        assert (int(seen.read_text()) == os.getpid()) is (apart_s == 0.0)
    monkeypatch.setattr(live, "made", lambda _: time.sleep(600.0))
    with pytest.raises(PlanError, match=r"operator model: model.onnx was not open after the budget of 0.1 s"):
        live.check_operators(asked, 0.1)


@pytest.mark.parametrize(
    ("kind", "said"),
    [("Backwards", r"accelerator_ms\(\) fell from 2 to 1: must be the sum of all calls"), ("Unknown", r"accelerator_ms\(\) returned nan: must be")],
)
def test_an_invalid_time_of_an_accelerator_names_the_operator(kind: str, said: str) -> None:
    with pytest.raises(PlanError, match=f"operator model failed at item 20: OperatorError: {said}"):
        Live(query(kind)).launch(query().template, (0, 0, 0))


def test_each_kind_of_time_is_scaled_and_charged_by_its_own_resource() -> None:
    """A tier with cores half as fast and a GPU a quarter as fast as here; 10 items a second; 2 cores and 1 GPU."""
    asked = Query("q", (OperatorSpec("s", "source", "a:S"), OperatorSpec("m", "model", "a:M", gpu=True)), 0.5, 500.0, rate_items_per_s=10.0)
    tiers = Infrastructure((Tier("t", 0, 0.5, 0.25, 2.0, 1.0),), ())
    result = OperatorResult(20.0, 100.0, core_ms=8.0, waiting_ms=30.0)
    table = Table.of([Launch(("s", "m"), (), 1.0, {"s": OperatorResult(0.0, 100.0), "m": result}, 1.0)], ("s", "m"))
    estimator = Estimator(asked, ("s", "m"), tiers)
    assert estimator.latency_ms(table)[0, 0] == pytest.approx(20.0 / 0.25 + 8.0 / 0.5 + 30.0)
    links, cores, gpus = estimator.shares(table)
    assert cores[0, 0, 0] == pytest.approx(10 * 0.016 / 2.0) and gpus[0, 0, 0] == pytest.approx(10 * 0.080)
    spinning = dataclasses.replace(result, overlap_ms=20.0)
    table = Table.of([Launch(("s", "m"), (), 1.0, {"s": OperatorResult(0.0, 100.0), "m": spinning}, 1.0)], ("s", "m"))
    assert estimator.latency_ms(table)[0, 0] == pytest.approx(20.0 / 0.25 + 8.0 / 0.5 + 30.0)
    assert estimator.shares(table)[1][0, 0, 0] == pytest.approx(10 * (0.016 + 0.080) / 2.0), "the core waits as long as the accelerator works"


def test_a_live_query_is_planned_with_the_configuration_that_is_accurate() -> None:
    for searcher in ("isolane", "exhaustive"):
        plan = plan_query(query(), four_tiers(), Live(query()), searcher).plan
        assert plan.meets and plan.accuracy == 1.0
        assert plan.configuration["big"] == {"least": 0} and plan.configuration["model"] == {"size": "large"}


def test_the_reference_replaces_the_truth() -> None:
    launcher = Live(query())
    reference = Reference(launcher, query().template, period=10, burst=4)
    assert [number for number in range(12) if reference.wanted(number)] == [0, 1, 2, 3, 10, 11]
    items = [item for item in Data().items() if reference.wanted(item.id)]
    cheap = launcher.run(query().template, (1, 1, 0), items)[0]
    # Of 0-3, 10-13, 20-23, 30-33 the cheap model misses 0, 12 and 30.
    assert reference.accuracy(items, cheap) == pytest.approx(1.0 - 3 / 16)
    with pytest.raises(PlanError, match="burst = 0"):
        Reference(launcher, query().template, 10, 0)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (query("Crash"), "operator model failed at item 7: RuntimeError: seven"),
        (query("Garbage"), "operator model returned NoneType for item 0: must be a list of items"),
        (query("Missing"), "operator model: .*has no Missing"),
        (query(least=(-1,)), "operator big refuses {'least': -1}: ValueError: least must not be negative"),
        (dataclasses.replace(query(), workload=""), "workload is missing: live launches need module:Class"),
        (dataclasses.replace(query(), workload="planner_operators:No"), "planner_operators has no No"),
        (dataclasses.replace(query(), workload="planner_operators:Nothing"), "workload has no items"),
    ],
)
def test_what_is_broken_is_named(changed: Query, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        Live(changed).launch(changed.template, changed.most_expensive)


def test_misspelt_classes_are_named_all_at_once_before_anything_is_launched() -> None:
    changed = query("Evem")
    wrong = dataclasses.replace(changed.operators[0], implementation="planner_operators:Number")
    changed = dataclasses.replace(changed, operators=(wrong, *changed.operators[1:]))
    with pytest.raises(PlanError) as caught:
        Live(changed)
    assert "operator source: " in str(caught.value) and "has no Number (did you mean Numbers?)" in str(caught.value)
    assert "operator model: " in str(caught.value) and "has no Evem (did you mean Even?)" in str(caught.value)


def test_a_missing_model_file_is_named() -> None:
    operators = (*query().operators[:2], dataclasses.replace(query().operators[2], implementation="/nonexistent/m.onnx"))
    changed = dataclasses.replace(query(), operators=operators)
    with pytest.raises(PlanError, match="operator model: operator .*: making it failed: .*/nonexistent/m.onnx"):
        Live(changed).launch(changed.template, changed.most_expensive)


def test_a_budget_ends_an_operator_that_does_not_come_back() -> None:
    """Found by its end: without a process of its own the launch would take ten minutes."""
    changed = query("Hang")
    with pytest.raises(BudgetSpent):
        Live(changed, budget_s=1.0, apart=True).launch(changed.template, changed.most_expensive)
    with pytest.raises(PlanError, match="the budget of 1 s is too small for one launch"):
        options = Options(budget_s=1.0)
        plan_query(changed, four_tiers(), Live(changed, budget_s=1.0, apart=True), "isolane", options=options)


def test_an_operator_that_takes_its_process_down_is_an_error_and_not_our_end() -> None:
    changed = query("Dies")
    with pytest.raises(PlanError, match=r"took its process down \(by SIGKILL\)"):
        Live(changed, budget_s=60.0, apart=True).launch(changed.template, changed.most_expensive)


@pytest.mark.parametrize("model", ["Crash", "Garbage", "Missing"])
def test_launches_in_a_process_of_their_own_fail_in_the_same_words(model: str) -> None:
    changed = query(model)
    said = []
    for apart in (False, True):
        with pytest.raises(PlanError) as caught:
            Live(changed, budget_s=60.0, apart=apart).launch(changed.template, changed.most_expensive)
        said.append(str(caught.value))
    assert said[0] == said[1]


def test_launches_in_a_process_of_their_own_measure_the_same() -> None:
    here, there = (Live(query(), budget_s=60.0, apart=apart).launch(query().template, (1, 0, 1)) for apart in (False, True))
    assert (here.accuracy, here.precision, here.recall) == (there.accuracy, there.precision, there.recall)
    assert {name: one.output_bytes for name, one in here.operators.items()} == {
        name: one.output_bytes for name, one in there.operators.items()
    }
