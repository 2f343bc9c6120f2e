"""What strangers may do to a pipeline on Ray Serve: send items up to a bound, and change nothing without the token.

Goal: the entry refuses what a host refuses. Method: the entry's class with real requests of Starlette, as Ray gives them; steps in this
process replace Ray's handles. `test_pipeline_executors` runs a whole pipeline where Ray is installed.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import pathlib
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from pipeline_support import HERE, items

from isolane.pipeline import rayserve
from isolane.pipeline.item import encode_batch
from isolane.planner.model import PlanError

requests = pytest.importorskip("starlette.requests", reason="Starlette is not installed (extra `test`)")

TOKEN = "0123456789abcdef" * 2
DIGEST = hashlib.sha256(TOKEN.encode()).hexdigest()


class Remote:
    """A step that is called as Ray's handles are."""

    def __init__(self) -> None:
        self.step = rayserve.Step("even", "pipeline_operators:Even", {}, "edge")
        self.process = SimpleNamespace(remote=self._process)
        self.configure = SimpleNamespace(remote=self._configure)

    async def _process(self, body: bytes) -> Any:
        return self.step.process(body)

    async def _configure(self, knobs: dict[str, Any]) -> str:
        return self.step.configure(knobs)


@pytest.fixture
def entry(monkeypatch: pytest.MonkeyPatch) -> rayserve.Entry:
    """An entry before one step, with a token."""
    monkeypatch.syspath_prepend(HERE)
    rayserve.allowed.allow(["pipeline_operators"])
    return rayserve.Entry({"even": Remote()}, DIGEST)


def send(entry: rayserve.Entry, method: str, path: str, body: Iterable[bytes] = (), **headers: str) -> Any:
    """One request whose body comes in these pieces; the answer, and in `entry.read` the pieces that were read."""
    pieces = list(body)
    read = []

    async def receive() -> dict[str, Any]:
        read.append(pieces.pop(0) if pieces else b"")
        return {"type": "http.request", "body": read[-1], "more_body": bool(pieces)}

    named = [(name.encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": method, "path": path, "query_string": b"", "headers": named, "server": ("x", 80), "scheme": "http"}
    answer = asyncio.run(entry(requests.Request(scope, receive)))
    return SimpleNamespace(status=answer.status_code, text=bytes(answer.body).decode(errors="replace"), read=read, headers=answer.headers)


ORDER = [json.dumps({"operator": "even", "knobs": {"mark": 7}}).encode()]


def mark(entry: rayserve.Entry) -> Any:
    """The knob of the step."""
    return entry._steps["even"].step._operator.knobs["mark"]


@pytest.mark.parametrize("said", [{}, {"authorization": f"Bearer {TOKEN[:-1]}"}, {"authorization": "Bearer "}, {"authorization": TOKEN}])
def test_without_the_token_no_client_changes_knobs(entry: rayserve.Entry, said: dict[str, str]) -> None:
    answer = send(entry, "PUT", "/test/config", ORDER, **said)
    assert (answer.status, mark(entry), answer.read) == (403, 0, [])


def test_without_a_token_file_no_token_is_right(entry: rayserve.Entry) -> None:
    entry._digest = ""
    for said in ({}, {"authorization": "Bearer "}, {"authorization": f"Bearer {TOKEN}"}):
        assert send(entry, "PUT", "/test/config", ORDER, **said).status == 403
    assert mark(entry) == 0


def test_the_token_changes_knobs(entry: rayserve.Entry) -> None:
    assert send(entry, "PUT", "/test/config", ORDER, authorization=f"Bearer {TOKEN}").status == 200
    assert mark(entry) == 7
    wrong = send(entry, "PUT", "/test/config", [b"[" * 50_000], authorization=f"Bearer {TOKEN}")
    assert wrong.status == 422 and "nested too deeply" in wrong.text


def test_items_pass_without_a_token_and_a_browsers_page_sends_none(entry: rayserve.Entry) -> None:
    batch = encode_batch(items(1))
    answer = send(entry, "POST", "/test/process", [batch[:1000], batch[1000:]])
    assert answer.status == 200 and answer.headers["x-isolane-outcome"] == "delivered"
    assert send(entry, "POST", "/test/process", [batch], origin="http://page.example").status == 403
    assert send(entry, "GET", "/test/healthz").status == 200
    assert send(entry, "DELETE", "/test/process").status == 404


def test_a_body_is_read_no_further_than_its_limit(entry: rayserve.Entry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rayserve, "MAX_BYTES", 1000)
    answer = send(entry, "POST", "/test/process", [bytes(600)] * 50)
    assert answer.status == 413 and len(answer.read) == 2
    answer = send(entry, "PUT", "/test/config", [bytes(200_000)] * 50, authorization=f"Bearer {TOKEN}")
    assert answer.status == 413 and len(answer.read) == 2
    assert entry._held_bytes == 0


def test_bodies_of_an_entry_are_bounded_together(entry: rayserve.Entry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rayserve, "BODIES_BYTES", 1000)
    entry._held_bytes = 900
    answer = send(entry, "POST", "/test/process", [bytes(60)] * 50)
    assert answer.status == 503 and len(answer.read) == 2
    assert entry._held_bytes == 900


def test_a_body_that_stops_holds_no_place(entry: rayserve.Entry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rayserve, "BODY_S", 0.05)
    pieces = [bytes(1000)]

    async def receive() -> dict[str, Any]:
        if not pieces:
            await asyncio.Event().wait()
        return {"type": "http.request", "body": pieces.pop(), "more_body": True}

    scope = {"type": "http", "method": "POST", "path": "/test/process", "query_string": b"", "headers": [], "server": ("x", 80), "scheme": "http"}

    async def answer() -> Any:
        return await asyncio.wait_for(entry(requests.Request(scope, receive)), 30.0)

    assert asyncio.run(answer()).status_code == 408
    assert entry._held_bytes == 0


def test_a_token_that_others_can_read_is_refused(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    path.chmod(0o640)
    with pytest.raises(PlanError, match="mode 640, user .*; must be a file of yours with mode 600"):
        rayserve.token_digest(path)
    path.chmod(0o600)
    assert rayserve.token_digest(path) == DIGEST
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(PlanError, match="link: Too many levels"):
        rayserve.token_digest(tmp_path / "link")
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(PlanError, match="must be a file of yours"):
        rayserve.token_digest(tmp_path / "pipe")
    with pytest.raises(PlanError, match="absent: No such file"):
        rayserve.token_digest(tmp_path / "absent")
    path.write_text("short")
    with pytest.raises(PlanError, match="5 characters; must have 32 to 1024"):
        rayserve.token_digest(path)
