"""`isolane edge watch`: a running query whose plan follows its conditions.

Problem: links slow down, tiers get busy and scenes change while a query runs. Method: each period gives an observation (`observe`) and
its utility. `alarms` says when something changed: an objective is missed, a link is slower, utility or accuracy shifted. Then every link
is measured. Where links changed, a search from prior knowledge (`planner.online`) runs under the links as they are, with launches that
the profile knows. Where none changed, something else did: content, or the machines. Then `shadow` launches a few configurations on live
items, and the plan comes from those. The result is applied to the running pipeline without stopping it: knobs are set, operators move,
and no item is lost. Each period and each change is reported.

Units: `period_s` seconds. Limits: a link that became faster is noticed when something else makes a search. Source: Vulcan, section 4.5.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from isolane.pipeline import clock
from isolane.pipeline.alarms import Alarms
from isolane.pipeline.deployment import from_plan
from isolane.pipeline.item import Item
from isolane.pipeline.observe import TELLING_PART, Probes, Reference, bandwidth, observation
from isolane.pipeline.records import REFUSED, Record, summarize
from isolane.pipeline.runner import Moved, Runner, RunnerError
from isolane.pipeline.shadow import SHADOW_ITEMS, SHADOW_LAUNCHES, SHADOW_S, Shadow
from isolane.planner.formats import plan_json
from isolane.planner.model import Infrastructure, Launcher, Plan, PlanError, Query
from isolane.planner.online import Corrected, Memory, Observation, everything, replan, reprofile, with_link
from isolane.planner.ordering import Ordering
from isolane.planner.planning import Planned
from isolane.planner.search.problem import Problem

#: A measured speed within this part of the known one changes nothing: a probe of a busy link is no better.
SAME_SPEED = 0.25
#: A link that lost this part of its speed is slower.
SLOWER = 0.5
#: Items of a period that also go through the most expensive configuration, and samples that are judged together.
SAMPLE, SAMPLES = 12, 8
#: Periods that the printed utility covers, and periods after which the utility of a new plan is judged.
WINDOW, SETTLED = 4, 2
#: A period waits so long for its sample to be judged.
SAMPLE_WAIT_S = 1.0


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
    """A plan from a file with the problem that it solves, for searches that begin from there."""
    return Planned(plan, Problem(query, infrastructure, launcher, plan.order), Ordering(plan.order, {}, 0.0))


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


def stretch(known: set[int], most: int = SAMPLE) -> list[int]:
    """The last `most` consecutive ids, or of shorter stretches the longest (of these the last).

    Operators with a memory (a background, a result that holds until the next sampled frame) judge what follows upon each other:
    with holes, which late items leave, the reference would see another scene.
    """
    best: list[int] = []
    current: list[int] = []
    for number in sorted(known):
        current = [*current, number] if current and number == current[-1] + 1 else [number]
        if min(len(current), most) >= min(len(best), most):
            best = current
    return best[-most:]


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
        tell: Callable[[Period | Replanned], None] = lambda _: None,
    ) -> None:
        self.runner, self.query, self.infrastructure = runner, query, infrastructure
        self.current = start
        self.memory = Memory()
        self.memory.remember(start.plan.path)
        self.alarms = Alarms(query)
        #: The utility of the plan in force when it was first known; None until then.
        self.expected: float | None = None
        self.periods: list[Period] = []
        self.replanned: list[Replanned] = []
        self._launcher, self._probes, self._searcher, self._tell = launcher, probes, searcher, tell
        self._seen = 0
        self._window: deque[list[Record]] = deque(maxlen=WINDOW)
        self._samples: deque[tuple[list[Item], list[Item]]] = deque(maxlen=SAMPLES)
        self._accuracy: float | None = None
        self._judged: deque[float] = deque()
        self._sampling: asyncio.Task[None] | None = None
        #: Links that the measurement of the last alarm found slower, with their speeds.
        self._slower: dict[str, float] = {}

    def skip(self) -> None:
        """Leaves out what ended until now."""
        self._seen = len(self.runner.records)
        self._window.clear()
        self._samples.clear()
        self._judged.clear()
        self._accuracy = self.expected = None
        self.alarms.reset()

    @property
    def accuracy(self) -> float:
        """Over the last samples together; the plan's own before there are any."""
        return self.current.plan.accuracy if self._accuracy is None else self._accuracy

    async def period(self, items: Sequence[Item] = (), reference: Reference | None = None) -> bool:
        """Judges what ended since the last one; plans again where an alarm is raised. Whether the plan changed.

        `items` are the source's, and `reference` replaces the truth for a sample of them.
        """
        records = self.runner.records[self._seen :]
        self._seen += len(records)
        self._window.append(list(records))
        if reference is not None and items:
            await self._judge(records, items, reference)
        seen = self._observe([one for period in self._window for one in period], self.accuracy)
        if seen is None or len(self._window) < SETTLED:
            self._add(records, seen, None, "nothing delivered" if seen is None else "settling")
            return False
        utility = seen.utility(self.query)
        if self.expected is None:
            self.expected = utility
        cause = await self._cause(records)
        self._add(records, seen, utility, cause)
        return await self._replan(utility, items, reference) if cause else False

    async def _cause(self, records: Sequence[Record]) -> str:
        """What changed, or nothing."""
        promised = self.current.plan.meets
        missed = self.alarms.objective(records) if promised else ""
        if missed:
            return missed
        if self._probes is not None and self.alarms.suspects(self.runner.deployment, records, self.infrastructure):
            slower = await self._measure(SLOWER, slower=True)
            if self.alarms.link(bool(slower)):
                self._slower = slower
                return f"slower: {', '.join(slower)}"
        moved = [self.alarms.accuracy(self._judged.popleft()) for _ in range(len(self._judged))]
        block = self.alarms.block(records)
        if block and all(any(hop["operator"] == name for one in block for hop in one.trace) for name in self.current.plan.order):
            # The accuracy has a test of its own: here it is constant.
            seen = self._observe(block, self.current.plan.accuracy)
            moved += [] if seen is None else [self.alarms.utility(seen.utility(self.query))]
        return next(filter(None, moved), "")

    def _observe(self, records: Sequence[Record], accuracy: float) -> Observation | None:
        """What the plan in force did with these items, on the links as they are known."""
        runner = self.runner
        return observation(runner.deployment, records, self.query, self.infrastructure, accuracy, runner.options.deadline_s)

    async def _judge(self, records: Sequence[Record], items: Sequence[Item], reference: Reference) -> None:
        """Judges a sample without a long wait. The reference has the lowest priority, and on a busy machine the detection of a
        changed link must not wait for it. One sample at a time; the accuracy is the last known.
        """
        if self._sampling is not None and self._sampling.done():
            # An error of the sample is raised here.
            self._sampling.result()
            self._sampling = None
        if self._sampling is None:
            self._sampling = asyncio.ensure_future(self._sample(records, items, reference))
        await asyncio.wait([self._sampling], timeout=SAMPLE_WAIT_S)

    def stop(self) -> None:
        """Gives up a sample that is being judged."""
        if self._sampling is not None:
            self._sampling.cancel()
            self._sampling = None

    async def _sample(self, records: Sequence[Record], items: Sequence[Item], reference: Reference) -> None:
        """Accuracy over the last samples together, since F-measures of short stretches jump; and of this one, to be tested."""
        ids = stretch({one.item_id for one in records if one.outcome not in ("failed", REFUSED)})
        if not ids:
            return
        by_id = {item.id: item for item in items}
        sample = [by_id[number] for number in ids]
        found = [output for one in records for output in one.outputs if output.id in set(ids)]
        # What is in force when the answer comes may be another plan, whose accuracy this is not.
        plan = self.current
        truth = await reference.outputs(sample)
        if plan is not self.current:
            return
        if truth:
            self._judged.append(await asyncio.to_thread(reference.workload.accuracy, found, truth))
        self._samples.append((found, truth))
        outputs = [item for one, _ in self._samples for item in one]
        truths = [item for _, one in self._samples for item in one]
        if truths:
            self._accuracy = await asyncio.to_thread(reference.workload.accuracy, outputs, truths)

    def _add(self, records: Sequence[Record], seen: Observation | None, utility: float | None, what: str) -> None:
        summary = summarize(len(records), records)
        failed = summary.failed + summary.refused
        latency = None if seen is None else seen.latency_ms
        period = Period(clock.now(), len(records), failed, latency, self.accuracy, utility, self.expected, what)
        self.periods.append(period)
        self._tell(period)

    async def _replan(self, utility: float, items: Sequence[Item], reference: Reference | None) -> bool:
        """Plans again for the conditions as they are, and applies the plan; whether it differs."""
        changed = await self._measure()
        # A full link is hard to measure. Of two measurements the smaller speed counts.
        for name, speed in self._slower.items():
            changed[name] = min(speed, changed.get(name, speed))
        self._slower = {}
        for name, speed in changed.items():
            self.infrastructure = with_link(self.infrastructure, name, speed)
        # What the plan in force is worth on the links as they are.
        again = self._observe([one for period in self._window for one in period], self.accuracy)
        utility = utility if again is None else again.utility(self.query)
        begin = time.monotonic()
        found = await self._search(bool(changed), items, reference)
        searched = time.monotonic()
        lines = differences(self.current.plan, found.plan)
        moved = await self.runner.apply(from_plan(plan_json(found.plan, self.query, self.infrastructure)))
        expected = utility if self.expected is None else self.expected
        self.current = found
        if lines:
            # The next periods say what the plan is worth in force.
            self.skip()
        else:
            # This plan is the best under the present conditions, so the usual values are learnt again.
            self.expected = utility
            self.alarms.reset(resigned=True)
        ended = time.monotonic()
        times_ms = (1000.0 * (searched - begin), 1000.0 * (ended - searched))
        event = Replanned(clock.now(), utility, expected, changed, found.plan, *times_ms, found.problem.launches, lines, moved)
        self.replanned.append(event)
        self._tell(event)
        return bool(lines)

    async def _search(self, links_changed: bool, items: Sequence[Item], reference: Reference | None) -> Planned:
        """The plan for the conditions: from what is known where links changed, else from launches on live items."""
        seed = len(self.replanned)
        if not links_changed and reference is not None:
            shadow = await self._shadow(items, reference)
            if shadow is not None:
                found = await asyncio.to_thread(self._reprofile, shadow, seed)
                if found is not None:
                    return found
        launcher, memory, searcher = self._launcher, self.memory, self._searcher
        return await asyncio.to_thread(replan, self.current, self.infrastructure, launcher, memory, searcher, seed)

    async def _shadow(self, items: Sequence[Item], reference: Reference) -> Shadow | None:
        """A launcher over the latest items, if enough followed upon each other for anything to be found in them."""
        self.stop()
        until_s = time.monotonic() + SHADOW_S
        ids = stretch({one.item_id for one in self.runner.records[-2 * SHADOW_ITEMS :]}, SHADOW_ITEMS)
        by_id = {item.id: item for item in items}
        sample = [by_id[number] for number in ids if number in by_id]
        try:
            truth = await asyncio.wait_for(reference.outputs(sample), SHADOW_S / 2.0)
        except asyncio.TimeoutError:
            return None
        return Shadow(self.query, reference, sample, truth, until_s) if truth else None

    def _reprofile(self, shadow: Launcher, seed: int) -> Planned | None:
        """A plan from launches on live items, after which the launcher says what they said; None if not even one ended in time."""
        known = everything(self._launcher, self.query, self.current.plan.order)
        try:
            found = reprofile(self.current, self.infrastructure, shadow, known, SHADOW_LAUNCHES, seed)
        except PlanError:
            return None
        self._launcher = Corrected(found.problem, known)
        self.memory = Memory()
        self.memory.learn(found.problem)
        return found

    async def _measure(self, same: float = SAME_SPEED, slower: bool = False) -> dict[str, float]:
        """Measures every link; those that are further off than `same` (with `slower`: to that side), with their speeds."""
        changed: dict[str, float] = {}
        if self._probes is None:
            return changed
        tiers = [tier.name for tier in self.infrastructure.tiers]
        # Where only slower links matter, a small measurement that is fast enough will do.
        enough = 1.0 - same if slower else TELLING_PART
        measured = await asyncio.gather(
            *(
                bandwidth(self.runner, self._probes, index, tiers, link.mbit_per_s, enough)
                for index, link in enumerate(self.infrastructure.links)
            ),
            return_exceptions=True,
        )
        for link, speed in zip(self.infrastructure.links, measured, strict=True):
            if isinstance(speed, BaseException):
                if not isinstance(speed, RunnerError):
                    raise speed
                # Nothing passes at all: a thousandth represents this without a special case in the planner.
                speed = link.mbit_per_s / 1000.0
            if slower and speed > link.mbit_per_s:
                continue
            if abs(speed - link.mbit_per_s) > same * link.mbit_per_s:
                changed[link.name] = speed
        return changed
