"""A process with memory in a control group of its own. Runs inside the virtual machine of a proof with two tiers; standard library only."""
from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from proof import LAB, wait_until

GROUPS = Path("/sys/fs/cgroup")
MIB = 1 << 20


def prepare() -> None:
    """Control groups have memory controllers, and the kernel demotes."""
    (GROUPS / "cgroup.subtree_control").write_text("+memory +cpu +cpuset")
    Path("/sys/kernel/mm/numa/demotion_enabled").write_text("1")


class Application:
    """A process in a control group of its own."""

    def __init__(self, name: str, size_mib: int, hot_mib: int) -> None:
        self.group = GROUPS / name
        self.group.mkdir(exist_ok=True)
        self.count = Path(f"/tmp/{name}.count")
        self.count.unlink(missing_ok=True)
        words = [sys.executable, str(LAB / "memory_tenant.py"), str(size_mib), str(hot_mib), str(self.count)]
        enter = lambda: (self.group / "cgroup.procs").write_text("0")  # noqa: E731
        self.process = subprocess.Popen(words, preexec_fn=enter)
        wait_until(lambda: self.count.exists() and self.count.stat().st_size == 8, f"{name} has its memory")

    def held_mib(self) -> tuple[float, float]:
        """Near and far, anonymous and file pages."""
        near = far = 0
        for line in (self.group / "memory.numa_stat").read_text().splitlines():
            words = line.split()
            if words[0] in ("anon", "file"):
                near += int(words[1].removeprefix("N0="))
                far += int(words[2].removeprefix("N1="))
        return near / MIB, far / MIB

    def end(self) -> None:
        """Kills it and removes its group."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        wait_until(lambda: not (self.group / "cgroup.procs").read_text(), "the group is empty")
        self.group.rmdir()
