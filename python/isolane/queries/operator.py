"""What every operator of a query is: knobs in, items through.

Problem: planner, runner and profiler must drive any operator alike. Method: an operator takes its knobs in
`configure`, which may come at any time and holds from the next item on, and turns an item into a list of items in
`process`: empty where a filter dropped it. Limits: one thread at a time; an operator that keeps a memory of past
items keeps it over a change of knobs where its class states it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from isolane.pipeline.item import Array, Item, ItemError, Value
from isolane.pipeline.operator import KnobValue

__all__ = ["KnobValue", "Operator", "array", "number"]


class Operator:
    """Base of the queries' operators: checks knobs against `KNOBS`, then keeps them in `knobs`."""

    #: Allowed values by knob, from cheap or coarse to costly or fine; an empty sequence allows anything.
    KNOBS: Mapping[str, Sequence[KnobValue]] = {}

    def __init__(self) -> None:
        self.knobs: dict[str, KnobValue] = {name: values[-1] for name, values in self.KNOBS.items() if values}

    def configure(self, knobs: Mapping[str, KnobValue]) -> None:
        """Takes new values for some knobs, from the next item on; all or none."""
        for name, value in knobs.items():
            if name not in self.KNOBS:
                known = ", ".join(self.KNOBS) or "none"
                raise ValueError(f"{type(self).__name__} has no knob {name!r}; it has: {known}")
            allowed = self.KNOBS[name]
            if allowed and value not in allowed:
                raise ValueError(f"{type(self).__name__}: {name} = {value!r}; allowed: {', '.join(map(str, allowed))}")
        self.knobs.update(knobs)
        self.changed()

    def changed(self) -> None:
        """Called after the knobs changed; loads a model or resizes a memory."""

    def process(self, item: Item) -> list[Item]:
        """The items that go on; none where this one is dropped."""
        raise NotImplementedError


def array(item: Item, name: str, dimensions: int) -> Array:
    """The array of that name, or an error that says what came instead."""
    value: Value | None = item.payload.get(name)
    if not isinstance(value, np.ndarray):
        present = ", ".join(sorted(item.payload)) or "nothing"
        raise ItemError(f"item {item.id}: needs an array {name!r}; it carries {present}")
    if value.ndim != dimensions:
        raise ItemError(f"item {item.id}: {name!r} has {value.ndim} dimensions; {dimensions} needed")
    return value


def number(item: Item, name: str, default: float) -> float:
    """The number of that name, or the default where there is none."""
    value = item.payload.get(name, default)
    if isinstance(value, (int, float)):
        return float(value)
    raise ItemError(f"item {item.id}: {name!r} should be a number and is a {type(value).__name__}")
