"""Exhaustive search, over everything or over one rule-based placement.

Problem: the optimum, and what it costs without any idea. Method: every pair is deployed (a launch each), as the paper counts
it; the arithmetic is done for all pairs at once. Limits: of more than `NOTED_MAX` pairs only the best are kept for the search
path. Source: Vulcan, section 4.6.1.
"""

from __future__ import annotations

import numpy as np

from isolane.planner.estimate import Table
from isolane.planner.search.problem import Evaluated, Problem

#: Pairs that are kept; drawings and rankings need no more.
NOTED_MAX = 20_000


def exhaustive(problem: Problem, rng: np.random.Generator) -> None:
    """Every placement with every configuration."""
    every(problem, rng, list(range(len(problem.placements))))


def pn(problem: Problem, rng: np.random.Generator) -> None:
    """Network first: everything as near to the source as it can be, with its best configuration."""
    every(problem, rng, [problem.rule("pn")])


def pc(problem: Problem, rng: np.random.Generator) -> None:
    """Compute first: everything as near to the cloud as it can be, with its best configuration."""
    every(problem, rng, [problem.rule("pc")])


def nc(problem: Problem, rng: np.random.Generator) -> None:
    """A balance: filters near the source, the rest near the cloud, with their best configuration."""
    every(problem, rng, [problem.rule("nc")])


def every(problem: Problem, rng: np.random.Generator, placements: list[int]) -> None:
    """All configurations at these placements; with a budget, a random part of them."""
    configurations = problem.configurations
    if np.isfinite(problem.options.budget_s):
        pairs = [(placement, each) for placement in placements for each in configurations]
        for index in rng.permutation(len(pairs)):
            problem.deployed(*pairs[index])
        return
    launches = [problem.launcher.launch(problem.order, each) for each in configurations]
    for launch in launches:
        problem.spent_s += len(placements) * launch.launch_cost_s
    problem.launches += len(placements) * len(launches)
    estimates = problem.estimator.estimates(Table.of(launches, problem.order))
    utilities = problem.utility(problem.query, estimates)
    meets = estimates.meets(problem.query)
    part = np.array(placements)
    order = np.lexsort((-utilities[part].ravel(), ~meets[part].ravel()))[:NOTED_MAX]
    kept = np.sort(order) if len(order) < NOTED_MAX else order
    for flat in kept:
        placement, row = int(part[flat // len(launches)]), int(flat % len(launches))
        if configurations[row] not in problem.cache:
            problem.cache[configurations[row]] = Evaluated(
                launches[row], estimates.column(row), utilities[:, row]
            )
        problem.note(placement, configurations[row], problem.cache[configurations[row]], True)

