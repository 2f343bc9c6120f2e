"""Detections from grids of object centres, and how well detections match the truth.

Problem: the detectors' nets answer with a grid (see `isolane.queries.training.centre`); users and metrics want
boxes. Units: cells of the grid, then pixels or metres as the caller scales. Method: cells whose chance exceeds a
threshold and is the greatest of its 3 x 3 neighbourhood; matching is greedy by closeness. Limits: two centres in
neighbouring cells may merge into one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Indices = npt.NDArray[np.intp]
Box = tuple[float, float, float, float]
One = TypeVar("One")
Two = TypeVar("Two")


def peaks(grid: Floats, numbers: int, threshold: float) -> tuple[Indices, Indices, Floats, Floats, Indices]:
    """Rows, columns, chances, regression numbers (one row per peak) and classes of the peaks, most likely first."""
    logits = grid[0]
    padded = np.pad(logits, 1, constant_values=-np.inf)
    height, width = logits.shape
    greatest = logits.copy()
    for down in range(3):
        for right in range(3):
            np.maximum(greatest, padded[down : down + height, right : right + width], out=greatest)
    rows, columns = np.nonzero((logits >= greatest) & (logits > np.log(threshold / (1 - threshold))))
    order = np.argsort(-logits[rows, columns], kind="stable")
    rows, columns = rows[order], columns[order]
    chances = (1 / (1 + np.exp(-logits[rows, columns]))).astype(np.float32)
    values = grid[1 : 1 + numbers, rows, columns].T
    return rows, columns, chances, values, grid[1 + numbers :, rows, columns].argmax(axis=0)


def overlap(one: Sequence[float], two: Sequence[float]) -> float:
    """Intersection over union of two boxes."""
    width = min(one[2], two[2]) - max(one[0], two[0])
    height = min(one[3], two[3]) - max(one[1], two[1])
    if width <= 0 or height <= 0:
        return 0.0
    both = width * height
    return both / ((one[2] - one[0]) * (one[3] - one[1]) + (two[2] - two[0]) * (two[3] - two[1]) - both)


def distinct(boxes: Sequence[Box], most: float) -> list[int]:
    """Indices of the boxes that overlap no earlier kept one by more than `most`."""
    kept: list[int] = []
    for index, box in enumerate(boxes):
        if all(overlap(box, boxes[other]) <= most for other in kept):
            kept.append(index)
    return kept


@dataclasses.dataclass
class Tally:
    """Counts of right, invented and missed objects."""

    right: int = 0
    invented: int = 0
    missed: int = 0

    def add(self, found: Sequence[One], truths: Sequence[Two], closeness: Callable[[One, Two], float]) -> None:
        """Matches greedily, closest first; `closeness` is 0 or less where two things cannot be the same."""
        pairs = [(closeness(one, two), i, j) for i, one in enumerate(found) for j, two in enumerate(truths)]
        used_found: set[int] = set()
        used_truths: set[int] = set()
        for close, i, j in sorted(pairs, key=lambda pair: (-pair[0], pair[1], pair[2])):
            if close > 0 and i not in used_found and j not in used_truths:
                used_found.add(i)
                used_truths.add(j)
        self.right += len(used_found)
        self.invented += len(found) - len(used_found)
        self.missed += len(truths) - len(used_truths)

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall; 1 where there was nothing to find and nothing was found."""
        total = 2 * self.right + self.invented + self.missed
        return 2 * self.right / total if total else 1.0
