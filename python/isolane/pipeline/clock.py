"""The time that items, records and events carry.

Problem: an item's latency is the difference of a time that the source took and one that the last operator took, in two processes. The
wall clock serves both, but a step of it (a time server, an administrator) makes items late by hours or early, and stops a source that
waits for the next moment. Method: on one machine the monotonic clock is the same in all processes. The runner adds one offset to it, so
that it reads as seconds since the epoch, and hands the offset to the processes that it starts. On several machines only the wall
clock is common: without an offset, `now` is the wall clock.

Units: seconds since the epoch. Limits: after a step of the wall clock these times differ from it by that step.
"""

from __future__ import annotations

import os
import time

#: The environment variable with the offset.
OFFSET = "ISOLANE_CLOCK_OFFSET_S"

_offset: float | None = float(os.environ[OFFSET]) if OFFSET in os.environ else None


def now() -> float:
    """Seconds since the epoch."""
    return time.time() if _offset is None else time.monotonic() + _offset


def one_machine() -> dict[str, str]:
    """All processes of this pipeline run on this machine: what the environment of those that this one starts must have."""
    global _offset
    if _offset is None:
        _offset = time.time() - time.monotonic()
    return {OFFSET: repr(_offset)}
