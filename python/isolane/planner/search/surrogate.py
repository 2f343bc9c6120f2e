"""Our own search: learn what a launch measures, not what it is worth, so that one launch informs every placement.

Problem: the same utility as Vulcan's search with at most half of its launches. Vulcan learns a utility per placement, and
starts again at the next one.

Method: accuracy and, per operator, time, bytes and pass rate are what a launch measures, and none depends on placement. Each
group is learnt by a Gaussian process (times and bytes by their logarithms; an operator's numbers from the knobs of the
operators up to it alone), and equation 4.5 turns what is predicted into utilities of all placements at once. A candidate is worth the
best utility over placements if everything in it came out `KAPPA` deviations better than predicted; the best candidate is
launched next. The search ends when even that optimism promises less than `WORTH` over the best plan found, or when
`PATIENCE` times the option's launches in a row improved nothing. The starts are spread evenly over each knob's range (a Latin hypercube).

Limits: deviations of groups are taken as independent and all as favourable, which explores too much rather than too little;
above `CANDIDATES_MAX` configurations a random sample is considered per launch. Source: our own; the pieces are standard.
"""

from __future__ import annotations

import numpy as np

from isolane.planner.bayes import CANDIDATES_MAX, Posterior, fit
from isolane.planner.estimate import Array, Table
from isolane.planner.search.problem import Problem

#: Starts: one more than Vulcan's, as they serve all placements.
STARTS = 4

#: Deviations of optimism.
KAPPA = 1.0

#: A promised improvement below this part of the best utility is not worth a launch.
WORTH = 0.01

#: Patience relative to the option, which is meant for searches of one placement: optimism is disproved one launch at a time.
PATIENCE = 2

#: Placements of each launched configuration that enter the search path.
NOTED = 3

#: Added before logarithms: a microsecond or a byte, nothing that matters.
TINY_MS, TINY_BYTES, TINY_RATE = 1e-3, 1.0, 1e-6


class Surrogate:
    """Predicts tables of launches from those seen."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.order = problem.order
        knobs = problem.query.knobs
        self.axes: list[list[int]] = []
        for position in range(len(self.order)):
            before = self.order[: position + 1]
            self.axes.append([axis for axis, knob in enumerate(knobs) if knob.operator in before])
        self.lengths: dict[int, Array] = {}
        self.models: dict[int, Posterior | None] = {}
        self.constant: dict[int, Array] = {}

    def learn(self, rows: list[int]) -> None:
        """Fits everything to the launches of these configurations."""
        problem = self.problem
        launches = [problem.cache[problem.configurations[row]].launch for row in rows]
        points = problem.grid[rows]
        accuracy = np.array([[launch.accuracy] for launch in launches])
        self.learn_group(-1, points, accuracy)
        for position, name in enumerate(self.order):
            own = [launch.operators[name] for launch in launches]
            values = np.log(
                np.array(
                    [
                        (each.processing_ms + TINY_MS, each.output_bytes + TINY_BYTES, each.pass_rate + TINY_RATE)
                        for each in own
                    ]
                )
            )
            self.learn_group(position, points[:, self.axes[position]], values)

    def learn_group(self, group: int, points: Array, values: Array) -> None:
        """One process for the columns of a group; a constant group needs none."""
        self.constant[group] = values.mean(axis=0)
        if points.shape[1] == 0 or np.ptp(values, axis=0).max() < 1e-9:
            self.models[group] = None
            return
        model = fit(points, values, self.lengths.get(group))
        self.lengths[group] = model.lengths
        self.models[group] = model

    def predict(self, candidates: Array, optimism: float) -> Table:
        """The table of these points with everything `optimism` deviations better than expected."""
        count = len(candidates)
        columns = [np.empty((count, len(self.order))) for _ in range(3)]
        for position in range(len(self.order)):
            mean, deviation = self.group(position, candidates[:, self.axes[position]])
            better = np.exp(mean - optimism * deviation)
            for column, tiny, values in zip(columns, (TINY_MS, TINY_BYTES, TINY_RATE), better.T, strict=True):
                column[:, position] = np.maximum(values - tiny, 0.0)
        mean, deviation = self.group(-1, candidates)
        accuracy = np.clip(mean[:, 0] + optimism * deviation[:, 0], 0.0, 1.0)
        times, sizes, passes = columns
        return Table.from_arrays(accuracy, times, times, sizes, sizes, passes)

    def group(self, group: int, candidates: Array) -> tuple[Array, Array]:
        """Means and deviations of a group's columns."""
        model = self.models[group]
        if model is None:
            mean = np.tile(self.constant[group], (len(candidates), 1))
            return mean, np.zeros_like(mean)
        mean, deviation = model.at(candidates)
        return mean, deviation[:, None] * np.where(model.varies, model.scale, 0.0)


def isolane(problem: Problem, rng: np.random.Generator) -> None:
    """Launches configurations until nothing promises more."""
    Search(problem, rng).run()


class Search:
    """The state of one search; `first` rows are launched before anything else."""

    def __init__(
        self, problem: Problem, rng: np.random.Generator, first: tuple[int, ...] = (), kappa: float = KAPPA
    ) -> None:
        self.problem = problem
        self.rng = rng
        self.kappa = kappa
        self.queue = list(first) or hypercube(problem, rng)
        self.starts = len(self.queue)
        self.seen: list[int] = []
        self.best = -np.inf
        self.stalled = 0
        self.surrogate = Surrogate(problem)

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
        for index, placement in enumerate(np.argsort(-found.utilities, kind="stable")[:NOTED]):
            self.problem.note(int(placement), configuration, found, launched and index == 0)
        self.seen.append(row)
        value = float(found.utilities.max())
        if len(self.seen) > self.starts:
            self.stalled = 0 if value > self.best + WORTH * abs(self.best) else self.stalled + 1
        self.best = max(self.best, value)

    def suggest(self) -> int | None:
        """The next configuration, or none."""
        if self.queue:
            return self.queue.pop(0)
        left = np.setdiff1d(np.arange(len(self.problem.grid)), self.seen)
        if not len(left) or self.stalled >= PATIENCE * self.problem.options.patience:
            return None
        if len(left) > CANDIDATES_MAX:
            left = np.sort(self.rng.choice(left, CANDIDATES_MAX, replace=False))
        self.surrogate.learn(self.seen)
        worth = self.promise(self.problem.grid[left], self.kappa)
        chosen = int(np.argmax(worth))
        if worth[chosen] <= self.best + WORTH * abs(self.best):
            return None
        return int(left[chosen])

    def promise(self, candidates: Array, optimism: float) -> Array:
        """The best utility over placements that each candidate promises."""
        problem = self.problem
        estimates = problem.estimator.estimates(self.surrogate.predict(candidates, optimism))
        result: Array = problem.utility(problem.query, estimates).max(axis=0)
        return result


def hypercube(problem: Problem, rng: np.random.Generator) -> list[int]:
    """Starts that are spread evenly over every knob; never one twice."""
    sizes = [len(knob.values) for knob in problem.query.knobs]
    count = min(STARTS, len(problem.configurations))
    strata = np.stack([rng.permutation(count) for _ in sizes], axis=1) if sizes else np.zeros((count, 0), dtype=int)
    rows: list[int] = []
    for stratum in strata:
        index = tuple(int((each + 0.5) / count * size) for each, size in zip(stratum, sizes, strict=True))
        row = problem.rows[index]
        if row not in rows:
            rows.append(row)
    return rows
