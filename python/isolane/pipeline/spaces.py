"""Emulated tiers: a network namespace for each, and links of bounded rate and real delay between neighbours.

Problem: whether a placement is good shows only where tiers are apart. Method: one namespace per tier with one address; TUN
devices joined by `relay` between neighbours; routes along the chain, so what crosses several links passes all of them. Operators
get orders over Unix sockets, which namespaces do not divide, so control never competes with items.

Names carry their maker, a process number and its start time (a number may be used again): labs do not collide. Everything is
removed at the end, also after errors and signals; what a killed lab left is removed by `sweep` of the next. Start times are in
clock ticks since the machine came up. Limits: needs root, `ip` and `nsenter`; tiers share this machine's cores and memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from isolane.pipeline import processes
from isolane.pipeline.context import Context
from isolane.pipeline.relay import MTU

_PREFIX = "isot"
_NAMES = pathlib.Path("/run/netns")
#: A maker without a start time is of a former version.
_OURS = re.compile(_PREFIX + r"(\d+)(?:_(\d+))?-(?:try|\d+-\d+)", re.ASCII)
_TUN = pathlib.Path("/dev/net/tun")


class SpacesError(Exception):
    """Tiers that cannot be made here (exit code 3); the message says what is missing."""


@dataclass(frozen=True)
class Wire:
    """A link from each tier to the next."""

    mbit_per_s: float
    delay_ms: float


def missing() -> str:
    """Why this machine cannot make tiers, or an empty string."""
    if os.geteuid() != 0:
        return "namespaces need root"
    for program in ("ip", "nsenter"):
        if shutil.which(program) is None:
            return f"there is no program {program}; install iproute2 and util-linux"
    if not _TUN.exists():
        return f"there is no {_TUN}; load the kernel's tun module"
    trial = f"{_PREFIX}{maker()}-try"
    found = subprocess.run(["ip", "netns", "add", trial], capture_output=True, text=True, check=False)
    if found.returncode != 0:
        return f"a namespace cannot be made: {found.stderr.strip()}"
    subprocess.run(["ip", "netns", "del", trial], capture_output=True, check=False)
    return ""


def start_of(process: int) -> int | None:
    """When a process started; None if there is none, or only what is left of one that ended."""
    try:
        # The name, in brackets, may hold anything.
        fields = pathlib.Path(f"/proc/{process}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return None if fields[0] in "ZX" else int(fields[19])
    except (OSError, IndexError, ValueError):
        return None


def maker() -> str:
    """This process, for the names of its namespaces: number and start time."""
    return f"{os.getpid()}_{start_of(os.getpid()) or 0}"


def is_stale(name: str) -> bool:
    """Whether a namespace of this name is of a lab whose process is gone."""
    found = _OURS.fullmatch(name)
    if found is None:
        return False
    start = start_of(int(found[1]))
    return start is None or (found[2] is not None and start != int(found[2]))


def sweep() -> list[str]:
    """Removes namespaces of labs whose process is gone, and ends what still runs in them; returns their names."""
    gone = sorted(path.name for path in _NAMES.iterdir() if is_stale(path.name)) if _NAMES.is_dir() else []
    for name in gone:
        inside = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=False)
        for word in inside.stdout.split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(word), signal.SIGKILL)
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    return gone


class Spaces(Context):
    """Tiers in namespaces. Use as an asynchronous context manager."""

    _made = 0

    def __init__(self, tiers: Sequence[str], wires: Sequence[Wire]) -> None:
        if len(wires) != max(len(tiers) - 1, 0):
            raise SpacesError(f"{len(tiers)} tiers need {max(len(tiers) - 1, 0)} links; {len(wires)} are given")
        Spaces._made += 1
        self.tiers = list(tiers)
        self.wires = list(wires)
        self._tag = f"{_PREFIX}{maker()}-{Spaces._made}"
        self._relay: asyncio.subprocess.Process | None = None

    def space(self, tier: str) -> str:
        """The namespace of a tier."""
        return f"{self._tag}-{self.tiers.index(tier)}"

    def address(self, tier: str) -> str:
        """The address of a tier, from all others."""
        return f"10.202.0.{self.tiers.index(tier) + 1}"

    def enter(self, tier: str) -> list[str]:
        """The words before a command that run it in a tier."""
        return ["nsenter", f"--net=/run/netns/{self.space(tier)}"]

    async def __aenter__(self) -> Spaces:
        lacks = missing()
        if lacks:
            raise SpacesError(lacks)
        sweep()
        return await super().__aenter__()

    async def _open(self) -> None:
        for tier in self.tiers:
            await _ip("netns", "add", self.space(tier))
        links = []
        for index, wire in enumerate(self.wires):
            ends = {
                "source": {"space": self.space(self.tiers[index]), "device": "right"},
                "target": {"space": self.space(self.tiers[index + 1]), "device": "left"},
            }
            links.append({**ends, "mbit_per_s": wire.mbit_per_s, "delay_ms": wire.delay_ms})
        if links:
            await self._start_relay(links)
        for index, tier in enumerate(self.tiers):
            await self._configure(index, tier)

    async def _start_relay(self, links: list[dict[str, Any]]) -> None:
        pipe = asyncio.subprocess.PIPE
        words = [sys.executable, "-m", "isolane.pipeline.relay"]
        # In a session of its own: an interrupt from the keyboard is for the process that then ends this one.
        self._relay = await asyncio.create_subprocess_exec(
            *words, stdin=pipe, stdout=pipe, stderr=pipe, preexec_fn=_leave, start_new_session=True
        )
        try:
            await self._tell({"links": links})
        except SpacesError:
            assert self._relay.stderr is not None
            words = (await self._relay.stderr.read()).decode(errors="replace").strip().splitlines()
            raise SpacesError(f"the links between tiers cannot be made: {words[-1] if words else 'no reason given'}") from None

    async def _tell(self, document: dict[str, Any]) -> None:
        relay = self._relay
        if relay is None or relay.stdin is None or relay.stdout is None:
            raise SpacesError("there are no links to change")
        relay.stdin.write(json.dumps(document).encode() + b"\n")
        with contextlib.suppress(ConnectionError):
            await relay.stdin.drain()
        if not await relay.stdout.readline():
            raise SpacesError("the process that joins the tiers has ended")

    async def _configure(self, index: int, tier: str) -> None:
        space = self.space(tier)
        own = self.address(tier)
        lines = [f"addr add {own}/32 dev lo", "link set lo up"]
        for device, here in (("left", index > 0), ("right", index + 1 < len(self.tiers))):
            if here:
                lines.append(f"link set {device} mtu {MTU} up")
        for other in range(len(self.tiers)):
            if other != index:
                device = "left" if other < index else "right"
                lines.append(f"route add 10.202.0.{other + 1}/32 dev {device} src {own}")
        settings = "echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6 || true"
        await _run("nsenter", f"--net=/run/netns/{space}", "sh", "-c", settings)
        for line in lines:
            await _ip("-n", space, *line.split())

    async def set_wire(self, index: int, wire: Wire) -> None:
        """Gives the link after tier `index` another rate and delay, while traffic flows."""
        await self._tell({"link": index, "mbit_per_s": wire.mbit_per_s, "delay_ms": wire.delay_ms})
        self.wires[index] = wire

    async def cut(self, index: int, cut: bool = True) -> None:
        """Cuts the link after tier `index`, or mends it."""
        await self._tell({"link": index, "cut": cut})

    async def close(self) -> None:
        """Removes everything."""
        if self._relay is not None:
            processes.kill(self._relay)
            await self._relay.wait()
            self._relay = None
        for tier in self.tiers:
            with contextlib.suppress(SpacesError):
                await _ip("netns", "del", self.space(tier))


async def _ip(*words: str) -> None:
    await _run("ip", *words)


async def _run(*words: str) -> None:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*words, stdout=pipe, stderr=pipe, start_new_session=True)
    try:
        _, error = await process.communicate()
    except asyncio.CancelledError:
        # Else it might make a namespace after its stopped caller has already removed all of them.
        await process.wait()
        raise
    if process.returncode != 0:
        raise SpacesError(f"{' '.join(words)}: {error.decode(errors='replace').strip()}")


def _leave() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
