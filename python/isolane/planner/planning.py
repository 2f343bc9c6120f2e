"""From a query to its plan: order of filters, search, and why the second best lost.

Problem: one entry for the command line, the claims and the runner's adaptation. Method: `choose_order`, then a searcher on a
`Problem`, then the best of what it tried as a `Plan` with its runner-up. Limits: the runner-up is the second best that was
tried, which another searcher may not have tried. Source: Vulcan, section 4.4.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
from dataclasses import dataclass

import numpy as np

from isolane.planner.estimate import Table
from isolane.planner.model import (
    Configuration,
    Infrastructure,
    Launcher,
    Order,
    Plan,
    PlanError,
    Query,
    Settings,
)
from isolane.planner.ordering import Ordering, choose_order
from isolane.planner.search import SEARCHERS
from isolane.planner.search.problem import BudgetSpent, Options, Problem


@dataclass(frozen=True)
class Planned:
    """A plan with what led to it, for reports and for adaptation."""

    plan: Plan
    problem: Problem
    ordering: Ordering


def plan_query(
    query: Query,
    infrastructure: Infrastructure,
    launcher: Launcher,
    searcher: str = "vulcan",
    seed: int = 0,
    options: Options | None = None,
    order: Order | None = None,
) -> Planned:
    """Plans the query; `order` fixes the order of the filters."""
    if searcher not in SEARCHERS:
        near = difflib.get_close_matches(searcher, SEARCHERS, 1, 0.4)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise PlanError(f"searcher {searcher}: must be one of {', '.join(SEARCHERS)}{hint}")
    try:
        ordering = choose_order(query, launcher) if order is None else Ordering(order, {}, 0.0)
    except BudgetSpent as error:
        limit = options.budget_s if options else math.inf
        raise PlanError(
            f"query {query.name}: the budget of {limit:g} s is too small to compare the orders of the filters; give more, or "
            f"fix one with --order {','.join(query.orders()[0])}"
        ) from error
    problem = Problem(query, infrastructure, launcher, ordering.order, options or Options())
    problem.spent_s += ordering.cost_s
    chosen = run(problem, searcher, seed)
    return Planned(plan_of(problem, chosen, searcher, seed), problem, ordering)


def run(problem: Problem, searcher: str, seed: int) -> tuple[int, Configuration]:
    """Runs a searcher to its end or to the budget's; what it chose, or the best that it tried."""
    chosen = None
    try:
        chosen = SEARCHERS[searcher](problem, np.random.default_rng(seed))
    except BudgetSpent:
        pass
    if not problem.tried:
        raise PlanError(
            f"query {problem.query.name}: the budget of {problem.options.budget_s:g} s is too small for one launch"
        )
    return chosen or problem.ranked()[0]


def plan_of(problem: Problem, chosen: tuple[int, Configuration], searcher: str, seed: int) -> Plan:
    """The chosen pair as a plan, with the best other pair as its runner-up."""
    plan = describe(problem, chosen, searcher, seed)
    others = [pair for pair in problem.ranked() if pair != chosen]
    if not others:
        return dataclasses.replace(plan, path=tuple(problem.path), why="nothing else was tried")
    second = describe(problem, others[0], searcher, seed)
    why = why_lost(problem.query, plan, second)
    return dataclasses.replace(plan, path=tuple(problem.path), runner_up=second, why=why)


def describe(problem: Problem, pair: tuple[int, Configuration], searcher: str, seed: int) -> Plan:
    """One tried pair as a plan without runner-up."""
    placement, configuration = pair
    query, estimator, found = problem.query, problem.estimator, problem.cache[configuration]
    table = Table.of([found.launch], problem.order)
    links, cores, gpus = (each[:, placement, 0] for each in estimator.shares(table))
    tiers = problem.infrastructure.tiers
    where = problem.placements[placement]
    return Plan(
        query=query.name,
        searcher=searcher,
        order=problem.order,
        placement={name: tiers[tier].name for name, tier in zip(problem.order, where, strict=True)},
        configuration=query.settings(configuration),
        accuracy=found.launch.accuracy,
        latency_ms=float(found.estimates.latency_ms[placement, 0]),
        latency_p99_ms=float(estimator.latency_p99_ms(table)[placement, 0]),
        network_share={
            link.name: float(share) for link, share in zip(problem.infrastructure.links, links, strict=True)
        },
        compute_share={tier.name: float(share) for tier, share in zip(tiers, cores, strict=True)},
        gpu_share={tier.name: float(share) for tier, share in zip(tiers, gpus, strict=True)},
        utility=float(found.utilities[placement]),
        meets=bool(found.estimates.meets(query)[placement, 0]),
        launches=problem.launches,
        profiling_cost_s=problem.spent_s,
        price_per_hour=float(found.estimates.price_per_hour[placement, 0]),
        seed=seed,
    )


def why_lost(query: Query, best: Plan, second: Plan) -> str:
    """In words: how the runner-up differs, what is worse about it, and what did not make up for that."""
    differs = differences(best, second)
    missed = shortfalls(query, second)
    if best.meets and not second.meets:
        return f"with {differs} it {' and '.join(missed)}"
    if missed:
        # Neither meets everything: what counts is how much is missed, not the utility, which may be higher for missing more.
        return f"with {differs} it {' and '.join(missed)} and, by the query's weights, misses the objectives by more"
    terms = [
        (second.accuracy - best.accuracy, "is {:.3f} more accurate", "is {:.3f} less accurate"),
        (best.latency_ms - second.latency_ms, "is {:.1f} ms faster", "is {:.1f} ms slower"),
        (total(best.gpu_share) - total(second.gpu_share), "uses {:.4f} less of a GPU", "uses {:.4f} more of a GPU"),
        (total(best.network_share) - total(second.network_share), "uses {:.4f} less of a link", "uses {:.4f} more of a link"),
    ]
    worse = [less.format(-gain) for gain, _, less in terms if gain < -VISIBLE]
    better = [more.format(gain) for gain, more, _ in terms if gain > VISIBLE]
    text = f"with {differs} it {' and '.join(worse) if worse else 'is no worse in any single figure'}"
    if better:
        text += f"; that it {' and '.join(better)} does not make up for this"
    return f"{text} (utility {second.utility:.4g} against {best.utility:.4g})"


#: A difference below this is not worth a word.
VISIBLE = 5e-5


def total(shares: object) -> float:
    """The sum of shares by name."""
    assert isinstance(shares, dict)
    return float(sum(shares.values()))


def differences(best: Plan, second: Plan) -> str:
    """Placement and settings in which the runner-up differs."""
    parts = [
        f"{name} on {second.placement[name]} instead of {best.placement[name]}"
        for name in best.order
        if second.placement[name] != best.placement[name]
    ]
    own: Settings = second.configuration
    for operator, knobs in best.configuration.items():
        for knob, value in knobs.items():
            other = own[operator][knob]
            if other != value:
                parts.append(f"{operator}.{knob} {other} instead of {value}")
    return ", ".join(parts) or "the same settings"


def shortfalls(query: Query, plan: Plan) -> list[str]:
    """What a plan misses, with by how much."""
    result = []
    if plan.accuracy < query.accuracy_min:
        result.append(f"misses the accuracy of {query.accuracy_min:g} by {query.accuracy_min - plan.accuracy:.3f}")
    if plan.latency_ms > query.latency_max_ms:
        result.append(f"misses the latency of {query.latency_max_ms:g} ms by {plan.latency_ms - query.latency_max_ms:.1f} ms")
    for shares, what in ((plan.network_share, "link"), (plan.compute_share, "cores of"), (plan.gpu_share, "GPUs of")):
        for name, share in shares.items():
            if share > 1.0:
                result.append(f"needs {share:.2f} times the {what} {name}")
    if plan.price_per_hour > query.price_max_per_hour:
        result.append(f"costs {plan.price_per_hour:.4g} an hour, above {query.price_max_per_hour:g}")
    return result
