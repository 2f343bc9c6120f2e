"""Adaptation of a deployed query: notice that its utility changed, and plan again from what is known.

Problem: content, load, links and machines change while a query runs, and the plan must follow in few launches. Method: `change` and
`pipeline.alarms` notice a change. Where only links changed, a search under the new links begins from what is known. It visits every placement again (a slow link is no matter of configuration), but each optimiser begins with the 3 best and the 3
worst configurations known for its placement instead of random ones, and explores with kappa / 10. Our own searcher begins with
the best configurations over all placements, and with all that earlier launches measured as its expectation.

Where the content changed, no known launch holds. `reprofile` makes new ones, at most `launches_max`: the plan in force, the two ends of
the configurations, then what promises most. Its expectation of a configuration is the old profile corrected by what the new launches
showed elsewhere. `Corrected` is that expectation as a launcher, for searches to come.

Limits: one query at a time. Source: Vulcan, section 4.5.1.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from isolane.planner.estimate import Estimates
from isolane.planner.model import (
    Configuration,
    FilterScore,
    Infrastructure,
    Launch,
    Launcher,
    OperatorResult,
    Order,
    Placement,
    PlanError,
    Query,
    Step,
)
from isolane.planner.ordering import Ordering
from isolane.planner.planning import Planned, plan_of
from isolane.planner.search import surrogate
from isolane.planner.search.problem import BudgetSpent, Options, Problem
from isolane.planner.search.vulcan import optimise, optimiser
from isolane.planner.utility import utility_of

#: A change of less than this part is not worth a search.
THRESHOLD = 0.10

#: Best and worst configurations remembered per placement.
KEPT = 3

#: Launches from before a change that a search expects from: more would take seconds and say little more.
KNOWN_MAX = 400

#: Exploration of a search with prior knowledge, relative to one without.
KAPPA_PART = 0.1


@dataclass(frozen=True)
class Observation:
    """What a running query was seen to do: means over the last period."""

    accuracy: float
    latency_ms: float
    compute: float
    network: float
    overload: float = 0.0

    def utility(self, query: Query) -> float:
        """What that is worth."""
        numbers = (self.accuracy, self.latency_ms, self.compute, self.network, self.overload, 0.0)
        return float(utility_of(query)(query, Estimates(*(np.full((1, 1), each) for each in numbers)))[0, 0])


@dataclass
class Memory:
    """The most recent results by placement and configuration: whether all was met, and the utility; and the launches."""

    seen: dict[Placement, dict[Configuration, tuple[bool, float]]] = field(default_factory=dict)
    launches: dict[Configuration, Launch] = field(default_factory=dict)

    def learn(self, problem: Problem) -> None:
        """Keeps what a search tried; newer results replace older ones."""
        self.remember(problem.path)
        self.launches.update({configuration: found.launch for configuration, found in problem.cache.items()})

    def remember(self, path: Iterable[Step]) -> None:
        """Keeps the results of a search path, for example of a plan's; newer results replace older ones."""
        for step in path:
            self.seen.setdefault(step.placement, {})[step.configuration] = (step.meets, step.utility)

    def known(self, placement: Placement, kept: int = KEPT) -> list[Configuration]:
        """The best, then the worst configurations of a placement."""
        ranked = ranking(self.seen.get(placement, {}))
        return list(dict.fromkeys([*ranked[:kept], *ranked[::-1][:kept]]))

    def best(self, kept: int = KEPT) -> list[Configuration]:
        """The best configurations over all placements."""
        tops: dict[Configuration, tuple[bool, float]] = {}
        for tried in self.seen.values():
            for configuration, result in tried.items():
                tops[configuration] = max(result, tops.get(configuration, (False, -np.inf)))
        return ranking(tops)[:kept]


def ranking(results: dict[Configuration, tuple[bool, float]]) -> list[Configuration]:
    """Those that meet everything first, then by utility."""
    return sorted(results, key=lambda each: (not results[each][0], -results[each][1], each))


def replan(
    previous: Planned,
    infrastructure: Infrastructure,
    launcher: Launcher,
    memory: Memory,
    searcher: str = "vulcan",
    seed: int = 0,
    options: Options | None = None,
    query: Query | None = None,
) -> Planned:
    """Plans again under new conditions; the order of the filters stays. `memory` learns what the search tried."""
    base = options or Options()
    problem = Problem(
        query or previous.problem.query,
        infrastructure,
        launcher,
        previous.problem.order,
        dataclasses.replace(base, kappa=base.kappa * KAPPA_PART),
    )
    rng = np.random.default_rng(seed)
    try:
        if searcher == "vulcan":
            again_by_placement(problem, memory, rng)
        elif searcher == "isolane":
            again_by_surrogate(problem, memory, rng)
        else:
            raise PlanError(f"searcher {searcher}: only vulcan and isolane edge plan again from prior knowledge")
    except BudgetSpent:
        pass
    if not problem.tried:
        raise PlanError(f"query {problem.query.name}: the budget of {base.budget_s:g} s is too small for one launch")
    memory.learn(problem)
    plan = plan_of(problem, problem.ranked()[0], searcher, seed)
    return Planned(plan, problem, Ordering(problem.order, {}, 0.0))


def again_by_placement(problem: Problem, memory: Memory, rng: np.random.Generator) -> None:
    """Vulcan's search from prior knowledge; a placement without any gets random starts."""
    for index, placement in enumerate(problem.placements):
        first = rows(problem, memory.known(placement))
        optimise(problem, index, optimiser(problem, rng, first))


def again_by_surrogate(problem: Problem, memory: Memory, rng: np.random.Generator) -> None:
    """Our search from prior knowledge."""
    first = rows(problem, memory.best())
    surrogate.Search(problem, rng, first, list(memory.launches.values())).run()


def reprofile(
    previous: Planned, infrastructure: Infrastructure, launcher: Launcher, known: Sequence[Launch], launches_max: int, seed: int = 0
) -> Planned:
    """Plans again from new launches, at most `launches_max`, with `known` ones from before the change as the expectation."""
    query, order = previous.problem.query, previous.problem.order
    problem = Problem(query, infrastructure, launcher, order, Options(launches_max=launches_max))
    ends = [query.most_expensive, tuple(0 for _ in query.knobs)]
    first = rows(problem, list(dict.fromkeys([query.configuration(previous.plan.configuration), *ends])))
    try:
        surrogate.Search(problem, np.random.default_rng(seed), first, known).run()
    except BudgetSpent:
        pass
    if not problem.tried:
        raise PlanError(f"query {query.name}: no launch ended in its time")
    return Planned(plan_of(problem, problem.ranked()[0], "isolane", seed), problem, Ordering(order, {}, 0.0))


class Corrected:
    """A launcher that knows launches from before a change, and corrects them by the few that were made since."""

    def __init__(self, problem: Problem, known: Sequence[Launch]) -> None:
        self._measured = {configuration: found.launch for configuration, found in problem.cache.items()}
        self._problem = problem
        self._expected = surrogate.Surrogate(problem, known)
        self._expected.learn(list(self._measured.values()))

    def launch(self, order: Order, configuration: Configuration) -> Launch:
        """What was measured since, or what is expected."""
        if order != self._problem.order:
            raise PlanError(f"query {self._problem.query.name}: nothing is known of the order {' > '.join(order)} since the change")
        if configuration in self._measured:
            return self._measured[configuration]
        row = self._problem.rows[configuration]
        table = self._expected.predict(self._problem.grid[row : row + 1], 0.0)
        results = {
            name: OperatorResult(
                float(table.processing_ms[0, index]),
                float(table.output_bytes[0, index]),
                float(table.leaves[0, index] / max(table.arrives[0, index], 1e-12)),
                core_ms=float(table.core_ms[0, index]),
                waiting_ms=float(table.waiting_ms[0, index]),
                overlap_ms=float(table.overlap_ms[0, index]),
            )
            for index, name in enumerate(order)
        }
        return Launch(order, configuration, float(table.accuracy[0]), results, 0.0)

    def filters(self, order: Order, configuration: Configuration) -> FilterScore:
        """Nothing is known of filters alone."""
        raise PlanError(f"query {self._problem.query.name}: filters were not scored since the change; keep the order {' > '.join(order)}")


def everything(launcher: Launcher, query: Query, order: Order) -> list[Launch]:
    """What a launcher that looks launches up knows of this order; an evenly spread part where there is much."""
    configurations = query.configurations()
    step = -(-len(configurations) // KNOWN_MAX)
    return [launcher.launch(order, each) for each in configurations[::step]]


def rows(problem: Problem, configurations: Sequence[Configuration]) -> tuple[int, ...]:
    """Their rows; those that the query no longer has are left out."""
    return tuple(problem.rows[each] for each in configurations if each in problem.rows)


def distance(first: Configuration, second: Configuration) -> int:
    """Steps between two configurations, over all knobs (section 4.5.1)."""
    return sum(abs(a - b) for a, b in zip(first, second, strict=True))


def with_link(infrastructure: Infrastructure, name: str, mbit_per_s: float) -> Infrastructure:
    """The infrastructure with another bandwidth of one link."""
    if name not in (link.name for link in infrastructure.links):
        raise PlanError(f"there is no link {name}; there are {', '.join(link.name for link in infrastructure.links)}")
    links = tuple(
        dataclasses.replace(link, mbit_per_s=mbit_per_s) if link.name == name else link for link in infrastructure.links
    )
    return Infrastructure(infrastructure.tiers, links)
