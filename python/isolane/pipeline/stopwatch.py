"""What a call of an operator takes, by what it uses: processor, accelerator, or neither.

Problem: an operator that waits for an accelerator or for a remote model hardly uses its processor, and its result is late all the
same. On a shared machine a call also waits for a core, which says nothing of the operator. Method: three clocks around the call.
Wall time, less the thread's processor time, less the time for which the thread was ready and had no core (the kernel's
`schedstat`), is idle time: the thread waited for something else. `parts` says whose time each is.

A thread that waits for CUDA computes all the time unless the program asks otherwise, so its clocks do not show the accelerator. An
operator with `accelerator_ms` (`isolane.pipeline.operator`) tells that time itself.

Units: milliseconds. Limits: a thread's own clocks, so what other threads of the operator compute is idle time. Where the kernel
keeps no `schedstat`, waits for a core are idle time too. Of a thread that both waits and computes, as much as possible of the waiting is
taken to be the accelerator's time.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from numbers import Real
from statistics import fmean

from isolane.pipeline.operator import Accelerated, OperatorError

#: Less idle time than this is what the clocks themselves take: 0.005 ms on the machine where they were tried.
IDLE_MIN_MS = 0.05
#: The idle part of a call to a `gpu` operator from which on an accelerator did the work. Below it the thread counts as one.
APART = 0.1


@dataclass(frozen=True)
class Spent:
    """Times of a call, or means over several."""

    wall_ms: float
    processor_ms: float
    queued_ms: float = 0.0
    #: None: the operator does not tell.
    accelerator_ms: float | None = None

    @property
    def idle_ms(self) -> float:
        """The thread waited for something that is no core."""
        return max(self.wall_ms - self.processor_ms - self.queued_ms, 0.0)


@dataclass(frozen=True)
class Parts:
    """The same by what was used: the operator's own resource (a core, or with `gpu` an accelerator), a core besides an
    accelerator, and nothing of the tier. `overlap_ms` is time on a core while the accelerator works, in none of the three."""

    processing_ms: float
    core_ms: float
    waiting_ms: float
    overlap_ms: float = 0.0


def parts(processor_ms: float, idle_ms: float, gpu: bool, accelerator_ms: float | None = None) -> Parts:
    """Whose time it is. The first three of `Parts` add up to processor and idle time.

    A `gpu` operator that does not tell the accelerator's time is idle while the accelerator works. Without one, as where a profile is
    made on a machine that has none, the thread counts as the accelerator and is hardly idle.
    """
    if gpu and accelerator_ms is not None:
        working_ms = min(accelerator_ms, processor_ms + idle_ms)
        overlap_ms = max(working_ms - idle_ms, 0.0)
        return Parts(working_ms, processor_ms - overlap_ms, max(idle_ms - working_ms, 0.0), overlap_ms)
    if idle_ms < IDLE_MIN_MS:
        return Parts(processor_ms, 0.0, 0.0)
    if not gpu:
        return Parts(processor_ms, 0.0, idle_ms)
    if idle_ms >= APART * (processor_ms + idle_ms):
        return Parts(idle_ms, processor_ms, 0.0)
    return Parts(processor_ms + idle_ms, 0.0, 0.0)


def mean_parts(calls: Sequence[Spent], gpu: bool) -> Parts:
    """The means over calls: of each part if the operator tells the accelerator's time, else the parts of the mean times."""
    if not calls:
        return Parts(0.0, 0.0, 0.0)
    if any(one.accelerator_ms is None for one in calls):
        return parts(fmean(one.processor_ms for one in calls), fmean(one.idle_ms for one in calls), gpu)
    each = [astuple(parts(one.processor_ms, one.idle_ms, gpu, one.accelerator_ms)) for one in calls]
    return Parts(*map(fmean, zip(*each, strict=True)))


class Stopwatch:
    """Measures calls to this operator by the thread that makes the stopwatch; no other thread may use it."""

    def __init__(self, operator: object = None) -> None:
        self._operator = operator if isinstance(operator, Accelerated) else None
        self._thread = threading.get_ident()
        try:
            self._file = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._file = -1

    def start(self) -> None:
        """A call begins. `OperatorError` if the operator tells no valid time."""
        assert threading.get_ident() == self._thread, "the clocks are those of one thread"
        self._accelerator = self._accelerator_ms()
        self._queued = self._queued_ns()
        self._processor = time.thread_time_ns()
        self._wall = time.monotonic_ns()

    def spent(self) -> Spent:
        """What was spent since it began. `OperatorError` if the operator tells no valid time."""
        accelerator = self._accelerator_ms()
        wall, processor = time.monotonic_ns(), time.thread_time_ns()
        since = (wall - self._wall, processor - self._processor, self._queued_ns() - self._queued)
        worked = None if accelerator is None or self._accelerator is None else accelerator - self._accelerator
        if worked is not None and worked < 0.0:
            raise OperatorError(f"accelerator_ms() fell from {self._accelerator:g} to {accelerator:g}: must be the sum of all calls")
        wall_ms, processor_ms, queued_ms = (ns / 1e6 for ns in since)
        return Spent(wall_ms, processor_ms, queued_ms, worked)

    def _accelerator_ms(self) -> float | None:
        if self._operator is None:
            return None
        told = self._operator.accelerator_ms()
        # Numbers of numpy too.
        if isinstance(told, bool) or not isinstance(told, Real) or not math.isfinite(told):
            raise OperatorError(f"accelerator_ms() returned {told!r}: must be a number of milliseconds")
        return float(told)

    def _queued_ns(self) -> int:
        if self._file < 0:
            return 0
        try:
            return int(os.pread(self._file, 64, 0).split()[1])
        except (OSError, IndexError, ValueError):
            return 0

    def close(self) -> None:
        """Gives the file back."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
