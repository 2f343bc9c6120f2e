"""Recorded data with truth, made on demand: the common part of the three queries.

Problem: a query's frames fill hundreds of megabytes, and a generator makes them again from a seed in milliseconds.
Units: items. Method: data come in clips; `Clips` is a sequence that makes a clip when an item of it is read and
keeps the last two. Limits: random access over many clips makes them again and again; profiles read from the front.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar, overload

from isolane.pipeline.item import Item

Truth = TypeVar("Truth")


class Clips(Sequence[Item], Generic[Truth]):
    """`count` clips of `length` items each; `make(clip)` gives items, whose ids are positions, and truths."""

    def __init__(self, count: int, length: int, make: Callable[[int], tuple[list[Item], list[Truth]]]) -> None:
        if count < 1 or length < 1:
            raise ValueError(f"{count} clips of {length} items: both must be at least 1")
        self.clips, self.length = count, length
        self._make = functools.lru_cache(maxsize=2)(make)
        self._truths: dict[int, list[Truth]] = {}

    def __len__(self) -> int:
        return self.clips * self.length

    @overload
    def __getitem__(self, index: int) -> Item: ...

    @overload
    def __getitem__(self, index: slice) -> list[Item]: ...

    def __getitem__(self, index: int | slice) -> Item | list[Item]:
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(len(self)))]
        if index < 0:
            index += len(self)
        if not 0 <= index < len(self):
            raise IndexError(f"item {index} of {len(self)}")
        return self._clip(index // self.length)[index % self.length]

    def __iter__(self) -> Iterator[Item]:
        for clip in range(self.clips):
            yield from self._clip(clip)

    def truths(self) -> list[Truth]:
        """The truth of each item."""
        for clip in range(self.clips):
            if clip not in self._truths:
                self._clip(clip)
        return [truth for clip in range(self.clips) for truth in self._truths[clip]]

    def truth(self, index: int) -> Truth:
        """The truth of one item."""
        clip, position = divmod(index, self.length)
        if clip not in self._truths:
            self._clip(clip)
        return self._truths[clip][position]

    def _clip(self, clip: int) -> list[Item]:
        items, truths = self._make(clip)
        self._truths[clip] = truths
        return items


def ratio(part: float, whole: float) -> float:
    """The quotient, and 1 where the whole is empty: an empty whole has no miss."""
    return part / whole if whole else 1.0
