"""A headless Chromium driven over its debugging pipe: enough for tests and screenshots, without a port or a package.

The browser reads commands from descriptor 3 and answers on descriptor 4, JSON texts that end with a zero byte (Chrome DevTools
Protocol, `--remote-debugging-pipe`). A shell joins the two to our pipes. The profile is a fresh folder, also for what the
browser calls temporary, that goes with the browser. Limits: one page; an answer that takes longer than `PATIENCE_S` is an error.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PATIENCE_S = 60.0
#: The flags of the Rust tests, too.
FLAGS = (Path(__file__).parents[2] / "crates/app/report/tests/support/browser-flags.txt").read_text().split()
KEYS = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Home": 36, "End": 35, "Tab": 9, "Enter": 13}


def find() -> str | None:
    """The Chromium on this machine's path, if any."""
    return next((found for found in map(shutil.which, NAMES) if found), None)


def loaded(event: dict[str, Any], loader: str) -> bool:
    """Whether the event says that the document of this loader is loaded."""
    parameters = event.get("params", {})
    return event.get("method") == "Page.lifecycleEvent" and parameters["name"] == "load" and parameters["loaderId"] == loader


class Browser:
    """One browser with one page; leave the `with` block to end it."""

    def __init__(self, program: str) -> None:
        self.profile = tempfile.TemporaryDirectory(prefix="isolane-browser-", ignore_cleanup_errors=True)
        self.child = subprocess.Popen(
            ["sh", "-c", 'exec "$0" "$@" 3<&0 4>&1 </dev/null >/dev/null 2>/dev/null', program, *FLAGS]
            + [f"--user-data-dir={self.profile.name}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **dict.fromkeys(("TMPDIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"), self.profile.name)},
        )
        self.last_id = 0
        self.session: str | None = None
        self.buffer = b""
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", {"url": "about:blank"})
        attached = self.call("Target.attachToTarget", {"targetId": target["targetId"], "flatten": True})
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable", {})
        self.call("Page.setLifecycleEventsEnabled", {"enabled": True})

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        # A browser that ends by itself ends its helpers too; one that is killed leaves them, and what they write.
        self.session = None
        with contextlib.suppress(OSError, RuntimeError, subprocess.TimeoutExpired):
            self.call("Browser.close", {})
            self.child.wait(PATIENCE_S)
        self.child.kill()
        self.child.wait()
        self.profile.cleanup()

    def call(self, method: str, parameters: dict[str, Any]) -> Any:
        """One command and its answer; events that arrive in between are kept."""
        self.last_id += 1
        message: dict[str, Any] = {"id": self.last_id, "method": method, "params": parameters}
        if self.session is not None:
            message["sessionId"] = self.session
        assert self.child.stdin is not None
        self.child.stdin.write(json.dumps(message).encode() + b"\0")
        self.child.stdin.flush()
        while True:
            answer = self.next(method)
            if answer.get("id") == self.last_id:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def next(self, what: str) -> dict[str, Any]:
        """The next message."""
        assert self.child.stdout is not None
        end = time.monotonic() + PATIENCE_S
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.child.stdout], [], [], max(end - time.monotonic(), 0.0))
            part = os.read(self.child.stdout.fileno(), 1 << 16) if ready else b""
            if not part:
                raise RuntimeError(f"the browser does not answer {what}")
            self.buffer += part
        message, _, self.buffer = self.buffer.partition(b"\0")
        decoded: dict[str, Any] = json.loads(message)
        return decoded

    def open(self, address: str) -> None:
        """Opens an address and waits until this page, and not the one before it, is loaded."""
        answer = self.call("Page.navigate", {"url": address})
        if "errorText" in answer:
            raise RuntimeError(f"{address}: {answer['errorText']}")
        while not any(loaded(event, answer["loaderId"]) for event in self.events):
            self.events.append(self.next("Page.navigate"))

    def value(self, expression: str) -> Any:
        """What the page makes of the expression."""
        answer = self.call("Runtime.evaluate", {"expression": expression, "returnByValue": True, "awaitPromise": True})
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def key(self, name: str) -> None:
        """Presses and releases a key."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", {"type": kind, "key": name, "code": name, "windowsVirtualKeyCode": KEYS[name]})

    def size(self, width: int, height: int, phone: bool = False) -> None:
        """The window's size."""
        parameters = {"width": width, "height": height, "deviceScaleFactor": 2 if phone else 1, "mobile": phone}
        self.call("Emulation.setDeviceMetricsOverride", parameters)

    def scheme(self, name: str) -> None:
        """`light` or `dark`, as the system would say."""
        features = [{"name": "prefers-color-scheme", "value": name}]
        self.call("Emulation.setEmulatedMedia", {"features": features})

    def screenshot(self) -> bytes:
        """The whole page as PNG."""
        answer = self.call("Page.captureScreenshot", {"captureBeyondViewport": True})
        return base64.b64decode(answer["data"])

    def requested(self) -> list[str]:
        """Addresses that the page requested."""
        sent = [event for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in sent]

    def problems(self) -> list[str]:
        """Errors that the page ran into, and what its content security policy refused."""
        found = []
        for event in self.events:
            parameters = event.get("params", {})
            if event.get("method") == "Runtime.exceptionThrown":
                found.append(json.dumps(parameters["exceptionDetails"]))
            if event.get("method") == "Log.entryAdded" and parameters["entry"]["level"] == "error":
                found.append(parameters["entry"]["text"])
        return found
