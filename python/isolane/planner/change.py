"""Tests for a change that run on and on, each with a stated rate of false alarms.

Problem: a watched pipeline is judged every few seconds for days. A threshold that noise crosses now and then raises false alarms all
the time, and each makes a new plan. Method: e-detectors. Each observation multiplies the evidence for "changed at period j" by a
number whose mean is at most 1 while nothing changed, for every j of the last `HORIZON` periods; the test raises an alarm when the sum
over j reaches `every`. The mean time to a false alarm is then at least `every` observations, for any distribution:

- `Often` counts bad periods; nothing changed means that a period is bad with a chance of at most `usual`, after any earlier periods.
- `Shift` ranks each number among all before it since the test began; nothing changed means that all orders of the numbers are equally
  likely. It needs no scale, and no tail of the distribution disturbs it. After n numbers, k more that are all above raise the evidence
  about to the number of ways to choose k of n + k: with `every` = 100,000, six after twenty do, or four after eighty.

Limits: of numbers that depend on each other (a busy minute) not all orders are equally likely. The numbers must come from periods that do
not overlap. A shift that begins before a few numbers are known is not seen.
Source: Shin, Ramdas, Rinaldo, "E-detectors" (2023), for the sum and its bound; conformal ranks as in Vovk et al., "Algorithmic Learning
in a Random World".
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field

#: Beginnings of a change that are considered.
HORIZON = 64
#: Numbers that a number is ranked among at most; later ones are ranked among these.
REFERENCE = 1000
#: The part of the evidence that is put on "changed"; the rest is kept, since one usual number amid changed ones must not end a test.
STAKE = 0.9


@dataclass
class Evidence:
    """The evidence for a change at each of the last periods, latest first."""

    every: float
    products: list[float] = field(default_factory=list)

    def add(self, factors: list[float]) -> bool:
        """Multiplies; `factors[k]` is for a change that began k observations ago. Whether that raises an alarm."""
        grown = [factor * product for factor, product in zip(factors, [1.0, *self.products], strict=False)]
        self.products = grown[:HORIZON]
        return sum(self.products) >= self.every

    @property
    def length(self) -> int:
        """Observations since the most likely beginning, 0 if there is none."""
        return 1 + max(range(len(self.products)), key=self.products.__getitem__) if self.products else 0


@dataclass
class Often:
    """Whether bad periods became frequent. `usual` is the largest chance of one that is no change, `changed` the chance that is one."""

    every: float
    usual: float
    changed: float
    evidence: Evidence = field(init=False)

    def __post_init__(self) -> None:
        assert 0.0 < self.usual < self.changed < 1.0
        self.reset()

    def reset(self) -> None:
        """Starts again."""
        self.evidence = Evidence(self.every)

    def add(self, bad: bool) -> bool:
        """Takes a period; whether that raises an alarm."""
        factor = self.changed / self.usual if bad else (1.0 - self.changed) / (1.0 - self.usual)
        return self.evidence.add([factor] * (len(self.evidence.products) + 1))


@dataclass
class Shift:
    """Whether numbers became larger or smaller than all before since the test began."""

    every: float
    _sorted: list[float] = field(init=False)
    _latest: list[float] = field(init=False)
    _sides: tuple[Evidence, Evidence] = field(init=False)

    def __post_init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Starts again without earlier numbers."""
        self._sorted, self._latest = [], []
        self.go_on()

    def go_on(self) -> None:
        """Gives up the evidence, and keeps the numbers: what was found does not matter."""
        # Two tests, each with half of the false alarms.
        self._sides = (Evidence(2.0 * self.every), Evidence(2.0 * self.every))

    def add(self, number: float) -> bool:
        """Takes a number; whether that raises an alarm."""
        known = len(self._sorted)
        below, above = bisect.bisect_left(self._sorted, number), known - bisect.bisect_right(self._sorted, number)
        equal = known - below - above
        alarms = [
            side.add(bets((beyond + equal + 1) / (known + 1), known, len(side.products)))
            for side, beyond in zip(self._sides, (above, below), strict=True)
        ]
        if known < REFERENCE:
            bisect.insort(self._sorted, number)
        self._latest = [*self._latest[1 - HORIZON :], number]
        return any(alarms)

    @property
    def medians(self) -> tuple[float, float]:
        """The median before the most likely beginning of the change, and the median since; equal if one of them has no numbers."""
        since = max(self._sides, key=lambda side: sum(side.products)).length
        later = sorted(self._latest[-since:]) if since else []
        before = list(self._sorted)
        for number in later:
            place = bisect.bisect_left(before, number)
            if place < len(before) and before[place] == number:
                before.pop(place)
        if not later or not before:
            return 0.0, 0.0
        return before[len(before) // 2], later[len(later) // 2]


def bets(rank: float, known: int, hypotheses: int) -> list[float]:
    """The factors for a number of this rank (1 / (known + 1): beyond all others), for changes that began 0, 1, ... numbers ago.

    Of a change that began k numbers ago, this number is one of k + 1 that are beyond the `known` - k before. Each factor has a mean of at
    most 1 where every rank is equally likely.
    """
    found = []
    for age in range(min(hypotheses + 1, HORIZON)):
        part = (age + 1) / (known + 1)
        found.append(1.0 if part >= 1.0 else 1.0 - STAKE + (STAKE / part if rank <= part + 1e-12 else 0.0))
    return found
