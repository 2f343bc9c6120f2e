"""Launches on live items, beside the pipeline: what configurations do now, where the profile no longer says it.

Problem: content changes, and every number of a profile with it. Method: a stretch of the latest items goes through the operators of a
configuration in the reference's process, which has the lowest priority. Times, sizes and pass rates are measured there as in any
live launch; accuracy is against the most expensive configuration's outputs for the same items.

Units: items, seconds. Limits: operators begin without memory at the first item of the stretch. Accuracy against a substitute for truth
says nothing of what the most expensive configuration misses. Source: Vulcan, section 4.5.1.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from isolane.pipeline.item import Item
from isolane.pipeline.observe import Reference
from isolane.planner.model import Configuration, FilterScore, Launch, Order, PlanError, Query
from isolane.planner.search.problem import BudgetSpent

#: Items of a launch: eight seconds of the traffic query; few of them pass.
SHADOW_ITEMS = 120
#: Launches of a search, and the wall time after which it ends with what it knows.
SHADOW_LAUNCHES, SHADOW_S = 15, 20.0


class Shadow:
    """A launcher over live items; its launches block, so it is called from a thread. `truth` are the reference's outputs;
    after `until_s` (of `time.monotonic`) there are no more launches."""

    def __init__(
        self, query: Query, reference: Reference, items: Sequence[Item], truth: Sequence[Item], until_s: float
    ) -> None:
        self._query, self._reference = query, reference
        self._items, self._truth = items, truth
        self._until_s = until_s

    def launch(self, order: Order, configuration: Configuration) -> Launch:
        """Runs the configuration; `BudgetSpent` where the time is over."""
        left_s = self._until_s - time.monotonic()
        if left_s <= 0.0:
            raise BudgetSpent
        begin = time.monotonic()
        try:
            outputs, results = self._reference.launch(self._query, order, configuration, self._items, left_s)
        except TimeoutError:
            raise BudgetSpent from None
        accuracy = float(self._reference.workload.accuracy(outputs, self._truth))
        return Launch(order, configuration, accuracy, results, time.monotonic() - begin)

    def filters(self, order: Order, configuration: Configuration) -> FilterScore:
        """Live items have no truth of what is relevant; the order of the filters stays as it is."""
        raise PlanError(f"query {self._query.name}: filters are not scored on live items; keep the order {' > '.join(order)}")
