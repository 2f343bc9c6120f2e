"""A query that does not fit even alone gets the least of each single change that would admit it: true, and not too large."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import random
import re

import planner_data as data
import pytest

from isolane.planner import cli, multi, remedies
from isolane.planner.model import Infrastructure, PlanError, Query
from isolane.planner.planning import Planned, plan_query
from isolane.planner.report import render

#: A remedy is at most a percent too large, and rounding to three digits adds up to another.
SMALLER = 0.975


def exhaustive(query: Query, tiers: Infrastructure) -> Planned:
    """Every pair that the profile has, of the template's order."""
    replay = data.traffic_replay(data.traffic())
    return plan_query(query, tiers, replay, "exhaustive", order=query.template)


def changed(words: str, query: Query, tiers: Infrastructure, part: float = 1.0) -> tuple[Query, Infrastructure]:
    """What a remedy says, done to the files' values; with `part` only so much of the way from the old value to the new one."""

    def between(old: str, new: str) -> float:
        return float(old) * (float(new) / float(old)) ** part

    rate = re.fullmatch(r"a rate of (\S+) items/s instead of (\S+)", words)
    if rate:
        return dataclasses.replace(query, rate_items_per_s=between(rate[2], rate[1])), tiers
    link = re.fullmatch(r"(\S+) Mbit/s instead of (\S+) on (\S+)", words)
    delay = re.fullmatch(r"a delay of (\S+) ms instead of (\S+) on (\S+)", words)
    if link or delay:
        found, key = (link, "mbit_per_s") if link else (delay, "delay_ms")
        assert found is not None
        links = [dataclasses.replace(one, **{key: between(found[2], found[1])}) if one.name == found[3] else one for one in tiers.links]
        assert part < 1.0 or tuple(links) != tiers.links
        return query, dataclasses.replace(tiers, links=tuple(links))
    tier = re.fullmatch(r"(\S+) (cores?|GPUs?) instead of (\S+) on (\S+)", words)
    speed = re.fullmatch(r"(\S+) = (\S+) instead of (\S+) on (\S+)", words)
    assert tier or speed, words
    if tier:
        key, new, old, name = f"capacity_{tier[2].lower().rstrip('s')}s", tier[1], tier[3], tier[4]
    else:
        assert speed is not None
        key, new, old, name = speed.groups()
    value = (float(new) if part == 1.0 else float(new) - 1.0) if old == "none" else between(old, new)
    places = [dataclasses.replace(one, **{key: value}) if one.name == name else one for one in tiers.tiers]
    assert part < 1.0 or tuple(places) != tiers.tiers
    return query, dataclasses.replace(tiers, tiers=tuple(places))


def meets(query: Query, tiers: Infrastructure) -> bool:
    """Whether an exhaustive search finds a plan that meets everything; a model that may run nowhere does not."""
    try:
        return exhaustive(query, tiers).plan.meets
    except PlanError as error:
        assert "needs GPUs, and no tier has any" in str(error)
        return False


@pytest.mark.parametrize("seed", range(12))
def test_every_remedy_is_true_and_the_least(seed: int) -> None:
    draw = random.Random(seed)
    tiers = data.four_tiers(draw.uniform(0.02, 0.5))
    some = [dataclasses.replace(one, capacity_gpus=draw.choice([0.0, 0.2, 1.0])) for one in tiers.tiers[:3]]
    tiers = Infrastructure((*some, tiers.tiers[3]), tiers.links)
    query = dataclasses.replace(
        data.traffic(latency_max_ms=draw.uniform(40.0, 110.0)),
        accuracy_min=draw.uniform(0.6, 0.8),
        rate_items_per_s=draw.choice([30.0, 300.0, 900.0]),
    )
    planned = exhaustive(query, tiers)
    missed = remedies.unmet(planned)
    assert (missed is None) == planned.plan.meets
    for words in missed.remedies if missed else ():
        assert meets(*changed(words, query, tiers)), f"seed {seed}: {words}"
        # Four fifths of the way, in the logarithm, is not enough, unless the whole way is within what rounding takes.
        less = changed(words, query, tiers, 0.8)
        if SMALLER > _step(words) ** 0.2:
            assert not meets(*less), f"seed {seed}: {words} is more than is needed"


def _step(words: str) -> float:
    """The smaller of old and new over the larger; 0 where there was none."""
    numbers = [float(each) for each in re.findall(r"(?<![\w.])\d[\d.e+-]*", words.split(" on ")[0])]
    return min(numbers) / max(numbers) if len(numbers) == 2 else 0.0


def test_there_are_cases_with_remedies_of_every_kind() -> None:
    """Else the test above would hold of nothing."""
    said = ""
    tiers = data.four_tiers()
    without = tuple(dataclasses.replace(one, capacity_gpus=0.0) for one in tiers.tiers[:3])
    far = Infrastructure((*without, tiers.tiers[3]), tiers.links)
    for where, latency, rate in ((far, 110.0, 30.0), (tiers, 50.0, 300.0)):
        query = dataclasses.replace(data.traffic(latency_max_ms=latency), rate_items_per_s=rate, accuracy_min=0.75)
        missed = remedies.unmet(exhaustive(query, where))
        assert missed is not None
        said += missed.sentence()
    for kind in ("Mbit/s instead", "ms instead", "gpu_factor = ", "1 GPU instead of none", "a rate of"):
        assert kind in said, f"{kind}: {said}"


def test_a_runner_up_that_misses_too_lost_by_what_it_misses() -> None:
    query = dataclasses.replace(data.traffic(latency_max_ms=12.0), accuracy_min=0.85)
    plan = exhaustive(query, data.four_tiers()).plan
    assert plan.runner_up is not None and not plan.runner_up.meets
    assert plan.why.endswith("misses the objectives by more") and "misses the" in plan.why and "utility" not in plan.why


def test_where_no_single_change_is_enough_that_is_said() -> None:
    query = dataclasses.replace(data.traffic(latency_max_ms=1.0), accuracy_min=0.99)
    missed = remedies.unmet(exhaustive(query, data.four_tiers()))
    assert missed is not None and not missed.remedies
    assert "no single change of up to 64 times of a tier, a link or the rate would be enough" in missed.sentence()


def test_a_bounded_price_is_not_got_around_by_more_of_a_tier() -> None:
    """Of more GPUs a smaller part is used, which must not make a query cheaper."""
    query = dataclasses.replace(data.traffic(), price_max_per_hour=1e-5, rate_items_per_s=30.0)
    missed = remedies.unmet(exhaustive(query, data.four_tiers()))
    assert missed is not None and all("a rate of" in words for words in missed.remedies), missed


def test_a_query_refused_among_others_gets_the_reason_too() -> None:
    tiers = data.four_tiers(0.05)
    query = dataclasses.replace(data.traffic(latency_max_ms=30.0), accuracy_min=0.75)
    refused = multi.plan_jointly([exhaustive(query, tiers)], tiers).refused[0]
    assert refused.reason.startswith("cannot be met even alone: ") and refused.remedies
    for words in refused.remedies:
        assert meets(*changed(words, query, tiers)), words


def test_another_order_that_can_meet_everything_is_named() -> None:
    """The template's order is more accurate; the other one sends fewer bytes on."""
    query = dataclasses.replace(data.traffic(), accuracy_min=0.955)
    replay = data.traffic_replay(data.traffic())
    orders = query.orders()
    found = {order: plan_query(query, data.four_tiers(), replay, "exhaustive", order=order) for order in orders}
    assert sorted(each.plan.meets for each in found.values()) == [False, True]
    missed = next(each for each in found.values() if not each.plan.meets)
    other = next(order for order in orders if found[order].plan.meets)
    said = remedies.unmet(missed)
    assert said is not None and f"try --order {','.join(other)}" in said.sentence() and not said.remedies


def test_command_json_and_page_say_it(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    examples = pathlib.Path(__file__).resolve().parents[2] / "examples"
    text = (examples / "traffic.yaml").read_text(encoding="utf-8")
    assert "latency_max_ms: 200" in text
    (tmp_path / "q.yaml").write_text(text.replace("latency_max_ms: 200", "latency_max_ms: 5"), encoding="utf-8")
    page = tmp_path / "report.html"
    words = ["plan", str(tmp_path / "q.yaml"), "--infra", str(examples / "tiers.yaml"), "--json", "--report", str(tmp_path)]
    assert cli.main(words) == cli.NO
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert not document["meets"] and document["unmet"]["remedies"]
    assert document["unmet"]["possible"] in err
    for each in document["unmet"]["remedies"]:
        assert each in err and each in page.read_text(encoding="utf-8").replace("&gt;", ">")
    assert cli.main(["plan", str(examples / "traffic.yaml"), "--infra", str(examples / "tiers.yaml"), "--json"]) == cli.DONE
    assert json.loads(capsys.readouterr().out)["unmet"] is None
    planned = exhaustive(data.traffic(), data.four_tiers())
    assert planned.plan.meets and 'id="unmet"' not in render(planned.plan, data.traffic(), data.four_tiers())
