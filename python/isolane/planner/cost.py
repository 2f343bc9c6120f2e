"""Plans by price: the plans that no other plan beats in price and utility, the cheapest that meets everything, and an upper bound.

Problem: tiers have prices, and the plan with the highest utility is rarely the cheapest. Units: price an hour, in the currency of
the tiers' file; a query pays for the part of a tier that it uses (the larger of its shares of cores and of GPUs).

Method: money is a resource in the utility where a query gives it a weight (`alpha_money`), a bound where it gives one
(`price_max_per_hour`), and a table here. All pairs of launched configurations and placements that meet both objectives are
ranked; nothing more is launched. Limits: networks have no price; machines that are rented whole cost more than what is used.
Source: extends equation 4.3 of Vulcan.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from isolane.planner.model import Plan
from isolane.planner.planning import Planned, describe


@dataclass(frozen=True)
class Offer:
    """A plan and what a day of it costs."""

    plan: Plan

    @property
    def price_per_hour(self) -> float:
        """The price."""
        return self.plan.price_per_hour

    @property
    def price_per_day(self) -> float:
        """24 hours of it."""
        return 24.0 * self.plan.price_per_hour


def offers(planned: Planned) -> list[Offer]:
    """The plans that meet everything and that no other beats in price and utility, the cheapest first."""
    problem = planned.problem
    launched = list(problem.cache)
    found = [problem.cache[each] for each in launched]
    if not found:
        return []
    meets = np.stack([each.estimates.meets(problem.query)[:, 0] for each in found], axis=1)
    price = np.stack([each.estimates.price_per_hour[:, 0] for each in found], axis=1)
    # The utility without money in it: what the money buys.
    utility = np.stack([each.utilities for each in found], axis=1)
    placed, column = np.nonzero(meets)
    order = np.lexsort((-utility[placed, column], price[placed, column]))
    result: list[Offer] = []
    best = -np.inf
    for index in order:
        pair = (int(placed[index]), launched[int(column[index])])
        if utility[placed[index], column[index]] > best:
            best = float(utility[placed[index], column[index]])
            result.append(Offer(describe(problem, pair, planned.plan.searcher, planned.plan.seed)))
    return result


def table(found: list[Offer]) -> str:
    """The offers for people."""
    if not found:
        return "no plan meets everything, at any price\n"
    lines = ["price/hour  price/day   utility  accuracy  latency ms  tiers"]
    for each in found:
        plan = each.plan
        tiers = ", ".join(f"{name}@{plan.placement[name]}" for name in plan.order)
        lines.append(
            f"{each.price_per_hour:10.4f}  {each.price_per_day:9.3f}  {plan.utility:8.4g}  {plan.accuracy:8.3f}  "
            f"{plan.latency_ms:10.1f}  {tiers}"
        )
    lines.append("Prices are in the currency of the tiers' price_per_hour. Utility is performance over resources and has no unit.")
    return "\n".join(lines) + "\n"
