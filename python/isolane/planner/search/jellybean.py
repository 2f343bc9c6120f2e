"""JellyBean: the cheapest models that are accurate enough first, then a beam search over tiers.

Problem: a baseline that decides about configuration and placement one after the other. Method: all configurations are
profiled, in random order; the one with the least compute that reaches the accuracy is taken (the most accurate, if none does).
Operators are then placed one by one; of all partial placements the `BEAM` cheapest in weighted compute and network are kept.
Of the last beam, the placement with the highest utility is the answer. Limits: latency plays no part before that last step,
as JellyBean's own objective is the cost of serving at a given throughput; overloaded tiers and links are dropped.
Source: JellyBean (VLDB 2022) by its description; Vulcan, sections 4.6.1 and 4.6.4.
"""

from __future__ import annotations

import numpy as np

from isolane.planner.model import Configuration, Placement
from isolane.planner.search.fixed import accuracy, work_ms
from isolane.planner.search.problem import BudgetSpent, Problem

#: Partial placements kept at each step.
BEAM = 3


def jellybean(problem: Problem, rng: np.random.Generator) -> tuple[int, Configuration] | None:
    """Configuration, then placement."""
    launched = []
    try:
        for row in rng.permutation(len(problem.configurations)):
            problem.evaluated(problem.configurations[row])
            launched.append(problem.configurations[row])
    except BudgetSpent:
        pass
    if not launched:
        return None
    enough = [each for each in launched if accuracy(problem, each) >= problem.query.accuracy_min]
    if enough:
        chosen = min(enough, key=lambda each: work_ms(problem, each))
    else:
        chosen = max(launched, key=lambda each: accuracy(problem, each))
    beams = beam_search(problem, chosen)
    for placement in beams:
        problem.try_pair(placement, chosen)
    return max(beams, key=lambda placement: problem.tried[placement, chosen]), chosen


def beam_search(problem: Problem, configuration: Configuration) -> list[int]:
    """The indices of the last beam's placements, the cheapest first."""
    prefixes: list[Placement] = [(0,)]
    costs = PartialCosts(problem, configuration)
    for length in range(2, len(problem.order) + 1):
        grown = sorted({each[:length] for each in problem.placements if each[: length - 1] in prefixes})
        grown.sort(key=costs)
        prefixes = grown[:BEAM]
    return [problem.placements.index(each) for each in prefixes]


class PartialCosts:
    """The weighted resources of the operators placed so far; the last output is not sent yet."""

    def __init__(self, problem: Problem, configuration: Configuration) -> None:
        self.problem = problem
        launch = problem.evaluated(configuration).launch
        reach = 1.0
        self.work: list[float] = []
        self.sent: list[float] = []
        for name in problem.order:
            result = launch.operators[name]
            self.work.append(reach * result.processing_ms)
            reach *= result.pass_rate
            self.sent.append(reach * result.output_bytes)

    def __call__(self, prefix: Placement) -> tuple[bool, float]:
        """Whether something is overloaded, and the cost."""
        estimator, query = self.problem.estimator, self.problem.query
        # Any placement with this prefix has the same coefficients for it, the last transfer aside.
        index = next(i for i, each in enumerate(self.problem.placements) if each[: len(prefix)] == prefix)
        length = len(prefix)
        work = np.array(self.work[:length])
        sent = np.array(self.sent[: length - 1])
        share = (estimator.gpu_share + estimator.core_share)[:, index, :length]
        links = (estimator.crosses[:, index, : length - 1] @ sent) * estimator.link_share
        compute = float(((share * estimator.counted[:length]) @ work).sum())
        full = bool((share @ work > 1.0).any() or (links > 1.0).any())
        return full, query.alpha_compute * compute + query.alpha_network * float(links.sum())
