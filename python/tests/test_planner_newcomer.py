"""A joint plan, played out: items of all admitted queries through shared links, cores and GPUs, first come first served.

Goal: no query misses its latency because of a newcomer. Method: a simulation that does not use the planner's formula; sources
tick at their rates with random phases, filters drop at random, each station serves as many items at once as it has units.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import random

import planner_data as data
import pytest
from test_planner_multi import narrow

from isolane.planner import multi
from isolane.planner.model import Infrastructure, Launch, Plan, Query
from isolane.planner.planning import Planned, plan_query
from isolane.planner.search.problem import Options
from isolane.planner.sharing import servers

#: Simulated time; the longest rate has some thousands of items in it.
SIMULATED_MS = 300_000.0


def planned(query: Query, tiers: Infrastructure, size: float) -> Planned:
    """The query planned alone, with times and sizes of its items multiplied."""
    replay = data.traffic_replay(data.traffic())
    replay.query = query
    for key, launch in replay.entries.items():
        operators = {
            name: dataclasses.replace(one, processing_ms=size * one.processing_ms, output_bytes=size * one.output_bytes)
            for name, one in launch.operators.items()
        }
        replay.entries[key] = dataclasses.replace(launch, operators=operators)
    return plan_query(query, tiers, replay, "vulcan", 1, Options())


def stages(plan: Plan, launch: Launch, query: Query, tiers: Infrastructure) -> list[tuple[str, float, float, float]]:
    """What an item goes through: station, time there, delay after it, chance to go on."""
    where = {tier.name: tier for tier in tiers.tiers}
    result = []
    for name, following in zip(plan.order, [*plan.order[1:], plan.order[-1]], strict=True):
        tier, found = where[plan.placement[name]], launch.operators[name]
        gpu = query.operator(name).gpu
        speed = tier.gpu_factor if gpu else tier.compute_factor
        result.append((f"{tier.name} {'gpus' if gpu else 'cores'}", found.processing_ms / speed, 0.0, found.pass_rate))
        for link in tiers.links[tier.order : where[plan.placement[following]].order]:
            result.append((link.name, found.output_bytes * 8.0 / (link.mbit_per_s * 1000.0), link.delay_ms, 1.0))
    return result


def play(paths: dict[str, tuple[float, list[tuple[str, float, float, float]]]], count: dict[str, int], seed: int) -> dict[str, float]:
    """Mean latency, ms, of items that pass their whole pipeline."""
    draw = random.Random(seed)
    ticket = itertools.count()
    events: list[tuple[float, int, str, float, int]] = []
    for name, (rate, _) in paths.items():
        period = 1000.0 / rate
        phase = draw.uniform(0.0, period)
        for index in range(int((SIMULATED_MS - phase) / period)):
            born = phase + index * period
            heapq.heappush(events, (born, next(ticket), name, born, 0))
    free = {station: [0.0] * units for station, units in count.items()}
    total: dict[str, list[float]] = {name: [] for name in paths}
    while events:
        now, _, name, born, step = heapq.heappop(events)
        path = paths[name][1]
        if step == len(path):
            total[name].append(now - born)
            continue
        station, time_ms, delay_ms, passes = path[step]
        start = max(now, free[station][0]) if time_ms else now
        if time_ms:
            heapq.heapreplace(free[station], start + time_ms)
        if passes >= 1.0 or draw.random() < passes:
            heapq.heappush(events, (start + time_ms + delay_ms, next(ticket), name, born, step + 1))
    return {name: sum(values) / len(values) for name, values in total.items()}


@pytest.mark.parametrize("seed", range(10))
def test_no_query_misses_because_of_a_newcomer(seed: int) -> None:
    draw = random.Random(seed)
    tiers = narrow(draw.uniform(15.0, 60.0), draw.choice([1.0, 2.0]))
    queries = [
        dataclasses.replace(
            data.traffic(), name=f"q{index}", latency_max_ms=draw.uniform(150.0, 400.0), rate_items_per_s=draw.uniform(5.0, 20.0)
        )
        for index in range(4)
    ]
    # Items of some take several times as long as those of others.
    every = [planned(query, tiers, size=draw.choice([0.3, 1.0, 3.0])) for query in queries]
    joint = multi.plan_jointly(every, tiers)
    assert joint.plans, f"seed {seed}"
    count = {link.name: 1 for link in tiers.links}
    for tier in tiers.tiers:
        count |= {f"{tier.name} cores": servers(tier.capacity_cores), f"{tier.name} gpus": servers(tier.capacity_gpus)}
    problems = {each.plan.query: each.problem for each in every}
    paths = {}
    for plan in joint.plans:
        problem = problems[plan.query]
        launch = problem.cache[problem.query.configuration(plan.configuration)].launch
        paths[plan.query] = (problem.query.rate_items_per_s, stages(plan, launch, problem.query, tiers))
    seen = play(paths, count, seed)
    for plan in joint.plans:
        limit = problems[plan.query].query.latency_max_ms
        assert seen[plan.query] <= limit, f"seed {seed}: {plan.query} took {seen[plan.query]:.1f} ms of {limit:.1f}"
        assert plan.latency_ms <= limit


def test_the_simulation_finds_a_plan_that_is_too_full() -> None:
    """What the first test would say of a plan that overcommits a link."""
    path = [("link", 40.0, 0.0, 1.0)]
    alone = play({"a": (10.0, path)}, {"link": 1}, 1)
    both = play({"a": (10.0, path), "b": (20.0, path)}, {"link": 1}, 1)
    assert alone["a"] == pytest.approx(40.0) and both["a"] > 1000.0
