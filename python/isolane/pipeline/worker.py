"""The thread in which an operator works, one item after the other, so that the host answers while it does.

Problem: an operator may take long, raise, return garbage or never come back, and its knobs change while items wait. Method: jobs in the
order in which items came; before each, knobs that are waiting are set, so a change holds from the next item on.

- What an operator raises is tried once more (`RETRIES`), since files and devices fail for a moment.
- After `BREAK_AFTER` failed items in a row the operator is given `REST_S` without any. What comes meanwhile fails at once with that reason,
  rather than each after its own wait.
- An operator that takes several items at once (`operator.Batches`) gets those that wait already, up to its limit and to the next change of
  knobs; nothing waits for a batch to fill. If a batch raises, its items are tried one by one.
- A tier that is `slowdown` times slower than this machine is imitated by waiting after the work, in proportion to the processor time that it
  took, and for a `gpu` operator also to its idle time, which is its accelerator's. What a busy machine adds is not multiplied, and what an
  operator waits for elsewhere is not slowed.

Units: `_ms` milliseconds, `_s` seconds of the monotonic clock, deadlines too; `begun_s` and `ended_s` of `Done` are since the epoch. Limits: a
thread cannot be stopped. Who finds `busy_s` beyond what is bearable ends the process.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from isolane.pipeline import clock
from isolane.pipeline.item import Item, ItemError, decode_batch, encode_batch
from isolane.pipeline.operator import Batches, KnobValue, Operator, OperatorError, describe
from isolane.pipeline.stopwatch import Spent, Stopwatch

#: Further attempts at an item that an operator raised on.
RETRIES = 1
#: Failed items in a row after which the operator rests.
BREAK_AFTER = 5
#: How long it rests.
REST_S = 1.0


class Failure(Exception):
    """An item that this operator could not process, with the reason."""


@dataclass(frozen=True)
class Done:
    """What became of an item: bytes to send on (none: filtered out), when work began and ended (epoch), how long it took in wall
    time, and of that the processor, idle and accelerator time on this tier (`stopwatch`)."""

    body: bytes
    count: int
    begun_s: float
    ended_s: float
    process_ms: float
    processor_ms: float
    idle_ms: float
    #: None: the operator does not tell.
    accelerator_ms: float | None = None


@dataclass
class _Job:
    body: bytearray
    deadline_s: float
    result: asyncio.Future[Done]


class Worker:
    """Runs one operator in one thread; all methods are called in the event loop's thread."""

    def __init__(self, operator: Operator, slowdown: float = 1.0, gpu: bool = False) -> None:
        self._operator = operator
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._changes: deque[tuple[Callable[[], Any], asyncio.Future[Any]]] = deque()
        self._busy_since: float | None = None
        self._current: list[_Job] = []
        #: Calls with several items.
        self.batches = 0
        self._failures = 0
        self._rest_until = 0.0
        self._last_error = ""
        self.slowdown = slowdown
        self._gpu = gpu
        self.raised = self.rests = 0
        self._knobs: dict[str, KnobValue] = {}
        threading.Thread(target=self._run, name="operator", daemon=True).start()

    def process(self, body: bytearray, deadline_s: float) -> asyncio.Future[Done]:
        """Queues a batch; the future ends with `Done` or `Failure`."""
        result: asyncio.Future[Done] = self._loop.create_future()
        self._jobs.put(_Job(body, deadline_s, result))
        return result

    def change(self, action: Callable[[], Any]) -> asyncio.Future[Any]:
        """Does something to the operator between two items, before the next one."""
        result: asyncio.Future[Any] = self._loop.create_future()
        self._changes.append((action, result))
        self._jobs.put(None)
        return result

    def configure(self, knobs: Mapping[str, KnobValue]) -> asyncio.Future[Any]:
        """Sets knobs from the next item on; refused ones leave all as they were (`OperatorError`)."""
        return self.change(lambda: self._configure(dict(knobs)))

    @property
    def knobs(self) -> dict[str, KnobValue]:
        """The knobs that were set."""
        return dict(self._knobs)

    @property
    def waiting(self) -> int:
        """Items that wait for the operator."""
        return self._jobs.qsize()

    def busy_s(self) -> float:
        """How long the operator has been at one item."""
        since = self._busy_since
        return 0.0 if since is None else time.monotonic() - since

    @property
    def circuit(self) -> str:
        """Open while the operator rests."""
        return "open" if time.monotonic() < self._rest_until else "closed"

    def give_up_current(self, reason: str) -> None:
        """Ends the item at which the operator hangs. Of several items the cause is unknown: senders send each again alone."""
        if len(self._current) == 1 and not self._current[0].result.done():
            self._current[0].result.set_exception(Failure(reason))

    def _configure(self, knobs: dict[str, KnobValue]) -> None:
        try:
            self._operator.configure(knobs)
        except Exception as error:
            try:
                self._operator.configure(dict(self._knobs))
            except Exception as again:
                raise OperatorError(f"refused {knobs} ({describe(error)}), and then its old knobs: {describe(again)}") from error
            raise OperatorError(f"refused {knobs}: {describe(error)}") from error
        self._knobs.update(knobs)

    def _run(self) -> None:
        self._clock = Stopwatch(self._operator)
        while True:
            job = self._jobs.get()
            self._change()
            if job is not None:
                self._work([job, *self._more()])
                self._busy_since, self._current = None, []
                self._change()

    def _change(self) -> None:
        while self._changes:
            action, result = self._changes.popleft()
            try:
                self._end(result, action())
            except Exception as error:
                self._end(result, error)

    def _more(self) -> list[_Job]:
        """What waits already and may share a call with the first job."""
        more: list[_Job] = []
        most = self._operator.batch_max if isinstance(self._operator, Batches) else 1
        while len(more) + 1 < most and not self._changes:
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                break
            if job is None:
                break
            more.append(job)
        return more

    def _end(self, future: asyncio.Future[Any], value: Any) -> None:
        def settle() -> None:
            if future.done():
                return
            if isinstance(value, Exception):
                future.set_exception(value)
            else:
                future.set_result(value)

        try:
            self._loop.call_soon_threadsafe(settle)
        except RuntimeError:  # the loop is closed: no task waits any more
            return

    def _work(self, jobs: list[_Job]) -> None:
        """Ends each job with `Done` or `Failure`."""
        opened: list[tuple[_Job, list[Item]]] = []
        for job in jobs:
            try:
                opened.append((job, self._open(job)))
            except Failure as error:
                self._end(job.result, error)
        if len(opened) > 1 and time.monotonic() >= self._rest_until and self._several(opened):
            return
        for job, items in opened:
            self._current = [job]
            try:
                self._end(job.result, self._single(items))
            except Failure as error:
                self._end(job.result, error)

    def _open(self, job: _Job) -> list[Item]:
        if time.monotonic() >= job.deadline_s:
            raise Failure("its deadline passed while it waited for this operator")
        try:
            return decode_batch(job.body)
        except ItemError as error:
            raise Failure(f"received what is no item: {error}") from error

    def _single(self, items: list[Item]) -> Done:
        """The items of one job, each in a call of its own."""
        if time.monotonic() < self._rest_until:
            raise Failure(f"the operator rests after {BREAK_AFTER} failed items in a row, the last by: {self._last_error}")
        begun = clock.now()
        self._busy_since = time.monotonic()
        try:
            self._clock.start()
            made = [each for item in items for each in self._try(item)]
            spent = self._clock.spent()
            body = encode_batch(made) if made else b""
        except Exception as error:
            self._note(error)
            raise Failure(self._last_error) from error
        self._failures = 0
        (done,) = self._done([(body, len(made))], spent, begun)
        return done

    def _several(self, opened: list[tuple[_Job, list[Item]]]) -> bool:
        """The items of several jobs in one call; False if the call failed, and nothing is ended."""
        assert isinstance(self._operator, Batches)
        begun = clock.now()
        self._current = [job for job, _ in opened]
        self._busy_since = time.monotonic()
        try:
            self._clock.start()
            every = [item for _, items in opened for item in items]
            found = iter(checked(self._operator.process_batch(every), len(every)))
            spent = self._clock.spent()
            parts = []
            for _, items in opened:
                made = [each for _ in items for each in next(found)]
                parts.append((encode_batch(made) if made else b"", len(made)))
        except Exception:
            self.raised += 1
            return False
        self.batches += 1
        self._failures = 0
        for (job, _), done in zip(opened, self._done(parts, spent, begun), strict=True):
            self._end(job.result, done)
        return True

    def _done(self, parts: list[tuple[bytes, int]], spent: Spent, begun_s: float) -> list[Done]:
        """What became of jobs that shared a call; each took its wall time, and an equal part of what it used."""
        slow = max(self.slowdown, 1.0)
        processor_ms, idle_ms = slow * spent.processor_ms, spent.idle_ms * (slow if self._gpu else 1.0)
        more_ms = processor_ms + idle_ms - spent.processor_ms - spent.idle_ms
        if more_ms > 0.0:
            self._busy_since = None
            time.sleep(more_ms / 1000.0)
        ended_s, count = clock.now(), len(parts)
        worked_ms = None if spent.accelerator_ms is None else slow * spent.accelerator_ms / count
        wall_ms = spent.wall_ms + more_ms
        return [Done(body, made, begun_s, ended_s, wall_ms, processor_ms / count, idle_ms / count, worked_ms) for body, made in parts]

    def _try(self, item: Item) -> list[Item]:
        for attempt in range(RETRIES + 1):
            try:
                made = self._operator.process(item)
            except Exception:
                self.raised += 1
                if attempt == RETRIES:
                    raise
                continue
            return of_items(made)
        return []

    def _note(self, error: Exception) -> None:
        self._last_error = describe(error)
        self._failures += 1
        if self._failures >= BREAK_AFTER:
            # One item is tried after the rest; if that fails too, the next rest begins at once.
            self._failures = BREAK_AFTER - 1
            self.rests += 1
            self._rest_until = time.monotonic() + REST_S


def of_items(made: Any) -> list[Item]:
    """What an operator returned, if it is a list of items."""
    if not isinstance(made, list) or not all(isinstance(each, Item) for each in made):
        kind = type(made).__name__ if not isinstance(made, list) else "list of other things"
        raise ItemError(f"returned a {kind} where a list of items is due")
    return made


def checked(made: Any, count: int) -> list[list[Item]]:
    """What an operator returned for `count` items, if it is a list of items for each."""
    if not isinstance(made, list) or len(made) != count:
        raise ItemError(f"returned a {type(made).__name__} where a list of {count} lists is due")
    return [of_items(each) for each in made]
