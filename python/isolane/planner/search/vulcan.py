"""Vulcan's own search: Bayesian optimisation of the configuration for each placement, reuse, early pruning (algorithm 3).

Problem: the best pair of placement and configuration with few launches. Method: 3 random starts are drawn once for the query.
For every placement in turn an optimiser of its own (the same starts, stop rule) proposes configurations; one that was launched
before, for any placement, costs nothing. A placement with 3 utilities at or below that of the bare objectives (0) is given up.
What was seen at a placement before it was given up still counts. Limits: the bound on launches is the number of configurations.
Source: Vulcan, sections 4.4.3 and 4.4.4. The pseudo code counts bad utilities in all, not in a row; so do we.
"""

from __future__ import annotations

import numpy as np

from isolane.planner.bayes import Optimiser
from isolane.planner.search.problem import Problem

#: The utility of a plan that just reaches both objectives.
THRESHOLD = 0.0


def vulcan(problem: Problem, rng: np.random.Generator) -> None:
    """All placements, one after the other."""
    first = starts(problem, rng)
    for placement in range(len(problem.placements)):
        optimise(problem, placement, optimiser(problem, rng, first))


def starts(problem: Problem, rng: np.random.Generator) -> tuple[int, ...]:
    """The random configurations that the search begins with, at every placement: launched once."""
    count = min(problem.options.starts, len(problem.grid))
    return tuple(int(row) for row in rng.choice(len(problem.grid), count, replace=False))


def configure(problem: Problem, rng: np.random.Generator, placement: int) -> None:
    """The configuration alone, for one placement (section 4.6.3)."""
    optimise(problem, placement, optimiser(problem, rng), prune=False)


def optimiser(problem: Problem, rng: np.random.Generator, first: tuple[int, ...] = ()) -> Optimiser:
    """An optimiser over the problem's configurations with its options."""
    options = problem.options
    return Optimiser(
        problem.grid, rng, options.kappa, options.starts, options.patience, options.improvement, first
    )


def optimise(problem: Problem, placement: int, engine: Optimiser, prune: bool = True) -> None:
    """Runs the optimiser to its stop, or until the placement is given up."""
    bad = 0
    while not engine.done():
        row = engine.suggest()
        value = problem.try_pair(placement, problem.configurations[row])
        engine.tell(row, value)
        if value <= THRESHOLD:
            bad += 1
            if prune and bad >= problem.options.prune_count:
                return
