"""What a searcher searches: configurations and placements of one order, with every launch counted and paid for.

Problem: searchers are compared by launches and profiling time, so that both must be counted in one place. Units: seconds of
profiling. Method: `Problem.utilities` launches a configuration once and gives its utility at every placement (reuse, section
4.4.3.1); `Problem.deployed` is what systems without reuse do: each pair of placement and configuration is a launch. All plans
that were evaluated stay comparable: the answer is the best of what was tried, never of what was not.

Limits: a deployed launch is charged like one in the datacenter (on slow tiers it takes longer, which would favour reuse more).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from isolane.planner.bayes import IMPROVEMENT, KAPPA, PATIENCE, STARTS, coordinates
from isolane.planner.estimate import Array, Estimates, Estimator, Table
from isolane.planner.model import (
    Configuration,
    Infrastructure,
    Launch,
    Launcher,
    Order,
    Placement,
    Query,
    Step,
)
from isolane.planner.placement import by_rule
from isolane.planner.utility import Utility, guarded, utility_of


@dataclass(frozen=True)
class Options:
    """Settings of searchers; the defaults are the paper's. `budget_s` ends a search that spent it, `launches_max` one that made so many."""

    starts: int = STARTS
    kappa: float = KAPPA
    patience: int = PATIENCE
    improvement: float = IMPROVEMENT
    prune_count: int = 3
    budget_s: float = float("inf")
    launches_max: int | None = None


class BudgetSpent(Exception):
    """The next launch would exceed the budget."""


@dataclass(frozen=True)
class Evaluated:
    """One launched configuration at all placements."""

    launch: Launch
    estimates: Estimates
    utilities: Array


@dataclass
class Problem:
    """One order of a query's operators on an infrastructure, a launcher, and the account of what was spent."""

    query: Query
    infrastructure: Infrastructure
    launcher: Launcher
    order: Order
    options: Options = field(default_factory=Options)
    spent_s: float = 0.0
    launches: int = 0

    def __post_init__(self) -> None:
        self.estimator = Estimator(self.query, self.order, self.infrastructure)
        self.utility: Utility = utility_of(self.query)
        self.configurations = self.query.configurations()
        self.rows = {configuration: row for row, configuration in enumerate(self.configurations)}
        self.grid = coordinates(tuple(len(knob.values) for knob in self.query.knobs))
        self.cache: dict[Configuration, Evaluated] = {}
        self.path: list[Step] = []
        self.tried: dict[tuple[int, Configuration], float] = {}
        self.worth: list[float] = []

    @property
    def placements(self) -> list[Placement]:
        """All feasible placements; searchers name one by its index."""
        return self.estimator.placements

    def rule(self, name: str) -> int:
        """The index of a rule-based placement."""
        return self.placements.index(by_rule(name, self.query, self.order, self.infrastructure))

    def utilities(self, configuration: Configuration) -> Array:
        """The configuration's utility at every placement; a launch the first time."""
        return self.evaluated(configuration).utilities

    def evaluated(self, configuration: Configuration) -> Evaluated:
        """The launch and its estimates; charged the first time."""
        found = self.cache.get(configuration)
        if found is None:
            if self.launches == self.options.launches_max:
                raise BudgetSpent
            launch = self.launcher.launch(self.order, configuration)
            self.charge(launch.launch_cost_s)
            found = self.cache[configuration] = self.judge(launch)
        return found

    def judge(self, launch: Launch) -> Evaluated:
        """What a launch is worth at every placement."""
        estimates = self.estimator.estimates(Table.of([launch], self.order))
        return Evaluated(launch, estimates, self.utility(self.query, estimates)[:, 0])

    def try_pair(self, placement: int, configuration: Configuration) -> float:
        """Evaluates one pair with reuse, and writes it into the search path."""
        launched = configuration not in self.cache
        evaluated = self.evaluated(configuration)
        return self.note(placement, configuration, evaluated, launched)

    def deployed(self, placement: int, configuration: Configuration) -> float:
        """Evaluates one pair by deploying it: a launch for each new pair."""
        if (placement, configuration) in self.tried:
            return self.tried[placement, configuration]
        found = self.cache.get(configuration)
        if found is None:
            found = self.judge(self.launcher.launch(self.order, configuration))
        self.charge(found.launch.launch_cost_s)
        self.cache[configuration] = found
        return self.note(placement, configuration, found, True)

    def charge(self, cost_s: float) -> None:
        """Counts a launch, or ends the search."""
        if self.spent_s + cost_s > self.options.budget_s:
            raise BudgetSpent
        self.spent_s += cost_s
        self.launches += 1

    def note(self, placement: int, configuration: Configuration, found: Evaluated, launched: bool) -> float:
        """Writes a pair into the search path."""
        value = float(found.utilities[placement])
        if (placement, configuration) not in self.tried:
            self.tried[placement, configuration] = value
            latency = float(found.estimates.latency_ms[placement, 0])
            meets = bool(found.estimates.meets(self.query)[placement, 0])
            step = Step(
                self.placements[placement], configuration, value, found.launch.accuracy, latency, launched, meets
            )
            self.path.append(step)
            missed = guarded(self.query, found.estimates, found.utilities[:, None])
            self.worth.append(float(missed[placement, 0]))
        return value

    def ranked(self) -> list[tuple[int, Configuration]]:
        """Everything that was tried, best first: plans that meet everything by utility, then those that miss least."""
        pairs = list(self.tried)
        meets = np.array([step.meets for step in self.path], dtype=bool)
        values = np.array(self.worth)
        return [pairs[index] for index in np.lexsort((np.arange(len(pairs)), -values, ~meets))]
