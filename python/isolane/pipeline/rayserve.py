"""A deployment on Ray Serve: one Serve deployment per operator, joined by handles, with one HTTP entry.

Problem: where Ray already runs, pipelines should run on it. Method: each operator is a class behind a Serve deployment with one
replica; tiers are custom resources (`tier:<name>`, a thousandth each, so that they place and do not count); knobs are the
deployment's `user_config`, which Ray sets without a restart. The entry has the contract's POST /process: a batch in, the
last operator's batch out, with the same headers; GET /healthz; PUT /config {"operator", "knobs"} for one operator's knobs.

Every user who reaches Ray's port may send items, and no page of a browser. Knobs change only for requests with the token of a file that
its owner alone can read (`authorization: Bearer TOKEN`); without such a file no client may change them. The entry gets the token's SHA-256
digest, since others may read what Ray stores. A body is read up to its limit and for `BODY_S`, all bodies of an entry up to `BODIES_BYTES`.

Limits: Ray retries and places as Ray does - no keys, so an item that is sent again is processed again; use the processes of
`runner` where each item's fate matters. Needs the extra `serve` (ray[serve]); too heavy for a device.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import os
import pathlib
import stat
import time
from collections.abc import Sequence
from typing import Any

from isolane import allowed
from isolane.installing import extra
from isolane.pipeline import link as links
from isolane.pipeline.deployment import Deployment, Stage
from isolane.pipeline.item import MAX_BYTES, ItemError, decode_batch, encode_batch
from isolane.pipeline.messages import JSON_BYTES, read_json
from isolane.pipeline.operator import describe, load
from isolane.pipeline.stopwatch import Stopwatch
from isolane.planner.model import PlanError

#: What of a tier's resource an operator takes: placement only.
SHARE = 0.001
#: What an entry or an operator reserves of a core; measured work is far below a whole one.
CORES = 0.1
#: Bytes of all bodies that an entry has.
BODIES_BYTES = 2 * MAX_BYTES
#: Seconds until a body is here: the largest one at 9 Mbit/s. A body that stops would hold a part of `BODIES_BYTES`.
BODY_S = 60.0
#: Characters of a token: fewer can be guessed, and more are no token.
TOKEN_MIN, TOKEN_MAX = 32, 1024


class RayMissing(Exception):
    """Ray Serve is not installed (exit code 3)."""


class Step:
    """An operator as Ray calls it."""

    def __init__(self, name: str, implementation: str, options: dict[str, Any], tier: str, modules: Sequence[str] = ()) -> None:
        self.name, self.tier = name, tier
        allowed.allow(modules)
        self._operator = load(implementation, options)

    def reconfigure(self, user_config: dict[str, Any]) -> None:
        """From Ray: new knobs."""
        if user_config:
            self._operator.configure(user_config)

    def configure(self, knobs: dict[str, Any]) -> str:
        """New knobs from the entry; the reason if they are refused."""
        try:
            self._operator.configure(knobs)
        except Exception as error:
            return f"operator {self.name} refused {knobs}: {describe(error)}"
        return ""

    def process(self, body: bytes) -> tuple[str, bytes, dict[str, Any]]:
        """Outcome, batch or reason, and the trace's entry."""
        begun = time.time()
        hop: dict[str, Any] = {"operator": self.name, "tier": self.tier, "received_s": begun, "begun_s": begun}
        hop["bytes_in"] = len(body)
        # Ray calls this from any of its threads.
        clock = Stopwatch(self._operator)
        try:
            clock.start()
            made = [each for item in decode_batch(body) for each in self._operator.process(item)]
            data = encode_batch(made) if made else b""
            spent = clock.spent()
        except (Exception, ItemError) as error:
            return links.FAILED, describe(error).encode(), hop
        finally:
            clock.close()
        hop.update(ended_s=time.time(), process_ms=spent.wall_ms, processor_ms=spent.processor_ms, idle_ms=spent.idle_ms)
        if spent.accelerator_ms is not None:
            hop["accelerator_ms"] = spent.accelerator_ms
        hop.update(bytes_out=len(data))
        return (links.DELIVERED if made else links.FILTERED), data, hop


def token_digest(path: pathlib.Path) -> str:
    """The SHA-256 digest of the token in a file of this user that no other user can read; PlanError names what is wrong."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
                mode = stat.S_IMODE(found.st_mode)
                raise PlanError(f"--token-file {path}: mode {mode:o}, user {found.st_uid}; must be a file of yours with mode 600")
            token = file.read(TOKEN_MAX + 1).strip()
    except OSError as error:
        raise PlanError(f"--token-file {path}: {error.strerror}; write {TOKEN_MIN} random characters or more to a file with mode 600") from error
    if not TOKEN_MIN <= len(token) <= TOKEN_MAX:
        raise PlanError(f"--token-file {path}: {len(token)} characters; must have {TOKEN_MIN} to {TOKEN_MAX}")
    return hashlib.sha256(token).hexdigest()


class _Refused(Exception):
    """A request that is rejected, with its status."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Entry:
    """Takes items over HTTP and passes them along the operators. `digest` is that of the token for PUT /config; none: PUT /config is disabled."""

    def __init__(self, steps: dict[str, Any], digest: str = "") -> None:
        self._steps = steps
        self._digest = digest
        self._held_bytes = 0

    async def __call__(self, request: Any) -> Any:
        """From Ray: one HTTP request."""
        from starlette.responses import JSONResponse

        try:
            if "origin" in request.headers:
                raise _Refused(403, "requests of a browser's page are rejected; send no origin header")
            return await self._answer(request)
        except _Refused as error:
            return JSONResponse({"error": str(error)}, error.status)

    async def _answer(self, request: Any) -> Any:
        from starlette.responses import JSONResponse

        path, method = request.url.path.rsplit("/", 1)[-1], request.method
        if (method, path) == ("GET", "healthz"):
            return JSONResponse({"operator": "entry", "state": "ready"})
        if (method, path) == ("PUT", "config"):
            self._check_token(request.headers.get("authorization", ""))
            return await self._configure(bytes(await self._body(request, JSON_BYTES)))
        if (method, path) != ("POST", "process"):
            raise _Refused(404, f"{method} {path[:80]}: there are POST /process, PUT /config, GET /healthz")
        body = await self._body(request, MAX_BYTES)
        self._held_bytes += len(body)
        try:
            return await self._process(bytes(body))
        finally:
            self._held_bytes -= len(body)

    def _check_token(self, said: str) -> None:
        kind, _, token = said.partition(" ")
        digest = hashlib.sha256(token.strip().encode()).hexdigest()
        if not self._digest:
            raise _Refused(403, "knobs cannot be changed: the pipeline was started without --token-file")
        if kind.lower() != "bearer" or not hmac.compare_digest(digest, self._digest):
            raise _Refused(403, "PUT /config needs `authorization: Bearer TOKEN` with the token of --token-file")

    async def _body(self, request: Any, most: int) -> bytearray:
        """A body, read no further than its limit and no longer than `BODY_S`."""
        try:
            return await asyncio.wait_for(self._read(request, most), BODY_S)
        except asyncio.TimeoutError:
            raise _Refused(408, f"the body is not here after {BODY_S:g} s; send it faster, or in smaller batches") from None

    async def _read(self, request: Any, most: int) -> bytearray:
        body = bytearray()
        try:
            async for chunk in request.stream():
                if len(body) + len(chunk) > most:
                    raise _Refused(413, f"a body of {len(body) + len(chunk)} bytes or more: {most} at most")
                if self._held_bytes + len(chunk) > BODIES_BYTES:
                    raise _Refused(503, f"bodies on their way take {BODIES_BYTES} bytes, which is the most; send it again later")
                body += chunk
                self._held_bytes += len(chunk)
        finally:
            self._held_bytes -= len(body)
        return body

    async def _process(self, body: bytes) -> Any:
        from starlette.responses import JSONResponse, Response

        outcome, data, trace = await self.through(body)
        headers = {links.OUTCOME: outcome, links.TRACE: json.dumps(trace, separators=(",", ":"))}
        if outcome == links.FAILED:
            return JSONResponse({"operator": trace[-1]["operator"], "reason": data.decode()}, headers=headers)
        return Response(data, headers=headers, media_type="application/octet-stream")

    async def through(self, body: bytes) -> tuple[str, bytes, list[dict[str, Any]]]:
        """One batch along all operators, until it is delivered, filtered out or fails."""
        trace: list[dict[str, Any]] = []
        outcome, data = links.DELIVERED, body
        for step in self._steps.values():
            outcome, data, hop = await step.process.remote(data)
            trace.append(hop)
            if outcome != links.DELIVERED:
                break
        return outcome, data, trace

    async def _configure(self, body: bytes) -> Any:
        from starlette.responses import JSONResponse

        try:
            document = read_json(body)
            step, knobs = self._steps[document["operator"]], dict(document["knobs"])
        except (ValueError, KeyError, TypeError) as error:
            return JSONResponse({"error": f"write an operator of {', '.join(self._steps)} and its knobs: {error}"}, 422)
        refused = await step.configure.remote(knobs)
        return JSONResponse({"error": refused}, 422) if refused else JSONResponse({"operator": document["operator"]})


def application(deployment: Deployment, gpus: bool = False, digest: str = "") -> Any:
    """The Serve application; `serve.run(application(...))` starts it. Tiers without a resource in the cluster wait for one.

    `digest` is that of the token for PUT /config (`token_digest`). With `gpus`, `gpu` operators reserve a part of one: for operators that use it, on clusters that have some.
    """
    serve = _serve()
    steps = {stage.name: _bind(serve, stage, gpus) for stage in deployment.stages}
    return serve.deployment(Entry, name="entry", ray_actor_options={"num_cpus": CORES}).bind(steps, digest)


def _bind(serve: Any, stage: Stage, gpus: bool) -> Any:
    options: dict[str, Any] = {"num_cpus": CORES, "resources": {f"tier:{stage.tier}": SHARE}}
    if stage.gpu and gpus:
        options["num_gpus"] = SHARE
    made = serve.deployment(
        Step, name=stage.name, num_replicas=1, max_ongoing_requests=1, ray_actor_options=options, user_config=dict(stage.knobs)
    )
    return made.bind(stage.name, stage.implementation, dict(stage.options), stage.tier, allowed.allowed())


def _serve() -> Any:
    try:
        from ray import serve
    except ImportError as error:
        raise RayMissing(f"Ray Serve is not installed ({error}); {extra('serve')}") from error
    return serve
