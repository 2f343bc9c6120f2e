"""What a newcomer's mistakes and impossible wishes are answered with: a sentence that is true, names its object, and helps."""

from __future__ import annotations

import dataclasses
import itertools
import json
import pathlib
import re
import time
from collections.abc import Sequence
from typing import Any

import planner_data as data
import pytest
from planner_operators import Data

from isolane.pipeline.item import Item
from isolane.planner import cli, formats, multi, plots, report
from isolane.planner.live import Live
from isolane.planner.model import Plan, PlanError, Query, Step
from isolane.planner.placement import placements
from isolane.planner.planning import Planned, plan_query
from isolane.planner.possible import best_possible
from isolane.planner.search.problem import Options
from test_planner_live import query as numbers

TIERS = """
tiers:
  - {name: device, capacity_cores: 2}
  - {name: cloud, capacity_cores: 16}
links:
  - {from: device, to: cloud, mbit_per_s: 24, delay_ms: 5}
"""

QUERY = """
query: numbers
accuracy_min: 0.9
latency_max_ms: 1000
workload: "WORKLOAD"
operators:
  - {name: source, kind: source, implementation: "planner_operators:Numbers", gives: n, knobs: [{name: every, values: [2, 1]}]}
  - {name: big, kind: filter, implementation: "planner_operators:Big", accepts: n}
  - {name: model, kind: model, implementation: "planner_operators:Even", accepts: n}
"""


class Dicts(Data):
    """Items that are none."""

    def items(self) -> Sequence[Item]:
        return [{"id": 0}]  # type: ignore[list-item]


class Lists(Data):
    """An item whose payload cannot travel."""

    def items(self) -> Sequence[Item]:
        return [Item(0, 0.0, {"data": [1, 2]})]  # type: ignore[dict-item]


class Stream(Data):
    """Items without a length."""

    def items(self) -> Sequence[Item]:
        return (Item(index, 0.0) for index in itertools.count())  # type: ignore[return-value]


class NoItems:
    """No method at all."""


class OneNumber(Data):
    """Precision alone."""

    def filter_score(self, passed: Sequence[Item]) -> tuple[float, float]:
        return 0.5  # type: ignore[return-value]


class Percent(Data):
    """Accuracy as people say it."""

    def accuracy(self, outputs: Sequence[Item], reference: Sequence[Item] | None = None) -> float:
        return 97.0


class Raises(Data):
    """A mistake of its author's."""

    def accuracy(self, outputs: Sequence[Item], reference: Sequence[Item] | None = None) -> float:
        return float(outputs[0].payload["nothing"])


class Slow(Data):
    """A workload whose judgement takes longer than the operators."""

    def filter_score(self, passed: Sequence[Item]) -> tuple[float, float]:
        time.sleep(0.05)
        return super().filter_score(passed)


def command(folder: pathlib.Path, workload: str, *more: str) -> int:
    (folder / "q.yaml").write_text(QUERY.replace("WORKLOAD", workload), encoding="utf-8")
    (folder / "t.yaml").write_text(TIERS, encoding="utf-8")
    return cli.main(["plan", str(folder / "q.yaml"), "--infra", str(folder / "t.yaml"), "--live", *more])


ITEMS = "a list of isolane.pipeline.item.Item(id, time_s, payload)"


@pytest.mark.parametrize(
    ("workload", "message"),
    [
        ("Dicts", f"items() returned dict {{'id': 0}} at position 0: must be {ITEMS}"),
        ("Lists", "items() returned an Item at position 0 that cannot be sent"),
        ("Stream", "items() returned generator"),
        ("NoItems", "has no items()"),
        ("OneNumber", "filter_score() returned float 0.5: must be (precision, recall), two numbers from 0 to 1"),
        ("Percent", "accuracy() returned float 97.0: must be a number from 0 to 1"),
        ("Raises", "accuracy() failed: KeyError"),
    ],
)
def test_a_wrong_workload_is_bad_input_that_is_named(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], workload: str, message: str
) -> None:
    assert command(tmp_path, f"test_planner_messages:{workload}") == cli.BAD_INPUT
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith(f"isolane: query numbers: workload test_planner_messages:{workload}: ") and message in error


def test_live_launches_print_what_they_found_without_quiet(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(tmp_path, "planner_operators:Data", "--searcher", "isolane", "--json") == cli.DONE
    captured = capsys.readouterr()
    lines = [line for line in captured.err.splitlines() if ": launch " in line]
    assert len(lines) == json.loads(captured.out)["launches"]
    assert re.search(r"query numbers: launch 1: [0-9.]+ s \([0-9.]+ s so far\), accuracy .* with source.every = ", lines[0])
    assert command(tmp_path, "planner_operators:Data", "--searcher", "isolane", "--quiet") == cli.DONE
    assert capsys.readouterr() == ("", "")


def test_a_live_budget_is_of_wall_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a clock of its own, which the judgement of a launch moves on: no thread of ours is busy meanwhile."""
    now = [0.0]
    monkeypatch.setattr("isolane.planner.live.time.monotonic", lambda: now[0])

    class Clocked(Data):
        def filter_score(self, passed: Sequence[Item]) -> tuple[float, float]:
            now[0] += 10.0
            return super().filter_score(passed)

    # Of four configurations, the third launch begins at 20 s and would end at 30 s.
    live = Live(numbers(), Clocked(), budget_s=25.0)
    planned = plan_query(numbers(), data.four_tiers(), live, "isolane", options=Options(budget_s=25.0))
    assert planned.problem.launches == 2 and planned.problem.spent_s == 20.0
    # Nor are launches repeated to say what is possible.
    before = now[0]
    best_possible(planned.problem)
    assert now[0] == before
    live = Live(numbers(), Clocked(), budget_s=25.0)
    now[0] += 26.0
    with pytest.raises(PlanError, match="budget of 25 s is too small for one launch"):
        plan_query(numbers(), data.four_tiers(), live, "isolane", options=Options(budget_s=25.0))


def test_a_budget_that_does_not_cover_the_orders_is_reported() -> None:
    spec = numbers().operators
    two = dataclasses.replace(numbers(), operators=(*spec[:2], dataclasses.replace(spec[1], name="again", knobs=()), spec[2]))
    live = Live(two, Slow(), budget_s=0.0)
    with pytest.raises(PlanError, match="too small to compare the orders .* --order source,big,again,model"):
        plan_query(two, data.four_tiers(), live, options=Options(budget_s=0.0))


def with_source(**changes: Any) -> Query:
    query = data.traffic()
    return dataclasses.replace(
        query, operators=(dataclasses.replace(query.operators[0], **changes), *query.operators[1:])
    )


def test_a_source_runs_where_it_may_or_nowhere() -> None:
    tiers = data.four_tiers()
    with pytest.raises(PlanError, match="operator camera is the source, tiers = cloud: a source runs on the first tier, device"):
        placements(with_source(tiers=("cloud",)), data.traffic().template, tiers)
    allowed = with_source(tiers=("device", "cloud"))
    assert placements(allowed, allowed.template, tiers) == placements(data.traffic(), allowed.template, tiers)
    with pytest.raises(PlanError, match="there is no tier moon"):
        placements(with_source(tiers=("moon",)), data.traffic().template, tiers)


@pytest.mark.parametrize(("gpu", "key"), [(False, "capacity_cores"), (True, "capacity_gpus")])
def test_a_source_needs_what_it_runs_on(gpu: bool, key: str) -> None:
    tiers = data.four_tiers()
    changes: dict[str, Any] = {key: 0.0}
    none = dataclasses.replace(tiers, tiers=(dataclasses.replace(tiers.tiers[0], **changes), *tiers.tiers[1:]))
    query = with_source(gpu=gpu)
    with pytest.raises(PlanError, match=f"camera, the source, runs on the first tier, device, which has no .* {key}"):
        plan_query(query, none, data.traffic_replay(query))


def planned(query: Query, searcher: str = "exhaustive", options: Options | None = None) -> Planned:
    replay = data.traffic_replay(data.traffic())
    return plan_query(query, data.four_tiers(), replay, searcher, options=options)


def test_a_latency_is_said_as_one() -> None:
    text = best_possible(planned(dataclasses.replace(data.traffic(latency_max_ms=20.0), accuracy_min=0.8)).problem)
    assert re.search(r"the best latency is [0-9.]+ ms at accuracy 0\.[0-9]+ \(", text), text
    assert re.search(r"the best accuracy is 0\.[0-9]+ at [0-9.]+ ms \(", text), text
    assert "price" not in text


def test_what_can_be_met_is_not_said_to_be_impossible() -> None:
    everything = planned(data.traffic())
    first = next(pair for pair in everything.problem.ranked()[::-1])
    missed = dataclasses.replace(everything, plan=dataclasses.replace(everything.plan, meets=False))
    assert not missed.problem.cache[first[1]].estimates.meets(data.traffic())[first[0], 0]
    refused = multi.plan_jointly([missed], data.four_tiers()).refused[0].reason
    assert "searcher exhaustive found no plan even alone, but" in refused and "cannot be met even alone" not in refused
    impossible = planned(dataclasses.replace(data.traffic(latency_max_ms=1.0), accuracy_min=0.99))
    refused = multi.plan_jointly([impossible], data.four_tiers()).refused[0].reason
    assert refused.startswith("cannot be met even alone: ") and "can meet everything" not in refused


def test_a_price_that_is_too_low_names_the_least() -> None:
    text = best_possible(planned(dataclasses.replace(data.traffic(), price_max_per_hour=1e-6)).problem)
    found = re.search(r"the least price is ([0-9.e-]+) an hour, .* the least that meets both objectives is ([0-9.e-]+)", text)
    assert found and "capacity" not in text, text
    least, both = (float(each) for each in found.groups())
    assert planned(dataclasses.replace(data.traffic(), price_max_per_hour=both)).plan.meets
    assert not planned(dataclasses.replace(data.traffic(), price_max_per_hour=0.99 * both)).plan.meets
    between = best_possible(planned(dataclasses.replace(data.traffic(), price_max_per_hour=(least + both) / 2)).problem)
    assert "at a price of at most" in between and f"can be met with price_max_per_hour = {both:g}" in between


def test_an_unrequested_price_is_not_the_cause_of_a_lack_of_capacity() -> None:
    query = dataclasses.replace(data.traffic(), rate_items_per_s=1e6)
    text = best_possible(planned(query).problem)
    assert "no placement has the capacity" in text and "price" not in text


def periodic(count: int) -> tuple[Step, ...]:
    """A search that goes through all configurations in order, a rare placement among them."""
    every = itertools.cycle(itertools.product(range(4), range(4), range(2)))
    return tuple(
        Step((0, 1 + (index == 1234)), next(every), float(index % 97), 0.5, 100.0, index % 7 == 0) for index in range(count)
    )


def test_a_thinned_search_shows_every_value_of_every_knob_at_its_own_step() -> None:
    path = periodic(6000)
    kept = plots.drawn(path)
    assert len(kept) <= plots.POINTS_MAX + 50
    for position, count in ((0, 4), (1, 4), (2, 2)):
        values = [path[index].configuration[position] for index in kept]
        shares = [values.count(value) / len(values) for value in range(count)]
        # Each value has its share of all steps, to a tenth.
        assert shares == pytest.approx([1.0 / count] * count, rel=0.1)
    assert 1234 in kept
    steps, where = report.shown(path)
    titles = [report.step_title(step, index) for step, index in zip(steps, where, strict=True)]
    drawing = plots.search_path(steps, titles, where, path)
    assert "6\u202f000" in drawing and titles[-1].startswith(f"Step {kept[-1] + 1}:")
    assert plots.pareto(steps, titles, (0.5, 100.0), (0.4, 200.0)).count("<circle") == len(kept) + 1


def test_the_hint_for_a_missing_profile_works_for_a_query_of_any_name(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "t.yaml").write_text(TIERS, encoding="utf-8")
    text = QUERY.replace("WORKLOAD", "planner_operators:Data").replace("query: numbers", "query: renamed")
    file = tmp_path / "q.yaml"
    file.write_text(text, encoding="utf-8")
    plan = ["plan", str(file), "--infra", str(tmp_path / "t.yaml")]
    assert cli.main(plan) == cli.BAD_INPUT
    hint = re.search(r"`python -m isolane.queries (profile [^`]*)`", capsys.readouterr().err)
    assert hint
    from isolane.queries.__main__ import main as queries

    assert queries(hint.group(1).split()) == 0
    assert cli.main(plan) == cli.DONE
    file.write_text(text.replace('workload: "planner_operators:Data"', "profile: none"), encoding="utf-8")
    capsys.readouterr()
    assert cli.main(plan) == cli.BAD_INPUT
    error = capsys.readouterr().err
    assert "isolane.queries profile" not in error and "give the query a `workload`" in error


@pytest.mark.parametrize(("form", "option"), [("isolane-joint-plan", "--out DIR"), ("isolane-offers", "--out FILE")])
def test_what_holds_several_plans_names_how_to_get_one(form: str, option: str) -> None:
    with pytest.raises(PlanError, match=f"p.json: is a .*{option}"):
        formats.parse_plan(json.dumps({"version": 1, "format": form, "plans": []}), "p.json")


def test_a_page_of_a_long_search_has_real_steps() -> None:
    everything = planned(data.traffic())
    long: Plan = dataclasses.replace(everything.plan, path=tuple(everything.plan.path) * 4)
    page = report.render(long, data.traffic(), data.four_tiers())
    assert f"of {len(long.path)} steps are shown" in page
