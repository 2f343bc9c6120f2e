"""A deployment on Ray Serve: one Serve deployment per operator, joined by handles, with one HTTP entry.

Problem: where Ray already runs, pipelines should run on it. Method: each operator is a class behind a Serve deployment with one
replica; tiers are custom resources (`tier:<name>`, a thousandth each, so that they place and do not count); knobs are the
deployment's `user_config`, which Ray sets without a restart. The entry speaks the contract's POST /process: a batch in, the
last operator's batch out, with the same headers; GET /healthz; PUT /config {"operator", "knobs"} for one operator's knobs.

Limits: Ray retries and places as Ray does - no keys, so an item that is sent again is processed again; use the processes of
`runner` where each item's fate matters. Needs the extra `serve` (ray[serve]); too heavy for a device.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

from isolane import allowed
from isolane.installing import extra
from isolane.pipeline import link as links
from isolane.pipeline.deployment import Deployment, Stage
from isolane.pipeline.item import ItemError, decode_batch, encode_batch
from isolane.pipeline.operator import describe, load
from isolane.pipeline.stopwatch import Stopwatch

#: What of a tier's resource an operator takes: placement only.
SHARE = 0.001
#: What an entry or an operator reserves of a core; measured work is far below a whole one.
CORES = 0.1


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
        clock = Stopwatch()
        try:
            made = [each for item in decode_batch(body) for each in self._operator.process(item)]
            data = encode_batch(made) if made else b""
        except (Exception, ItemError) as error:
            return links.FAILED, describe(error).encode(), hop
        finally:
            spent = clock.spent()
            clock.close()
        hop.update(ended_s=time.time(), process_ms=spent.wall_ms, processor_ms=spent.processor_ms, idle_ms=spent.idle_ms)
        hop.update(bytes_out=len(data))
        return (links.DELIVERED if made else links.FILTERED), data, hop


class Entry:
    """Takes items over HTTP and passes them along the operators."""

    def __init__(self, steps: dict[str, Any]) -> None:
        self._steps = steps

    async def __call__(self, request: Any) -> Any:
        """From Ray: one HTTP request."""
        from starlette.responses import JSONResponse, Response

        path, method = request.url.path.rsplit("/", 1)[-1], request.method
        if (method, path) == ("GET", "healthz"):
            return JSONResponse({"operator": "entry", "state": "ready"})
        if (method, path) == ("PUT", "config"):
            return await self._configure(await request.body())
        if (method, path) != ("POST", "process"):
            return JSONResponse({"error": f"{method} {path}: there are POST /process, PUT /config, GET /healthz"}, 404)
        outcome, data, trace = await self.through(await request.body())
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
            document = json.loads(body)
            step, knobs = self._steps[document["operator"]], dict(document["knobs"])
        except (ValueError, KeyError, TypeError) as error:
            return JSONResponse({"error": f"write an operator of {', '.join(self._steps)} and its knobs: {error}"}, 422)
        refused = await step.configure.remote(knobs)
        return JSONResponse({"error": refused}, 422) if refused else JSONResponse({"operator": document["operator"]})


def application(deployment: Deployment, gpus: bool = False) -> Any:
    """The Serve application; `serve.run(application(...))` starts it. Tiers without a resource in the cluster wait for one.

    With `gpus`, `gpu` operators reserve a part of one: for operators that use it, on clusters that have some.
    """
    serve = _serve()
    steps = {stage.name: _bind(serve, stage, gpus) for stage in deployment.stages}
    return serve.deployment(Entry, name="entry", ray_actor_options={"num_cpus": CORES}).bind(steps)


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
