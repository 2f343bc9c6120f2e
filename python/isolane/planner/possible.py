"""What is possible at all, for a query whose objectives no pair met.

Problem: "it does not fit" is no help. Useful are the best accuracy within the latency and the best latency at the accuracy, with
their settings. Method: all pairs, from the profile where there is one (which costs nothing), else from what was launched.
`remedies` has the tiers and links that would be needed. Limits: with live launches the result covers the launched pairs only, and
states this. Source: our own.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import numpy.typing as npt

from isolane.planner.estimate import ROUNDING, Array, Estimates, Estimator, Table
from isolane.planner.model import Configuration, Launch, Order
from isolane.planner.profiles import Replay
from isolane.planner.search.problem import Problem


def best_possible(problem: Problem) -> str:
    """A sentence: another searcher would find a plan, or what the objectives would have to be."""
    return possible(problem)[1]


def possible(problem: Problem) -> tuple[bool, str]:
    """Whether something that is known meets everything, and the sentence."""
    replay = isinstance(problem.launcher, Replay)
    configurations, launches = known(problem)
    estimates = problem.estimator.estimates(Table.of(launches, problem.order))
    meets = estimates.meets(problem.query)
    query = problem.query
    if meets.any():
        count = int(meets.any(axis=0).sum())
        all_of = f"{len(configurations)} configurations" + ("" if replay else " that were launched")
        budget = " with a larger --budget-s" if np.isfinite(problem.options.budget_s) else ""
        return True, f"{count} of {all_of} can meet everything: try --searcher exhaustive{budget}"
    other = another_order(problem)
    if other:
        return True, f"another order of the filters can meet everything: try --order {other}"
    seen = "" if replay else " (of what was launched)"
    holds = estimates.overload <= ROUNDING
    if not holds.any():
        return False, f"no placement has the capacity{seen}: give tiers or links more, or lower rate_items_per_s"
    fits = estimates.fits(query)
    bounded = bool(np.isfinite(query.price_max_per_hour))
    if not fits.any():
        return False, f"{least_price(problem, configurations, estimates, holds)}{seen}"
    text = objectives(problem, configurations, estimates, fits)
    if bounded:
        text = f"at a price of at most {query.price_max_per_hour:g} an hour, {text}"
        free = holds & estimates.meets(dataclasses.replace(query, price_max_per_hour=np.inf))
        if free.any():
            least = float(np.where(free, estimates.price_per_hour, np.inf).min())
            text += f"; both objectives can be met with price_max_per_hour = {price(least)}"
    return False, text + seen


def known(problem: Problem, order: Order | None = None) -> tuple[list[Configuration], list[Launch]]:
    """Configurations and their launches, of the problem's order or another: all that the profile has, without one what was launched."""
    order = order or problem.order
    if isinstance(problem.launcher, Replay):
        entries = problem.launcher.entries
        found = [each for each in problem.configurations if (order, each) in entries]
        return found, [entries[order, each] for each in found]
    # Nothing is launched for this: a launch takes what it takes.
    launches = [each.launch for each in problem.cache.values() if each.launch.order == order]
    return [each.configuration for each in launches], launches


def another_order(problem: Problem) -> str:
    """Another order of the filters with which everything can be met, for `--order`; nothing if there is none that is known."""
    for order in problem.query.orders():
        launches = known(problem, order)[1]
        if order == problem.order or not launches:
            continue
        estimator = Estimator(problem.query, order, problem.infrastructure)
        if estimator.estimates(Table.of(launches, order)).meets(problem.query).any():
            return ",".join(order)
    return ""


def least_price(
    problem: Problem, configurations: list[Configuration], estimates: Estimates, holds: npt.NDArray[np.bool_]
) -> str:
    """What price_max_per_hour would have to be, at least and with both objectives."""
    query = problem.query
    cheap = pick(np.where(holds, -estimates.price_per_hour, -np.inf), estimates.accuracy + 0.0 * estimates.latency_ms)
    least = float(estimates.price_per_hour[cheap])
    text = (
        f"nothing costs at most price_max_per_hour = {query.price_max_per_hour:g}: the least price is {price(least)} an hour, "
        f"with accuracy {say(problem, configurations, estimates, cheap)}"
    )
    free = holds & estimates.meets(dataclasses.replace(query, price_max_per_hour=np.inf))
    if free.any():
        both = float(np.where(free, estimates.price_per_hour, np.inf).min())
        return f"{text}; the least that meets both objectives is {price(both)}"
    return f"{text}; no price meets both objectives"


def price(value: float) -> str:
    """Four significant digits, not below the value, so that as a bound it admits it."""
    if value <= 0.0:
        return "0"
    step = 10.0 ** (math.floor(math.log10(value)) - 3)
    return f"{math.ceil(value / step - 1e-9) * step:.4g}"


def objectives(
    problem: Problem, configurations: list[Configuration], estimates: Estimates, fits: npt.NDArray[np.bool_]
) -> str:
    """The best accuracy within the latency and the best latency at the accuracy, or the best of each."""
    query = problem.query
    accuracy = np.broadcast_to(estimates.accuracy, fits.shape)
    fast = fits & (estimates.latency_ms <= query.latency_max_ms)
    good = fits & (accuracy >= query.accuracy_min)

    def most_accurate(where: npt.NDArray[np.bool_]) -> str:
        pair = pick(np.where(where, accuracy, -np.inf), -estimates.latency_ms)
        return f"the best accuracy is {say(problem, configurations, estimates, pair)}"

    def fastest(where: npt.NDArray[np.bool_]) -> str:
        pair = pick(np.where(where, -estimates.latency_ms, -np.inf), accuracy)
        return f"the best latency is {say(problem, configurations, estimates, pair, latency_first=True)}"

    parts = []
    if fast.any():
        parts.append(f"within {query.latency_max_ms:g} ms {most_accurate(fast)}")
    if good.any():
        parts.append(f"at accuracy {query.accuracy_min:g} {fastest(good)}")
    if not parts:
        parts = [f"neither objective can be met; {most_accurate(fits)}", fastest(fits)]
    return "; ".join(parts)


def pick(first: Array, second: Array) -> tuple[int, int]:
    """The indices of the largest in `first`, ties by `second`."""
    flat = np.lexsort((second.ravel(), first.ravel()))[-1]
    return int(flat // first.shape[1]), int(flat % first.shape[1])


def say(
    problem: Problem,
    configurations: list[Configuration],
    estimates: Estimates,
    pair: tuple[int, int],
    latency_first: bool = False,
) -> str:
    """Accuracy and latency of a pair, the one that the sentence is about first, and what gives them."""
    placement, row = pair
    tiers = problem.infrastructure.tiers
    where = [f"{name} on {tiers[tier].name}" for name, tier in zip(problem.order, problem.placements[placement], strict=True)]
    knobs = [
        f"{knob.operator}.{knob.name} = {knob.values[index]}"
        for knob, index in zip(problem.query.knobs, configurations[row], strict=True)
    ]
    accuracy, latency = estimates.accuracy[0, row], estimates.latency_ms[placement, row]
    figures = f"{latency:.1f} ms at accuracy {accuracy:.3f}" if latency_first else f"{accuracy:.3f} at {latency:.1f} ms"
    return f"{figures} ({', '.join(where[1:] + knobs)})"
