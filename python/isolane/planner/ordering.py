"""The order of filters: F_gamma of each order as one bulk filter (equation 4.4).

Problem: with k filters there are k! pipelines, and planning each costs launches. Method: run the filters alone, all set to
the 20th, 50th and 80th percentile of their knobs, and score precision and recall of the whole chain, recall being
gamma / (1 - gamma) times as important; the order with the highest of its three scores is taken. The first such order (the
template's, if it is one) wins a tie. Limits: 3 runs of the filters per order. Source: Vulcan, section 4.4.2.2.
"""

from __future__ import annotations

from dataclasses import dataclass

from isolane.planner.model import Configuration, Launcher, Order, Query

#: Where in the range of their knobs the filters are measured.
PERCENTILES = (20.0, 50.0, 80.0)


@dataclass(frozen=True)
class Ordering:
    """The chosen order, what it was chosen over, and what it cost. `scores` are F_gamma by order, one per percentile."""

    order: Order
    scores: dict[Order, tuple[float, ...]]
    cost_s: float


def f_gamma(precision: float, recall: float, gamma: float) -> float:
    """Equation 4.4; 0 where both are 0."""
    beta_squared = (gamma / (1.0 - gamma)) ** 2
    below = beta_squared * precision + recall
    return (1.0 + beta_squared) * precision * recall / below if below > 0.0 else 0.0


def at_percentile(query: Query, percent: float) -> Configuration:
    """All filters at this percentile of their knobs, everything else at its most expensive."""
    filters = query.filters
    return tuple(
        knob.at_percentile(percent) if knob.operator in filters else len(knob.values) - 1 for knob in query.knobs
    )


def choose_order(query: Query, launcher: Launcher) -> Ordering:
    """The order for this query; nothing is run where there is only one."""
    orders = query.orders()
    if len(orders) == 1:
        return Ordering(orders[0], {}, 0.0)
    scores: dict[Order, tuple[float, ...]] = {}
    cost_s = 0.0
    for order in orders:
        # Percentiles of short ranges coincide; each setting is run once.
        runs = {}
        for configuration in dict.fromkeys(at_percentile(query, percent) for percent in PERCENTILES):
            runs[configuration] = launcher.filters(order, configuration)
            cost_s += runs[configuration].cost_s
        found = (runs[at_percentile(query, percent)] for percent in PERCENTILES)
        scores[order] = tuple(f_gamma(each.precision, each.recall, query.gamma) for each in found)
    best = max(orders, key=lambda order: max(scores[order]))
    return Ordering(best, scores, cost_s)
