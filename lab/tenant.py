"""Tenants of the lab: pairs of perftest's programs, alone, side by side or behind another measurement, and what they print.

Runs inside the virtual machine; standard library only.
"""
from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from daemon import UNPACED
from link import ADDRESS, gid_index, queue_pairs
from proof import listens, wait_until

# perftest's code of a patient timer.
PATIENT = "18"

_ports = itertools.count(20000)


@dataclass
class Tenant:
    """Two perftest processes: the server on one device, the client on the other.

    `options` goes to both; `prefix` comes before the program at both ends, for instance `isolane rdma run --`. Unless the
    options name a timeout (-u), it is 1.07 s (4 us * 2^18): the link loses nothing (lab/devices), and perftest's 67 ms are over
    before a busy emulated machine has answered. Soft-RoCE would send again what is under way, and retries without end.
    """

    program: str
    options: Sequence[str]
    prefix: Sequence[str] = ()
    client: str = "r0"
    server: str = "r1"
    environment: dict[str, str] = field(default_factory=dict)
    port: int = field(default_factory=lambda: next(_ports))
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    def listen(self) -> None:
        """Starts the server."""
        self._start(self.server, [])

    def connect(self) -> None:
        """Waits for the server and starts the client."""
        server = self.processes[0]
        wait_until(lambda: listens(self.port) or server.poll() is not None, f"server of {self.program}")
        self._start(self.client, [ADDRESS[self.server]])

    def connected(self) -> bool:
        """Whether the server has connected queue pairs, and whether both ends live: an end that has gone is an error."""
        if any(process.poll() is not None for process in self.processes):
            raise self.fault("ended early")
        return bool(queue_pairs(self.server, self.processes[0].pid))

    def fault(self, what: str) -> RuntimeError:
        """Ends both ends. The error has their exit statuses until then and their last words."""
        codes = [process.poll() for process in self.processes]
        self.stop()
        texts = [process.communicate()[0] for process in self.processes]
        words = " / ".join(map(last_words, texts))
        tails = "\n".join(text[-1500:] for text in texts)
        return RuntimeError(f"{self.program} {what} with {codes} (server, client): {words}\n{tails}")

    def result(self, timeout_s: float) -> Result:
        """Waits for the client and then the server, and reads what the client printed."""
        outputs: list[str] = []
        for process in reversed(self.processes):
            try:
                outputs.append(process.communicate(timeout=timeout_s)[0])
            except subprocess.TimeoutExpired:
                self.stop()
                raise TimeoutError(f"{self.command(self.client)}: no end within {timeout_s} s") from None
        if any(process.returncode for process in self.processes):
            codes = [process.returncode for process in reversed(self.processes)]
            raise RuntimeError(f"{self.program} ended with {codes} (client, server):\n" + "\n".join(outputs))
        if self.prefix and any(UNPACED in text for text in outputs):
            raise RuntimeError(f"{self.program} was not paced:\n" + "\n".join(outputs))
        return Result.read(self.program, outputs[0])

    def stop(self) -> None:
        """Kills both ends."""
        for process in self.processes:
            process.kill()
            process.wait()

    def command(self, device: str) -> list[str]:
        """The command line of the end on `device`."""
        program = [self.program, "-d", device, "-x", str(gid_index(device)), "-F", "-p", str(self.port)]
        if device.startswith("s"):
            program.append("-R")
        timeout = [] if "-u" in self.options else ["-u", PATIENT]
        return [*self.prefix, *program, *timeout, *self.options]

    def _start(self, device: str, more: Sequence[str]) -> None:
        self.processes.append(
            subprocess.Popen(
                [*self.command(device), *more],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env={**os.environ, **self.environment},
            )
        )


def last_words(text: str) -> str:
    """The end of a program's output in one line of at most 90 characters, without lines of dashes, for the table of proofs."""
    lines = [" ".join(line.split()) for line in text.splitlines() if re.search(r"\w", line)]
    return "; ".join(lines)[-90:]


@dataclass(frozen=True)
class Result:
    """What perftest's client printed. Absent figures are NaN."""

    bandwidth_mb_s: float = float("nan")
    rate_mpps: float = float("nan")
    typical_us: float = float("nan")
    p99_us: float = float("nan")

    @staticmethod
    def read(program: str, output: str) -> Result:
        """Reads the row below the `#bytes` heading."""
        lines = output.splitlines()
        heading = next((n for n, line in enumerate(lines) if line.lstrip().startswith("#bytes")), None)
        if heading is None:
            raise RuntimeError(f"{program} printed no table:\n{output}")
        for line in lines[heading + 1 :]:
            words = line.split()
            if words and re.fullmatch(r"\d+", words[0]):
                numbers = [float(word) for word in words]
                if program.endswith("_lat"):
                    return Result(typical_us=numbers[4], p99_us=numbers[7])
                return Result(bandwidth_mb_s=numbers[3], rate_mpps=numbers[4])
        raise RuntimeError(f"{program} printed no row:\n{output}")


@contextmanager
def background(tenants: Sequence[Tenant], settle_s: float = 1.0) -> Iterator[None]:
    """Runs the tenants until the block ends, which begins when their traffic flows."""
    try:
        for tenant in tenants:
            tenant.listen()
        for tenant in tenants:
            tenant.connect()
        for tenant in tenants:
            try:
                wait_until(tenant.connected, f"{tenant.program} connects")
            except TimeoutError:
                raise tenant.fault("did not connect within 60 s") from None
        time.sleep(settle_s)
        yield
        for tenant in tenants:
            tenant.connected()
    finally:
        for tenant in tenants:
            tenant.stop()


@contextmanager
def loops(count: int) -> Iterator[None]:
    """Keeps processors busy with programs that send nothing."""
    programs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()


def together(tenants: Sequence[Tenant], timeout_s: float) -> list[Result]:
    """Runs the tenants side by side: all servers first, then all clients."""
    try:
        for tenant in tenants:
            tenant.listen()
        for tenant in tenants:
            tenant.connect()
        return [tenant.result(timeout_s) for tenant in tenants]
    finally:
        for tenant in tenants:
            tenant.stop()


def alone(tenant: Tenant, timeout_s: float = 60) -> Result:
    """Runs one tenant."""
    return together([tenant], timeout_s)[0]
