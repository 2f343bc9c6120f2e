"""What a plan is worth: performance over resources (equations 4.1 to 4.3), and alternatives that an operator may define.

Problem: compare plans by one number. With P = gamma alpha_A (A - A_m) + (1 - gamma) alpha_L (L_m - L) and
R = alpha_compute R_gpu + alpha_network R_net, the paper's utility is P / R (`ratio`).

`ratio` lets a fast plan pay for missed accuracy; the planner's last choice is therefore first among plans that meet everything.
`strict` has that already in the number: where an objective or a capacity is missed, P keeps only what is missed and is negative.
Where all is met, both are equal. A third choice is `module:function`, a function of (Query, Estimates) that returns an array.

Limits: R has a floor (`RESOURCES_MIN`), as a plan that uses nothing would be worth infinitely much. `strict` does not divide
what is missed by R: that would praise waste.
Source: Vulcan, section 4.4.1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from isolane import allowed
from isolane.planner.estimate import Array, Estimates
from isolane.planner.model import PlanError, Query

Utility: TypeAlias = Callable[[Query, Estimates], Array]

#: One thousandth of one tier or link: below it, resources no longer decide between plans.
RESOURCES_MIN = 1e-3


def unit_of(query: Query) -> str:
    """The unit of a query's utility, in words.

    Examples
    --------
    >>> import types
    >>> unit_of(types.SimpleNamespace(utility="ratio"))
    'performance over resources, no unit'
    """
    if ":" in query.utility:
        return f"in the unit of {query.utility}"
    return "performance over resources, no unit"


def performance(query: Query, accuracy: Array, latency_ms: Array) -> Array:
    """P of equation 4.2."""
    gain = query.gamma * query.alpha_accuracy * (accuracy - query.accuracy_min)
    result: Array = gain + (1.0 - query.gamma) * query.alpha_latency * (query.latency_max_ms - latency_ms)
    return result


def resources(query: Query, estimates: Estimates) -> Array:
    """R of equation 4.3, with its floor, and with money as a third resource where the query gives it a weight."""
    used = query.alpha_compute * estimates.compute + query.alpha_network * estimates.network
    result: Array = np.maximum(used + query.alpha_money * estimates.price_per_hour, RESOURCES_MIN)
    return result


def ratio(query: Query, estimates: Estimates) -> Array:
    """The paper's utility."""
    value: Array = performance(query, estimates.accuracy, estimates.latency_ms) / resources(
        query, estimates
    )
    return value


def guarded(query: Query, estimates: Estimates, values: Array) -> Array:
    """The values where all objectives and capacities hold; else what is missed, as a negative number."""
    short = query.gamma * query.alpha_accuracy * np.minimum(estimates.accuracy - query.accuracy_min, 0.0)
    late = (1.0 - query.gamma) * query.alpha_latency * np.minimum(query.latency_max_ms - estimates.latency_ms, 0.0)
    dear = np.maximum(estimates.price_per_hour / query.price_max_per_hour - 1.0, 0.0)
    result: Array = np.where(estimates.meets(query), values, short + late - estimates.overload - dear)
    return result


def strict(query: Query, estimates: Estimates) -> Array:
    """The paper's where all objectives and capacities hold; else what is missed."""
    return guarded(query, estimates, ratio(query, estimates))


UTILITIES: dict[str, Utility] = {"ratio": ratio, "strict": strict}


def utility_of(query: Query) -> Utility:
    """The utility that the query names."""
    name = query.utility
    if name in UTILITIES:
        return UTILITIES[name]
    if ":" not in name:
        raise PlanError(
            f"query {query.name}: utility = {name}: must be one of {', '.join(UTILITIES)}, or module:function"
        )
    try:
        found = allowed.find_function(name)
    except allowed.NameRefused as error:
        raise PlanError(f"query {query.name}: utility {error}") from error
    return lambda query, estimates: checked(name, found, query, estimates)


def checked(name: str, function: Utility, query: Query, estimates: Estimates) -> Array:
    """The result of the user's function, if it is a finite number for every pair."""
    try:
        values = np.asarray(function(query, estimates), dtype=np.float64)
    except Exception as error:
        raise PlanError(f"query {query.name}: utility {name} failed: {type(error).__name__}: {error}") from error
    if values.shape != estimates.latency_ms.shape:
        raise PlanError(
            f"query {query.name}: utility {name} returned shape {values.shape}: must be {estimates.latency_ms.shape}, a number "
            "for each placement and configuration"
        )
    if not np.isfinite(values).all():
        raise PlanError(f"query {query.name}: utility {name} returned a number that is not finite; bound it")
    return values
