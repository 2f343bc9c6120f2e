"""Bayesian optimisation over a grid: Gaussian process with Matern 5/2, upper confidence bound, the paper's stop rule.

Problem: find the best of a few hundred to some ten thousand points of an expensive function in a handful of evaluations, with
milliseconds of overhead per suggestion. Points are rows of coordinates between 0 and 1.

Method: values are standardised; length scales (one per coordinate) and noise come from maximising the marginal likelihood by
coordinate search over a short grid, the previous optimum as its start; the posterior over all candidates is one triangular
solve. The next point has the largest mean + kappa deviation. Ties go to the first. Limits: above `CANDIDATES_MAX` points a
random sample of them is considered per suggestion. Source: Vulcan, section 4.4.4.2 (Matern 5/2, UCB, 3 random starts, stop at
less than 10 % improvement in 5 consecutive runs; kappa / 10 online, section 4.5.1); kappa's value is not in the paper, 2.576 (99 %
of a normal variable) is the default of common libraries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from isolane.planner.estimate import Array

KAPPA = 2.576
STARTS = 3
IMPROVEMENT = 0.10
PATIENCE = 5

#: Candidates whose posterior is computed per suggestion: 2048 keep it below 5 ms.
CANDIDATES_MAX = 2048

#: Length scales tried, relative to the range of a coordinate.
LENGTHS = np.array([0.15, 0.3, 0.6, 1.2, 2.5, 5.0])

#: The length scale that is believed before anything is seen.
USUAL = 0.6

#: Variance added to each observation, of values with variance 1: launches are repeatable to about 1 %.
NOISE = 1e-4


def matern(first: Array, second: Array, lengths: Array) -> Array:
    """The Matern 5/2 covariance of two sets of points."""
    scaled_first, scaled_second = first / lengths, second / lengths
    squared = (
        (scaled_first**2).sum(axis=1)[:, None]
        + (scaled_second**2).sum(axis=1)[None, :]
        - 2.0 * scaled_first @ scaled_second.T
    )
    distance = np.sqrt(5.0 * np.maximum(squared, 0.0))
    result: Array = (1.0 + distance + distance * distance / 3.0) * np.exp(-distance)
    return result


@dataclass
class Posterior:
    """A Gaussian process conditioned on observations; several outputs (columns) share the length scales."""

    points: Array
    lower: Array
    weights: Array
    mean: Array
    scale: Array
    lengths: Array
    #: Which outputs were not constant.
    varies: npt.NDArray[np.bool_]

    def at(self, candidates: Array) -> tuple[Array, Array]:
        """Means (candidates, outputs) and the deviation common to all outputs before scaling (candidates)."""
        cross = matern(candidates, self.points, self.lengths)
        means = cross @ self.weights * self.scale + self.mean
        half = np.linalg.solve(self.lower, cross.T)
        deviation = np.sqrt(np.maximum(1.0 - (half * half).sum(axis=0), 1e-12))
        return means, deviation


def standardised(values: Array) -> tuple[Array, Array, Array, npt.NDArray[np.bool_]]:
    """Values with mean 0 and deviation 1 per column, means, deviations (1 for a constant column), and which vary."""
    mean = values.mean(axis=0)
    scale = values.std(axis=0)
    varies: npt.NDArray[np.bool_] = scale > 1e-12 * (1.0 + np.abs(mean))
    scale = np.where(varies, scale, 1.0)
    return np.where(varies, (values - mean) / scale, 0.0), mean, scale, varies


def likelihoods(squares: Array, targets: Array, inverses: Array, columns: Array) -> Array:
    """The logarithm of the likelihood of several processes (batch), up to a constant.

    `squares` are the squared differences of the points per coordinate: (coordinates, points, points); `inverses` one over the
    squared length scales: (batch, coordinates), 0 where a process does not see a coordinate; `targets` (batch, points, outputs), of
    which each process has so many `columns`, and zeros behind them.
    """
    count = squares.shape[1]
    distance = np.sqrt(5.0 * np.einsum("bd,dnm->bnm", inverses, squares))
    covariance = (1.0 + distance + distance * distance / 3.0) * np.exp(-distance) + NOISE * np.eye(count)
    lower = np.linalg.cholesky(covariance)
    half = np.linalg.solve(lower, targets)
    fits = -0.5 * (half * half).sum(axis=(1, 2))
    result: Array = fits - columns * np.log(np.diagonal(lower, axis1=1, axis2=2)).sum(axis=1)
    return result


def first_best(values: Array) -> int:
    """The index of the largest value; what differs in the tenth decimal is equal, and the first of equals wins.

    Sums round differently on different processors, and a search must not.
    """
    return int(np.argmax(np.round(values, 9)))


@dataclass(frozen=True)
class Group:
    """Outputs (points, outputs) that share length scales, and the coordinates (indices) that they depend on.

    `start` are the length scales that the search for better ones begins with.
    """

    values: Array
    axes: tuple[int, ...]
    start: Array | None = None


def fit(points: Array, values: Array, start: Array | None = None) -> Posterior:
    """The process with the best length scales; values are (points, outputs)."""
    return fit_all(points, [Group(values, tuple(range(points.shape[1])), start)])[0]


def fit_all(points: Array, groups: Sequence[Group]) -> list[Posterior]:
    """The process of each group; all their length scales are searched at once, as single calls cost more than their arithmetic."""
    known = [standardised(group.values) for group in groups]
    # A constant says nothing about length scales.
    targets = [every[:, varies] if varies.any() else every for every, _, _, varies in known]
    columns = np.array([each.shape[1] for each in targets])
    padded = np.zeros((len(groups), len(points), int(columns.max())))
    for row, each in zip(padded, targets, strict=True):
        row[:, : each.shape[1]] = each
    sees = np.zeros((len(groups), points.shape[1]), dtype=bool)
    lengths = np.full(sees.shape, USUAL)
    for index, group in enumerate(groups):
        axes = list(group.axes)
        sees[index, axes] = True
        if group.start is not None:
            lengths[index, axes] = group.start
    difference = points.T[:, :, None] - points.T[:, None, :]
    squares = difference * difference
    options = 1 + len(LENGTHS)
    for axis in range(points.shape[1]):
        own = np.flatnonzero(sees[:, axis])
        if not len(own):
            continue
        # (groups, options, coordinates); the first of equals is the one in force.
        tried = np.repeat(lengths[own][:, None, :], options, axis=1)
        tried[:, 1:, axis] = LENGTHS
        inverses = np.where(sees[own][:, None, :], tried**-2.0, 0.0).reshape(-1, points.shape[1])
        shared = np.repeat(padded[own], options, axis=0)
        found = likelihoods(squares, shared, inverses, np.repeat(columns[own], options)).reshape(len(own), options)
        # A weak belief in length scales near half the range: with five points the likelihood alone says anything.
        found -= 0.5 * np.where(sees[own][:, None, :], np.log(tried / USUAL) ** 2, 0.0).sum(axis=2)
        for place, member in enumerate(own.tolist()):
            lengths[member] = tried[place, first_best(found[place])]
    result = []
    for index, (group, (every, mean, scale, varies)) in enumerate(zip(groups, known, strict=True)):
        axes = list(group.axes)
        seen, own_lengths = points[:, axes], lengths[index, axes]
        covariance = matern(seen, seen, own_lengths) + NOISE * np.eye(len(points))
        lower = np.asarray(np.linalg.cholesky(covariance), dtype=np.float64)
        weights = np.asarray(np.linalg.solve(lower.T, np.linalg.solve(lower, every)), dtype=np.float64)
        result.append(Posterior(seen, lower, weights, mean, scale, own_lengths, varies))
    return result


class Optimiser:
    """Suggests indices of rows of `grid`, never one twice, and says when to stop."""

    def __init__(
        self,
        grid: Array,
        rng: np.random.Generator,
        kappa: float = KAPPA,
        starts: int = STARTS,
        patience: int = PATIENCE,
        improvement: float = IMPROVEMENT,
        first: tuple[int, ...] = (),
    ) -> None:
        """`first` are tried in place of the random starts (prior knowledge, section 4.5.1)."""
        self.grid = grid
        self.rng = rng
        self.kappa = kappa
        self.patience = patience
        self.improvement = improvement
        count = min(starts, len(grid))
        drawn = [int(each) for each in rng.choice(len(grid), count, replace=False)]
        self.queue = list(dict.fromkeys(first)) or drawn
        self.starts = len(self.queue)
        self.seen: list[int] = []
        self.values: list[float] = []
        self.stalled = 0
        self.lengths: Array | None = None

    @property
    def best(self) -> float:
        """The largest value so far."""
        return max(self.values, default=-np.inf)

    def done(self) -> bool:
        """Whether the stop rule holds or nothing is left to try."""
        return (not self.queue and self.stalled >= self.patience) or len(self.seen) == len(self.grid)

    def suggest(self) -> int:
        """The next row to evaluate."""
        if self.queue:
            return self.queue.pop(0)
        left = self.candidates()
        values = np.array(self.values)[:, None]
        posterior = fit(self.grid[self.seen], values, self.lengths)
        self.lengths = posterior.lengths
        means, deviation = posterior.at(self.grid[left])
        bound = means[:, 0] + self.kappa * deviation * posterior.scale[0]
        return int(left[first_best(bound)])

    def candidates(self) -> npt.NDArray[np.int64]:
        """Rows not yet tried, or a sample of them."""
        free = np.ones(len(self.grid), dtype=bool)
        free[self.seen] = False
        left = np.flatnonzero(free)
        if len(left) > CANDIDATES_MAX:
            left = np.sort(self.rng.choice(left, CANDIDATES_MAX, replace=False))
        return left

    def tell(self, row: int, value: float) -> None:
        """The value of a row; after the starts, one that improves by too little counts towards the stop."""
        enough = self.best + self.improvement * abs(self.best)
        if len(self.seen) >= self.starts:
            self.stalled = 0 if value > enough else self.stalled + 1
        self.seen.append(row)
        self.values.append(value)


def coordinates(sizes: tuple[int, ...]) -> Array:
    """The grid of all configurations in their order; a knob's values are spread evenly over 0 to 1."""
    axes = [np.linspace(0.0, 1.0, size) if size > 1 else np.zeros(1) for size in sizes]
    if not axes:
        return np.zeros((1, 1))
    mesh = np.meshgrid(*axes, indexing="ij")
    return np.stack([each.ravel() for each in mesh], axis=1)
