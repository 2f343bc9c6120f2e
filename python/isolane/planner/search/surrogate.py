"""Our own search: learn what a launch measures, not what it is worth, so that one launch informs every placement.

Problem: the same utility as Vulcan's search with at most half of its launches. Vulcan learns a utility per placement, and
starts again at the next one.

Method: accuracy and, per operator, time, bytes and pass rate are what a launch measures, and none depends on placement. Each
group is learnt by a Gaussian process (times and bytes by their logarithms; an operator's numbers from the knobs of the
operators up to it alone), and equation 4.5 turns what is predicted into utilities of all placements at once. A candidate is
worth the best utility over placements (a plan that misses something counts by what it misses) if everything in it came out
`KAPPA` deviations better than predicted; the best candidate is launched next. The search ends when even that optimism promises
less than `WORTH` over the best plan found, or when `PATIENCE` times the option's launches in a row improved nothing. The starts
are spread evenly over each knob's range (a Latin hypercube). After a change, what was learnt before is the expectation, and only
the difference to it is learnt: where nothing but a link changed, that is nothing.

Limits: deviations of groups are taken as independent and all as favourable, which explores too much rather than too little;
above `CANDIDATES_MAX` configurations a random sample is considered per launch. Source: our own; the pieces are standard.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from isolane.planner.bayes import CANDIDATES_MAX, Group, Posterior, first_best, fit_all
from isolane.planner.estimate import Array, Table
from isolane.planner.model import Launch
from isolane.planner.search.problem import Problem
from isolane.planner.utility import guarded

#: Starts beyond those of the option (Vulcan's 3 per placement), as they serve all placements.
MORE_STARTS = 1

#: Deviations of optimism.
KAPPA = 1.5

#: A promised improvement below this part of the best utility is not worth a launch.
WORTH = 0.01

#: Patience relative to the option, which is meant for searches of one placement: optimism is disproved one launch at a time.
PATIENCE = 3

#: Placements of each launched configuration that enter the search path.
NOTED = 3

#: Added before logarithms: a microsecond or a byte, nothing that matters.
TINY = {"processing_ms": 1e-3, "output_bytes": 1.0, "pass_rate": 1e-6, "core_ms": 0.1, "waiting_ms": 0.1, "overlap_ms": 0.1}


class Surrogate:
    """Predicts tables of launches from those seen, and from those seen before a change (`before`)."""

    def __init__(self, problem: Problem, before: Sequence[Launch] = ()) -> None:
        self.problem = problem
        self.order = problem.order
        knobs = problem.query.knobs
        self.axes: list[list[int]] = []
        for position in range(len(self.order)):
            upstream = self.order[: position + 1]
            self.axes.append([axis for axis, knob in enumerate(knobs) if knob.operator in upstream])
        self.lengths: dict[int, Array] = {}
        self.models: dict[int, Posterior | None] = {}
        self.constant: dict[int, Array] = {}
        self.earlier: Surrogate | None = None
        known = [launch for launch in before if launch.configuration in problem.rows and launch.order == self.order]
        if known:
            self.earlier = Surrogate(problem)
            self.earlier.learn(known)

    def learn(self, launches: Sequence[Launch]) -> None:
        """Fits everything to these launches."""
        points = self.problem.grid[[self.problem.rows[launch.configuration] for launch in launches]]
        values = {-1: np.array([[launch.accuracy] for launch in launches])}
        for position, name in enumerate(self.order):
            own = [launch.operators[name] for launch in launches]
            rows = [tuple(getattr(one, name) + tiny for name, tiny in TINY.items()) for one in own]
            values[position] = np.log(np.array(rows))
        groups = {}
        for group, found in values.items():
            axes = self.axes_of(group)
            if self.earlier is not None:
                found = found - self.earlier.group(group, points[:, axes])[0]
            self.constant[group] = found.mean(axis=0)
            # A constant group needs no process.
            self.models[group] = None
            if axes and (found.max(axis=0) - found.min(axis=0)).max() >= 1e-9:
                groups[group] = Group(found, tuple(axes), self.lengths.get(group))
        if groups:
            for group, model in zip(groups, fit_all(points, list(groups.values())), strict=True):
                self.models[group] = model
                self.lengths[group] = model.lengths

    def axes_of(self, group: int) -> list[int]:
        """The knobs that a group depends on: all for the accuracy (-1)."""
        return list(range(self.problem.grid.shape[1])) if group < 0 else self.axes[group]

    def predict(self, candidates: Array, optimism: float) -> Table:
        """The table of these points with everything `optimism` deviations better than expected."""
        count = len(candidates)
        columns = {name: np.empty((count, len(self.order))) for name in TINY}
        for position in range(len(self.order)):
            mean, deviation = self.group(position, candidates[:, self.axes[position]])
            better = np.exp(mean - optimism * deviation)
            for (name, tiny), values in zip(TINY.items(), better.T, strict=True):
                columns[name][:, position] = np.maximum(values - tiny, 0.0)
        mean, deviation = self.group(-1, candidates)
        accuracy = np.clip(mean[:, 0] + optimism * deviation[:, 0], 0.0, 1.0)
        return Table.from_arrays(accuracy, **columns)

    def group(self, group: int, candidates: Array) -> tuple[Array, Array]:
        """Means and deviations of a group's columns."""
        model = self.models[group]
        if model is None:
            mean = np.tile(self.constant[group], (len(candidates), 1))
            spread = np.zeros_like(mean)
        else:
            mean, deviation = model.at(candidates)
            spread = deviation[:, None] * np.where(model.varies, model.scale, 0.0)
        if self.earlier is None:
            return mean, spread
        expected, unsure = self.earlier.group(group, candidates)
        return mean + expected, np.sqrt(spread * spread + unsure * unsure)


def isolane(problem: Problem, rng: np.random.Generator) -> None:
    """Launches configurations until nothing promises more."""
    Search(problem, rng).run()


class Search:
    """The state of one search; `first` rows are launched before anything else, `before` are launches before a change."""

    def __init__(
        self, problem: Problem, rng: np.random.Generator, first: tuple[int, ...] = (), before: Sequence[Launch] = ()
    ) -> None:
        self.problem = problem
        self.rng = rng
        self.queue = list(first) or hypercube(problem, rng)
        self.starts = len(self.queue)
        self.seen: list[int] = []
        self.best = -np.inf
        self.stalled = 0
        self.surrogate = Surrogate(problem, before)

    def run(self) -> None:
        """Suggests and launches until the end."""
        while (row := self.suggest()) is not None:
            self.tell(row)

    def tell(self, row: int) -> None:
        """Launches a configuration and keeps its best placement."""
        configuration = self.problem.configurations[row]
        # The launch is what counts: every placement is evaluated, the best few enter the search path.
        launched = configuration not in self.problem.cache
        found = self.problem.evaluated(configuration)
        worth = guarded(self.problem.query, found.estimates, found.utilities[:, None])[:, 0]
        for index, placement in enumerate(np.argsort(-worth, kind="stable")[:NOTED]):
            self.problem.note(int(placement), configuration, found, launched and index == 0)
        self.seen.append(row)
        value = float(worth.max())
        if len(self.seen) > self.starts:
            self.stalled = 0 if value > self.best + WORTH * abs(self.best) else self.stalled + 1
        self.best = max(self.best, value)

    def suggest(self) -> int | None:
        """The next configuration, or none."""
        if self.queue:
            return self.queue.pop(0)
        free = np.ones(len(self.problem.grid), dtype=bool)
        free[self.seen] = False
        left = np.flatnonzero(free)
        if not len(left) or self.stalled >= PATIENCE * self.problem.options.patience:
            return None
        if len(left) > CANDIDATES_MAX:
            left = np.sort(self.rng.choice(left, CANDIDATES_MAX, replace=False))
        cache = self.problem.cache
        self.surrogate.learn([cache[self.problem.configurations[row]].launch for row in self.seen])
        worth = self.promise(self.problem.grid[left], KAPPA)
        chosen = first_best(worth)
        if worth[chosen] <= self.best + WORTH * abs(self.best):
            return None
        return int(left[chosen])

    def promise(self, candidates: Array, optimism: float) -> Array:
        """The best utility over placements that each candidate promises."""
        problem = self.problem
        estimates = problem.estimator.estimates(self.surrogate.predict(candidates, optimism))
        values = problem.utility(problem.query, estimates)
        result: Array = guarded(problem.query, estimates, values).max(axis=0)
        return result


def hypercube(problem: Problem, rng: np.random.Generator) -> list[int]:
    """Starts that are spread evenly over every knob; never one twice."""
    sizes = [len(knob.values) for knob in problem.query.knobs]
    count = min(problem.options.starts + MORE_STARTS, len(problem.configurations))
    strata = np.stack([rng.permutation(count) for _ in sizes], axis=1) if sizes else np.zeros((count, 0), dtype=int)
    rows: list[int] = []
    for stratum in strata:
        index = tuple(int((each + 0.5) / count * size) for each, size in zip(stratum, sizes, strict=True))
        row = problem.rows[index]
        if row not in rows:
            rows.append(row)
    return rows
