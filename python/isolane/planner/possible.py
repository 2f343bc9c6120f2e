"""What is possible at all, for a query whose objectives nobody met.

Problem: "it does not fit" helps nobody; the best accuracy within the latency, and the best latency at the accuracy, do, with
the settings that give them. Method: all pairs, from the profile where there is one (which costs nothing), else from what was
launched. Limits: with live launches this is what was seen, and says so. Source: our own.
"""

from __future__ import annotations

import numpy as np

from isolane.planner.estimate import Array, Estimates, Table
from isolane.planner.model import Configuration
from isolane.planner.profiles import Replay
from isolane.planner.search.problem import Problem


def best_possible(problem: Problem) -> str:
    """A sentence: another searcher would find a plan, or what the objectives would have to be."""
    replay = isinstance(problem.launcher, Replay)
    configurations = problem.configurations if replay else list(problem.cache)
    launches = [problem.launcher.launch(problem.order, each) for each in configurations]
    estimates = problem.estimator.estimates(Table.of(launches, problem.order))
    meets = estimates.meets(problem.query)
    known = "" if replay else " of what was launched"
    if meets.any():
        count = int(meets.any(axis=0).sum())
        return f"{count} of {len(configurations)} configurations can meet everything{known}: try --searcher exhaustive"
    query = problem.query
    fits = estimates.fits(query)
    if not fits.any():
        return f"no placement has the capacity at the price{known}: give tiers or links more, or lower rate_items_per_s"
    accuracy = np.broadcast_to(estimates.accuracy, fits.shape)
    fast = fits & (estimates.latency_ms <= query.latency_max_ms)
    good = fits & (accuracy >= query.accuracy_min)
    parts = []
    if fast.any():
        pair = pick(np.where(fast, accuracy, -np.inf), -estimates.latency_ms)
        parts.append(f"within {query.latency_max_ms:g} ms the best accuracy is {say(problem, configurations, estimates, pair)}")
    if good.any():
        pair = pick(np.where(good, -estimates.latency_ms, -np.inf), accuracy)
        parts.append(
            f"at accuracy {query.accuracy_min:g} the best latency is {say(problem, configurations, estimates, pair)}"
        )
    if not parts:
        pair = pick(np.where(fits, accuracy, -np.inf), -estimates.latency_ms)
        parts.append(f"neither objective can be met; the best accuracy is {say(problem, configurations, estimates, pair)}")
        pair = pick(np.where(fits, -estimates.latency_ms, -np.inf), accuracy)
        parts.append(f"the best latency is {say(problem, configurations, estimates, pair)}")
    return "; ".join(parts) + known


def pick(first: Array, second: Array) -> tuple[int, int]:
    """The indices of the largest in `first`, ties by `second`."""
    flat = np.lexsort((second.ravel(), first.ravel()))[-1]
    return int(flat // first.shape[1]), int(flat % first.shape[1])


def say(
    problem: Problem, configurations: list[Configuration], estimates: Estimates, pair: tuple[int, int]
) -> str:
    """Accuracy and latency of a pair, and what gives them."""
    placement, row = pair
    tiers = problem.infrastructure.tiers
    where = [f"{name} on {tiers[tier].name}" for name, tier in zip(problem.order, problem.placements[placement], strict=True)]
    knobs = [
        f"{knob.operator}.{knob.name} = {knob.values[index]}"
        for knob, index in zip(problem.query.knobs, configurations[row], strict=True)
    ]
    accuracy, latency = estimates.accuracy[0, row], estimates.latency_ms[placement, row]
    return f"{accuracy:.3f} at {latency:.1f} ms ({', '.join(where[1:] + knobs)})"
