"""A watched pipeline follows its conditions, and the command line says what it wants."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import json
import pathlib
import sys
from typing import Any

import pytest

from isolane.pipeline import cli, lab, records, verdict, watch
from isolane.pipeline.deployment import from_plan
from isolane.pipeline.observe import Probes, Reference
from isolane.pipeline.runner import Options, Runner
from isolane.pipeline.source import open_source
from isolane.pipeline.spaces import Spaces, Wire, missing
from isolane.pipeline.watch import Watcher, differences, planned
from isolane.planner.formats import load_infrastructure, load_query, plan_json
from isolane.planner.model import (
    Configuration,
    FilterScore,
    Infrastructure,
    Knob,
    Launch,
    Link,
    OperatorResult,
    OperatorSpec,
    Order,
    Query,
    Tier,
)
from isolane.planner.online import replan
from isolane.planner.planning import plan_query

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from pipeline_support import HERE, fates, run  # noqa: E402

SPACES = missing()
EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"

QUERY = Query(
    "small",
    (
        OperatorSpec("camera", "source", "pipeline_operators:Camera", (Knob("kilobytes", "camera", (100,)),)),
        OperatorSpec("model", "model", "pipeline_operators:Model", (Knob("work_s", "model", (0.005,)),)),
    ),
    accuracy_min=0.5,
    latency_max_ms=500.0,
    rate_items_per_s=10.0,
    workload="pipeline_operators:Thirty",
)
TIERS = (Tier("edge", 0, compute_factor=0.2), Tier("cloud", 1))
FAST = Infrastructure(TIERS, (Link("edge", "cloud", 100.0, 1.0),))


class Known:
    """A launcher that knows what the two operators do."""

    def launch(self, order: Order, configuration: Configuration) -> Launch:
        """100 KB and 5 ms."""
        results = {"camera": OperatorResult(0.1, 100_200.0), "model": OperatorResult(5.0, 100.0)}
        return Launch(order, configuration, 1.0, results, 1.0)

    def filters(self, order: Order, configuration: Configuration) -> FilterScore:
        """There are none."""
        return FilterScore(1.0, 1.0, 0.0)


def plan_document() -> dict[str, Any]:
    plan = plan_query(QUERY, FAST, Known()).plan
    return plan_json(plan, QUERY, FAST)


@pytest.fixture(autouse=True)
def operators_are_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(HERE)


@pytest.mark.skipif(bool(SPACES), reason=f"tiers cannot be made here: {SPACES}")
def test_a_link_that_slows_down_moves_the_model_to_the_edge_and_loses_nothing() -> None:
    """The model runs in the cloud; 100 KB ten times a second do not fit into 4 Mbit/s."""

    async def body() -> None:
        start = plan_query(QUERY, FAST, Known())
        assert start.plan.placement == {"camera": "edge", "model": "cloud"}
        deployment = from_plan(plan_json(start.plan, QUERY, FAST))
        source = open_source(QUERY.workload)
        reference = Reference(QUERY, start.plan.order, source.workload)
        options = Options(deadline_s=5.0, window=1000, python_path=(HERE,))
        async with Spaces(["edge", "cloud"], deployment.wires) as spaces, Runner(deployment, spaces, options) as runner:
            async with Probes(spaces) as probes:
                again = planned(start.plan, QUERY, FAST, Known())
                watcher = Watcher(runner, QUERY, FAST, again, Known(), probes)
                feeding = asyncio.ensure_future(runner.feed(source.forever(), QUERY.rate_items_per_s))
                changed = slowed = False
                for _ in range(200):
                    await asyncio.sleep(0.5)
                    changed = await watcher.period(source.items, reference)
                    if not slowed and watcher.monitor is not None and len(watcher.periods) > 5:
                        await spaces.set_wire(0, Wire(4.0, 1.0))
                        slowed = True
                    if changed:
                        break
                feeding.cancel()
                await asyncio.wait([feeding])
                reference.close()
            await runner.settle()
            assert changed and watcher.current.plan.placement["model"] == "edge"
            event = watcher.replanned[-1]
            assert event.differences == ["model moves from cloud to edge"]
            assert [(move.operator, move.target) for move in event.moved] == [("model", "edge")]
            assert event.links["edge->cloud"] < 20.0
            assert set(one.outcome for one in fates(runner).values()) <= {"delivered", "failed"}

    run(body())


def judged(
    monkeypatch: pytest.MonkeyPatch,
    utilities: list[float],
    ended: list[list[records.Record]] | None = None,
    speeds: dict[str, float] | None = None,
) -> tuple[Watcher, list[float]]:
    """A watcher that saw these utilities, one a period, and those at which it wanted to plan again (which changes nothing).

    `ended` are the records of each period, `speeds` the links that differ when they are measured.
    """
    seen = iter(utilities)
    wanted: list[float] = []

    class Seen:
        latency_ms = 1.0

        def utility(self, _: Query) -> float:
            return next(seen)

    class Still:
        records: list[records.Record] = []
        deployment = None
        options = Options()

    async def replanned(self: Watcher, utility: float, _: dict[str, float]) -> bool:
        wanted.append(utility)
        self._resigned = True
        if self.monitor is not None:
            self.monitor.deployed(utility)
        return False

    async def measured(self: Watcher, same: float = 0.0, slower: bool = False) -> dict[str, float]:
        return speeds or {}

    monkeypatch.setattr(watch, "observation", lambda *_: Seen())
    monkeypatch.setattr(Watcher, "_replan", replanned)
    monkeypatch.setattr(Watcher, "_measure", measured)
    watcher = Watcher(Still(), QUERY, FAST, plan_query(QUERY, FAST, Known()), Known())  # type: ignore[arg-type]

    async def body() -> None:
        # The first period is not looked at.
        for index in range(len(utilities) + 1):
            if ended and index:
                watcher.runner.records.extend(ended[index - 1])
            await watcher.period()

    run(body())
    return watcher, wanted


def ends(latency_ms: float | None, count: int = 5, outcome: str = "delivered") -> list[records.Record]:
    """So many records of a period."""
    return [records.Record(number, number, 0.0, 1.0, outcome, latency_ms=latency_ms) for number in range(count)]


def test_links_that_changed_while_the_plan_warmed_up_are_found_when_it_is_in_force(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its utility never shows the change: it has been like that from the beginning."""
    slow = [3.0, 3.1, 3.0, 3.0, 3.0]
    assert judged(monkeypatch, slow)[1] == []
    watcher, wanted = judged(monkeypatch, slow, speeds={"edge->cloud": 5.0})
    assert wanted == [3.1]
    assert watcher.periods[2].what == "in force, but planned for other links"


def test_a_missed_objective_is_planned_around_before_the_utility_settles(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = QUERY.latency_max_ms
    moving = [9.0, 3.0, 1.0, 0.4, 0.2]
    assert judged(monkeypatch, moving, [ends(limit / 2)] * 5)[1] == []
    watcher, wanted = judged(monkeypatch, moving, [ends(limit / 2), *[ends(2 * limit)] * 4])
    assert wanted == [1.0], "two periods in a row, and not again where nothing better was found"
    assert watcher.periods[3].what == f"misses {limit:g} ms, which was promised"
    failing = judged(monkeypatch, moving, [ends(None, outcome="failed")] * 5)
    assert failing[1] == [3.0] and failing[0].periods[2].what == "5 of 5 items failed"
    # Too few items to tell.
    assert judged(monkeypatch, moving, [ends(2 * limit, watch.TELLING - 1)] * 5)[1] == []
    # Met again in between, then missed again: worth another search.
    again = [ends(2 * limit), ends(2 * limit), ends(1.0), ends(2 * limit), ends(2 * limit)]
    assert judged(monkeypatch, [5.0] * 5, again)[1] == [5.0, 5.0]


def test_a_reference_that_does_not_get_its_turn_holds_up_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "SAMPLE_WAIT_S", 0.01)
    asked: list[int] = []

    class Starving:
        workload = None

        async def outputs(self, items: Any) -> list[Any]:
            asked.append(len(items))
            await asyncio.Event().wait()
            return []

    limit = QUERY.latency_max_ms
    watcher, _ = judged(monkeypatch, [])
    watcher.runner.records[:] = []
    items = open_source(QUERY.workload).items
    seen = iter([9.0] * 4)

    class Seen:
        latency_ms = 1.0

        def utility(self, _: Query) -> float:
            return next(seen)

    monkeypatch.setattr(watch, "observation", lambda *_: Seen())

    async def body() -> None:
        for _ in range(4):
            watcher.runner.records.extend(ends(2 * limit))
            await watcher.period(items, Starving())  # type: ignore[arg-type]
        watcher.stop()

    run(body())
    assert asked == [5], "one sample at a time"
    assert watcher.periods[-1].what == "" and any("misses" in one.what for one in watcher.periods)


@pytest.mark.parametrize("name", ["traffic", "driving", "speech"])
def test_a_watch_plans_again_from_what_the_search_of_its_plan_tried(name: str) -> None:
    """Without that knowledge a search with little exploration begins at random: it found 0.65 to 0.84 of speech's best utility."""
    query = load_query(EXAMPLES / f"{name}.yaml")
    query = dataclasses.replace(query, rate_items_per_s=max(query.rate_items_per_s, lab.RATE_MIN))
    tiers = load_infrastructure(EXAMPLES / "tiers.yaml")
    launcher = lab.launcher_of(query, EXAMPLES / f"{name}.yaml", None)
    plan = plan_query(query, tiers, launcher).plan
    watcher = Watcher(None, query, tiers, planned(plan, query, tiers, launcher), launcher)  # type: ignore[arg-type]
    slow = lab.slower(tiers, lab.busiest(plan, tiers), 20.0)
    best = plan_query(query, slow, launcher, "exhaustive", order=plan.order).plan.utility
    for seed in range(5):
        found = replan(watcher.current, slow, launcher, copy.deepcopy(watcher.memory), "vulcan", seed).plan
        assert found.meets and found.utility >= 0.9 * best, seed


def went(number: int, seen_s: float, latency_ms: float, tiers: tuple[str, str] = ("edge", "cloud")) -> records.Record:
    """An item through both operators of the small query."""
    trace = tuple(
        {"operator": name, "tier": tier, "ended_s": seen_s, "processor_ms": 5.0, "idle_ms": 0.0, "bytes_out": size}
        for name, tier, size in zip(("camera", "model"), tiers, (100_200, 100), strict=True)
    )
    return records.Record(number, number, seen_s, seen_s, "delivered", latency_ms=latency_ms, trace=trace)


def test_the_lab_judges_a_plan_by_its_own_items_on_the_links_as_they_are() -> None:
    """The old plan's utility with the known speed of the link, or with items from before the cut, is that of another world."""
    deployment = from_plan(plan_document())
    mixed = [*(went(number, number, 30.0) for number in range(30)), *(went(30 + number, 50.0 + number, 400.0) for number in range(6))]
    own = lab.between(mixed, 50.0, 60.0)
    slow = lab.slower(FAST, "edge->cloud", 20.0)
    assert len(own) == 6 and slow.links[0].mbit_per_s == 5.0
    old = lab.worth(deployment, own, QUERY, slow, 1.0, 6.0)
    assert old is not None
    # P = (1 - 0.5) / 0.5 / 2 + (500 - 400) / 500 / 2; R = 1.6032 of the link, and what the model takes of a core.
    assert old == pytest.approx(0.6 / (10 * 100_200 * 8e-6 / 5.0 + 0.05), rel=0.01)
    for records_, links in ((mixed, slow), (own, FAST)):
        other = lab.worth(deployment, records_, QUERY, links, 1.0, 6.0)
        assert other is not None and other > 1.2 * old
    # What missed its objective is not made better by using little, and an item that another deployment handled says nothing.
    late = [went(number, number, 600.0) for number in range(6)]
    assert (lab.worth(deployment, late, QUERY, slow, 1.0, 6.0) or 0.0) == pytest.approx(-0.1)
    assert lab.worth(deployment, late, QUERY, FAST, 1.0, 6.0) == pytest.approx(-0.1)


def test_samples_have_no_holes() -> None:
    assert watch.stretch(set(range(40))) == list(range(28, 40))
    assert watch.stretch({1, 2, 3, 4, 5, 9, 10}) == [1, 2, 3, 4, 5]
    assert watch.stretch({1, 2, 8, 9}) == [8, 9]
    assert watch.stretch({*range(20), *range(30, 50), 60}) == list(range(38, 50))
    assert watch.stretch(set()) == []


def test_a_pipeline_that_warms_up_is_not_planned_again_and_a_later_change_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    warm = [13.0, 45.0, 353.0, 360.0, 350.0, 355.0, 352.0]
    watcher, wanted = judged(monkeypatch, warm)
    assert wanted == []
    assert watcher.monitor is not None and watcher.monitor.expected == 360.0
    assert [one.what for one in watcher.periods] == ["settling"] * 4 + ["in force"] + [""] * 3
    assert judged(monkeypatch, [*warm, 20.0, 20.0])[1] == [20.0]


def test_a_utility_that_never_settles_is_believed_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    watcher, _ = judged(monkeypatch, [1.0, 10.0] * (watch.WARM_UP_MAX // 2))
    assert watcher.monitor is not None and len(watcher.periods) == watch.WARM_UP_MAX + 1


def test_differences_name_knobs_and_places() -> None:
    before = plan_query(QUERY, FAST, Known()).plan
    after = plan_query(QUERY, Infrastructure(TIERS, (Link("edge", "cloud", 0.5, 1.0),)), Known()).plan
    assert differences(before, after) == ["model moves from cloud to edge"]


def written(tmp_path: pathlib.Path, **changes: Any) -> str:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({**plan_document(), **changes}), encoding="utf-8")
    return str(path)


def test_run_reports_each_item_knobs_and_moves(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", written(tmp_path), "--tiers", "local", "--items", "30", "--rate", "20", "--json"]
    words += ["--set", "model.work_s=0.001@0.2", "--move", "model=edge@0.3", "--records", str(tmp_path / "records")]
    assert cli.main(words) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["sent"], found["delivered"], found["lost"], found["accuracy"]) == (30, 30, 0, 1.0)
    assert [move["target"] for move in found["moves"]] == ["edge"]
    lines = (tmp_path / "records").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["number"] for line in lines] == list(range(30))


@pytest.mark.parametrize(
    ("changes", "sent", "missed"),
    [
        ({"latency_max_ms": 0.001, "accuracy_min": 0.5}, 30, ["latency: median"]),
        ({"latency_max_ms": 5000.0, "accuracy_min": 0.5}, 30, []),
        ({"latency_max_ms": 5000.0, "accuracy_min": 0.5}, 6, ["accuracy: 0.000, least 0.5"]),
        ({"latency_max_ms": 0.001, "accuracy_min": 0.5}, 45, ["latency: median", "accuracy: 0.333, least 0.5"]),
    ],
)
def test_a_run_that_misses_an_objective_fails_and_names_it(
    changes: dict[str, float], sent: int, missed: list[str], tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of thirty items the first fifteen are never right; 45 items are a round and a half: 15 right of 45."""
    words = ["run", written(tmp_path, objectives=changes, workload="pipeline_operators:LaterHalf"), "--tiers", "local", "--json"]
    assert cli.main([*words, "--items", str(sent), "--rate", "50"]) == (1 if missed else 0)
    found = json.loads(capsys.readouterr().out)
    assert found["lost"] == 0 and len(found["missed"]) == len(missed)
    assert all(line.startswith(start) for line, start in zip(found["missed"], missed, strict=True))


def test_a_verdict_counts_what_failed_and_says_why_it_judges_no_accuracy() -> None:
    deployment, source = from_plan(plan_document()), open_source(QUERY.workload)
    made = [went(number, number, 10.0) for number in range(12)]
    found = verdict.judge(deployment, source, made, 12, 6.0)
    assert (found.accuracy, found.missed) == (None, ())
    assert found.unjudged == "12 of 30 items were sent, and the workload has no accuracy_of(outputs, ids)"
    bad = [records.Record(12 + number, 0, 0.0, 1.0, outcome) for number, outcome in enumerate(["failed"] * 7 + ["refused"] * 7)]
    found = verdict.judge(deployment, source, [*made, *bad], 27, 6.0)
    assert found.latency_ms == 6000.0, "more than half of the items have no result"
    assert found.missed[:3] == ("7 of 27 items failed", "7 of 27 items were refused", "1 of 27 items have no fate")
    assert found.missed[3] == "latency: median 6000.0 ms, limit 500 ms"


def test_a_refused_knob_is_told_and_the_run_goes_on(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", written(tmp_path), "--tiers", "local", "--items", "30", "--rate", "20", "--json"]
    words += ["--set", "model.mark=-1@0.1", "--set", "model.work_s=0.001@0.2", "--records", str(tmp_path / "records")]
    assert cli.main(words) == 2
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert (found["sent"], found["delivered"], found["lost"]) == (30, 30, 0)
    assert [event["operator"] for event in found["events"] if "was refused" in event["what"]] == ["model"]
    reason = "refused {'mark': -1}: ValueError: no knob 'mark'"
    for due in ("--set model.mark=-1@0.1: operator model: ", reason, "nothing was changed"):
        assert due in said.err
    assert len((tmp_path / "records").read_text(encoding="utf-8").splitlines()) == 30


@pytest.mark.parametrize(
    ("words", "status", "reason"),
    [
        (["run", "PLAN", "--items", "0"], 2, "--items 0: must be from 1"),
        (["run", "PLAN", "--rate", "-1"], 2, "--rate -1: must be above 0"),
        (["run", "PLAN", "--hang-s", "0"], 2, "--hang-s 0.0: must be at least"),
        (["run", "PLAN", "--set", "model=3"], 2, "write OPERATOR.KNOB=VALUE@SECONDS"),
        (["run", "PLAN", "--set", "modle.work_s=3@1"], 2, "there is no operator modle"),
        (["run", "PLAN", "--move", "model=moon@1"], 2, "there is no tier moon; there are edge, cloud"),
        (["run", "/nowhere/plan.json"], 2, "/nowhere/plan.json"),
        (["manifests", "PLAN", "--image", ""], 2, "--image is empty"),
        (["watch", "PLAN", "--query", "/nowhere.yaml"], 2, "/nowhere.yaml"),
    ],
)
def test_bad_input_is_named(
    words: list[str], status: int, reason: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = written(tmp_path)
    assert cli.main([plan if word == "PLAN" else word for word in words]) == status
    assert reason in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"operators": []}, "it has no operators"),
        ({"workload": "nonsense"}, "write module:Class"),
        ({"workload": "no_such_module:X"}, "add --allow-module no_such_module"),
        ({"infrastructure": {"tiers": [], "links": []}}, "there is no tier edge"),
        ({"objectives": {}}, "'latency_max_ms' is missing"),
    ],
)
def test_a_plan_that_cannot_run_says_why(
    change: dict[str, Any], reason: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["run", written(tmp_path, **change), "--tiers", "local"]) == 2
    assert reason in capsys.readouterr().err


def test_without_root_the_lab_and_namespaces_say_what_is_missing(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in (cli, lab):
        monkeypatch.setattr(module, "missing", lambda: "namespaces need root")
    assert cli.main(["run", written(tmp_path)]) == 3
    assert "namespaces need root; or give --tiers local" in capsys.readouterr().err
    assert cli.main(["lab", "x.yaml", "--infra", "y.yaml"]) == 3


def test_a_cut_is_read_with_its_link() -> None:
    assert lab.parse_cut("edge->cloud=20@3.5", plan_document()) == lab.Cut("edge->cloud", 20.0, 3.5)
    for text, reason in (("moon=2@1", "there is no link 'moon'"), ("edge->cloud=x@1", "write LINK=FACTOR@SECONDS")):
        with pytest.raises(cli.PlanError, match=reason):
            lab.parse_cut(text, plan_document())


def test_a_pause_is_the_longest_gap_beyond_the_usual_one() -> None:
    at = [0.0, 0.1, 0.2, 0.3, 0.7, 0.8, 5.0]
    made = [records.Record(number, number, 0.0, known, "delivered") for number, known in enumerate(at)]
    assert records.pause_ms(made, 0.0, 1.0) == pytest.approx(300.0)
    assert records.pause_ms(made, 2.0, 4.0) == pytest.approx(2000.0)
