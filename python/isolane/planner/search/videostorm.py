"""VideoStorm's greedy hill climbing, at every placement or at the three rule-based ones (VideoStorm+).

Problem: a baseline that explores configurations one knob at a time. Method: of 3 random configurations the cheapest in
resources is the start; a random knob gets another value; a better neighbour becomes the centre; when no neighbour is better,
the climb ends. Climbs repeat until one improves by no more than the stop rule's threshold. Results of one placement are
not reused for another: each pair is a launch; within one placement they are cached.

Limits: the papers leave the number of climbs open; ours is bounded by `CLIMBS_MAX`. Source: VideoStorm (NSDI 2017), section on
its profiler; Vulcan, section 4.6.1.
"""

from __future__ import annotations

import numpy as np

from isolane.planner.model import Configuration
from isolane.planner.placement import RULES
from isolane.planner.search.problem import Problem

#: Random configurations from which the cheapest is the start of a climb.
STARTS = 3

#: Climbs per placement at most.
CLIMBS_MAX = 3


def videostorm(problem: Problem, rng: np.random.Generator) -> None:
    """Hill climbing at every placement."""
    for placement in range(len(problem.placements)):
        climbs(problem, rng, placement)


def videostorm_plus(problem: Problem, rng: np.random.Generator) -> None:
    """Hill climbing at the placements of PN, PC and NC alone."""
    for placement in dict.fromkeys(problem.rule(rule) for rule in RULES):
        climbs(problem, rng, placement)


def configure(problem: Problem, rng: np.random.Generator, placement: int) -> None:
    """The configuration alone, for one placement."""
    climbs(problem, rng, placement)


def climbs(problem: Problem, rng: np.random.Generator, placement: int) -> None:
    """Climbs from random starts until one improves too little."""
    best = -np.inf
    for _ in range(CLIMBS_MAX):
        top = climb(problem, rng, placement)
        if top <= best + problem.options.improvement * abs(best):
            return
        best = top


def climb(problem: Problem, rng: np.random.Generator, placement: int) -> float:
    """One climb; the utility of its top."""
    count = min(STARTS, len(problem.configurations))
    drawn = [problem.configurations[row] for row in rng.choice(len(problem.configurations), count, replace=False)]
    values = {each: problem.deployed(placement, each) for each in drawn}
    centre = min(drawn, key=lambda each: resources(problem, placement, each))
    value = values[centre]
    while True:
        better = None
        around = neighbours(problem, centre)
        for index in rng.permutation(len(around)):
            found = problem.deployed(placement, around[index])
            if found > value:
                better = (around[index], found)
                break
        if better is None:
            return value
        centre, value = better


def resources(problem: Problem, placement: int, configuration: Configuration) -> float:
    """What a launched pair uses, as the utility weighs it."""
    estimates = problem.cache[configuration].estimates
    query = problem.query
    compute, network = estimates.compute[placement, 0], estimates.network[placement, 0]
    return float(query.alpha_compute * compute + query.alpha_network * network)


def neighbours(problem: Problem, centre: Configuration) -> list[Configuration]:
    """All configurations that differ in one knob by one step."""
    result = []
    for position, knob in enumerate(problem.query.knobs):
        for index in (centre[position] - 1, centre[position] + 1):
            if 0 <= index < len(knob.values):
                result.append((*centre[:position], index, *centre[position + 1 :]))
    return result
