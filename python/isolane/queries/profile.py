"""Measures every order and configuration of a query once: accuracy, bytes, times, for planners to replay.

Problem: a profile needs hundreds of launches, and most share their first operators. Units: milliseconds of
processor time of one thread, bytes on the wire, shares. Method: operators form a tree - source, then for each order
the next operator with each setting of its knobs - and each node runs once on what its parent sent; a launch is a
path to a leaf. Accuracy and the filters' precision and recall come from the workload's truth. Times are means over
items and their 99th percentile, after one item of warm-up; processor time, because other programs share the machine.
Limits: times are of the machine that the file names, and so are their ratios; the first item's time is left out.
"""

from __future__ import annotations

import itertools
import pathlib
import platform
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from isolane.pipeline.item import Item
from isolane.planner.live import Checked, configured, pass_through
from isolane.planner.model import (
    Configuration,
    Launch,
    OperatorResult,
    Order,
    Query,
    Value,
    Workload,
)
from isolane.planner.profiles import Profile


def machine() -> str:
    """This machine in one line, for the file to name."""
    model = platform.processor() or platform.machine()
    try:
        for line in pathlib.Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    return f"{model}, one thread, Python {platform.python_version()}, numpy {np.__version__}; processor time"


class Tree:
    """The launches of one query on one workload."""

    def __init__(self, query: Query, workload: Workload, said: Callable[[str], None]) -> None:
        self.query, self.workload, self.said = query, Checked(query, workload), said
        self.done = 0

    def launches(self) -> Iterator[Launch]:
        """Every launch, orders first, then configurations as `Query.configurations` counts them."""
        items = list(self.workload.items())
        found: dict[tuple[Order, Configuration], Launch] = {}
        orders = self.query.orders()
        self._walk(items, (), orders, {}, {}, 0.0, None, found)
        for order in orders:
            for configuration in self.query.configurations():
                yield found[order, configuration]

    def _walk(
        self,
        items: list[Item],
        path: Order,
        orders: list[Order],
        settings: dict[str, dict[str, Value]],
        results: dict[str, OperatorResult],
        seconds: float,
        score: tuple[float, float] | None,
        found: dict[tuple[Order, Configuration], Launch],
    ) -> None:
        if len(path) == len(self.query.operators):
            configuration = self.query.configuration(settings)
            accuracy = self.workload.accuracy(items)
            precision, recall = score or (1.0, 1.0)
            found[path, configuration] = Launch(
                path, configuration, accuracy, dict(results), seconds, precision, recall
            )
            self.done += 1
            if self.done % 25 == 0:
                self.said(f"{self.query.name}: {self.done} launches")
            return
        following = list(dict.fromkeys(order[len(path)] for order in orders if order[: len(path)] == path))
        for name in following:
            specification = self.query.operator(name)
            # Model and later operators do not change what the filters let pass.
            if score is None and specification.kind in ("model", "post"):
                score = self.workload.filter_score(items)
            for values in itertools.product(*(knob.values for knob in specification.knobs)):
                own = dict(zip((knob.name for knob in specification.knobs), values, strict=True))
                operator = configured(specification, own)
                outputs, result = pass_through(specification, operator, items)
                spent = result.wall_ms * len(items) / 1e3
                self._walk(
                    outputs,
                    (*path, name),
                    orders,
                    {**settings, name: own},
                    {**results, name: result},
                    seconds + spent,
                    score,
                    found,
                )


def profile(query: Query, workload: Workload, scene: str, said: Callable[[str], None]) -> Profile:
    """The profile of all orders and configurations; `said` is called with the progress."""
    launches = tuple(Tree(query, workload, said).launches())
    extra = {"items": len(workload.items())}
    return Profile(query.name, machine(), query.knobs, launches, scene, extra)
