"""The end of processes that asyncio started."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal


def kill(process: asyncio.subprocess.Process) -> None:
    """Sends SIGKILL, unless the process has ended.

    `process.kill()` asks first whether the process has ended, and by that takes its exit status away from asyncio, which then
    warns of an unknown process and reports status 255.
    """
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
