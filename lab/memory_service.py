"""A running `isolaned --mem` of a proof, and requests to it. Runs inside the virtual machine; standard library only."""
from __future__ import annotations

import json
import socket
import subprocess
from pathlib import Path

from proof import wait_until

SOCKET = Path("/run/isolane/mem.sock")
LOG = Path("/tmp/isolaned.log")


def ask(request: object, at: Path = SOCKET) -> dict:
    """One request, one answer."""
    with socket.socket(socket.AF_UNIX) as service:
        service.settimeout(30)
        service.connect(str(at))
        service.sendall(json.dumps({"version": 2, "say": request}).encode() + b"\n")
        return json.loads(service.makefile().readline())["say"]


def answers(at: Path = SOCKET) -> bool:
    """Whether the daemon does."""
    try:
        return bool(ask("status", at))
    except OSError:
        return False


def start_daemon(settings: str) -> subprocess.Popen:
    """isolaned --mem with the text of its file."""
    SOCKET.parent.mkdir(parents=True, exist_ok=True)
    Path("/tmp/mem.toml").write_text(settings)
    with LOG.open("ab") as log:
        daemon = subprocess.Popen(["isolaned", "--mem", "--mem-config", "/tmp/mem.toml"], stdout=log, stderr=log)
    wait_until(lambda: answers() or daemon.poll() is not None, "the daemon answers")
    if daemon.poll() is not None:
        raise RuntimeError(LOG.read_text())
    return daemon
