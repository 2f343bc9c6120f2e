"""Plans that hold when bandwidth, load and speed are not what the file says.

Problem: a plan with no slack breaks when a link loses a tenth of its bandwidth. Units: factors of the nominal values; shares of
scenarios. Method: a range for each kind of change; the scenarios are the nominal one, every link alone at its worst, everything
at its worst and at its best, and a Latin hypercube between. Every pair of a launched configuration and a placement is estimated
in every scenario (no launch more), and the pair is taken that meets everything in the wanted part of the scenarios and has the
highest mean utility; if none does, the one that meets everything most often.

Limits: factors of links are drawn independently, that of the load is one for all items; accuracy does not change with them.
Source: our own; Vulcan (4.5) replans when something has changed, which this makes rarer.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from isolane.planner.estimate import Array, Estimator, Table
from isolane.planner.model import Configuration, Infrastructure, Plan, PlanError, Query
from isolane.planner.planning import Planned, describe
from isolane.planner.utility import utility_of

#: What may vary, and what is worst of it: the lowest bandwidth and speed, the highest load.
KINDS = ("bandwidth", "compute", "load")

RANGE = re.compile(r"(\w+)=([0-9.eE+-]+)\.\.([0-9.eE+-]+)$")


@dataclass(frozen=True)
class Uncertainty:
    """Ranges of factors: of each link's bandwidth, of each tier's speed, of the rate of items."""

    bandwidth: tuple[float, float] = (1.0, 1.0)
    compute: tuple[float, float] = (1.0, 1.0)
    load: tuple[float, float] = (1.0, 1.0)
    samples: int = 64
    seed: int = 0

    @staticmethod
    def parse(text: str, seed: int = 0) -> Uncertainty:
        """`bandwidth=0.5..1,load=1..2`."""
        ranges: dict[str, tuple[float, float]] = {}
        for part in text.split(","):
            found = RANGE.match(part.strip())
            if not found or found[1] not in KINDS:
                raise PlanError(f"--uncertain {part}: must be like bandwidth=0.5..1, with one of {', '.join(KINDS)}")
            try:
                low, high = float(found[2]), float(found[3])
            except ValueError as error:
                raise PlanError(f"--uncertain {part}: {error}") from error
            if not 0.0 < low <= high < float("inf"):
                raise PlanError(f"--uncertain {part}: factors must be above 0, the lower one first")
            if found[1] in ranges:
                raise PlanError(f"--uncertain {text}: {found[1]} is named twice")
            ranges[found[1]] = (low, high)
        same = (1.0, 1.0)
        bandwidth, compute, load = (ranges.get(kind, same) for kind in KINDS)
        return Uncertainty(bandwidth, compute, load, seed=seed)


@dataclass(frozen=True)
class Scenario:
    """One world: what was changed, in words, and what follows."""

    name: str
    query: Query
    infrastructure: Infrastructure


@dataclass(frozen=True)
class Standing:
    """The result of a plan in all scenarios: the share in which it meets everything, its mean utility, its longest latency, and the
    first scenario in which it fails."""

    share: float
    mean_utility: float
    latency_max_ms: float
    fails_in: str


@dataclass(frozen=True)
class RobustPlan:
    """The robust plan beside the nominal one, which it may be, and in words what robustness changes."""

    plan: Plan
    standing: Standing
    nominal: Plan
    nominal_standing: Standing
    why: str
    scenarios: int

    @property
    def price_of_robustness(self) -> float:
        """The part of the nominal plan's utility that is given up where nothing changes."""
        return 1.0 - self.plan.utility / self.nominal.utility if self.nominal.utility > 0.0 else 0.0


def scenarios(query: Query, infrastructure: Infrastructure, uncertainty: Uncertainty) -> list[Scenario]:
    """All worlds, the nominal one first."""
    links, tiers = len(infrastructure.links), len(infrastructure.tiers)
    ones = np.ones(links), np.ones(tiers)
    result = [changed("nominal", query, infrastructure, *ones, 1.0)]
    for index, link in enumerate(infrastructure.links):
        if uncertainty.bandwidth[0] < 1.0:
            one = ones[0].copy()
            one[index] = uncertainty.bandwidth[0]
            result.append(changed(f"{link.name} at {one[index]:g} times its bandwidth", query, infrastructure, one, ones[1], 1.0))
    for name, end, other in (("everything at its worst", 0, 1), ("everything at its best", 1, 0)):
        factors = np.full(links, uncertainty.bandwidth[end]), np.full(tiers, uncertainty.compute[end])
        result.append(changed(name, query, infrastructure, *factors, uncertainty.load[other]))
    drawn = hypercube(uncertainty.samples, links + tiers + 1, np.random.default_rng(uncertainty.seed))
    for index, row in enumerate(drawn):
        bandwidth = between(row[:links], uncertainty.bandwidth)
        compute = between(row[links : links + tiers], uncertainty.compute)
        load = float(between(row[-1:], uncertainty.load)[0])
        result.append(changed(f"sample {index + 1}", query, infrastructure, bandwidth, compute, load))
    return result


def between(part: Array, ends: tuple[float, float]) -> Array:
    """From 0 to 1 into the range."""
    result: Array = ends[0] + part * (ends[1] - ends[0])
    return result


def hypercube(count: int, axes: int, rng: np.random.Generator) -> Array:
    """Points between 0 and 1 with exactly one in each of `count` slices of every axis."""
    slices = np.stack([rng.permutation(count) for _ in range(axes)], axis=1) if count else np.zeros((0, axes))
    result: Array = (slices + rng.random((count, axes))) / max(count, 1)
    return result


def changed(
    name: str, query: Query, infrastructure: Infrastructure, bandwidth: Array, compute: Array, load: float
) -> Scenario:
    """The world with these factors."""
    links = tuple(
        dataclasses.replace(link, mbit_per_s=link.mbit_per_s * float(factor))
        for link, factor in zip(infrastructure.links, bandwidth, strict=True)
    )
    tiers = tuple(
        dataclasses.replace(
            tier, compute_factor=tier.compute_factor * float(factor), gpu_factor=tier.gpu_factor * float(factor)
        )
        for tier, factor in zip(infrastructure.tiers, compute, strict=True)
    )
    loaded = dataclasses.replace(query, rate_items_per_s=query.rate_items_per_s * load)
    return Scenario(name, loaded, Infrastructure(tiers, links))


@dataclass(frozen=True)
class Worlds:
    """Every pair in every scenario: arrays (scenarios, placements, launches)."""

    scenarios: Sequence[Scenario]
    meets: npt.NDArray[np.bool_]
    utility: Array
    latency_ms: Array

    def standing(self, placement: int, column: int) -> Standing:
        """The result of one pair."""
        meets = self.meets[:, placement, column]
        failed = np.flatnonzero(~meets)
        return Standing(
            float(meets.mean()),
            float(self.utility[:, placement, column].mean()),
            float(self.latency_ms[:, placement, column].max()),
            self.scenarios[int(failed[0])].name if len(failed) else "",
        )


def worlds(planned: Planned, uncertainty: Uncertainty) -> tuple[Worlds, list[Configuration]]:
    """All launched configurations at all placements in all scenarios."""
    problem = planned.problem
    launched = list(problem.cache)
    table = Table.of([problem.cache[each].launch for each in launched], problem.order)
    every = scenarios(problem.query, problem.infrastructure, uncertainty)
    meets, utility, latency = [], [], []
    for each in every:
        estimates = Estimator(each.query, problem.order, each.infrastructure, problem.placements).estimates(table)
        meets.append(estimates.meets(each.query))
        utility.append(utility_of(each.query)(each.query, estimates))
        latency.append(estimates.latency_ms)
    return Worlds(every, np.stack(meets), np.stack(utility), np.stack(latency)), launched


def plan_robustly(planned: Planned, uncertainty: Uncertainty, wanted: float = 1.0) -> RobustPlan:
    """The pair that meets everything in the `wanted` share of scenarios with the highest mean utility."""
    if not 0.0 < wanted <= 1.0:
        raise PlanError(f"--confidence {wanted}: must be above 0 and at most 1")
    found, launched = worlds(planned, uncertainty)
    share = found.meets.mean(axis=0)
    mean = found.utility.mean(axis=0)
    enough = share >= wanted - 1e-12
    # Where no pair holds often enough, the one that holds most often.
    key = (mean.ravel(), np.where(enough, wanted, share).ravel())
    placement, column = (int(each) for each in np.unravel_index(int(np.lexsort(key)[-1]), share.shape))
    plan = describe(planned.problem, (placement, launched[column]), planned.plan.searcher, planned.plan.seed)
    nominal = planned.plan
    where = {tier.name: tier.order for tier in planned.problem.infrastructure.tiers}
    own = planned.problem.placements.index(tuple(where[nominal.placement[name]] for name in nominal.order))
    configuration = planned.problem.query.configuration(nominal.configuration)
    before = found.standing(own, launched.index(configuration))
    after = found.standing(placement, column)
    why = words(nominal, plan, before, after)
    if plan.placement == nominal.placement and plan.configuration == nominal.configuration:
        return RobustPlan(nominal, after, nominal, before, why, len(found.scenarios))
    other = dataclasses.replace(nominal, runner_up=None, path=())
    plan = dataclasses.replace(plan, runner_up=other, why=why, path=nominal.path)
    return RobustPlan(plan, after, nominal, before, why, len(found.scenarios))


def words(nominal: Plan, plan: Plan, before: Standing, after: Standing) -> str:
    """What robustness changes."""
    if plan.placement == nominal.placement and plan.configuration == nominal.configuration:
        return f"the plan without uncertainty already meets everything in {100.0 * before.share:.0f} % of the scenarios"
    text = f"the plan without uncertainty meets everything in {100.0 * before.share:.0f} % of the scenarios"
    if before.fails_in:
        text += f" (it fails with {before.fails_in})"
    return f"{text}, this one in {100.0 * after.share:.0f} %"
