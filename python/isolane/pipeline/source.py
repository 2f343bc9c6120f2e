"""The items of a query's workload, as a source for running pipelines.

Problem: a live source has no beginning, and its items must not cost time when they are due. Method: `module:Class` names a
workload (`planner.model.Workload`); a stretch of its items is made beforehand and sent round and round. Units: items. Limits:
the stretch lives in memory, `ITEMS` items of it at most.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from isolane import allowed
from isolane.pipeline.item import Item
from isolane.pipeline.operator import describe
from isolane.planner.model import PlanError, Workload

#: Items held in memory: 600 frames of 258 KB are 155 MB.
ITEMS = 600


@dataclass(frozen=True)
class Source:
    """A workload and a stretch of its items."""

    workload: Workload
    items: tuple[Item, ...]

    def forever(self) -> Iterator[Item]:
        """The items, round and round."""
        return itertools.cycle(self.items)

    def first(self, count: int) -> Iterator[Item]:
        """So many items, round and round."""
        return itertools.islice(self.forever(), count)


def open_source(name: str, count: int = ITEMS, start: int = 0) -> Source:
    """The workload of this name with up to `count` items made, from the one numbered `start` on where so many follow it."""
    try:
        workload: Workload = allowed.find_class(name, ("items",))()
    except allowed.NameRefused as error:
        raise PlanError(f"workload {error}") from error
    except Exception as error:
        raise PlanError(f"workload {name}: {describe(error)}") from error
    items = workload.items()
    count = min(count, len(items), ITEMS)
    start = min(start, len(items) - count)
    made = tuple(items[index] for index in range(start, start + count))
    if not made:
        raise PlanError(f"workload {name}: it has no items")
    return Source(workload, made)
