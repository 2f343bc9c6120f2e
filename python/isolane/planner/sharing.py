"""What queries do to each other on shared tiers and links, and which plans of theirs hold together.

Problem: each query has many (placement, configuration) pairs that meet its objectives alone; find one pair for each so that no
resource is overcommitted and every query still meets its objectives beside the others. Units: milliseconds; shares are fractions
of a resource (links, cores of a tier, GPUs of a tier).

Method: a pair's latency is a fixed part plus its time at each resource and what it waits there. With rho the share of all queries
together and C Erlang's probability that all k servers are busy, waits are C / (rho k (1 - rho)) times the work of the others:
their share times the pair's own time where all are served at once (connections on a link, processes on cores), or times the mean
time of their items at each visit where items are served in turn (a GPU); we take the larger. The query's own items count as far
as their time exceeds the source's period (times k): then those that no filter dropped wait for each other. Pairs that another one
beats in every respect are dropped; the rest is searched depth first, most important query first, its best pairs first, with
bounds on loads and on what can still be gained. Within `NODES_MAX` nodes the answer is exact.

Limits: means, not tails (tails scale alike); arrivals of different queries are independent. Source: extends Vulcan 4.5, which leaves concurrent queries open; A. K. Erlang, 1917, for the wait.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from isolane.planner.estimate import ROUNDING, Array, Estimator, Table
from isolane.planner.model import Configuration, Infrastructure, Launch, Query
from isolane.planner.utility import utility_of

Indices = npt.NDArray[np.int64]

#: Nodes of the search before it gives up on being exact; a node is one vector operation over a query's pairs.
NODES_MAX = 20_000


@dataclass(frozen=True)
class Resource:
    """Something that queries share. `servers` work at the same time; `capacity` is in `unit`."""

    name: str
    kind: str
    servers: int
    capacity: float
    unit: str


def resources(infrastructure: Infrastructure) -> list[Resource]:
    """Links, then cores of each tier, then GPUs of each tier."""
    links = [Resource(link.name, "link", 1, link.mbit_per_s, "Mbit/s") for link in infrastructure.links]
    tiers = infrastructure.tiers
    cores = [Resource(tier.name, "cores", servers(tier.capacity_cores), tier.capacity_cores, "cores") for tier in tiers]
    gpus = [Resource(tier.name, "gpus", servers(tier.capacity_gpus), tier.capacity_gpus, "GPUs") for tier in tiers]
    return [*links, *cores, *gpus]


def servers(capacity: float) -> int:
    """Whole units that serve at the same time; a part of one serves alone."""
    return max(1, math.floor(capacity + ROUNDING))


#: Steps of the tables of `Stations`.
STEPS = 1024


class Stations:
    """How long one waits at each resource for others who take some share of it (Erlang's C formula).

    The probability of having to wait, over the share, is tabulated, as it is smooth where the wait itself is not.
    """

    def __init__(self, servers: Sequence[int]) -> None:
        self.servers: Array = np.array(servers, dtype=np.float64)
        self.grid: Array = np.linspace(0.0, 1.0, STEPS + 1)
        # Of one server the ratio is 1 everywhere, of several it vanishes with the share.
        rho = np.maximum(self.grid, 1e-9)
        self.tables = [busy(rho, count) / rho for count in servers]

    def per_share(self, others: Array) -> Array:
        """The mean wait over the share, per time of service, for each share in the last axis; infinite at 1 and above."""
        rho = np.clip(others, 0.0, 1.0)
        columns = [np.interp(rho[..., index], self.grid, table) for index, table in enumerate(self.tables)]
        with np.errstate(divide="ignore"):
            result: Array = np.stack(columns, axis=-1) / (self.servers * (1.0 - rho))
        return result

    def wait(self, others: Array) -> Array:
        """The mean wait per time of service."""
        result: Array = self.per_share(others) * np.clip(others, 0.0, 1.0)
        return result


def stations(shared: Sequence[Resource]) -> Stations:
    """The stations of these resources."""
    return Stations([each.servers for each in shared])


def busy(rho: Array, servers: int) -> Array:
    """The probability that all servers are busy, at these shares of them (Erlang C, by Erlang B's recursion)."""
    load = rho * servers
    blocked: Array = np.ones_like(rho)
    for count in range(1, servers + 1):
        blocked = load * blocked / (count + load * blocked)
    result: Array = blocked / (1.0 - rho * (1.0 - blocked))
    return result


@dataclass(frozen=True)
class Choices:
    """The pairs of one query that meet its objectives alone, best first, as arrays with a row for each.

    `share` and `time_ms` have a column for each resource, as have `visits`, how often an item is served there, and `work_ms`, share
    times the time for which a visit holds it, which adds up over queries; `own_ms` is what of it makes the query's own items wait. `pairs` are (index of the placement, index of the launch).
    """

    query: Query
    estimator: Estimator
    launches: tuple[Launch, ...]
    pairs: Indices
    share: Array
    time_ms: Array
    visits: Array
    work_ms: Array
    own_ms: Array
    fixed_ms: Array
    utility: Array

    def __len__(self) -> int:
        return len(self.pairs)

    def configuration(self, index: int) -> Configuration:
        """The configuration of a pair."""
        found: Configuration = self.launches[int(self.pairs[index, 1])].configuration
        return found


def choices(query: Query, estimator: Estimator, launches: Sequence[Launch]) -> Choices:
    """All pairs of launched configurations and placements that meet the query's objectives, without those that are beaten."""
    table = Table.of(launches, estimator.order)
    estimates = estimator.estimates(table)
    value = utility_of(query)(query, estimates)
    placed, launched = np.nonzero(estimates.meets(query))
    shared = resources(estimator.infrastructure)
    free_ms = np.array([each.servers for each in shared], dtype=np.float64) * 1000.0 / query.rate_items_per_s
    best_first = np.argsort(-value[placed, launched], kind="stable")
    placed, launched = placed[best_first], launched[best_first]
    share, time_ms, held_ms, visits, fixed_ms = parts(estimator, table, placed, launched)
    visit_ms = held_ms / np.maximum(visits, 1.0)
    found = Choices(
        query,
        estimator,
        tuple(launches),
        np.stack([placed, launched], axis=1).astype(np.int64),
        share,
        time_ms,
        visits,
        share * visit_ms,
        share * np.maximum(visit_ms - free_ms, 0.0),
        fixed_ms,
        value[placed, launched],
    )
    return subset(found, unbeaten(found))


def parts(estimator: Estimator, table: Table, placed: Indices, launched: Indices) -> tuple[Array, Array, Array, Array, Array]:
    """Shares, times, times held and visits at each resource, and the rest of the latency, of these pairs. A core is held, besides
    its own time, while it waits for an accelerator without sleep."""
    query, order = estimator.query, estimator.order
    tiers, links = estimator.infrastructure.tiers, estimator.infrastructure.links
    shares = np.concatenate(estimator.shares(table))[:, placed, launched].T
    where = np.array(estimator.placements, dtype=np.int64).reshape(-1, len(order))[placed]
    spent = estimator.slow[placed] * table.processing_ms[launched]
    gpu = np.array([query.operator(name).gpu for name in order])
    source = np.array([query.operator(name).kind == "source" for name in order])
    sent = table.output_bytes[launched]
    each = [
        estimator.crosses[index][placed] * sent * 8.0 / (link.mbit_per_s * 1000.0) for index, link in enumerate(links)
    ]
    beside = estimator.slow_core[placed] * table.core_ms[launched]
    each += [(spent * (~gpu & ~source) + beside) * (where == tier.order) for tier in tiers]
    each += [spent * ((where == tier.order) & gpu) for tier in tiers]
    overlap = estimator.slow[placed] * table.overlap_ms[launched]
    waits = [np.zeros_like(overlap) for _ in links] + [overlap * (where == tier.order) for tier in tiers] + [np.zeros_like(overlap) for _ in tiers]
    fixed = estimator.delay_ms[placed] + (spent * (source & ~gpu)).sum(axis=1) + table.waiting_ms[launched].sum(axis=1)
    shape = (len(placed), len(each))
    times = np.stack([one.sum(axis=1) for one in each], axis=1).reshape(shape)
    held = times + np.stack([one.sum(axis=1) for one in waits], axis=1).reshape(shape)
    visits = np.stack([(one > 0.0).sum(axis=1) for one in each], axis=1).reshape(shape)
    return shares, times, held, visits.astype(np.float64), fixed


def subset(found: Choices, kept: Indices) -> Choices:
    """Some of the pairs."""
    return dataclasses.replace(
        found,
        pairs=found.pairs[kept],
        share=found.share[kept],
        time_ms=found.time_ms[kept],
        visits=found.visits[kept],
        work_ms=found.work_ms[kept],
        own_ms=found.own_ms[kept],
        fixed_ms=found.fixed_ms[kept],
        utility=found.utility[kept],
    )


def unbeaten(found: Choices) -> Indices:
    """Pairs that no better one beats in every share and every time: what a joint plan can need. Best first, as given."""
    points = np.concatenate(
        [found.share, found.time_ms, found.visits, found.work_ms, found.own_ms, found.fixed_ms[:, None]], axis=1
    )
    kept: list[int] = []
    front = np.empty((0, points.shape[1]))
    for index, point in enumerate(points):
        if not bool((front <= point).all(axis=1).any()):
            kept.append(index)
            front = np.concatenate([front, point[None, :]])
    return np.array(kept, dtype=np.int64)


@dataclass(frozen=True)
class Joint:
    """One pair for each query, by its index in the query's choices, or None where there is none. Where the search gave up
    (`exact` is false) there may be a better one, or one at all."""

    picks: tuple[int, ...] | None
    exact: bool


def latency_ms(one: Choices, index: int | slice, others: Array, work_ms: Array, stations: Stations) -> Array:
    """The latency of a pair (or of several) where others take these shares of the resources and have this work."""
    time_ms = one.time_ms[index]
    per_share = stations.per_share(others + one.share[index])
    with np.errstate(invalid="ignore"):
        at_once = time_ms * np.clip(others, 0.0, 1.0)
        in_turn = one.visits[index] * np.maximum(work_ms, 0.0)
        # Where an item takes no time it does not wait.
        waited = (np.maximum(at_once, in_turn) + one.visits[index] * one.own_ms[index]) * per_share
        spent = np.where(time_ms > 0.0, time_ms + np.where(waited > 0.0, waited, 0.0), 0.0)
    result: Array = one.fixed_ms[index] + spent.sum(axis=-1)
    return result


class Search:
    """Depth first over the queries, most important first; see the module."""

    def __init__(
        self, sets: Sequence[Choices], levels: Sequence[int], shared: Sequence[Resource], nodes: int, first: bool
    ) -> None:
        self.sets = sets
        self.first = first
        self.levels = levels
        self.stations = stations(shared)
        self.left = nodes
        self.best: tuple[int, ...] | None = None
        self.best_gain: tuple[float, ...] = ()

    def gains(self, relative: Sequence[float], begin: int) -> tuple[float, ...]:
        """Relative utilities of the queries from `begin` on, summed per level, the most important level first."""
        order = sorted(set(self.levels), reverse=True)
        pairs = list(zip(self.levels[begin:], relative, strict=False))
        return tuple(sum(gain for level, gain in pairs if level == wanted) for wanted in order)

    def run(self) -> Joint:
        """The best joint plan."""
        if any(len(one) == 0 for one in self.sets):
            return Joint(None, True)
        # What the queries from here on take at least, and can add at most, per level of priority.
        nothing = np.zeros(len(self.stations.servers))
        count = len(self.sets)
        self.least = [
            sum((one.share.min(axis=0) for one in self.sets[begin:]), start=nothing) for begin in range(count + 1)
        ]
        self.least_work = [
            sum((one.work_ms.min(axis=0) for one in self.sets[begin:]), start=nothing) for begin in range(count + 1)
        ]
        self.most = [self.gains([1.0] * (count - begin), begin) for begin in range(count + 1)]
        self.descend([], nothing, nothing, [])
        return Joint(self.best, self.left > 0 or (self.first and self.best is not None))

    def descend(self, picks: list[int], load: Array, work: Array, relative: list[float]) -> None:
        """Extends a partial plan by every pair of the next query that still fits, best first."""
        depth = len(picks)
        if depth == len(self.sets):
            gain = self.gains(relative, 0)
            if self.best is None or gain > self.best_gain:
                self.best, self.best_gain = tuple(picks), gain
            return
        if self.left <= 0:
            return
        self.left -= 1
        one = self.sets[depth]
        own = one.utility / max(float(one.utility[0]), 1e-12)
        for index in np.nonzero(self.fits(picks, load, work, depth))[0]:
            gained = [*relative, float(own[index])]
            if self.best is not None and not self.can_improve(gained, depth + 1):
                # Pairs are sorted: all later ones gain no more.
                return
            self.descend([*picks, int(index)], load + one.share[index], work + one.work_ms[index], gained)
            if self.left <= 0 or (self.first and self.best is not None):
                return

    def can_improve(self, relative: Sequence[float], depth: int) -> bool:
        """Whether a plan that begins so can be better than the best."""
        soon = self.gains(relative, 0)
        bound = tuple(have + more for have, more in zip(soon, self.most[depth], strict=True))
        return bound > tuple(value + 1e-12 for value in self.best_gain)

    def fits(self, picks: Sequence[int], load: Array, work: Array, depth: int) -> npt.NDArray[np.bool_]:
        """Which pairs of the query at this depth fit beside those picked and the least that the others will take."""
        one = self.sets[depth]
        rest, rest_work = self.least[depth + 1], self.least_work[depth + 1]
        total, total_work = load + one.share + rest, work + one.work_ms + rest_work
        result = (total <= 1.0 + ROUNDING).all(axis=1)
        limit = one.query.latency_max_ms * (1.0 + ROUNDING)
        before, before_work = (load + rest)[None, :], (work + rest_work)[None, :]
        result = result & (latency_ms(one, slice(None), before, before_work, self.stations) <= limit)
        for earlier, pick in zip(self.sets, picks, strict=False):
            others = total - earlier.share[pick]
            limit = earlier.query.latency_max_ms * (1.0 + ROUNDING)
            others_work = total_work - earlier.work_ms[pick]
            result = result & (latency_ms(earlier, pick, others, others_work, self.stations) <= limit)
        fitting: npt.NDArray[np.bool_] = result
        return fitting


def jointly(
    sets: Sequence[Choices],
    levels: Sequence[int],
    shared: Sequence[Resource],
    nodes: int = NODES_MAX,
    first: bool = False,
) -> Joint:
    """One pair for each query such that all hold together: the most relative utility (1 is what a query has alone) for the
    highest level, then for the next; with `first`, the first one found. `sets` must be sorted by falling level."""
    return Search(sets, levels, shared, nodes, first).run()
