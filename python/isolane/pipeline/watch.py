"""`isolane pipeline watch`: a running query whose plan follows its conditions.

Problem: links slow down, tiers get busy and scenes change while a query runs. Method: each period gives an observation
(`observe`) and its utility. Three things start a search from prior knowledge (`planner.online`) under the conditions as measured
now: a utility that is more than 10 % off that which the plan had when it came into force, and further off than its own noise; an
objective that is missed though the plan promised it; and links that, when the plan's utility is first known, are not those that
it was made for (they changed while it warmed up, so that its utility cannot show it). The result is applied to the running
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
from isolane.pipeline.observe import TELLING_PART, Probes, Reference, bandwidth, observation
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
#: A link that lost this part of its speed counts when a plan comes into force, where nothing else says that something changed.
SLOWER = 0.5
#: Items of a period that also go through the most expensive configuration, and samples that are judged together.
SAMPLE, SAMPLES = 12, 8
#: Periods that an observation covers, after how many a new plan's utility is looked at, and after how many it is believed even
#: if it still moves: until then it is what two observations in a row agree on, since a pipeline that has just started warms up.
WINDOW, SETTLED, WARM_UP_MAX = 4, 2, 10
#: Utilities under the plan in force whose spread says what is noise; beyond `NOISE_MAX` nothing is.
USUAL, NOISE_MAX = 10, 0.5
#: A period waits so long for its sample to be judged.
SAMPLE_WAIT_S = 1.0
#: Items that a period must have delivered for its own latency to say that an objective is missed; with fewer, failures do.
TELLING = 3
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
        patience: int = PATIENCE,
        tell: Callable[[Period | Replanned], None] = lambda _: None,
    ) -> None:
        self.runner, self.query, self.infrastructure = runner, query, infrastructure
        self.current = start
        self.memory = Memory()
        self.memory.remember(start.plan.path)
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
        self._missed = 0
        self._sampling: asyncio.Task[None] | None = None
        #: Set where a search found nothing that would not miss either, until an objective is met again.
        self._resigned = False

    def skip(self) -> None:
        """Leaves out what ended until now."""
        self._seen = len(self.runner.records)
        self._window.clear()
        self._samples.clear()
        self._warming.clear()
        self._missed = 0
        self._resigned = False
        self._accuracy = None

    @property
    def accuracy(self) -> float:
        """Over the last samples together; the plan's own before there are any."""
        return self.current.plan.accuracy if self._accuracy is None else self._accuracy

    async def period(self, items: Sequence[Item] = (), reference: Reference | None = None) -> bool:
        """Judges what ended since the last one; plans again if that is off. Whether the plan changed.

        `items` are the source's, for a sample of which `reference` stands in for truth.
        """
        records = self.runner.records[self._seen :]
        self._seen += len(records)
        self._window.append(list(records))
        if reference is not None and items:
            await self._judge(records, items, reference)
        recent = [one for period in self._window for one in period]
        seen = self._observe(recent)
        if seen is None or len(self._window) < SETTLED:
            self._add(records, seen, None, "nothing delivered" if seen is None else "settling")
            return False
        utility = seen.utility(self.query)
        missed = self._missed_objective(records)
        if missed:
            self._add(records, seen, utility, missed)
            return await self._replan(utility, await self._measure())
        if self.monitor is None:
            if not self._settled(utility):
                self._add(records, seen, utility, "settling")
                return False
            return await self._into_force(records, seen, utility)
        self.monitor.threshold = self._threshold()
        if not self.monitor.changed(utility):
            self._usual.append(utility)
            self._add(records, seen, utility, "")
            return False
        self._add(records, seen, utility, f"changed by more than {self.monitor.threshold:.0%}")
        return await self._replan(utility, await self._measure())

    def _observe(self, records: Sequence[Record]) -> Observation | None:
        """What the plan in force did with these items, on the links as they are known."""
        runner = self.runner
        return observation(
            runner.deployment, records, self.query, self.infrastructure, self.accuracy, runner.options.deadline_s
        )

    async def _into_force(self, records: Sequence[Record], seen: Observation, utility: float) -> bool:
        """The plan's utility is known now, and is what later ones are compared with, unless it was made for other links."""
        self.monitor = Monitor(utility, patience=self._patience)
        self._usual.clear()
        self._usual.append(utility)
        changed = await self._measure(SLOWER, slower=True)
        if changed:
            self._add(records, seen, utility, "in force, but planned for other links")
            return await self._replan(utility, changed)
        self._add(records, seen, utility, "in force")
        return False

    def _missed_objective(self, records: Sequence[Record]) -> str:
        """Which objective the plan misses for `patience` periods in a row though it promised it; nothing if none.

        A period's own items tell, since an observation over several periods shows a change late.
        """
        if not self.current.plan.meets:
            return ""
        late = [one.latency_ms for one in records if one.latency_ms is not None]
        failed = [one for one in records if one.outcome not in ("delivered", "filtered")]
        slow = len(late) >= TELLING and statistics.median(late) > self.query.latency_max_ms
        bad = slow or len(failed) > max(len(late), TELLING)
        if not bad:
            # A period without results says nothing of either.
            if late:
                self._missed, self._resigned = 0, False
            return ""
        self._missed += 1
        if self._resigned or self._missed < self._patience:
            return ""
        if not slow:
            return f"{len(failed)} of {len(records)} items failed"
        return f"misses {self.query.latency_max_ms:g} ms, which was promised"

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

    async def _judge(self, records: Sequence[Record], items: Sequence[Item], reference: Reference) -> None:
        """Has a sample judged, without waiting long for it: the reference gives way to all other work, and on a busy machine a
        change of the links must not be noticed only when it has had its turn. One sample at a time; the accuracy is the last known.
        """
        if self._sampling is not None and self._sampling.done():
            # Whatever went wrong with it is raised here.
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
        """Accuracy over the last samples together: F-measures of short stretches jump."""
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
        self._samples.append((found, truth))
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

    async def _replan(self, utility: float, changed: dict[str, float]) -> bool:
        """Plans again for the links as they are; `changed` are those that differ from what was known."""
        expected = utility if self.monitor is None else self.monitor.expected
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
            self._resigned = True
            if self.monitor is not None:
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

    async def _measure(self, same: float = SAME_SPEED, slower: bool = False) -> dict[str, float]:
        """Measures every link and takes over what is further off than `same` (with `slower`: to that side); returns that."""
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
                # Nothing passes at all: a thousandth says so without a special case in the planner.
                speed = link.mbit_per_s / 1000.0
            if slower and speed > link.mbit_per_s:
                continue
            if abs(speed - link.mbit_per_s) > same * link.mbit_per_s:
                changed[link.name] = speed
        for name, speed in changed.items():
            self.infrastructure = with_link(self.infrastructure, name, speed)
        return changed
