"""Several queries on the same tiers: joint plans against brute force and against a simulation, admission, remedies."""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import random

import numpy as np
import planner_data as data
import pytest

from isolane.planner import multi, sharing
from isolane.planner.estimate import Estimator, Table
from isolane.planner.model import Infrastructure, Launch, Link, OperatorResult, OperatorSpec, PlanError, Query, Tier
from isolane.planner.planning import Planned, plan_query
from isolane.planner.search.problem import Options


def planned(query: Query, tiers: Infrastructure, searcher: str = "vulcan") -> Planned:
    """The query planned alone, of the synthetic profile."""
    profile = dataclasses.replace(query, name="traffic")
    replay = data.traffic_replay(profile)
    replay.query = query
    return plan_query(query, tiers, replay, searcher, 1, Options())


def named(name: str, **changes: object) -> Query:
    """The synthetic query under another name."""
    return dataclasses.replace(data.traffic(), name=name, **changes)  # type: ignore[arg-type]


def narrow(mbit_per_s: float = 12.0, gpus: float = 1.0) -> Infrastructure:
    """Two tiers on which two or three queries just fit."""
    tiers = (Tier("device", 0, 1.0, 0.2, 2.0, 0.0), Tier("cloud", 1, 1.0, 1.0, 16.0, gpus))
    return Infrastructure(tiers, (Link("device", "cloud", mbit_per_s, 5.0),))


def sets_of(queries: list[Query], tiers: Infrastructure) -> list[sharing.Choices]:
    """All pairs of all configurations of each query."""
    result = []
    for query in queries:
        replay = data.traffic_replay(data.traffic())
        order = query.template
        launches = [replay.launch(order, each) for each in query.configurations()]
        result.append(sharing.choices(query, Estimator(query, order, tiers), launches))
    return result


def test_parts_add_up_to_the_estimators_latency() -> None:
    query, tiers = data.traffic(), data.four_tiers()
    estimator = Estimator(query, query.template, tiers)
    replay = data.traffic_replay(query)
    launches = [replay.launch(query.template, each) for each in query.configurations()]
    table = Table.of(launches, query.template)
    placed, launched = (each.ravel() for each in np.indices((len(estimator.placements), len(launches))))
    share, time_ms, held_ms, visits, fixed_ms = sharing.parts(estimator, table, placed, launched)
    assert (held_ms == time_ms).all()
    whole = estimator.estimates(table)
    np.testing.assert_allclose(fixed_ms + time_ms.sum(axis=1), whole.latency_ms[placed, launched], rtol=1e-12)
    assert ((visits > 0) == (time_ms > 0)).all()
    overload = np.maximum(share - 1.0, 0.0).sum(axis=1)
    np.testing.assert_allclose(overload, whole.overload[placed, launched], atol=1e-12)


def test_a_core_that_waits_for_an_accelerator_is_held_by_the_visit() -> None:
    """A core that another query finds taken for 50 ms makes it wait as long, whatever the thread does there."""
    operators = (OperatorSpec("s", "source", "a:S"), OperatorSpec("m", "model", "a:M", gpu=True))
    tiers = Infrastructure((Tier("t", 0, 0.5, 0.25, 1.0, 1.0),), ())
    query = Query("q", operators, 0.5, 500.0, rate_items_per_s=1.0)
    results = {"s": OperatorResult(0.0, 100.0), "m": OperatorResult(10.0, 100.0, core_ms=5.0, overlap_ms=10.0)}
    found = sharing.choices(query, Estimator(query, ("s", "m"), tiers), [Launch(("s", "m"), (), 1.0, results, 1.0)])
    # On this tier 5 ms of a core take 10 ms, and the accelerator 40 ms.
    assert (found.time_ms[0, 0], found.share[0, 0]) == (pytest.approx(10.0), pytest.approx(0.05))
    assert found.work_ms[0, 0] == pytest.approx(0.05 * 50.0)


def test_no_pair_that_could_matter_is_dropped() -> None:
    found = sets_of([data.traffic()], data.four_tiers())[0]
    columns = (found.share, found.time_ms, found.visits, found.work_ms, found.own_ms)
    parts = (*columns, found.fixed_ms[:, None], -found.utility[:, None])
    points = np.concatenate(parts, axis=1)
    for index, point in enumerate(points):
        others = np.delete(points, index, axis=0)
        assert not bool(((others <= point).all(axis=1) & (others < point).any(axis=1)).any())


@pytest.mark.parametrize("seed", range(30))
def test_a_joint_plan_is_the_best_of_all(seed: int) -> None:
    draw = random.Random(seed)
    tiers = narrow(draw.uniform(4.0, 30.0), draw.choice([0.5, 1.0, 2.0]))
    count = draw.choice([1, 2, 3])
    queries = [
        named(
            f"q{index}",
            priority=draw.choice([0, 1]),
            latency_max_ms=draw.uniform(60.0, 300.0),
            rate_items_per_s=draw.uniform(5.0, 40.0),
        )
        for index in range(count)
    ]
    queries.sort(key=lambda query: -query.priority)
    levels = [query.priority for query in queries]
    # A few pairs of each keep the slow model fast.
    sets = []
    for one in sets_of(queries, tiers):
        kept = sorted(draw.sample(range(len(one)), min(len(one), 8)))
        sets.append(sharing.subset(one, np.array(kept, dtype=np.int64)))
    shared = sharing.resources(tiers)
    stations = sharing.stations(shared)
    best = None
    for picks in itertools.product(*(range(len(one)) for one in sets)):
        load = sum(one.share[pick] for one, pick in zip(sets, picks, strict=True))
        if (load > 1.0 + 1e-9).any():
            continue
        work = sum(one.work_ms[pick] for one, pick in zip(sets, picks, strict=True))
        late = any(
            float(sharing.latency_ms(one, pick, load - one.share[pick], work - one.work_ms[pick], stations))
            > one.query.latency_max_ms
            for one, pick in zip(sets, picks, strict=True)
        )
        if late:
            continue
        relative = [one.utility[pick] / one.utility[0] for one, pick in zip(sets, picks, strict=True)]
        gain = tuple(sum(g for g, level in zip(relative, levels, strict=True) if level == wanted) for wanted in (1, 0))
        best = gain if best is None else max(best, gain)
    found = sharing.jointly(sets, levels, shared)
    assert found.exact
    assert (found.picks is None) == (best is None), f"seed {seed}"
    if found.picks is not None and best is not None:
        relative = [one.utility[pick] / one.utility[0] for one, pick in zip(sets, found.picks, strict=True)]
        own = tuple(sum(g for g, level in zip(relative, levels, strict=True) if level == wanted) for wanted in (1, 0))
        assert own == pytest.approx(best), f"seed {seed}"


def mean_wait(servers: int, others: float, service_ms: float, seed: int) -> float:
    """A simulation of one station: items of a Poisson stream of others with this load, and rare ones whose wait is measured."""
    draw = random.Random(seed)
    rate = others * servers / service_ms
    free = [0.0] * servers
    clock, waited, measured = 0.0, 0.0, 0
    for _ in range(200_000):
        clock += draw.expovariate(rate)
        start = max(clock, free[0])
        # Waiting times seen by arrivals are those seen at any moment.
        waited += start - clock
        measured += 1
        heapq.heapreplace(free, start + draw.expovariate(1.0 / service_ms))
    return waited / measured


@pytest.mark.parametrize("servers", [1, 2, 4, 8])
@pytest.mark.parametrize("others", [0.3, 0.6, 0.9])
def test_waits_are_those_of_a_simulated_station(servers: int, others: float) -> None:
    predicted = float(sharing.Stations([servers]).wait(np.array([others]))[0]) * 10.0
    simulated = mean_wait(servers, others, 10.0, seed=servers)
    # The formula is exact; at 90 % load 200,000 items leave some percent of noise.
    assert predicted == pytest.approx(simulated, rel=0.1, abs=0.02)


def test_nothing_waits_alone_and_everything_at_a_full_resource() -> None:
    stations = sharing.Stations([1, 4])
    assert stations.wait(np.zeros(2)).tolist() == [0.0, 0.0]
    assert np.isinf(stations.wait(np.ones(2))).all()


def test_a_newcomer_breaks_no_objective() -> None:
    tiers = data.four_tiers()
    queries = [named(f"q{index}", latency_max_ms=150.0) for index in range(4)]
    result = multi.plan_jointly([planned(query, tiers) for query in queries], tiers)
    assert result.plans and result.exact
    for plan in result.plans:
        assert plan.latency_ms <= 150.0 * (1 + 1e-9) and plan.accuracy >= 0.6
        assert plan.latency_ms >= 0.0 and plan.meets
    assert all(load.share <= 1.0 + 1e-9 for load in result.loads)
    assert {plan.query for plan in result.plans} | {each.query for each in result.refused} == {each.name for each in queries}


def crowd(tiers: Infrastructure, **changes: object) -> list[Planned]:
    """Five equal queries; not all fit."""
    return [planned(named(f"q{index}", rate_items_per_s=30.0, **changes), tiers) for index in range(5)]


def test_who_comes_first_stays_and_remedies_are_true() -> None:
    tiers = narrow(24.0)
    everyone = crowd(tiers, latency_max_ms=400.0)
    result = multi.plan_jointly(everyone, tiers)
    assert result.refused and result.plans
    admitted = [plan.query for plan in result.plans]
    assert admitted == [f"q{index}" for index in range(len(admitted))]
    refused = result.refused[0]
    assert refused.remedies, refused.reason
    wide = [remedy for remedy in refused.remedies if "Mbit/s" in remedy]
    assert wide, refused.remedies
    enough = float(wide[0].split()[0])
    assert enough > 24.0
    for mbit_per_s, fits in ((enough, True), (0.95 * enough, False)):
        sets, levels = multi.arranged(everyone[: len(admitted) + 1], narrow(mbit_per_s))
        found = sharing.jointly(sets, levels, sharing.resources(narrow(mbit_per_s)))
        assert (found.picks is not None) == fits, mbit_per_s


def test_priority_decides_among_newcomers_and_running_queries_are_safe() -> None:
    tiers = narrow(24.0)
    queries = crowd(tiers, latency_max_ms=400.0)
    several = [*queries[:-1], planned(named("q9", rate_items_per_s=30.0, latency_max_ms=400.0, priority=5), tiers)]
    by_priority = multi.plan_jointly(several, tiers)
    assert "q9" in [plan.query for plan in by_priority.plans]
    admitted = [plan.query for plan in multi.plan_jointly(queries, tiers).plans]
    kept = multi.plan_jointly(several, tiers, running=admitted)
    assert set(admitted) <= {plan.query for plan in kept.plans}, "a newcomer, however important, displaces no query"
    pushed = multi.plan_jointly(several, tiers, running=admitted, preempt=True)
    assert "q9" in [plan.query for plan in pushed.plans]


def test_what_cannot_be_met_alone_is_said_so() -> None:
    tiers = narrow()
    result = multi.plan_jointly([planned(named("fast", latency_max_ms=1.0), tiers)], tiers)
    assert not result.plans and "even alone" in result.refused[0].reason


def test_names_are_checked() -> None:
    tiers = data.four_tiers()
    one = planned(data.traffic(), tiers)
    with pytest.raises(PlanError, match="two queries are named traffic"):
        multi.plan_jointly([one, one], tiers)
    with pytest.raises(PlanError, match="--running other: no such query"):
        multi.plan_jointly([one], tiers, running=["other"])
