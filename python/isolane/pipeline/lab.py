"""`isolane edge lab`: queries planned, run in namespaces, and disturbed; what the new plan is worth.

Problem: that a plan follows its conditions must be seen on a running pipeline, not computed. Method, per query: plan for the
tiers as they are; run it in network namespaces with those links; watch it until its utility is known; make the busiest link
`factor` times slower; go on watching until the plan changed and the new one's utility is known. Before that, `costs` measures what
a hop and a move cost with operators that do nothing; after it, with three queries, `together` shows newcomers. Each question ends
in a line that begins with yes or NO, or with skip where this machine is too busy for an answer.

Units: `_ms`, `_s`. Limits: all tiers share this machine, and a busy machine shows in latencies: what is judged are ratios within
this run (a plan beside the one before it), an objective only where the query meets it alone.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import json
import math
import pathlib
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from isolane import allowed
from isolane.pipeline import clock, costs, live, together
from isolane.pipeline.deployment import Deployment, from_plan
from isolane.pipeline.item import Item
from isolane.pipeline.observe import Probes, Reference, observation
from isolane.pipeline.records import Record, summarize
from isolane.pipeline.runner import Options, Runner
from isolane.pipeline.source import ITEMS, Source, open_source
from isolane.pipeline.spaces import Spaces, SpacesError, Wire, missing
from isolane.pipeline.together import Answer
from isolane.pipeline.watch import Period, Replanned, Watcher, planned
from isolane.planner import cli as planner_cli
from isolane.planner import formats
from isolane.planner.model import Infrastructure, Launcher, Link, Plan, PlanError, Query, Tier
from isolane.planner.online import Observation, with_link
from isolane.planner.planning import plan_query
from isolane.planner.profiles import Replay, load_profile

#: A query with fewer items a second is fed faster, as if by several sources: a period of two seconds must say something.
RATE_MIN = 2.0
#: Seconds of a source that are made beforehand, and items at least; then it begins again.
SOURCE_S, ITEMS_MIN = 20.0, 40
#: Seconds of a workload that are left out, where it has more than enough: in the first scene of the traffic query hardly anything
#: passes, and a lab whose parts last seconds would wait for its results.
SKIPPED_S = 17.0
#: Queries that the part about newcomers needs.
QUERIES_TOGETHER = 3
#: Results under the new plan before its latency is reported.
RESULTS_MIN = 5


@dataclass(frozen=True)
class Cut:
    """A link that gets slower after some seconds."""

    link: str
    factor: float
    at_s: float


def parse_cut(text: str, plan: dict[str, Any]) -> Cut:
    """`LINK=FACTOR@SECONDS`, the link spelled `edge->cloud`."""
    link, equals, rest = text.rpartition("=")
    factor, at, when = rest.partition("@")
    known = [f"{one['from']}->{one['to']}" for one in plan["infrastructure"]["links"]]
    try:
        cut = Cut(link, float(factor), float(when))
    except ValueError:
        raise PlanError(f"--cut {text}: write LINK=FACTOR@SECONDS") from None
    if link not in known or not equals or not at:
        raise PlanError(f"--cut {text}: there is no link {link!r}; there are {', '.join(known) or 'none'}")
    if not 0.001 <= cut.factor <= 100_000.0 or cut.at_s < 0.0:
        raise PlanError(f"--cut {text}: the factor is from 0.001 to 100000, and seconds count from the start")
    return cut


def launcher_of(query: Query, file: pathlib.Path, folder: pathlib.Path | None) -> Launcher:
    """Replays the query's profile."""
    return Replay(query, load_profile(planner_cli.profile_path(query, file, folder)))


def infrastructure_of(plan: dict[str, Any]) -> Infrastructure:
    """The tiers and links that a plan was made for."""
    found = plan["infrastructure"]
    tiers = tuple(Tier(**one) for one in found["tiers"])
    links = tuple(Link(one["from"], one["to"], one["mbit_per_s"], one["delay_ms"]) for one in found["links"])
    return Infrastructure(tiers, links)


@dataclass
class Session:
    """A running query under watch."""

    runner: Runner
    spaces: Spaces | None
    query: Query
    infrastructure: Infrastructure
    plan: Plan
    launcher: Launcher
    source: Source
    searcher: str
    stream: live.Stream | None = None
    events: list[dict[str, Any]] = field(default_factory=list)
    as_json: bool = False

    def tell(self, event: Period | Replanned) -> None:
        """A line for each period and change; progress, or results as JSON lines."""
        self.events.append(event.document())
        if self.as_json:
            print(json.dumps(self.events[-1]), flush=True)
        elif isinstance(event, Period):
            print(period_line(event), file=sys.stderr, flush=True)
        else:
            print(replanned_lines(event), file=sys.stderr, flush=True)

    @contextlib.asynccontextmanager
    async def watcher(self) -> Any:
        """A watcher with probes where there are links."""
        start = planned(self.plan, self.query, self.infrastructure, self.launcher)
        async with contextlib.AsyncExitStack() as stack:
            probes = None
            if self.spaces is not None and self.spaces.wires:
                probes = await stack.enter_async_context(Probes(self.spaces))
            watcher = Watcher(
                self.runner, self.query, self.infrastructure, start, self.launcher, probes, self.searcher, tell=self.tell
            )
            try:
                yield watcher
            finally:
                watcher.stop()

    async def watch(self, duration_s: float, period_s: float, cuts: Sequence[Cut], as_json: bool, rate: float | None) -> None:
        """Feeds and watches for a while."""
        if cuts and self.spaces is None:
            raise PlanError("--cut needs links; run with --tiers namespaces")
        self.as_json = as_json
        reference = Reference(self.query, self.plan.order, self.source.workload)
        async with self.watcher() as watcher:
            await reference.outputs([])
            begin = time.monotonic()
            recent: deque[Item] = deque(maxlen=ITEMS)
            if self.stream is None:
                feeding = asyncio.ensure_future(self.runner.feed(self.source.forever(), rate or self.query.rate_items_per_s))
            else:
                feeding = asyncio.ensure_future(live.feed(self.runner, self.stream, sys.maxsize, recent))
            try:
                left = sorted(cuts, key=lambda cut: cut.at_s)
                while time.monotonic() - begin < duration_s and not feeding.done():
                    await asyncio.sleep(period_s)
                    while left and time.monotonic() - begin >= left[0].at_s:
                        await self.slow(left.pop(0))
                    await watcher.period(self.source.items if self.stream is None else tuple(recent), reference)
            finally:
                feeding.cancel()
                await asyncio.wait([feeding])
                reference.close()
            if not feeding.cancelled():
                # A source that cannot be opened is an error; one that ended is an event.
                feeding.result()
            await self.runner.settle()

    async def slow(self, cut: Cut) -> None:
        """Makes a link slower."""
        assert self.spaces is not None
        index = [link.name for link in self.infrastructure.links].index(cut.link)
        wire = self.spaces.wires[index]
        await self.spaces.set_wire(index, Wire(wire.mbit_per_s / cut.factor, wire.delay_ms))
        if not self.as_json:
            print(f"-- {cut.link} is now {cut.factor:g} times slower", file=sys.stderr, flush=True)


def period_line(one: Period) -> str:
    """A period for people."""
    latency = "-" if one.latency_ms is None else f"{one.latency_ms:.0f} ms"
    utility = "-" if one.utility is None else f"{one.utility:.3f}"
    failed = f", {one.failed} failed or refused" if one.failed else ""
    note = f"  {one.what}" if one.what else ""
    return f"   {one.items} items{failed}, latency {latency}, accuracy {one.accuracy:.3f}, utility {utility}{note}"


def replanned_lines(one: Replanned) -> str:
    """A change of plan for people."""
    links = ", ".join(f"{name} {speed:.3g} Mbit/s" for name, speed in one.links.items()) or "no link changed"
    lines = [f"   planned again in {one.search_ms:.0f} ms ({one.launches} launches): {links}"]
    lines += [f"   {line}" for line in one.differences or ["the plan stays"]]
    return "\n".join(lines)


@dataclass
class Outcome:
    """One query in the lab."""

    query: str
    factor: float
    link: str
    before: dict[str, Any]
    during: dict[str, Any]
    after: dict[str, Any]
    lost: int
    changes: list[dict[str, Any]]
    differences: list[str]
    #: Utilities (`strict`) on the slow link, of the plan before and of the new one, and what the watcher saw last.
    worth: tuple[float | None, float | None]
    seen_last: str
    #: Whether the plan in force used the link before it was slowed.
    used: bool = True

    def answers(self) -> list[Answer]:
        """Questions with answers."""
        fate = Answer("yes" if self.lost == 0 else "NO ", f"{self.query}: every item has a fate ({self.lost} without)")
        if not self.used:
            return [fate, Answer("skip", f"{self.query}: this machine is so busy that the plan in force uses no link; {self.seen_last}")]
        slowed = f"{self.link} {self.factor:g} times slower"
        changed = "; ".join(self.differences) or f"it did not; {self.seen_last}"
        old, new = self.during["latency_p50_ms"], self.after["latency_p50_ms"]
        quicker = new is not None and (old is None or new < old)
        before, after = self.worth
        worthier = after is not None and (before is None or after > before)
        lines = [
            (bool(self.differences), f"{self.query}: {slowed}: the plan changed ({changed})"),
            (
                quicker or worthier,
                f"{self.query}: median latency {_ms(self.before['latency_p50_ms'])} before, {_ms(old)} slowed, {_ms(new)} planned "
                f"again; utility {_number(before)} slowed, {_number(after)} planned again",
            ),
        ]
        return [fate, *(Answer("yes" if yes else "NO ", what) for yes, what in lines)]


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3g}"


def _ms(value: float | None) -> str:
    return "none delivered" if value is None else f"{value:.0f} ms"


def busiest(plan: Plan, infrastructure: Infrastructure) -> str:
    """The link that the plan uses most."""
    return max((link.name for link in infrastructure.links), key=lambda name: plan.network_share.get(name, 0.0))


def prepare(path: pathlib.Path, arguments: argparse.Namespace) -> tuple[Query, Launcher]:
    """A query, fed fast enough for the lab, and what planning it needs."""
    query = formats.load_query(path)
    allowed.check(path, query.code)
    query = dataclasses.replace(query, rate_items_per_s=max(query.rate_items_per_s, RATE_MIN))
    return query, launcher_of(query, path, arguments.profile_data)


async def one_query(
    prepared: tuple[Query, Launcher],
    source: Source,
    infrastructure: Infrastructure,
    arguments: argparse.Namespace,
    period_s: float,
    periods: int,
) -> Outcome:
    """Plans, runs, disturbs and follows one query."""
    query, launcher = prepared
    plan = plan_query(query, infrastructure, launcher, arguments.searcher).plan
    document = formats.plan_json(plan, query, infrastructure)
    deployment = from_plan(document)
    place = ", ".join(f"{name} on {tier}" for name, tier in plan.placement.items())
    print(f"{query.name}: {place}; {plan.latency_ms:.0f} ms and {plan.accuracy:.3f} expected", file=sys.stderr, flush=True)
    reference = Reference(query, plan.order, source.workload)
    ready = asyncio.ensure_future(reference.outputs([]))
    tiers = [tier.name for tier in infrastructure.tiers]
    async with Spaces(tiers, deployment.wires) as spaces, Runner(deployment, spaces, Options(deadline_s=6.0)) as runner:
        session = Session(runner, spaces, query, infrastructure, plan, launcher, source, arguments.searcher)
        async with session.watcher() as watcher:
            # Its process has started before anything is judged, so that this does not show as a slow pipeline.
            await ready
            feeding = asyncio.ensure_future(runner.feed(source.forever(), query.rate_items_per_s))
            try:
                await asyncio.sleep(1.0)
                watcher.skip()
                begin = clock.now()
                await _periods(watcher, source, reference, period_s, periods, False)
                await _in_force(watcher, source, reference, period_s, 3 * periods)
                begin = max([begin, *(one.at_s for one in watcher.replanned if one.differences)])
                # On a busy machine the watcher may have planned again: what is slowed is a link of the plan in force.
                first, link = runner.deployment, busiest(watcher.current.plan, infrastructure)
                used = watcher.current.plan.network_share.get(link, 0.0) > 0.0
                await session.slow(Cut(link, arguments.factor, 0.0))
                slowed = clock.now()
                await _periods(watcher, source, reference, period_s, 3 * periods, True)
                changed = clock.now()
                accuracies = [watcher.periods[-1].accuracy]
                await _periods(watcher, source, reference, period_s, periods - 1, False)
                await _delivered(watcher, source, reference, period_s, 3 * periods)
            finally:
                feeding.cancel()
                await asyncio.wait([feeding])
                reference.close()
            await runner.settle()
        accuracies.append(watcher.accuracy)
        changes = [one for one in watcher.replanned if one.at_s > slowed and one.differences]
        # While a plan is put in place, an item passes operators of both.
        until = changes[0].at_s - changes[0].apply_ms / 1000.0 if changes else changed
        last = max([changed, *(one.at_s for one in changes)])
        seen = [between(runner.records, begin, slowed), between(runner.records, slowed, until)]
        seen.append(between(runner.records, last, math.inf))
        lines = [line for event in watcher.replanned if event.at_s > slowed for line in event.differences]
        lost = summarize(runner.sent, runner.records).lost
        slow = slower(infrastructure, link, arguments.factor)
        old, new = (
            worth(observation(deployed, ended, query, slow, accuracy, runner.options.deadline_s), query)
            for deployed, ended, accuracy in zip((first, runner.deployment), seen[1:], accuracies, strict=True)
        )
        newest = [period_line(one).strip() for one in watcher.periods[-2:]]
    before, during, after = (summarize(len(ended), ended).document() for ended in seen)
    said = f"seen last: {' / '.join(newest)}"
    return Outcome(query.name, arguments.factor, link, before, during, after, lost, session.events, lines, (old, new), said, used)


def slower(infrastructure: Infrastructure, link: str, factor: float) -> Infrastructure:
    """The infrastructure with one link so many times slower."""
    known = {one.name: one.mbit_per_s for one in infrastructure.links}
    return with_link(infrastructure, link, known[link] / factor)


def worth(seen: Observation | None, query: Query) -> float | None:
    """The utility of a deployment, seen by items that it alone handled, on links as they were then; None if no item says anything.

    The watcher's own number will not do. It covers several periods, some of them before the change, and it assumes the last known
    speed of the links: on a link that is 20 times slower than that, the plan seems to use a twentieth of what it uses. The
    utility is `strict`, the order in which the planner chooses: where an objective is missed, using little does not help.
    """
    return None if seen is None else seen.utility(dataclasses.replace(query, utility="strict"))


async def _periods(watcher: Watcher, source: Source, reference: Reference, period_s: float, count: int, until: bool) -> None:
    """So many periods; with `until`, not after the plan changed."""
    for _ in range(count):
        await asyncio.sleep(period_s)
        if await watcher.period(source.items, reference) and until:
            return


async def _in_force(watcher: Watcher, source: Source, reference: Reference, period_s: float, count: int) -> None:
    """Waits, so many periods at most, until the utility of the plan in force is known."""
    for _ in range(count):
        if watcher.expected is not None:
            return
        await asyncio.sleep(period_s)
        await watcher.period(source.items, reference)


async def _delivered(watcher: Watcher, source: Source, reference: Reference, period_s: float, count: int) -> None:
    """Waits, so many periods at most, for a few results: a sparse scene may be empty for seconds, which says nothing."""
    for _ in range(count):
        since = max((one.at_s for one in watcher.replanned if one.differences), default=0.0)
        if sum(one.outcome == "delivered" and one.seen_s >= since for one in watcher.runner.records) >= RESULTS_MIN:
            return
        await asyncio.sleep(period_s)
        await watcher.period(source.items, reference)


def between(records: Sequence[Record], begin: float, end: float) -> list[Record]:
    """The items that the source saw between two moments: not those that were on their way when something changed."""
    return [one for one in records if begin <= one.seen_s < end]


async def main(arguments: argparse.Namespace) -> int:
    """Runs the lab; 0 if all answers are yes, 1 if not."""
    lacks = missing()
    if lacks:
        raise SpacesError(f"the lab needs network namespaces: {lacks}")
    if not 1.0 < arguments.factor <= 100_000.0:
        raise PlanError(f"--factor {arguments.factor:g}: must be above 1, 100000 at most")
    begin = time.monotonic()
    infrastructure = formats.load_infrastructure(arguments.infra)
    if not infrastructure.links:
        raise PlanError(f"{arguments.infra}: there is one tier and no link; the lab needs two tiers")
    prepared = [prepare(path, arguments) for path in arguments.queries]
    body, answers = await everything(prepared, infrastructure, arguments)
    took = time.monotonic() - begin
    if arguments.json:
        found = [{"answer": answer.verdict.strip().lower(), "what": answer.what} for answer in answers]
        print(json.dumps({"version": 2, **body, "answers": found, "took_s": took}, indent=2))
    else:
        for answer in answers:
            print(f"{answer.verdict} {answer.what}")
        print(f"took {took:.0f} s")
    return 1 if any(answer.verdict.startswith("NO") for answer in answers) else 0


async def everything(
    prepared: Sequence[tuple[Query, Launcher]], infrastructure: Infrastructure, arguments: argparse.Namespace
) -> tuple[dict[str, Any], list[Answer]]:
    """All parts one after the other: results, and questions with answers."""
    hop = await costs.hop()
    pause = await costs.pause()
    answers = [Answer("yes" if yes else "NO ", words) for yes, words in (hop.check(), pause.check())]
    period_s, periods = (1.5, 3) if arguments.quick else (3.0, 10)
    outcomes: list[Outcome] = []
    sources: list[Source] = []
    for one in prepared:
        count = max(int(one[0].rate_items_per_s * SOURCE_S), ITEMS_MIN)
        start = int(one[0].rate_items_per_s * SKIPPED_S)
        sources.append(await asyncio.to_thread(open_source, one[0].workload, count, start))
        outcomes.append(await one_query(one, sources[-1], infrastructure, arguments, period_s, periods))
        answers += outcomes[-1].answers()
    beside = None
    if len(prepared) >= QUERIES_TOGETHER:
        # The second in the list needs most, so the newcomer does not fit.
        first, third, second = prepared[:QUERIES_TOGETHER]
        served = [sources[0], sources[2]]
        beside = await together.newcomers([first, second, third], served, infrastructure, arguments.searcher, 2.0 * period_s)
        answers += beside.answers()
    body = {
        "hop": dataclasses.asdict(hop),
        "move": dataclasses.asdict(pause),
        "queries": [dataclasses.asdict(one) for one in outcomes],
        "newcomers": None if beside is None else dataclasses.asdict(beside),
    }
    return body, answers
