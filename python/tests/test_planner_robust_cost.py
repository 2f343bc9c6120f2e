"""Uncertain links, load and speed; money as a resource, as a bound and as a table."""

from __future__ import annotations

import dataclasses

import numpy as np
import planner_data as data
import pytest

from isolane.planner import cost, robust
from isolane.planner.formats import parse_query
from isolane.planner.model import Link, PlanError, Query
from isolane.planner.planning import Planned, plan_query
from isolane.planner.robust import Uncertainty


def planned(query: Query | None = None, prices: tuple[float, ...] = (0.1, 0.4, 1.5, 3.0)) -> Planned:
    """The best plan of the synthetic query on four tiers with these prices."""
    query = query or data.traffic()
    tiers = data.four_tiers()
    priced = tuple(dataclasses.replace(tier, price_per_hour=price) for tier, price in zip(tiers.tiers, prices, strict=True))
    return plan_query(query, dataclasses.replace(tiers, tiers=priced), data.traffic_replay(data.traffic()), "exhaustive", 1)


#: Prices at which the tiers that serve best are the dear ones.
DEAR = (50.0, 20.0, 1.0, 0.5)


def test_ranges_are_read_and_checked() -> None:
    read = Uncertainty.parse("bandwidth=0.5..1,load=1..2", 3)
    assert (read.bandwidth, read.load, read.compute, read.seed) == ((0.5, 1.0), (1.0, 2.0), (1.0, 1.0), 3)
    for wrong in ("bandwith=0.5..1", "load=2..1", "load=0..1", "load", "load=1..2,load=1..3", "load=1..1e999", "load=..2"):
        with pytest.raises(PlanError, match="--uncertain"):
            Uncertainty.parse(wrong)


def test_scenarios_stay_in_their_ranges_and_have_the_corners() -> None:
    query, tiers = data.traffic(), data.four_tiers()
    found = robust.scenarios(query, tiers, Uncertainty((0.5, 1.0), (0.8, 1.0), (1.0, 2.0), samples=20))
    assert len(found) == 1 + len(tiers.links) + 2 + 20
    assert found[0].infrastructure == tiers and found[0].query == query
    for each in found:
        for link, nominal in zip(each.infrastructure.links, tiers.links, strict=True):
            assert 0.5 <= link.mbit_per_s / nominal.mbit_per_s <= 1.0
        assert 1.0 <= each.query.rate_items_per_s / query.rate_items_per_s <= 2.0
    worst = next(each for each in found if each.name == "everything at its worst")
    assert worst.query.rate_items_per_s == 60.0 and worst.infrastructure.links[0].mbit_per_s == 100.0
    # One sample in each slice of every axis.
    points = robust.hypercube(20, 5, np.random.default_rng(0))
    for axis in points.T:
        assert sorted((axis * 20).astype(int)) == list(range(20))


def test_without_uncertainty_the_plan_is_the_nominal_one() -> None:
    own = planned()
    found = robust.plan_robustly(own, Uncertainty())
    assert found.plan.placement == own.plan.placement and found.plan.configuration == own.plan.configuration
    assert found.standing.share == 1.0 and found.price_of_robustness == pytest.approx(0.0)


def test_a_robust_plan_holds_where_the_nominal_one_breaks() -> None:
    broken = 0
    for slack in (1.01, 1.05, 1.2, 2.0):
        own = planned(data.traffic(latency_max_ms=slack * planned().plan.latency_ms))
        assert own.plan.meets
        found = robust.plan_robustly(own, Uncertainty((0.5, 1.0), (0.7, 1.0), (1.0, 1.5)))
        assert found.standing.share >= found.nominal_standing.share
        assert 0.0 <= found.price_of_robustness <= 1.0
        if found.nominal_standing.share < 1.0:
            broken += 1
            assert found.nominal_standing.fails_in
    assert broken, "some nominal plan must break, or the test shows nothing"


def test_the_chosen_pair_is_the_best_that_holds_by_a_slow_count() -> None:
    own = planned(data.traffic(latency_max_ms=60.0))
    uncertainty = Uncertainty((0.6, 1.0), (1.0, 1.0), (1.0, 1.4), samples=8)
    found, launched = robust.worlds(own, uncertainty)
    best = (-1.0, -np.inf)
    for placement in range(found.meets.shape[1]):
        for column in range(len(launched)):
            held = [bool(found.meets[world, placement, column]) for world in range(found.meets.shape[0])]
            mean = sum(float(found.utility[world, placement, column]) for world in range(len(held))) / len(held)
            best = max(best, (min(sum(held) / len(held), 0.8), mean))
    chosen = robust.plan_robustly(own, uncertainty, wanted=0.8)
    assert min(chosen.standing.share, 0.8) == pytest.approx(best[0])
    assert chosen.standing.mean_utility == pytest.approx(best[1])


def test_a_wrong_confidence_is_refused() -> None:
    with pytest.raises(PlanError, match="--confidence 0"):
        robust.plan_robustly(planned(), Uncertainty(), 0.0)


def test_offers_rise_in_price_and_in_utility() -> None:
    own = planned(prices=DEAR)
    found = cost.offers(own)
    assert len(found) > 1
    for first, second in zip(found, found[1:], strict=False):
        assert first.price_per_hour < second.price_per_hour and first.plan.utility < second.plan.utility
    assert found[-1].plan.utility == pytest.approx(own.plan.utility)
    assert all(each.plan.meets for each in found)
    # A line of titles, and one that says the units.
    assert cost.table(found).count("\n") == len(found) + 2


def test_a_dearer_hour_moves_the_plan_to_cheaper_tiers() -> None:
    prices = []
    for weight in (0.0, 1.0, 1000.0):
        prices.append(planned(dataclasses.replace(data.traffic(), alpha_money=weight), DEAR).plan.price_per_hour)
    assert prices == sorted(prices, reverse=True) and prices[-1] < prices[0]


def test_a_price_bound_holds_or_is_said_to_be_missed() -> None:
    free = planned(prices=DEAR).plan
    cheapest = cost.offers(planned(prices=DEAR))[0].price_per_hour
    bound = (cheapest + free.price_per_hour) / 2.0
    within = planned(dataclasses.replace(data.traffic(), price_max_per_hour=bound), DEAR).plan
    assert within.meets and within.price_per_hour <= bound < free.price_per_hour
    below = planned(dataclasses.replace(data.traffic("strict"), price_max_per_hour=cheapest / 2.0), DEAR).plan
    assert not below.meets and below.utility < 0.0


def test_no_offer_where_nothing_meets() -> None:
    assert cost.offers(planned(data.traffic(latency_max_ms=1.0))) == []
    assert cost.table([]) == "no plan meets everything, at any price\n"


def test_money_is_read_from_the_query() -> None:
    text = """
query: q
accuracy_min: 0.5
latency_max_ms: 10
alpha_money: 2
price_max_per_hour: 0.5
operators:
  - {name: a, kind: source, implementation: "m:A"}
  - {name: b, kind: model, implementation: "m:B"}
"""
    query = parse_query(text, "q.yaml")
    assert query.alpha_money == 2.0 and query.price_max_per_hour == 0.5
    with pytest.raises(PlanError, match="price_max_per_hour"):
        parse_query(text.replace("0.5\noperators", "0\noperators"), "q.yaml")


def test_a_link_without_uncertainty_is_not_a_scenario() -> None:
    tiers = data.four_tiers()
    found = robust.scenarios(data.traffic(), tiers, Uncertainty(load=(1.0, 2.0), samples=0))
    assert [each.name for each in found] == ["nominal", "everything at its worst", "everything at its best"]
    assert isinstance(tiers.links[0], Link)
