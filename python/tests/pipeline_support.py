"""What the tests of the pipeline runtime share: small deployments, and the check that every item has one fate.

Units: seconds. Nothing here is timed; limits only end tests that hang.
"""

from __future__ import annotations

import asyncio
import os
import pathlib
import shutil
import subprocess
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import numpy as np
import pytest

from isolane.pipeline.deployment import Deployment, Place, Stage
from isolane.pipeline.host import Host, Settings
from isolane.pipeline.identity import Identity
from isolane.pipeline.item import Item
from isolane.pipeline.records import Record, summarize
from isolane.pipeline.runner import Options, Runner
from isolane.pipeline.spaces import Wire

HERE = str(pathlib.Path(__file__).parent)
#: Far beyond what anything takes here, so that a busy machine makes no operator hang and no item late.
OPTIONS = Options(hang_s=20.0, deadline_s=60.0, window=1000, python_path=(HERE,))

#: The operator that passes every item on.
PASS = "pipeline_operators:Pass"
#: Ends a test that hangs.
LIMIT_S = 240.0


def stage(name: str, kind: str, tier: str = "edge", **rest: Any) -> Stage:
    """A stage of one of `pipeline_operators`; what is left over goes to its class."""
    return Stage(name, f"pipeline_operators:{kind}", tier, rest.pop("knobs", {}), options=rest)


def pipeline(*stages: Stage) -> Deployment:
    """These stages over two tiers."""
    return Deployment("test", stages, (Place("edge"), Place("cloud")), (Wire(100.0, 1.0),))


def items(count: int, size: int = 5000) -> list[Item]:
    """Items with ids from 0, of so many bytes each."""
    return [Item(number, 0.0, {"frame": np.full(size, number % 256, np.uint8)}) for number in range(count)]


def run(body: Coroutine[Any, Any, None]) -> None:
    """Runs a test's body; one that hangs is an error."""
    asyncio.run(asyncio.wait_for(body, LIMIT_S))


def with_host(settings: Settings, body: Callable[[Host, list[str]], Awaitable[None]]) -> None:
    """A host in this process for as long as the body runs."""

    async def whole() -> None:
        host = Host(settings)
        addresses = await host.start()
        try:
            await body(host, addresses)
        finally:
            host.server.close()

    run(whole())


def certificates(folder: pathlib.Path, *names: str) -> list[Identity]:
    """Certificates of one authority."""
    program = os.environ.get("ISOLANE") or shutil.which("isolane")
    if program is None:
        pytest.skip("no isolane to make certificates with; set ISOLANE")
    subprocess.run([program, "rdma", "agent", "init", str(folder), *names], check=True, capture_output=True)
    return [Identity.load(folder / name) for name in names]


async def until(holds: Callable[[], bool], what: str) -> None:
    """Looks until it does."""
    end = time.monotonic() + LIMIT_S / 2.0
    while not holds():
        assert time.monotonic() < end, f"{what}: not in {LIMIT_S / 2.0:g} s"
        await asyncio.sleep(0.01)


def fates(runner: Runner) -> dict[int, Record]:
    """The records by number, after the check that every item has exactly one, and failures a reason."""
    found = {one.number: one for one in runner.records}
    assert len(found) == len(runner.records) == runner.sent
    assert summarize(runner.sent, runner.records).lost == 0
    assert all(one.reason for one in runner.records if one.outcome in ("failed", "refused"))
    return found


def outcomes(runner: Runner) -> list[str]:
    """The outcomes in the order of the items."""
    return [one.outcome for _, one in sorted(fates(runner).items())]
