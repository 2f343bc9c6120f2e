"""isolaned in the lab: the operator's file, the daemon for as long as a block lasts, and programs under it.

Runs inside the virtual machine; standard library only.
"""
from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from proof import wait_until

# What the proofs of pacing need.
ISOLANE = ("isolaned", "isolane", "libisolane_shim.so")

# Of the bits on the wire, those that are payload: 4,096 bytes in frames of 4,154.
PAYLOAD = 4096 / 4154
# And of those, what an operator hands out: a queue into which goes as much as comes out never drains.
HANDED_OUT = 0.96


# The proofs' tenants are processes of one user that name themselves, and `under` marks those of the latency class.
TRUST = ("trust_names = true", "own_names_max = 4096", "[[rule]]", 'claim = "fast-*"', 'class = "latency"')


def operator_file(
    rate_mbit: int | None = None, weights: Mapping[str, int] | None = None, target_us: float = 10_000, period_ms: int = 1
) -> str:
    """isolaned's file for the lab: r0 and r1, which watch the link between them, at nearly the rate that tc has set."""
    lines = [f'period = "{period_ms}ms"', *TRUST]
    for device in ("r0", "r1"):
        lines += ["[[device]]", f'name = "{device}"']
        if rate_mbit:
            # A percentile over the newest hundred: the default window is made for microseconds, and lasts minutes here.
            lines += [f'target = "{round(target_us)}us"', 'reference_period = "5ms"', "reference_count = 100"]
            lines.append(f'rate = "{round(rate_mbit * PAYLOAD * HANDED_OUT * 1000)}kb/s"')
    lines += ["[[peer]]", 'device = "r0"', 'remote_device = "r1"']
    for name, weight in (weights or {}).items():
        lines += ["[[tenant]]", f'name = "{name}"', f"weight = {weight}"]
    return "\n".join(lines) + "\n"


# What the shim says when no daemon paces its program: then a measurement means nothing.
UNPACED = "unpaced"


class Daemon:
    """isolaned on both devices, for as long as the `with` block lasts."""

    def __init__(self, config: str = "", on: Sequence[str] = ("r0", "r1")) -> None:
        self.socket = Path("/run/isolane/clients/isolaned.sock")
        self.config = config
        self.on = on
        self.log = Path("/tmp/isolaned.log")
        self.log.unlink(missing_ok=True)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it and waits until it listens."""
        self.socket.parent.mkdir(parents=True, exist_ok=True)
        devices = [line for device in self.on for line in ("[[device]]", f'name = "{device}"')]
        file = Path("/tmp/isolaned.toml")
        file.write_text(self.config or "\n".join([*TRUST, *devices, ""]))
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(["isolaned", "--config", str(file)], stdout=log, stderr=log)
        wait_until(self.accepts, "isolaned listens", 20)

    def accepts(self) -> bool:
        """Whether a shim would be let in. A daemon that has ended is an error."""
        if self.process is None or self.process.poll() is not None:
            raise RuntimeError(f"isolaned has ended:\n{self.log.read_text()}")
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
            try:
                probe.connect(str(self.socket))
            except OSError:
                return False
        return True

    def kill(self) -> None:
        """SIGKILL."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def cpu_s(self) -> float:
        """Processor time that it has used, user and system."""
        assert self.process is not None
        words = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    def __enter__(self) -> Daemon:
        self.start()
        # Tenants must not disturb the measurement of the idle device.
        if "[[peer]]" in self.config:
            done = "connected" if "target =" in self.config else "the target"
            wait_until(lambda: done in self.log.read_text(), f"isolaned says {done}", 40)
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                print("isolaned did not end within 5 s of SIGTERM", flush=True)
                self.kill()


def under(tenant: str, kind: str = "auto") -> list[str]:
    """The words before a program that put it under Isolane."""
    name = f"fast-{tenant}" if kind == "latency" else tenant
    return ["isolane", "rdma", "run", "--class", kind, "--tenant", name, "--"]
