"""Launches for real, in this process; and truth for live data, which has none.

Problem: before a query has a profile, and while it runs, its operators must be measured on data. Method: each operator handles
all items of the query's workload, one after the other, with the settings of the configuration; the time per item, the bytes of
what it sends and the share that it lets pass make the launch. On live data the outputs of the most expensive configuration, on a
burst of items once per period, replace the truth (section 4.5.1).

Units: milliseconds of processor time, of an accelerator's time and of waits for something else (`isolane.pipeline.stopwatch`),
without waits for a core, since other programs share the machine; bytes as on the wire; what a launch costs is seconds of wall
time. The first item of each operator is not counted: it loads what is loaded once. A budget ends a launch between two items, or,
where launches run in a process of their own (`apart`), at any point: that process is killed. A process that an operator crashes
is reported as an error. Limits: the time of a launch is what it took here, so plans from live launches are not repeatable to the
byte. Source: Vulcan, sections 4.4.3.1 and 4.5.1.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import pathlib
import select
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, Protocol, cast

import numpy as np

from isolane import allowed
from isolane.pipeline.item import Item, ItemError, encode
from isolane.pipeline.operator import METHODS, OperatorError, describe, load
from isolane.pipeline.stopwatch import IDLE_MIN_MS, Parts, Spent, Stopwatch, mean_parts, parts
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
from isolane.planner.search.problem import BudgetSpent

#: Is there where a driver of NVIDIA is loaded.
DEVICES = pathlib.Path("/dev/nvidiactl")

#: What an item is, for those who write one.
ITEM = "isolane.pipeline.item.Item(id, time_s, payload)"


class Runs(Protocol):
    """What a launch needs of an operator."""

    def configure(self, knobs: dict[str, Value]) -> None:
        """Takes the knobs' values."""

    def process(self, item: Item) -> list[Item]:
        """The items that go on."""


def made(spec: OperatorSpec) -> Runs:
    """A new operator of this implementation."""
    try:
        return cast(Runs, load(spec.implementation, spec.options))
    except OperatorError as error:
        raise PlanError(f"operator {spec.name}: {error}") from error


def check_operators(query: Query, apart_s: float = 0.0) -> None:
    """Raises what is wrong with the operators' names, all of them, and with model files, before anything is launched. Model files
    are opened in this process, or with `apart_s` in a copy of it that may take so many seconds: a process that has used CUDA cannot
    use it again in its copies."""
    wrong = []
    for spec in query.operators:
        try:
            if spec.implementation.endswith(".onnx"):
                opened(spec, apart_s)
            else:
                allowed.find_class(spec.implementation, METHODS)
        except PlanError as error:
            wrong.append(str(error))
        except allowed.NameRefused as error:
            wrong.append(f"operator {spec.name}: operator {error}")
    if wrong:
        raise PlanError("; ".join(wrong))


def opened(spec: OperatorSpec, apart_s: float) -> None:
    """Opens the model file once."""

    def work() -> Ran:
        made(spec)
        return Ran(0.0, {}, (1.0, 1.0))

    if not apart_s:
        work()
        return
    try:
        elsewhere(work, f"operator {spec.name}", time.monotonic() + apart_s)
    except BudgetSpent:
        raise PlanError(f"operator {spec.name}: {spec.implementation} was not open after the budget of {apart_s:g} s") from None


def configured(spec: OperatorSpec, settings: dict[str, Value]) -> Runs:
    """The same with these settings."""
    operator = made(spec)
    try:
        operator.configure(settings)
    except Exception as error:
        raise PlanError(f"operator {spec.name} refuses {settings}: {describe(error)}") from error
    return operator


def workload_of(query: Query) -> Workload:
    """The data that the query names."""
    if not query.workload:
        raise PlanError(f"query {query.name}: workload is missing: live launches need module:Class")
    try:
        return cast(Workload, allowed.find_class(query.workload, ("items",))())
    except allowed.NameRefused as error:
        raise PlanError(f"query {query.name}: workload {error}") from error
    except Exception as error:
        raise PlanError(f"query {query.name}: workload {query.workload} cannot be made: {describe(error)}") from error


def short(value: object) -> str:
    """A value as errors show it: its type and its first characters."""
    kind = type(value).__name__
    text = " ".join(repr(value).split())
    return f"{kind} {text[:57]}..." if len(text) > 60 else f"{kind} {text}"


def is_number(value: object) -> bool:
    """Whether it is a number, of Python or of numpy, and no truth value."""
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


class Checked:
    """A workload of the user's: its results are checked, and an exception in it is an input error that names the workload."""

    def __init__(self, query: Query, workload: Workload) -> None:
        self.workload = workload
        self.who = f"query {query.name}: workload {query.workload or type(workload).__name__}"

    def call(self, method: str, *arguments: Any) -> Any:
        """What the method returns."""
        if not callable(getattr(self.workload, method, None)):
            raise PlanError(f"{self.who}: has no {method}(); a workload has items(), accuracy() and filter_score()")
        try:
            return getattr(self.workload, method)(*arguments)
        except Exception as error:  # Anything that the user's class may raise.
            raise PlanError(f"{self.who}: {method}() failed: {describe(error)}") from error

    def wrong(self, method: str, returned: str, expected: str) -> NoReturn:
        """Raises what a method returned and what it should."""
        raise PlanError(f"{self.who}: {method}() returned {returned}: must be {expected}")

    def items(self) -> Sequence[Item]:
        """The items, one or more."""
        expected = f"a list of {ITEM}"
        found = self.call("items")
        if not isinstance(found, Sequence) or isinstance(found, (str, bytes)):
            self.wrong("items", short(found), expected)
        for index, item in enumerate(found):
            if not isinstance(item, Item):
                self.wrong("items", f"{short(item)} at position {index}", expected)
            try:
                encode(item)
            except Exception as error:  # Fields of any type.
                self.wrong("items", f"an Item at position {index} that cannot be sent, {describe(error)}", expected)
        if not found:
            raise PlanError(f"{self.who}: its workload has no items")
        return found

    def accuracy(self, *arguments: Any) -> float:
        """The accuracy, 0 to 1."""
        found = self.call("accuracy", *arguments)
        if not is_number(found) or not -1e-9 <= float(found) <= 1.0 + 1e-9:
            self.wrong("accuracy", short(found), "a number from 0 to 1")
        return float(found)

    def filter_score(self, passed: Sequence[Item]) -> tuple[float, float]:
        """Precision and recall, 0 to 1."""
        found = self.call("filter_score", passed)
        pair = tuple(found) if isinstance(found, (tuple, list)) else ()
        if len(pair) != 2 or not all(is_number(each) and -1e-9 <= float(each) <= 1.0 + 1e-9 for each in pair):
            self.wrong("filter_score", short(found), "(precision, recall), two numbers from 0 to 1")
        return float(pair[0]), float(pair[1])


def pass_through(
    spec: OperatorSpec, operator: Runs, items: Sequence[Item], deadline_s: float = math.inf
) -> tuple[list[Item], OperatorResult]:
    """All items through one operator: what it sent, and what that was like. `deadline_s` is of `time.monotonic`."""
    sent: list[Item] = []
    calls: list[Spent] = []
    clock = Stopwatch(operator)
    for item in items:
        if time.monotonic() > deadline_s:
            raise BudgetSpent
        try:
            clock.start()
            out = operator.process(item)
            calls.append(clock.spent())
        except Exception as error:
            raise PlanError(f"operator {spec.name} failed at item {item.id}: {describe(error)}") from error
        if not isinstance(out, list) or not all(isinstance(each, Item) for each in out):
            odd = [each for each in out if not isinstance(each, Item)] if isinstance(out, list) else []
            wrong = f"a list with {short(odd[0])}" if odd else type(out).__name__
            raise PlanError(f"operator {spec.name} returned {wrong} for item {item.id}: must be a list of items, {ITEM}")
        sent += out
    try:
        sizes = [len(encode(item)) for item in sent]
    except ItemError as error:
        raise PlanError(f"operator {spec.name} sent what is no item: {error}") from error
    except Exception as error:  # Fields of any type.
        raise PlanError(f"operator {spec.name} sent what is no {ITEM}: {describe(error)}") from error
    clock.close()
    return sent, measured(spec, calls[1:] or calls, sizes, len(items))


def measured(spec: OperatorSpec, calls: Sequence[Spent], sizes: Sequence[int], items: int) -> OperatorResult:
    """What the calls and the sizes of what was sent say of an operator."""
    worked_ms = float(np.mean([one.accelerator_ms or 0.0 for one in calls])) if calls else 0.0
    if not spec.gpu and worked_ms > IDLE_MIN_MS:
        raise PlanError(f"operator {spec.name}: an accelerator worked for it, {worked_ms:.3g} ms per item: its query must have `gpu: true`")
    mean = mean_parts(calls, spec.gpu)
    tail = tails(mean, calls, spec.gpu)
    return OperatorResult(
        processing_ms=mean.processing_ms,
        output_bytes=float(np.mean(sizes)) if sizes else 0.0,
        pass_rate=len(sizes) / items if items else 0.0,
        processing_p99_ms=tail.processing_ms,
        output_p99_bytes=float(np.percentile(sizes, 99)) if sizes else 0.0,
        core_ms=mean.core_ms,
        waiting_ms=mean.waiting_ms,
        core_p99_ms=tail.core_ms,
        waiting_p99_ms=tail.waiting_ms,
        overlap_ms=mean.overlap_ms,
    )


def tails(mean: Parts, calls: Sequence[Spent], gpu: bool) -> Parts:
    """The 99th percentile of each part, of the same resources as the means."""
    if not calls:
        return mean
    if all(one.accelerator_ms is not None for one in calls):
        each = [dataclasses.astuple(parts(one.processor_ms, one.idle_ms, gpu, one.accelerator_ms)) for one in calls]
        return Parts(*map(float, np.percentile(each, 99, axis=0)))
    busy, idle = ([getattr(one, name) for one in calls] for name in ("processor_ms", "idle_ms"))
    busy_ms, idle_ms = float(np.percentile(busy, 99)), float(np.percentile(idle, 99))
    if mean.core_ms:
        return Parts(idle_ms, busy_ms, 0.0)
    if mean.waiting_ms:
        return Parts(busy_ms, 0.0, idle_ms)
    return Parts(float(np.percentile(np.add(busy, idle), 99)), 0.0, 0.0)


class Ran(NamedTuple):
    """What a run of operators gave: accuracy, what was measured of each operator, precision and recall of the filters."""

    accuracy: float
    results: dict[str, OperatorResult]
    score: tuple[float, float]


def elsewhere(work: Callable[[], Ran], who: str, deadline_s: float) -> Ran:
    """What the work returns in a copy of this process, which is killed at the deadline (of `time.monotonic`): `BudgetSpent`."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        # Nothing of the parent's may run here: neither its exit handlers nor what waits in its buffers.
        try:
            os.close(reader)
            with os.fdopen(writer, "wb") as pipe:
                pipe.write(json.dumps(answer_of(work)).encode())
        finally:
            os._exit(0)
    os.close(writer)
    data = bytearray()
    try:
        while len(data) <= ANSWER_BYTES:
            left = max(deadline_s - time.monotonic(), 0.0)
            if not select.select([reader], [], [], None if math.isinf(left) else left)[0]:
                raise BudgetSpent
            part = os.read(reader, 1 << 16)
            if not part:
                break
            data += part
    finally:
        os.close(reader)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    if not data:
        how = f"by {signal.Signals(os.WTERMSIG(status)).name}" if os.WIFSIGNALED(status) else f"with status {status >> 8}"
        raise PlanError(f"{who}: an operator or the workload took its process down ({how})")
    return read_answer(data, who)


def answer_of(work: Callable[[], Ran]) -> dict[str, Any]:
    """The document of what the work returned or raised. `read_answer` is its inverse."""
    try:
        found = work()
        results = {name: [float(each) for each in dataclasses.astuple(one)] for name, one in found.results.items()}
        return {"accuracy": float(found.accuracy), "results": results, "score": [float(each) for each in found.score]}
    except BudgetSpent:
        return {"spent": True}
    except PlanError as error:
        return {"error": str(error)}
    except BaseException as error:  # An operator that calls sys.exit too.
        return {"error": f"the launch failed: {describe(error)}"}


def read_answer(data: bytes | bytearray, who: str) -> Ran:
    """What a launch returned; raises what it raised, or `PlanError` if these bytes say neither: an operator has run in the process
    that wrote them, so they are JSON, from which only numbers are taken."""
    try:
        if len(data) > ANSWER_BYTES:
            raise ValueError(f"more than {ANSWER_BYTES} bytes")
        said = json.loads(data)
        if said.get("spent") is True:
            raise BudgetSpent
        if "error" in said:
            raise PlanError(" ".join(str(said["error"])[:ERROR_CHARACTERS].split()))
        results = {name: OperatorResult(*_numbers(values, math.inf)) for name, values in said["results"].items()}
        accuracy, precision, recall = _numbers([said["accuracy"], *said["score"]], 1.0 + 1e-9)
        return Ran(accuracy, results, (precision, recall))
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise PlanError(f"{who}: its process sent no result of a launch: {describe(error)}") from error


def _numbers(values: Sequence[Any], most: float) -> list[float]:
    """Numbers from 0 to `most`, less what rounding takes from 0."""
    numbers = [float(each) for each in values]
    if not all(-1e-9 <= each <= most and math.isfinite(each) for each in numbers):
        raise ValueError(f"a number is not finite, below 0 or above {most:g}")
    return numbers


#: The largest answer of a launch: 300 bytes for each operator are usual.
ANSWER_BYTES = 1 << 20
#: Of a reason that the process of a launch sent.
ERROR_CHARACTERS = 1_000


class Live:
    """The launcher that runs the operators. With a budget, launches end by `BudgetSpent` when so many seconds of wall time have
    passed since it was made. `progress` gets a line per launch."""

    def __init__(
        self,
        query: Query,
        workload: Workload | None = None,
        budget_s: float = math.inf,
        progress: Callable[[str], None] | None = None,
        apart: bool = False,
    ) -> None:
        self.query = query
        self.apart = apart
        check_operators(query, budget_s if apart else 0.0)
        self.workload = Checked(query, workload_of(query) if workload is None else workload)
        self.began_s = time.monotonic()
        self.budget_s = budget_s
        self.hinted: set[str] = set()
        self.progress = progress
        self.launches = 0
        self.items = self.workload.items()

    def launch(self, order: Order, configuration: Configuration) -> Launch:
        """Runs the whole pipeline."""
        begin = time.monotonic()

        def work() -> Ran:
            outputs, results, score = self.run(order, configuration, self.items)
            return Ran(self.workload.accuracy(outputs), results, score)

        accuracy, results, score = self.bounded(work)
        if results.keys() != set(order):
            measured = ", ".join(sorted(results))[:ERROR_CHARACTERS] or "none"
            raise PlanError(f"query {self.query.name}: a launch of {', '.join(order)} measured other operators: {measured}")
        spent = time.monotonic() - begin
        self.launches += 1
        self.hint(results)
        self.say(f"launch {self.launches}", spent, f"accuracy {accuracy:.3f} with {self.settings(configuration)}")
        return Launch(order, configuration, accuracy, results, spent, *score)

    def filters(self, order: Order, configuration: Configuration) -> FilterScore:
        """Runs source and filters."""
        begin = time.monotonic()
        count = next(index for index, name in enumerate(order) if self.query.operator(name).kind == "model")
        score = self.bounded(lambda: Ran(0.0, {}, self.run(order[:count], configuration, self.items)[2])).score
        spent = time.monotonic() - begin
        self.say(f"filters {' > '.join(order[:count])}", spent, f"precision {score[0]:.3f}, recall {score[1]:.3f}")
        return FilterScore(*score, spent)

    def bounded(self, work: Callable[[], Ran]) -> Ran:
        """What the work returns; `BudgetSpent` if it takes longer than is left."""
        if not self.apart:
            return work()
        return elsewhere(work, f"query {self.query.name}", self.began_s + self.budget_s)

    def say(self, what: str, spent_s: float, result: str) -> None:
        """A line of progress: this run, and the wall time of all."""
        if self.progress is not None:
            limit = f" of {self.budget_s:g}" if math.isfinite(self.budget_s) else ""
            passed = time.monotonic() - self.began_s
            self.progress(f"query {self.query.name}: {what}: {spent_s:.2f} s ({passed:.1f}{limit} s so far), {result}")

    def hint(self, results: Mapping[str, OperatorResult]) -> None:
        """A line about each `gpu` operator whose core is planned as its accelerator, if this machine has one of NVIDIA's."""
        untold = {spec.name for spec in self.query.operators if spec.gpu and results[spec.name].core_ms + results[spec.name].overlap_ms == 0.0}
        if self.progress is None or not DEVICES.exists():
            return
        for name in sorted(untold - self.hinted):
            self.hinted.add(name)
            self.progress(
                f"query {self.query.name}: operator {name}: its thread hardly waits, so its core is planned as the GPU's; if it uses the "
                "GPU, give its class accelerator_ms() (isolane.pipeline.cuda)"
            )

    def settings(self, configuration: Configuration) -> str:
        """The knobs in a line."""
        pairs = zip(self.query.knobs, configuration, strict=True)
        return ", ".join(f"{knob.operator}.{knob.name} = {knob.values[index]}" for knob, index in pairs) or "no knobs"

    def run(
        self, order: Order, configuration: Configuration, items: Sequence[Any]
    ) -> tuple[list[Item], dict[str, OperatorResult], tuple[float, float]]:
        """The outputs, what was measured, and the filters' precision and recall."""
        settings = self.query.settings(configuration)
        results: dict[str, OperatorResult] = {}
        current = list(items)
        filtered = current
        deadline_s = self.began_s + self.budget_s
        for name in order:
            spec = self.query.operator(name)
            operator = configured(spec, settings[name])
            current, results[name] = pass_through(spec, operator, current, deadline_s)
            if spec.kind in ("source", "filter"):
                filtered = current
        return current, results, self.workload.filter_score(filtered)


class Reference:
    """A substitute for truth: the most expensive configuration on the first `burst` items of every `period`."""

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
        return self.launcher.workload.accuracy(outputs, expected)
