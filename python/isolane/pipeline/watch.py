"""`isolane pipeline watch`: a running query whose plan follows its conditions.

Problem: links slow down, tiers get busy and scenes change while a query runs. Method: each period gives an observation
(`observe`) and its utility; one that is more than 10 % off the utility that the plan had when it came into force, and further
off than that utility's own noise, starts a search from prior knowledge (`planner.online`) under the conditions as measured now, and its result is applied to the running
pipeline without stopping it: knobs are set, operators move, and no item is lost. Each period and each change is told.

Units: `period_s` seconds. Limits: launches of the search are replays of the profile, so a change of content is noticed and
planned around only as far as the profile knows it. Source: Vulcan, section 4.5.
"""

from __future__ import annotations

import asyncio
import dataclasses
import statistics
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from isolane.pipeline.deployment import from_plan
from isolane.pipeline.item import Item
from isolane.pipeline.observe import Probes, Reference, bandwidth, observation
from isolane.pipeline.records import REFUSED, Record, summarize
from isolane.pipeline.runner import Moved, Runner, RunnerError
from isolane.planner.formats import plan_json
from isolane.planner.model import Infrastructure, Launcher, Plan, Query
from isolane.planner.online import THRESHOLD, Memory, Monitor, Observation, replan, with_link
from isolane.planner.ordering import Ordering
from isolane.planner.planning import Planned
from isolane.planner.search.problem import Problem

#: A measured speed within this part of the known one changes nothing: a probe of a busy link is no better.
SAME_SPEED = 0.25
#: Items of a period that also go through the most expensive configuration, and samples that are judged together.
SAMPLE, SAMPLES = 12, 8
#: Periods that an observation covers, after how many a new plan's utility is looked at, and after how many it is believed even
#: if it still moves: until then it is what two observations in a row agree on, since a pipeline that has just started warms up.
WINDOW, SETTLED, WARM_UP_MAX = 4, 2, 10
#: Utilities under the plan in force whose spread says what is noise; beyond `NOISE_MAX` nothing is.
USUAL, NOISE_MAX = 10, 0.5
#: Periods in a row that must be off. The paper's 1 takes one slow moment of a busy machine for a change.
PATIENCE = 2


@dataclass(frozen=True)
class Period:
    """One period of watching."""

    at_s: float
    items: int
    failed: int
    latency_ms: float | None
    accuracy: float
    utility: float | None
    expected: float | None
    what: str = ""

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class Replanned:
    """A change of plan."""

    at_s: float
    utility: float
    expected: float
    links: dict[str, float]
    plan: Plan
    search_ms: float
    apply_ms: float
    launches: int
    differences: list[str]
    moved: list[Moved] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "at_s": self.at_s,
            "utility": self.utility,
            "expected": self.expected,
            "links_mbit_per_s": self.links,
            "search_ms": self.search_ms,
            "apply_ms": self.apply_ms,
            "launches": self.launches,
            "differences": self.differences,
            "placement": dict(self.plan.placement),
            "configuration": self.plan.configuration,
            "moved": [dataclasses.asdict(one) for one in self.moved],
        }


def planned(plan: Plan, query: Query, infrastructure: Infrastructure, launcher: Launcher) -> Planned:
    """A plan from a file with what its search tried, for searches that begin from there."""
    problem = Problem(query, infrastructure, launcher, plan.order)
    known = {placement: index for index, placement in enumerate(problem.placements)}
    for step in plan.path:
        if step.placement in known:
            problem.tried[known[step.placement], step.configuration] = step.utility
    return Planned(plan, problem, Ordering(plan.order, {}, 0.0))


def differences(before: Plan, after: Plan) -> list[str]:
    """What another plan changes, one line each."""
    lines = []
    for name in after.order:
        old, new = before.placement.get(name), after.placement[name]
        if old != new:
            lines.append(f"{name} moves from {old} to {new}")
        for knob, value in after.configuration[name].items():
            was = before.configuration.get(name, {}).get(knob)
            if was != value:
                lines.append(f"{name}.{knob} {was} -> {value}")
    return lines


class Watcher:
    """Watches a runner and changes its plan."""

    def __init__(
        self,
        runner: Runner,
        query: Query,
        infrastructure: Infrastructure,
        start: Planned,
        launcher: Launcher,
        probes: Probes | None = None,
        searcher: str = "vulcan",
        patience: int = PATIENCE,
        tell: Callable[[Period | Replanned], None] = lambda _: None,
    ) -> None:
        self.runner, self.query, self.infrastructure = runner, query, infrastructure
        self.current = start
        self.memory = Memory()
        self.memory.learn(start.problem)
        self.monitor: Monitor | None = None
        self.periods: list[Period] = []
        self.replanned: list[Replanned] = []
        self._launcher, self._probes, self._searcher, self._tell = launcher, probes, searcher, tell
        self._patience = patience
        self._seen = 0
        self._window: deque[list[Record]] = deque(maxlen=WINDOW)
        self._samples: deque[tuple[list[Item], list[Item]]] = deque(maxlen=SAMPLES)
        self._usual: deque[float] = deque(maxlen=USUAL)
        self._accuracy: float | None = None
        self._warming: list[float] = []

    def skip(self) -> None:
        """Leaves out what ended until now."""
        self._seen = len(self.runner.records)
        self._window.clear()
        self._samples.clear()
        self._warming.clear()
        self._accuracy = None

    @property
    def accuracy(self) -> float:
        """Over the last samples together; the plan's own before there are any."""
        return self.current.plan.accuracy if self._accuracy is None else self._accuracy

    async def period(self, items: Sequence[Item] = (), reference: Reference | None = None) -> bool:
        """Judges what ended since the last one; plans again if that is off. Whether the plan changed.

        `items` are the source's by id, for a sample of which `reference` stands in for truth.
        """
        records = self.runner.records[self._seen :]
        self._seen += len(records)
        self._window.append(list(records))
        if reference is not None and items:
            await self._sample(records, items, reference)
        recent = [one for period in self._window for one in period]
        seen = observation(self.runner, recent, self.query, self.infrastructure, self.accuracy)
        if seen is None or len(self._window) < SETTLED:
            self._add(records, seen, None, "nothing delivered" if seen is None else "settling")
            return False
        utility = seen.utility(self.query)
        if self.monitor is None:
            if not self._settled(utility):
                self._add(records, seen, utility, "settling")
                return False
            self.monitor = Monitor(utility, patience=self._patience)
            self._usual.clear()
        self.monitor.threshold = self._threshold()
        if not self.monitor.changed(utility):
            self._usual.append(utility)
            self._add(records, seen, utility, "in force" if len(self._usual) == 1 else "")
            return False
        self._add(records, seen, utility, f"changed by more than {self.monitor.threshold:.0%}")
        return await self._replan(utility)

    def _settled(self, utility: float) -> bool:
        """Whether the plan in force has this utility: the observation before agrees with it, or they never will."""
        before = self._warming[-1:]
        self._warming.append(utility)
        agree = bool(before) and not Monitor(before[0], NOISE_MAX).changed(utility)
        return agree or len(self._warming) >= WARM_UP_MAX

    def _threshold(self) -> float:
        """The paper's 10 %, or twice the relative standard deviation of utilities under the plan in force, if that is more:
        what their own noise may do. While too few are known, that noise may be anything up to `NOISE_MAX`.
        """
        if len(self._usual) < 3:
            return NOISE_MAX
        noise = 2.0 * statistics.stdev(self._usual) / max(abs(statistics.fmean(self._usual)), 1e-9)
        return min(max(THRESHOLD, noise), NOISE_MAX)

    async def _sample(self, records: Sequence[Record], items: Sequence[Item], reference: Reference) -> None:
        """Accuracy over the last samples together: F-measures of short stretches jump."""
        ids = sorted({one.item_id for one in records if one.outcome not in ("failed", REFUSED)})[-SAMPLE:]
        if not ids:
            return
        sample = [items[number] for number in ids]
        found = [output for one in records for output in one.outputs if output.id in set(ids)]
        self._samples.append((found, await reference.outputs(sample)))
        outputs = [item for one, _ in self._samples for item in one]
        truths = [item for _, one in self._samples for item in one]
        if truths:
            self._accuracy = await asyncio.to_thread(reference.workload.accuracy, outputs, truths)

    def _add(self, records: Sequence[Record], seen: Observation | None, utility: float | None, what: str) -> None:
        summary = summarize(len(records), records)
        expected = None if self.monitor is None else self.monitor.expected
        failed = summary.failed + summary.refused
        latency = None if seen is None else seen.latency_ms
        period = Period(time.time(), len(records), failed, latency, self.accuracy, utility, expected, what)
        self.periods.append(period)
        self._tell(period)

    async def _replan(self, utility: float) -> bool:
        assert self.monitor is not None
        expected = self.monitor.expected
        changed = await self._measure()
        begin = time.monotonic()
        found = await asyncio.to_thread(
            replan, self.current, self.infrastructure, self._launcher, self.memory, self._searcher, len(self.replanned)
        )
        searched = time.monotonic()
        lines = differences(self.current.plan, found.plan)
        moved = await self.runner.apply(from_plan(plan_json(found.plan, self.query, self.infrastructure)))
        self.current = found
        if lines:
            # The next periods say what the plan is worth in force.
            self.monitor = None
            self.skip()
        else:
            # The conditions are what they are, and this plan is the best for them: its utility is the new measure.
            self.monitor.deployed(utility)
        ended = time.monotonic()
        event = Replanned(
            time.time(),
            utility,
            expected,
            changed,
            found.plan,
            1000.0 * (searched - begin),
            1000.0 * (ended - searched),
            found.problem.launches,
            lines,
            moved,
        )
        self.replanned.append(event)
        self._tell(event)
        return bool(lines)

    async def _measure(self) -> dict[str, float]:
        """Measures every link and takes over what changed; returns that."""
        changed: dict[str, float] = {}
        if self._probes is None:
            return changed
        tiers = [tier.name for tier in self.infrastructure.tiers]
        measured = await asyncio.gather(
            *(
                bandwidth(self.runner, self._probes, index, tiers, link.mbit_per_s)
                for index, link in enumerate(self.infrastructure.links)
            ),
            return_exceptions=True,
        )
        for link, speed in zip(self.infrastructure.links, measured, strict=True):
            if isinstance(speed, BaseException):
                if not isinstance(speed, RunnerError):
                    raise speed
                # Nothing passes at all: a thousandth says so without a special case in the planner.
                speed = link.mbit_per_s / 1000.0
            if abs(speed - link.mbit_per_s) > SAME_SPEED * link.mbit_per_s:
                changed[link.name] = speed
        for name, speed in changed.items():
            self.infrastructure = with_link(self.infrastructure, name, speed)
        return changed
