"""What a launch would give at every placement: latency, network and compute use, without another launch.

Problem: accuracy, processing times and sizes do not depend on where operators run, so one launch per configuration is
enough; for each placement the rest is arithmetic. Units: milliseconds, bytes, fractions of capacities.

Method (equation 4.5): latency of an item that passes the whole pipeline = each operator's time, divided by the speed of its
tier's cores or GPUs, plus what it waits for elsewhere, plus, for each link that the output of an operator crosses, size / bandwidth +
delay. Shares: rate of
the source times what one source item causes on average. All of it is linear in a launch's numbers, so that all placements
of all configurations are a few matrix products, done in blocks that fit caches.

Limits: no queueing (a share above 1 says that a plan cannot last); tails add up as if all were late at once, which is an
upper bound. Where the paper scales GPU time alone, cores are scaled too (compute_factor 1 everywhere gives the paper's rule).
Source: Vulcan, section 4.4.3.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from isolane.planner.model import TAILS, Infrastructure, Launch, Order, Placement, Query
from isolane.planner.placement import placements

Array: TypeAlias = npt.NDArray[np.float64]

#: Configurations per block: arrays of a few hundred kilobytes each.
BLOCK = 2048


@dataclass(frozen=True)
class Estimates:
    """Arrays of shape (placements, configurations); accuracy has one row, as placement does not change it.

    `compute` and `network` are the paper's R_gpu and R_net: shares summed over tiers and over links. `overload` is what
    exceeds capacities, summed (0: everything fits). `price_per_hour` is what the used part of the tiers costs.
    """

    accuracy: Array
    latency_ms: Array
    compute: Array
    network: Array
    overload: Array
    price_per_hour: Array

    def meets(self, query: Query) -> npt.NDArray[np.bool_]:
        """Where accuracy and latency objectives, all capacities and the price hold."""
        result: npt.NDArray[np.bool_] = (
            (self.accuracy >= query.accuracy_min - ROUNDING)
            & (self.latency_ms <= query.latency_max_ms * (1.0 + ROUNDING))
            & self.fits(query)
        )
        return result

    def fits(self, query: Query) -> npt.NDArray[np.bool_]:
        """Where all capacities and the price hold."""
        result: npt.NDArray[np.bool_] = (self.overload <= ROUNDING) & (
            self.price_per_hour <= query.price_max_per_hour * (1.0 + ROUNDING)
        )
        return result

    def column(self, row: int) -> Estimates:
        """One configuration alone."""
        return Estimates(*(getattr(self, name)[:, row : row + 1] for name in Estimates.__dataclass_fields__))


#: Relative slack of comparisons with objectives: what rounding in sums may cause, and no more.
ROUNDING = 1e-9


#: What a table takes of each operator's result.
MEASURED = (*TAILS, *TAILS.values(), "overlap_ms", "pass_rate")


@dataclass(frozen=True)
class Table:
    """The numbers of several launches as arrays, (configurations, operators) each."""

    accuracy: Array
    processing_ms: Array
    processing_p99_ms: Array
    output_bytes: Array
    output_p99_bytes: Array
    core_ms: Array
    core_p99_ms: Array
    waiting_ms: Array
    waiting_p99_ms: Array
    overlap_ms: Array
    #: Items that reach the operator, and that it sends on, per source item.
    arrives: Array
    leaves: Array

    @staticmethod
    def of(launches: Sequence[Launch], order: Order) -> Table:
        """The table of these launches of one order."""
        found = [[launch.operators[name] for name in order] for launch in launches]
        rows = [[tuple(getattr(one, name) for name in MEASURED) for one in each] for each in found]
        data = np.array(rows, dtype=np.float64).reshape(len(launches), len(order), len(MEASURED))
        accuracy = np.array([launch.accuracy for launch in launches], dtype=np.float64)
        return Table.from_arrays(accuracy, **{name: data[:, :, index] for index, name in enumerate(MEASURED)})

    @staticmethod
    def from_arrays(accuracy: Array, pass_rate: Array, **measured: Array) -> Table:
        """The table of measured or predicted numbers, named as in `OperatorResult`; where no tails are known, means are used."""
        leaves: Array = np.cumprod(pass_rate, axis=1, dtype=np.float64)
        arrives = np.ones_like(leaves)
        arrives[:, 1:] = leaves[:, :-1]
        means = {mean: measured[mean] for mean in (*TAILS.values(), "overlap_ms")}
        tails = {tail: measured.get(tail, measured[mean]) for tail, mean in TAILS.items()}
        return Table(accuracy, arrives=arrives, leaves=leaves, **means, **tails)

    def rows(self, chosen: slice | npt.NDArray[np.bool_]) -> Table:
        """Some of its configurations."""
        return Table(*(getattr(self, name)[chosen] for name in Table.__dataclass_fields__))


class Estimator:
    """The coefficients of every placement of one order on one infrastructure."""

    def __init__(
        self, query: Query, order: Order, infrastructure: Infrastructure, chosen: Sequence[Placement] | None = None
    ) -> None:
        self.query = query
        self.order = order
        self.infrastructure = infrastructure
        self.placements: list[Placement] = (
            placements(query, order, infrastructure) if chosen is None else list(chosen)
        )
        tiers, links = infrastructure.tiers, infrastructure.links
        count, length = len(self.placements), len(order)
        gpu = np.array([query.operator(name).gpu for name in order])
        # Without any GPU operator the paper's R_gpu would always be 0: the models' time on cores is used.
        model = np.array([query.operator(name).kind == "model" for name in order])
        self.counted = gpu if gpu.any() else model
        where = np.array(self.placements, dtype=np.int64).reshape(count, length)
        speed_core = np.array([tier.compute_factor for tier in tiers])
        speed_gpu = np.array([tier.gpu_factor for tier in tiers])
        #: Time at the placement per time on the profiling machine.
        self.slow: Array = 1.0 / np.where(gpu, speed_gpu[where], speed_core[where])
        #: The same for time on a core besides an accelerator.
        self.slow_core: Array = 1.0 / speed_core[where]
        #: Whether the output of an operator crosses a link: (links, placements, operators).
        after = np.concatenate([where[:, 1:], where[:, -1:]], axis=1)
        self.crosses: Array = np.array(
            [(where <= link) & (after > link) for link in range(len(links))], dtype=np.float64
        ).reshape(len(links), count, length)
        ms_per_byte = np.array([8.0 / (link.mbit_per_s * 1000.0) for link in links])
        delays = np.array([link.delay_ms for link in links])
        self.ms_per_byte: Array = np.einsum("l,lmo->mo", ms_per_byte, self.crosses)
        self.delay_ms: Array = np.einsum("l,lm->m", delays, self.crosses.sum(axis=2))
        #: Share of a link per byte of each source item.
        self.link_share: Array = query.rate_items_per_s * ms_per_byte / 1000.0
        #: Share of a tier's cores (and GPUs) per millisecond of each source item: (tiers, placements, operators).
        here = np.array([where == tier.order for tier in tiers], dtype=np.float64)
        busy = query.rate_items_per_s / 1000.0 * here * self.slow
        cores = np.array([per(tier.capacity_cores) for tier in tiers])[:, None, None]
        gpus = np.array([per(tier.capacity_gpus) for tier in tiers])[:, None, None]
        # The source's own work (a camera, a sensor) has a fixed place.
        free = np.array([query.operator(name).kind == "source" for name in order])
        self.core_share: Array = np.where(gpu | free, 0.0, busy * cores)
        self.gpu_share: Array = np.where(gpu, busy * gpus, 0.0)
        self.beside_share: Array = query.rate_items_per_s / 1000.0 * here * self.slow_core * cores
        #: The same per millisecond on a core while the accelerator works, which lasts as long as the accelerator does.
        self.overlap_share: Array = busy * cores

    def estimates(self, table: Table) -> Estimates:
        """All placements of all these configurations."""
        count = len(table.accuracy)
        shape = (len(self.placements), count)
        latency, compute, network, overload, price = (np.empty(shape) for _ in range(5))
        for begin in range(0, count, BLOCK):
            block = slice(begin, min(begin + BLOCK, count))
            part = table.rows(block)
            latency[:, block] = self.latency_ms(part)
            links, cores, gpus = self.shares(part)
            used = (self.gpu_share + self.core_share) * self.counted
            compute[:, block] = used.sum(axis=0) @ (part.processing_ms * part.arrives).T
            network[:, block] = links.sum(axis=0)
            excess = np.zeros(latency[:, block].shape)
            cost = np.zeros(latency[:, block].shape)
            for share in links:
                excess += np.maximum(share - 1.0, 0.0)
            for tier, core, gpu in zip(self.infrastructure.tiers, cores, gpus, strict=True):
                excess += np.maximum(core - 1.0, 0.0) + np.maximum(gpu - 1.0, 0.0)
                if tier.price_per_hour:
                    cost += tier.price_per_hour * np.maximum(core, gpu)
            overload[:, block] = excess
            price[:, block] = cost
        return Estimates(table.accuracy[None, :], latency, compute, network, overload, price)

    def latency_ms(self, table: Table) -> Array:
        """(placements, configurations): equation 4.5."""
        return self._latency_ms(table.processing_ms, table.output_bytes, table.core_ms, table.waiting_ms)

    def _latency_ms(self, processing_ms: Array, output_bytes: Array, core_ms: Array, waiting_ms: Array) -> Array:
        result: Array = self.slow @ processing_ms.T + self.ms_per_byte @ output_bytes.T + self.delay_ms[:, None]
        # Most queries have neither: two products less.
        if core_ms.any():
            result += self.slow_core @ core_ms.T
        if waiting_ms.any():
            result += waiting_ms.sum(axis=1)
        return result

    def latency_p99_ms(self, table: Table) -> Array:
        """(placements, configurations): every operator and transfer at its own 99th percentile."""
        return self._latency_ms(
            table.processing_p99_ms, table.output_p99_bytes, table.core_p99_ms, table.waiting_p99_ms
        )

    def shares(self, table: Table) -> tuple[Array, Array, Array]:
        """Shares of links, cores and GPUs: (links or tiers, placements, configurations) each."""
        sent = (table.output_bytes * table.leaves).T
        spent = (table.processing_ms * table.arrives).T
        links: Array = (self.crosses @ sent) * self.link_share[:, None, None]
        cores: Array = self.core_share @ spent
        if table.core_ms.any():
            cores = cores + self.beside_share @ (table.core_ms * table.arrives).T
        if table.overlap_ms.any():
            cores = cores + self.overlap_share @ (table.overlap_ms * table.arrives).T
        return links, cores, self.gpu_share @ spent


def per(capacity: float) -> float:
    """The share that one busy unit is of this capacity; nothing is ever placed where there is none."""
    return 1.0 / capacity if capacity > 0.0 else 0.0
