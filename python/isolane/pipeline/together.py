"""Several queries on the same emulated tiers: a newcomer that is admitted, one that is refused, and what priority changes.

Problem: a newcomer must not break an objective of what runs, and that must be seen on running pipelines. Method: the device
has so few cores and the links are so narrow that the first two queries fit, the third fits alone, and all three do not. The first query
runs alone; the second is admitted by the joint plan (`planner.multi`) and started beside it; both objectives are judged by items of
the time in which both ran. The third is rejected with the changes that would admit it, and not started; with priority over the others
(`preempt`) it is admitted and another waits.

Units: `_ms`, `_s`. Limits: a plan gives each tier cores of its own, and all tiers share this machine's. On a machine so busy that a
query alone uses up more than half of what its plan leaves of its limit, or where its threads waited for a core (the kernel's
`schedstat`, as in `costs`) for as long as it was late, a missed limit says nothing about newcomers, and the answer is "skip". Source:
extends Vulcan, section 4.5, which leaves concurrent queries to future work.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import dataclasses
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from isolane.pipeline import clock
from isolane.pipeline.costs import spent_s
from isolane.pipeline.deployment import from_plan
from isolane.pipeline.runner import Options, Runner
from isolane.pipeline.source import Source
from isolane.pipeline.spaces import Spaces
from isolane.planner import beyond, formats, multi
from isolane.planner.model import Infrastructure, Launcher, Plan, Query
from isolane.planner.planning import Planned, plan_query

#: Between which parts of the device's cores and the links' speeds the scarce ones are looked for, and in how many bisections.
PART_MIN, BISECTIONS = 1e-3, 8
#: Results of each query that are waited for, and for how many stretches at most.
RESULTS_MIN, STRETCHES_MAX = 5, 6


@dataclass(frozen=True)
class Answer:
    """A question with its answer: yes, NO, or skip where the machine is too busy for an answer."""

    verdict: str
    what: str


@dataclass
class Newcomers:
    """What the joint plans said, and what was measured: median latencies in milliseconds."""

    first: str
    second: str
    third: str
    #: The device's cores and the links' speeds relative to the file's.
    part: float
    admitted: list[str]
    refused: list[str]
    said: str
    preempted: str
    alone_ms: dict[str, float | None] = field(default_factory=dict)
    beside_ms: dict[str, float | None] = field(default_factory=dict)
    #: Per item, what all threads of a query waited for a core beside the other.
    waited_ms: dict[str, float] = field(default_factory=dict)
    planned_ms: dict[str, float] = field(default_factory=dict)
    limits_ms: dict[str, float] = field(default_factory=dict)
    lost: int = 0

    def answers(self) -> list[Answer]:
        """For the lab's list."""
        fits = self.admitted == [self.first, self.second] and self.third in self.refused
        found = [
            _answer(fits, f"with {100 * self.part:.2g} % of the links and the device's cores {self.second} fits beside {self.first}, {self.third} is {self.said}"),
            _answer("it would fit with" in self.said, f"{self.third} gets the changes that would admit it"),
            _answer(bool(self.preempted), f"with a higher priority and --preempt: {self.preempted or 'nothing changes'}"),
            _answer(self.lost == 0, f"two queries at once: every item has a fate ({self.lost} without)"),
        ]
        return [*found, *(self.keeps(name) for name in self.beside_ms)]

    def keeps(self, name: str) -> Answer:
        """Whether a query keeps its objective beside the other."""
        alone, beside, limit = self.alone_ms.get(name), self.beside_ms[name], self.limits_ms[name]
        text = f"{name} keeps its objective beside the other: median {_ms(beside)} ({_ms(alone)} alone) of {limit:g} ms"
        if beside is not None and beside <= limit:
            return Answer("yes", text)
        if alone is None or alone > (self.planned_ms[name] + limit) / 2.0:
            return Answer("skip", f"{text}: this machine is too busy for it alone ({self.planned_ms[name]:.0f} ms are planned)")
        waited = self.waited_ms.get(name, 0.0)
        if beside is not None and beside - waited <= limit:
            return Answer("skip", f"{text}: of them its threads waited {waited:.0f} ms for a core, which each tier of a plan has to itself")
        return Answer("NO ", text)


def _answer(yes: bool, what: str) -> Answer:
    return Answer("yes" if yes else "NO ", what)


def _ms(value: float | None) -> str:
    return "none delivered" if value is None else f"{value:.0f} ms"


def admit(
    prepared: Sequence[tuple[Query, Launcher]], infrastructure: Infrastructure, searcher: str
) -> tuple[Newcomers, dict[str, Plan]]:
    """The joint plans of three queries, and the plans of those that may run."""
    planned = [plan_query(query, infrastructure, launcher, searcher) for query, launcher in prepared]
    names = [query.name for query, _ in prepared]
    part = scarce(planned, infrastructure)
    tight = with_part(infrastructure, part)
    joint = multi.plan_jointly(planned, tight, running=names[:1])
    said = "; ".join(f"refused, {beyond.sentence(one)}" for one in joint.refused if one.query == names[2]) or "admitted"
    plans = {plan.query: plan for plan in joint.plans}
    refused = [one.query for one in joint.refused]
    first, second, third = names
    return Newcomers(first, second, third, part, list(plans), refused, said, _preempted(planned, tight)), plans


def with_part(infrastructure: Infrastructure, part: float) -> Infrastructure:
    """The tiers with this part of the first one's cores and of the links' speeds."""
    first = dataclasses.replace(infrastructure.tiers[0], capacity_cores=infrastructure.tiers[0].capacity_cores * part)
    links = tuple(dataclasses.replace(link, mbit_per_s=link.mbit_per_s * part) for link in infrastructure.links)
    return Infrastructure((first, *infrastructure.tiers[1:]), links)


def scarce(planned: Sequence[Planned], infrastructure: Infrastructure) -> float:
    """A part at which the first two fit, and the third alone, but not all three."""

    def smallest(members: Sequence[Planned]) -> float:
        low, high = PART_MIN, 1.0
        for _ in range(BISECTIONS):
            middle = math.sqrt(low * high)
            if multi.fits(members, with_part(infrastructure, middle)):
                high = middle
            else:
                low = middle
        return high

    some = max(smallest(planned[:2]), smallest(planned[2:]))
    return math.sqrt(some * max(smallest(planned), some))


def _preempted(planned: Sequence[Planned], infrastructure: Infrastructure) -> str:
    """What the last query's priority over the others changes."""
    highest = 1 + max(one.problem.query.priority for one in planned)
    query = dataclasses.replace(planned[2].problem.query, priority=highest)
    # The same launches, for a query that says that it is more important.
    problem = copy.copy(planned[2].problem)
    problem.query = query
    queue = [*planned[:2], dataclasses.replace(planned[2], problem=problem)]
    joint = multi.plan_jointly(queue, infrastructure, running=[planned[0].plan.query], preempt=True)
    admitted = [plan.query for plan in joint.plans]
    if query.name not in admitted or not joint.refused:
        return ""
    return f"{query.name} is admitted, {' and '.join(f'{one.query} is refused' for one in joint.refused)}"


async def newcomers(
    prepared: Sequence[tuple[Query, Launcher]],
    sources: Sequence[Source],
    infrastructure: Infrastructure,
    searcher: str,
    stretch_s: float,
) -> Newcomers:
    """Plans, runs and judges; `sources` are those of the first two."""
    found, plans = admit(prepared, infrastructure, searcher)
    first, second = prepared[0][0], prepared[1][0]
    found.limits_ms = {query.name: query.latency_max_ms for query in (first, second)}
    found.planned_ms = {name: plan.latency_ms for name, plan in plans.items()}
    if found.first not in plans or found.second not in plans:
        return found
    tight = with_part(infrastructure, found.part)
    tiers = [tier.name for tier in tight.tiers]
    deployments = [from_plan(formats.plan_json(plans[query.name], query, tight)) for query in (first, second)]
    options = Options(deadline_s=6.0)
    async with contextlib.AsyncExitStack() as stack:
        spaces = await stack.enter_async_context(Spaces(tiers, deployments[0].wires))
        one = await stack.enter_async_context(Runner(deployments[0], spaces, options))
        feeding = [asyncio.ensure_future(one.feed(sources[0].forever(), first.rate_items_per_s))]
        try:
            await asyncio.sleep(1.0)
            found.alone_ms[found.first] = await _median([one], stretch_s)
            other = await stack.enter_async_context(Runner(deployments[1], spaces, options))
            feeding.append(asyncio.ensure_future(other.feed(sources[1].forever(), second.rate_items_per_s)))
            await asyncio.sleep(1.0)
            since = clock.now()
            waits = [_Waits(one), _Waits(other)]
            found.beside_ms[found.second] = await _median([other, one], stretch_s)
            found.beside_ms[found.first] = _latency(one, since)
            found.waited_ms = {name: wait.per_item_ms() for name, wait in zip((found.first, found.second), waits, strict=True)}
            feeding[0].cancel()
            await one.settle()
            found.alone_ms[found.second] = await _median([other], stretch_s)
        finally:
            for task in feeding:
                task.cancel()
            await asyncio.wait(feeding)
        for runner in (one, other):
            await runner.settle()
            found.lost += runner.sent - len(runner.records)
    return found


class _Waits:
    """What a query's operators wait for a core from now on."""

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self.before = self._now()

    def _now(self) -> tuple[float, int]:
        processes = (self.runner.pid(stage.name) for stage in self.runner.deployment.stages)
        return spent_s(processes)[1], len(self.runner.records)

    def per_item_ms(self) -> float:
        """Milliseconds per item that has ended since."""
        waited_s, items = (after - before for before, after in zip(self.before, self._now(), strict=True))
        return 1000.0 * waited_s / max(items, 1)


async def _median(runners: Sequence[Runner], stretch_s: float) -> float | None:
    """The first runner's median latency over some time, longer where any of them delivers little."""
    since = clock.now()
    for _ in range(STRETCHES_MAX):
        await asyncio.sleep(stretch_s)
        if all(len(_seen(runner, since)) >= RESULTS_MIN for runner in runners):
            break
    return _latency(runners[0], since)


def _seen(runner: Runner, since: float) -> list[float]:
    return [one.latency_ms for one in runner.records if one.seen_s >= since and one.latency_ms is not None]


def _latency(runner: Runner, since: float) -> float | None:
    late = _seen(runner, since)
    return float(statistics.median(late)) if late else None
