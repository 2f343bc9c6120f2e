"""Live sources: cameras, microphones and files, as items at the times at which they were taken.

Problem: an item of a camera has no beginning and no rate of its own; streams break, repeat and drift. Method: FFmpeg (PyAV) decodes in a
thread of this process. A frame is scaled to the size of the workload's frames, a microphone's samples are cut into pieces as long as the
workload's clips. `Times` gives each frame a place on the grid of the plan's rate, so that a camera of 30 frames a second gives half of
its frames to a plan of 15, and a lost frame leaves a hole in the ids. A stream that breaks is opened again with growing pauses; after
`LOST_S` without a frame its source has ended.

| address | source |
|---|---|
| `rtsp://[USER:PASSWORD@]HOST/PATH`, `rtsps://` | a camera on the network, over TCP |
| `file:PATH` | a file at its own speed, again from its beginning when it ends |
| `v4l2:/dev/videoN` | a camera of this machine |
| `alsa:NAME` | a microphone of this machine |

Units: seconds. Limits: the time of a frame is that of its arrival, smoothed; what passed between exposure and arrival is unknown. FFmpeg
reads what the camera sends in this process: name only cameras that you trust.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import math
import re
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from isolane.installing import extra
from isolane.pipeline import clock
from isolane.pipeline.item import Array, Item
from isolane.pipeline.runner import Event, Runner
from isolane.planner.model import PlanError
from isolane.queries.operator import number
from isolane.queries.speech.audio import FULL_RATE

#: How long opening a stream, and each read, may take.
OPEN_S, READ_S = 10.0, 5.0
#: The first and the longest pause before a stream is opened again, and after how long without a frame its source has ended.
PAUSE_S, PAUSE_MAX_S, LOST_S = 0.25, 4.0, 30.0
#: Microseconds of a stream that FFmpeg keeps until it knows what it is: all these frames come at once. FFmpeg's own 5 s would be more
#: than a pipeline takes at a time.
PROBE_US = "500000"
#: Frames that wait for this process; beyond it the oldest is dropped, and counted.
QUEUE = 64
#: A step between two frames of more than this, or back, begins a new stretch: the camera started again, or its clip did.
GAP_S = 5.0
#: How much of an interval a frame may be early for its place: stamps jitter. Of a camera twice as fast every other frame has none.
EARLY = 0.2
#: How much slower a camera's clock may run than this machine's, relative to it.
DRIFT = 1e-4
#: What FFmpeg may open because of an address: nothing else than what the address names.
PROTOCOLS = {"rtsp": "rtsp,rtsps,rtp,tcp,tls,crypto", "file": "file"}
#: The environment variable in which a feeder finds its source's address.
SOURCE = "ISOLANE_SOURCE"
#: For messages and helps.
ADDRESSES = "rtsp://HOST/PATH, file:PATH, v4l2:/dev/videoN or alsa:NAME"


class SourceLost(OSError):
    """A stream that cannot be opened, or has ended; the message names it without its password."""


@dataclass(frozen=True)
class Address:
    """Where a source is. `name` is for people: without a password."""

    kind: str
    target: str
    name: str


def parse(text: str) -> Address:
    """The address that a user wrote; PlanError says what is allowed."""
    if re.match(r"rtsps?://[^/]", text):
        return Address("rtsp", text, _shown(text))
    kind, colon, target = text.partition(":")
    if not colon or kind not in ("file", "v4l2", "alsa") or not target:
        raise PlanError(f"--source {_shown(text)}: write {ADDRESSES}")
    return Address(kind, target, text)


def _shown(text: str) -> str:
    """An address without what may be a password: what precedes the last `@`, and the query, where some cameras take it."""
    return re.sub(r"//.*@", "//", text, flags=re.DOTALL).partition("?")[0]


@dataclass(frozen=True)
class Frames:
    """Images of this size."""

    width: int
    height: int


@dataclass(frozen=True)
class Sound:
    """Pieces of so many samples."""

    samples: int
    rate_hz: int


def form_of(item: Item) -> Frames | Sound:
    """What a source must give in place of items like this one."""
    frame, audio = item.payload.get("frame"), item.payload.get("audio")
    if isinstance(frame, np.ndarray) and frame.ndim == 3 and frame.shape[2] == 3 and frame.dtype == np.uint8:
        return Frames(frame.shape[1], frame.shape[0])
    if isinstance(audio, np.ndarray) and audio.ndim == 1 and len(audio) and audio.dtype == np.int16:
        return Sound(len(audio), round(number(item, "rate_hz", FULL_RATE)))
    fields = ", ".join(sorted(item.payload)) or "nothing"
    raise PlanError(f"--source: the workload's items carry {fields}; a live source gives `frame` (RGB, 8 bits) or `audio` (16 bits)")


class Times:
    """Places and times of frames, from the stamps of their stream.

    A stamp that is earlier than the last one, or more than `GAP_S` later, begins a new stretch at the moment of its arrival. Within a
    stretch the time of a frame is its stamp and the least delay of any frame so far, which grows by `DRIFT`: jitter of the network
    does not show, and times never decrease.
    """

    def __init__(self, rate_per_s: float) -> None:
        self._interval_s = 1.0 / rate_per_s
        self._base_s = self._last_s = 0.0
        self._base = self._last = -1
        self._offset_s = self._time_s = 0.0

    def take(self, stamp_s: float, now_s: float) -> tuple[int, float] | None:
        """Id and time of a frame that arrives now; None if the grid has no place for it."""
        if self._last < 0 or not 0.0 < stamp_s - self._last_s <= GAP_S:
            self._base_s, self._base = stamp_s, self._last + 1
            self._offset_s = now_s - stamp_s
        else:
            self._offset_s = min(self._offset_s + DRIFT * (stamp_s - self._last_s), now_s - stamp_s)
        self._last_s = stamp_s
        place = self._base + math.floor((stamp_s - self._base_s) / self._interval_s + EARLY)
        if place <= self._last:
            return None
        self._last = place
        self._time_s = max(self._time_s, stamp_s + self._offset_s)
        return place, self._time_s


@dataclass
class Stream:
    """A source that is read. `note` gets a line for each break. Ids begin again at `ids`, unless that is 0."""

    address: Address
    form: Frames | Sound
    rate_per_s: float
    note: Callable[[str], None] = lambda _: None
    ids: int = 0
    dropped: int = 0
    opened: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)

    async def items(self) -> AsyncGenerator[Item, None]:
        """The items as they come, until the iteration is closed or the source has ended: then SourceLost."""
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[Item | BaseException] = asyncio.Queue()

        def put(one: Item | BaseException) -> None:
            if queue.qsize() >= QUEUE:
                queue.get_nowait()
                self.dropped += 1
            queue.put_nowait(one)

        def tell(one: Item | BaseException) -> None:
            # The loop is closed where this process ends while the stream is read.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(put, one)

        def note(text: str) -> None:
            loop.call_soon_threadsafe(self.note, text)

        def work() -> None:
            try:
                for item in self._read(note):
                    tell(item)
            except BaseException as error:
                tell(error)

        thread = threading.Thread(target=work, name=f"source {self.address.name}", daemon=True)
        thread.start()
        try:
            while True:
                one = await queue.get()
                if isinstance(one, BaseException):
                    raise one
                yield dataclasses.replace(one, id=one.id % self.ids) if self.ids else one
        finally:
            self._stop.set()
            await asyncio.to_thread(thread.join, READ_S + 1.0)

    def _read(self, note: Callable[[str], None]) -> Iterator[Item]:
        """Over breaks of the stream."""
        times = Times(self.rate_per_s)
        pieces = itertools.count()
        heard_s, pause_s = time.monotonic(), PAUSE_S
        while not self._stop.is_set():
            count, reason = 0, "the stream ended"
            try:
                for item in self._stretch(times, pieces):
                    count += 1
                    heard_s, pause_s = time.monotonic(), PAUSE_S
                    yield item
            except SourceLost as error:
                reason = str(error)
            if self._stop.is_set():
                return
            if self.address.kind == "file":
                if count == 0:
                    raise SourceLost(f"source {self.address.name}: {reason} before its first item")
                continue
            if self.opened == 0 or time.monotonic() - heard_s > LOST_S:
                raise SourceLost(f"source {self.address.name}: {reason}")
            note(f"{reason}; opened again after {pause_s:g} s")
            self._stop.wait(pause_s)
            pause_s = min(2.0 * pause_s, PAUSE_MAX_S)

    def _stretch(self, times: Times, pieces: Iterator[int]) -> Iterator[Item]:
        """From opening the stream to its end."""
        av = _av()
        try:
            with self._open(av) as container:
                streams = container.streams.video if isinstance(self.form, Frames) else container.streams.audio
                if not streams:
                    raise SourceLost(f"it has no {'video' if isinstance(self.form, Frames) else 'audio'}")
                self.opened += 1
                # Threads that decode several frames at once would each hold one back.
                streams[0].codec_context.thread_count = 1
                frames = self._paced(container.decode(streams[0]))
                yield from self._images(frames, times) if isinstance(self.form, Frames) else self._sounds(av, frames, pieces)
        except av.FFmpegError as error:
            raise SourceLost(" ".join(str(error.strerror or error).split())) from None

    def _open(self, av: Any) -> Any:
        kind, target = self.address.kind, self.address.target
        options = {"protocol_whitelist": PROTOCOLS[kind]} if kind in PROTOCOLS else {}
        if kind == "rtsp":
            options |= {"rtsp_transport": "tcp", "analyzeduration": PROBE_US, "fpsprobesize": "0"}
        return av.open(target, format=kind if kind in ("v4l2", "alsa") else None, options=options, timeout=(OPEN_S, READ_S))

    def _paced(self, frames: Iterator[Any]) -> Iterator[Any]:
        """Frames until this stream is to stop; those of a file at their times."""
        begin_s = first_s = None
        for frame in frames:
            if self._stop.is_set():
                return
            if self.address.kind == "file" and frame.time is not None:
                if begin_s is None or first_s is None:
                    begin_s, first_s = time.monotonic(), frame.time
                if self._stop.wait(max(begin_s + frame.time - first_s - time.monotonic(), 0.0)):
                    return
            yield frame

    def _images(self, frames: Iterator[Any], times: Times) -> Iterator[Item]:
        assert isinstance(self.form, Frames)
        for frame in frames:
            now_s = clock.now()
            placed = times.take(now_s if frame.time is None else float(frame.time), now_s)
            if placed is not None:
                image: Array = frame.to_ndarray(format="rgb24", width=self.form.width, height=self.form.height)
                yield Item(placed[0], placed[1], {"frame": image})

    def _sounds(self, av: Any, frames: Iterator[Any], pieces: Iterator[int]) -> Iterator[Item]:
        """Pieces without gaps; the time of one is that of its last sample."""
        assert isinstance(self.form, Sound)
        resampler = av.AudioResampler(format="s16", layout="mono", rate=self.form.rate_hz)
        waiting = np.zeros(0, np.int16)
        for frame in frames:
            made = [one.to_ndarray().reshape(-1) for one in resampler.resample(frame)]
            waiting = np.concatenate([waiting, *made])
            while len(waiting) >= self.form.samples:
                piece, waiting = waiting[: self.form.samples], waiting[self.form.samples :]
                yield Item(next(pieces), clock.now(), {"audio": piece.copy(), "rate_hz": float(self.form.rate_hz)})


def ids_within(count: int) -> int:
    """Where ids begin again that must be below `count`, the items of a workload: operators that keep every n-th item up to the sixth do
    so across the seam."""
    return count // 60 * 60 or count


async def feed(runner: Runner, stream: Stream, count: int, recent: deque[Item] | None = None) -> None:
    """Sends `count` items of a stream, and waits for their fates; `recent` gets them too. A stream that ends before is an event of the
    runner."""

    def note(text: str) -> None:
        runner.events.append(Event(clock.now(), stream.address.name, text))

    stream.note = note
    async with contextlib.aclosing(stream.items()) as items:
        try:
            async for item in items:
                runner.send(item)
                if recent is not None:
                    recent.append(item)
                if runner.sent >= count:
                    break
        except SourceLost as error:
            if stream.opened == 0:
                raise
            note(f"{error}; {runner.sent} of {count} items were sent")
    if stream.dropped:
        note(f"{stream.dropped} frames came faster than this process took them and were dropped")
    await runner.settle()


def _av() -> Any:
    try:
        import av
    except ImportError as error:
        raise SourceLost(f"PyAV is not installed ({error}); {extra('live')}") from None
    return av
