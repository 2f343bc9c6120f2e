"""What would let a query in that does not fit: the least of each single change, of tiers, links and the query itself.

Problem: "it does not fit" is half an answer; "it would fit with 9.4 Mbit/s instead of 3.1" is the other half. Units: those of the tiers'
file; factors have none. Method: a `Change` makes one thing better by a factor; the least factor is found by bisection with whatever
says that it fits: for queries that share tiers the joint search (`multi`), for one query alone the planner's own estimates of all
launches that are known, where launches that do not fit even with `FACTOR_MAX` are left out at once.

Limits: changes are single ones (two small ones together may be cheaper) and up to `FACTOR_MAX` times; a factor is at most 1 % too
large. What a changed tier costs is not known: a price that is bounded is that of the tiers before the change. Of live launches, those
that were made.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from isolane.planner.estimate import ROUNDING, Estimator, Table
from isolane.planner.model import Infrastructure, Link, Query, Tier, Unmet
from isolane.planner.planning import Planned, shortfalls
from isolane.planner.possible import known, possible
from isolane.planner.search.problem import Problem

#: A remedy that needs more than this many times of something is none.
FACTOR_MAX = 64.0

#: Bisections per remedy: 64 times in 2^9 steps is within 1 %.
BISECTIONS = 9

#: What of a tier can be more, with its unit, and what can be faster.
CAPACITIES = {"capacity_cores": "cores", "capacity_gpus": "GPUs"}
SPEEDS = ("compute_factor", "gpu_factor")


@dataclass(frozen=True)
class Change:
    """One thing made better by a factor: tiers and query with it, and it in words."""

    apply: Callable[[float], tuple[Infrastructure, Query]]
    words: Callable[[float], str]


def unmet(planned: Planned) -> Unmet | None:
    """Why a plan misses the query's objectives; nothing if it meets them."""
    if planned.plan.meets:
        return None
    missed = tuple(shortfalls(planned.problem.query, planned.plan))
    return Unmet(missed, *prospects(planned.problem)[1:])


def prospects(problem: Problem) -> tuple[bool, str, tuple[str, ...]]:
    """Whether something that is known meets everything; the best that is possible; and if nothing does, what would let it."""
    exists, text = possible(problem)
    found = () if exists else alone(problem)
    if not exists and not found:
        text += f"; no single change of up to {FACTOR_MAX:g} times of a tier, a link or the rate would be enough"
    return exists, text, found


def of_tiers(infrastructure: Infrastructure, query: Query) -> list[Change]:
    """More bandwidth of a link, more cores or GPUs of a tier that has some."""
    links = [_link(infrastructure, query, link) for link in infrastructure.links]
    tiers = [
        _tier(infrastructure, query, tier, key)
        for key in CAPACITIES
        for tier in infrastructure.tiers
        if getattr(tier, key) > 0.0
    ]
    return [*links, *tiers]


def of_speeds(infrastructure: Infrastructure, query: Query) -> list[Change]:
    """Shorter links and faster tiers, and a first GPU or core where there is none."""
    links = [_delay(infrastructure, query, link) for link in infrastructure.links if link.delay_ms > 0.0]
    tiers = [_tier(infrastructure, query, tier, key) for key in SPEEDS for tier in infrastructure.tiers]
    new = [
        _first(infrastructure, query, tier, key)
        for key in CAPACITIES
        for tier in infrastructure.tiers
        if getattr(tier, key) == 0.0
    ]
    return [*links, *tiers, *new]


def of_rate(infrastructure: Infrastructure, query: Query) -> Change:
    """Fewer items."""
    rate = query.rate_items_per_s
    return Change(
        lambda factor: (infrastructure, dataclasses.replace(query, rate_items_per_s=rate / factor)),
        lambda factor: f"a rate of {rounded_down(rate / factor)} items/s instead of {rate:g}",
    )


def of_objectives(infrastructure: Infrastructure, query: Query) -> list[Change]:
    """A later deadline, a lower accuracy."""
    latency, accuracy = query.latency_max_ms, query.accuracy_min
    return [
        Change(
            lambda factor: (infrastructure, dataclasses.replace(query, latency_max_ms=latency * factor)),
            lambda factor: f"latency_max_ms = {rounded_up(latency * factor)} instead of {latency:g}",
        ),
        Change(
            lambda factor: (infrastructure, dataclasses.replace(query, accuracy_min=accuracy / factor)),
            lambda factor: f"accuracy_min = {rounded_down(accuracy / factor)} instead of {accuracy:g}",
        ),
    ]


def least(fits: Callable[[float], bool]) -> float | None:
    """The smallest factor at which it fits, to 1 %, or None."""
    if not fits(FACTOR_MAX):
        return None
    low, high = 1.0, FACTOR_MAX
    for _ in range(BISECTIONS):
        middle = math.sqrt(low * high)
        if fits(middle):
            high = middle
        else:
            low = middle
    return high


def alone(problem: Problem) -> tuple[str, ...]:
    """Each single change of a tier, a link or the rate with which both objectives can be met by the query alone.

    What its objectives would have to be, `possible` says.
    """
    infrastructure, query = problem.infrastructure, problem.query
    table = Table.of(known(problem)[1], problem.order)
    changes = [*of_tiers(infrastructure, query), *of_speeds(infrastructure, query), of_rate(infrastructure, query)]
    found = []
    for change in changes:
        factor = least(_Fits(problem, change, table))
        if factor is not None:
            found.append(change.words(factor))
    return tuple(found)


class _Fits:
    """Whether the query meets everything with a change; keeps to the launches with which it did at the largest factor so far."""

    def __init__(self, problem: Problem, change: Change, table: Table) -> None:
        self._problem, self._change, self._table = problem, change, table
        # No change of these makes a launch more accurate.
        self._keep(table.accuracy >= problem.query.accuracy_min - ROUNDING)

    def __call__(self, factor: float) -> bool:
        if not len(self._table.accuracy):
            return False
        infrastructure, query = self._change.apply(factor)
        estimates = Estimator(query, self._problem.order, infrastructure).estimates(self._table)
        holds: npt.NDArray[np.bool_] = estimates.meets(dataclasses.replace(query, price_max_per_hour=math.inf))
        if math.isfinite(query.price_max_per_hour):
            before = Estimator(query, self._problem.order, self._change.apply(1.0)[0]).estimates(self._table)
            holds = holds & (before.price_per_hour <= query.price_max_per_hour * (1.0 + ROUNDING))
        if not holds.any():
            return False
        self._keep(np.any(holds, axis=0))
        return True

    def _keep(self, chosen: npt.NDArray[np.bool_]) -> None:
        self._table = self._table.rows(chosen)


def _link(infrastructure: Infrastructure, query: Query, link: Link) -> Change:
    return Change(
        lambda factor: (_with_link(infrastructure, dataclasses.replace(link, mbit_per_s=link.mbit_per_s * factor)), query),
        lambda factor: f"{rounded_up(link.mbit_per_s * factor)} Mbit/s instead of {link.mbit_per_s:g} on {link.name}",
    )


def _delay(infrastructure: Infrastructure, query: Query, link: Link) -> Change:
    return Change(
        lambda factor: (_with_link(infrastructure, dataclasses.replace(link, delay_ms=link.delay_ms / factor)), query),
        lambda factor: f"a delay of {rounded_down(link.delay_ms / factor)} ms instead of {link.delay_ms:g} on {link.name}",
    )


def _tier(infrastructure: Infrastructure, query: Query, tier: Tier, key: str) -> Change:
    value = float(getattr(tier, key))

    def words(factor: float) -> str:
        more = rounded_up(value * factor)
        amount = f"{more} {CAPACITIES[key]}" if key in CAPACITIES else f"{key} = {more}"
        return f"{amount} instead of {value:g} on {tier.name}"

    return Change(lambda factor: (_with_tier(infrastructure, tier, key, value * factor), query), words)


def _first(infrastructure: Infrastructure, query: Query, tier: Tier, key: str) -> Change:
    """Whole units, where a tier has none."""

    def whole(factor: float) -> int:
        return math.floor(factor + ROUNDING)

    return Change(
        lambda factor: (_with_tier(infrastructure, tier, key, float(whole(factor))), query),
        lambda factor: f"{whole(factor)} {CAPACITIES[key][: -1 if whole(factor) == 1 else None]} instead of none on {tier.name}",
    )


def _with_link(infrastructure: Infrastructure, changed: Link) -> Infrastructure:
    links = tuple(changed if link.name == changed.name else link for link in infrastructure.links)
    return dataclasses.replace(infrastructure, links=links)


def _with_tier(infrastructure: Infrastructure, changed: Tier, key: str, value: float) -> Infrastructure:
    changes: dict[str, Any] = {key: value}
    tiers = tuple(dataclasses.replace(tier, **changes) if tier.name == changed.name else tier for tier in infrastructure.tiers)
    return dataclasses.replace(infrastructure, tiers=tiers)


def rounded_up(value: float) -> str:
    """Three significant digits, not less than the value."""
    step = 10.0 ** (math.floor(math.log10(value)) - 2) if value > 0.0 else 1.0
    return f"{math.ceil(value / step - 1e-9) * step:.6g}"


def rounded_down(value: float) -> str:
    """Three significant digits, not more than the value."""
    step = 10.0 ** (math.floor(math.log10(value)) - 2) if value > 0.0 else 1.0
    return f"{math.floor(value / step + 1e-9) * step:.6g}"
