"""Launches for real, in this process; and truth for live data, which has none.

Problem: before a query has a profile, and while it runs, its operators must be measured on data. Method: each operator handles
all items of the query's workload, one after the other, with the settings of the configuration; the time per item, the bytes of
what it sends and the share that it lets pass make the launch. On live data the outputs of the most expensive configuration, on a
burst of items once per period, stand in for truth (section 4.5.1).

Units: milliseconds of processor time of this thread (other programs share the machine), bytes as on the wire. The first item of
each operator is not counted: it loads what is loaded once. Limits: the time of a launch is what it took here, so plans from live
launches are not repeatable to the byte. Source: Vulcan, sections 4.4.3.1 and 4.5.1.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Sequence
from typing import Any, Protocol, cast

import numpy as np

from isolane.pipeline.item import Item, ItemError, encode
from isolane.pipeline.operator import OperatorError, describe, load
from isolane.planner.model import (
    Configuration,
    FilterScore,
    Launch,
    OperatorResult,
    OperatorSpec,
    Order,
    PlanError,
    Query,
    Value,
    Workload,
)


class Runs(Protocol):
    """What a launch needs of an operator."""

    def configure(self, knobs: dict[str, Value]) -> None:
        """Takes the knobs' values."""

    def process(self, item: Item) -> list[Item]:
        """The items that go on."""


def made(spec: OperatorSpec) -> Runs:
    """A new operator of this implementation."""
    try:
        if spec.implementation.endswith(".onnx"):
            module = importlib.import_module("isolane.queries.onnx")
            return cast(Runs, module.OnnxOperator(spec.implementation))
        return cast(Runs, load(spec.implementation))
    except OperatorError as error:
        raise PlanError(f"operator {spec.name}: {error}") from error
    except Exception as error:  # Anything that somebody's model file or class may raise.
        raise PlanError(f"operator {spec.name}: {spec.implementation} cannot be made: {describe(error)}") from error


def workload_of(query: Query) -> Workload:
    """The data that the query names."""
    module, colon, name = query.workload.partition(":")
    if not colon:
        raise PlanError(f"query {query.name}: workload = {query.workload!r}: live launches need module:Class")
    try:
        return cast(Workload, getattr(importlib.import_module(module), name)())
    except Exception as error:
        raise PlanError(f"query {query.name}: workload {query.workload} cannot be made: {describe(error)}") from error


def pass_through(spec: OperatorSpec, operator: Runs, items: Sequence[Item]) -> tuple[list[Item], OperatorResult, float]:
    """All items through one operator: what it sent, what that was like, and the seconds that it took."""
    sent: list[Item] = []
    times: list[float] = []
    for item in items:
        begin = time.thread_time_ns()
        try:
            out = operator.process(item)
        except Exception as error:
            raise PlanError(f"operator {spec.name} failed at item {item.id}: {describe(error)}") from error
        times.append((time.thread_time_ns() - begin) / 1e6)
        if not isinstance(out, list) or not all(isinstance(each, Item) for each in out):
            raise PlanError(f"operator {spec.name} returned {type(out).__name__} for item {item.id}: must be a list of items")
        sent += out
    try:
        sizes = [len(encode(item)) for item in sent]
    except ItemError as error:
        raise PlanError(f"operator {spec.name} sent what is no item: {error}") from error
    counted = times[1:] or times
    result = OperatorResult(
        processing_ms=float(np.mean(counted)) if counted else 0.0,
        output_bytes=float(np.mean(sizes)) if sizes else 0.0,
        pass_rate=len(sent) / len(items) if items else 0.0,
        processing_p99_ms=float(np.percentile(counted, 99)) if counted else 0.0,
        output_p99_bytes=float(np.percentile(sizes, 99)) if sizes else 0.0,
    )
    return sent, result, sum(times) / 1e3


class Live:
    """The launcher that runs the operators."""

    def __init__(self, query: Query, workload: Workload | None = None) -> None:
        self.query = query
        self.workload = workload_of(query) if workload is None else workload
        self.items: Sequence[Item] = self.workload.items()
        if not self.items:
            raise PlanError(f"query {query.name}: its workload has no items")

    def launch(self, order: Order, configuration: Configuration) -> Launch:
        """Runs the whole pipeline."""
        outputs, results, spent, score = self.run(order, configuration, self.items)
        accuracy = float(self.workload.accuracy(outputs))
        return Launch(order, configuration, accuracy, results, spent, *score)

    def filters(self, order: Order, configuration: Configuration) -> FilterScore:
        """Runs source and filters."""
        count = next(index for index, name in enumerate(order) if self.query.operator(name).kind == "model")
        _, _, spent, score = self.run(order[:count], configuration, self.items)
        return FilterScore(*score, spent)

    def run(
        self, order: Order, configuration: Configuration, items: Sequence[Any]
    ) -> tuple[list[Item], dict[str, OperatorResult], float, tuple[float, float]]:
        """The outputs, what was measured, the seconds spent, and the filters' precision and recall."""
        settings = self.query.settings(configuration)
        results: dict[str, OperatorResult] = {}
        current = list(items)
        filtered = current
        spent = 0.0
        for name in order:
            spec = self.query.operator(name)
            operator = made(spec)
            try:
                operator.configure(settings[name])
            except Exception as error:
                raise PlanError(f"operator {name} refuses {settings[name]}: {describe(error)}") from error
            current, results[name], seconds = pass_through(spec, operator, current)
            spent += seconds
            if spec.kind in ("source", "filter"):
                filtered = current
        precision, recall = self.workload.filter_score(filtered)
        return current, results, spent, (float(precision), float(recall))


class Reference:
    """Stands in for truth: the most expensive configuration on the first `burst` items of every `period`."""

    def __init__(self, launcher: Live, order: Order, period: int = 300, burst: int = 10) -> None:
        if not 0 < burst <= period:
            raise PlanError(f"reference: burst = {burst}: must be from 1 to the period, {period}")
        self.launcher = launcher
        self.order = order
        self.period = period
        self.burst = burst

    def wanted(self, item: int) -> bool:
        """Whether the item of this number is to be sent to the reference too."""
        return item % self.period < self.burst

    def accuracy(self, items: Sequence[Any], outputs: Sequence[Any]) -> float:
        """The deployed pipeline's outputs for these source items against the reference's."""
        expected = self.launcher.run(self.order, self.launcher.query.most_expensive, items)[0]
        return float(self.launcher.workload.accuracy(outputs, expected))
