"""Data and measures of the driving query.

Problem: how well does a pipeline find the objects around a vehicle? Units: metres, scans. Method: 24 streets with
five scans each, half a second apart; a find is right if an object of its class is within a metre; the accuracy is
the F1 over all scans. For precision and recall of the filters a sample is a cube of half a metre: relevant if the
scan had a point of an object there, passed if the filtered cloud has a point there. Limits: finds have a centre and
a class, no sizes or headings.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from isolane.pipeline.item import Array, Item
from isolane.queries.centres import Tally
from isolane.queries.lidar.scan import Conditions, Street
from isolane.queries.operator import array
from isolane.queries.workload import Clips, ratio

#: Distance from which a find is another object.
SAME_OBJECT_M = 1.0
#: Side of a sample of the filters' score.
SAMPLE_M = 0.5
#: Seconds between scans of one street.
STEP_S = 0.5
#: First seeds of the streets; trainings begin at 1000.
CLEAR_SEED, RAIN_SEED = 10, 50

#: A find or an object: class, x, y.
Found = tuple[int, float, float]
#: Of a scan: its objects, and the cubes that hold a point of one.
Truth = tuple[list[Found], "set[int]"]


class Clear:
    """The query's data: dry streets."""

    conditions = Conditions()
    seed = CLEAR_SEED

    def __init__(self, streets: int = 24, scans: int = 5) -> None:
        self._items: Clips[Truth] = Clips(streets, scans, self._make)

    def _make(self, clip: int) -> tuple[list[Item], list[Truth]]:
        street = Street(self.seed + clip, self.conditions)
        items: list[Item] = []
        truths: list[Truth] = []
        for scan in range(self._items.length):
            points, objects, kinds = street.step(STEP_S)
            position = clip * self._items.length + scan
            items.append(Item(position, position * STEP_S, {"points": points}))
            cubes = set(_cubes(points[kinds >= 0]).tolist())
            truths.append(([(one.kind, one.x, one.y) for one in objects], cubes))
        return items, truths

    def items(self) -> Sequence[Item]:
        """Scans as the sensor takes them."""
        return self._items

    @property
    def truths(self) -> list[Truth]:
        """Objects and their cubes, of each scan."""
        return self._items.truths()

    def accuracy(self, outputs: Sequence[Item], reference: Sequence[Item] | None = None) -> float:
        """F1 of objects over all scans, against the truth or another pipeline's outputs."""
        if reference is None:
            return self.accuracy_of(outputs, range(len(self._items)))
        return _f1(zip(self._by_scan(outputs), self._by_scan(reference), strict=True))

    def accuracy_of(self, outputs: Sequence[Item], ids: Sequence[int]) -> float:
        """The same over these scans, against the truth."""
        found = self._by_scan(outputs)
        return _f1((found[scan], self._items.truth(scan)[0]) for scan in ids)

    def filter_score(self, passed: Sequence[Item]) -> tuple[float, float]:
        """Precision and recall of cubes with a point of an object."""
        relevant = [cubes for _, cubes in self.truths]
        there = {item.id: set(_cubes(array(item, "points", 2)).tolist()) for item in passed}
        both = sum(len(cubes & relevant[scan]) for scan, cubes in there.items())
        precision = ratio(both, sum(len(cubes) for cubes in there.values()))
        return precision, ratio(both, sum(len(cubes) for cubes in relevant))

    def _by_scan(self, outputs: Sequence[Item]) -> list[list[Found]]:
        scans: list[list[Found]] = [[] for _ in range(len(self._items))]
        for item in outputs:
            places, kinds = array(item, "centres", 2), array(item, "kinds", 1)
            scans[item.id] = [(int(kind), float(x), float(y)) for kind, (x, y) in zip(kinds, places, strict=True)]
        return scans


class Rain(Clear):
    """Streets in rain: lost rays, ghosts near the sensor, noisier ranges."""

    conditions = Conditions(lost=0.18, ghosts=0.03, noise_m=0.05)
    seed = RAIN_SEED


def _f1(scans: Iterable[tuple[list[Found], list[Found]]]) -> float:
    """The F1 of found objects, each scan's beside the true ones."""
    tally = Tally()
    for found, truth in scans:
        tally.add(found, truth, _closeness)
    return tally.f1


def _closeness(one: Found, two: Found) -> float:
    if one[0] != two[0]:
        return 0.0
    return max(0.0, SAME_OBJECT_M - float(np.hypot(one[1] - two[1], one[2] - two[2])))


def _cubes(points: Array) -> Array:
    """The distinct cubes with a point, as numbers."""
    cubes = np.floor(points[:, :3].astype(np.float64) / SAMPLE_M).astype(np.int64) + 4096
    numbers: Array = np.unique((cubes[:, 0] << 40) | (cubes[:, 1] << 20) | cubes[:, 2])
    return numbers
