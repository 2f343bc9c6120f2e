"""A running `isolane rdma enforce`."""
from __future__ import annotations

import json
import subprocess
from pathlib import Path

from proof import wait_until


class Enforcer:
    """isolane rdma enforce with a file."""

    def __init__(self, text: str, *options: str) -> None:
        Path("/tmp/profiles.toml").write_text(text)
        self.log = Path("/tmp/enforce.json")
        with self.log.open("wb") as log:
            words = ["isolane", "rdma", "enforce", "/tmp/profiles.toml", "--json", *options]
            self.process = subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT)
        ended = lambda: self.process.poll() is not None  # noqa: E731
        wait_until(lambda: self.last() is not None or ended(), "the first status")
        if ended():
            raise RuntimeError(self.log.read_text())

    def last(self) -> dict | None:
        """The last whole status."""
        lines = [line for line in self.log.read_text().splitlines() if line.startswith("{") and line.endswith("}")]
        return json.loads(lines[-1]) if lines else None

    def tenant(self, name: str) -> dict:
        """A tenant of the next status."""
        before = (self.last() or {}).get("elapsed_s", 0)
        wait_until(lambda: (self.last() or {}).get("elapsed_s", 0) > before, "another status", 30)
        return next(tenant for tenant in self.last()["tenants"] if tenant["name"] == name)

    def kill(self) -> None:
        """SIGKILL to the enforcer, not to the guardian."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """SIGTERM."""
        self.process.terminate()
        self.process.wait(20)
