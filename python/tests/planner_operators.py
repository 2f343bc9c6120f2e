"""Operators and a workload for tests of live launches (even numbers are relevant, a model says which are); bad utilities."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Mapping, Sequence

import numpy as np

from isolane.pipeline.item import Item, Value
from isolane.planner.estimate import Array, Estimates
from isolane.planner.model import Query

COUNT = 40
#: How long a remote model takes.
REMOTE_S = 0.004


class Numbers:
    """The source: passes on what the workload has, every n-th."""

    def __init__(self) -> None:
        self.every = 1

    def configure(self, knobs: Mapping[str, int]) -> None:
        self.every = knobs.get("every", self.every)

    def process(self, item: Item) -> list[Item]:
        return [item] if item.id % self.every == 0 else []


class Big:
    """A filter: drops numbers below a bound, and shortens what goes on."""

    def __init__(self) -> None:
        self.least = 0

    def configure(self, knobs: Mapping[str, int]) -> None:
        if knobs.get("least", 0) < 0:
            raise ValueError("least must not be negative")
        self.least = knobs.get("least", self.least)

    def process(self, item: Item) -> list[Item]:
        return [Item(item.id, item.time_s, {"data": np.zeros(10, np.uint8)})] if item.id >= self.least else []


class Even:
    """The model; the cheap one is wrong at every number that 6 divides."""

    def __init__(self) -> None:
        self.good = True

    def configure(self, knobs: Mapping[str, str]) -> None:
        self.good = knobs.get("size", "large") == "large"

    def process(self, item: Item) -> list[Item]:
        even = item.id % 2 == 0 and (self.good or item.id % 6 != 0)
        return [Item(item.id, item.time_s, {"even": float(even)})]


class Crash(Even):
    """A model that fails at one item."""

    def process(self, item: Item) -> list[Item]:
        if item.id == 7:
            raise RuntimeError("seven")
        return super().process(item)


class Hang(Even):
    """A model that does not come back from one item."""

    def process(self, item: Item) -> list[Item]:
        if item.id == 7:
            time.sleep(600.0)
        return super().process(item)


class Remote(Even):
    """A model that another machine runs: this process only waits."""

    def process(self, item: Item) -> list[Item]:
        threading.Event().wait(REMOTE_S)
        return super().process(item)


class Backwards(Even):
    """A model whose accelerator's time falls."""

    def __init__(self) -> None:
        super().__init__()
        self.told = 3.0

    def accelerator_ms(self) -> float:
        self.told -= 1.0
        return self.told


class Unknown(Even):
    """A model that does not know its accelerator's time."""

    def accelerator_ms(self) -> float:
        return float("nan")


class Dies(Even):
    """A model that takes its process with it."""

    def process(self, item: Item) -> list[Item]:
        if item.id == 7:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().process(item)


class Garbage(Even):
    """A model that returns no list."""

    def process(self, item: Item) -> list[Item]:
        return None  # type: ignore[return-value]


class Data:
    """Numbers from 0; the truth is whether each is even."""

    def items(self) -> Sequence[Item]:
        payload: dict[str, Value] = {"data": np.zeros(1000, np.uint8)}
        return [Item(number, number / 10.0, payload) for number in range(COUNT)]

    def accuracy(self, outputs: Sequence[Item], reference: Sequence[Item] | None = None) -> float:
        said = {item.id: item.payload["even"] for item in outputs}
        if reference is not None:
            return sum(said.get(item.id, 0.0) == item.payload["even"] for item in reference) / max(len(reference), 1)
        return sum(said.get(number, 0.0) == float(number % 2 == 0) for number in range(COUNT)) / COUNT

    def filter_score(self, passed: Sequence[Item]) -> tuple[float, float]:
        relevant = sum(item.id % 2 == 0 for item in passed)
        return relevant / max(len(passed), 1), relevant / (COUNT / 2)


class Nothing(Data):
    """No data."""

    def items(self) -> Sequence[Item]:
        return []


def fails(query: Query, estimates: Estimates) -> Array:
    """A utility that raises."""
    return estimates.latency_ms / (1 // 0)


def flat(query: Query, estimates: Estimates) -> Array:
    """A utility of the wrong shape."""
    return np.zeros(1)


def endless(query: Query, estimates: Estimates) -> Array:
    """A utility without bound."""
    return np.full_like(estimates.latency_ms, np.inf)
