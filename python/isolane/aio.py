"""Admission control for grpc.aio clients: the same as `isolane.rpc`, without threads.

Method: a channel of grpc.aio binds its interceptors to one connection, so an interceptor could not choose another class. Hence
`AioChannel` is a channel itself: it decides on every call and hands it to the connection of its class.

    async with isolane.aio.channel("storage:443", admission) as channel:
        with isolane.rpc.asking("critical") as asked:
            await StorageStub(channel).Write(request)
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

import grpc
import grpc.aio

from isolane.rpc import Admission, AdmissionInterceptor, Decision, Outcome, server_time, size_of

__all__ = ["AioChannel", "channel"]


class AioChannel(grpc.aio.Channel):
    """One grpc.aio channel for each class; every call takes the one that admission gives it."""

    def __init__(
        self,
        target: str,
        admission: Admission,
        credentials: grpc.ChannelCredentials | None = None,
        options: Sequence[tuple[str, Any]] = (),
        default: int | str | None = None,
        methods: Mapping[str, int | str] | None = None,
    ) -> None:
        self._gate = AdmissionInterceptor(admission, target, default, methods)
        # Endings that still ask for their status: the loop itself keeps only weak references.
        self._ending: set[asyncio.Task[None]] = set()
        self.channels = []
        for _, dscp in admission.classes:
            own = [*options, ("grpc.dscp", dscp), ("grpc.use_local_subchannel_pool", 1)]
            if credentials is None:
                self.channels.append(grpc.aio.insecure_channel(target, options=own))
            else:
                self.channels.append(grpc.aio.secure_channel(target, credentials, options=own))

    def _calls(self, kind: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> _AioCalls:
        method = arguments[0] if arguments else keywords["method"]
        calls = [getattr(channel, kind)(*arguments, **keywords) for channel in self.channels]
        return _AioCalls(self, method, calls, kind)

    def unary_unary(self, *arguments: Any, **keywords: Any) -> Any:
        """As grpc.aio.Channel has it."""
        return self._calls("unary_unary", arguments, keywords)

    def unary_stream(self, *arguments: Any, **keywords: Any) -> Any:
        """As grpc.aio.Channel has it."""
        return self._calls("unary_stream", arguments, keywords)

    def stream_unary(self, *arguments: Any, **keywords: Any) -> Any:
        """As grpc.aio.Channel has it."""
        return self._calls("stream_unary", arguments, keywords)

    def stream_stream(self, *arguments: Any, **keywords: Any) -> Any:
        """As grpc.aio.Channel has it."""
        return self._calls("stream_stream", arguments, keywords)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        """Of the lowest class, which every channel has."""
        return self.channels[-1].get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        """Of the lowest class."""
        await self.channels[-1].wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        """Connects all classes."""
        await asyncio.gather(*(one.channel_ready() for one in self.channels))

    async def close(self, grace: float | None = None) -> None:
        """Closes the channels of all classes."""
        await asyncio.gather(*(one.close(grace) for one in self.channels))

    async def __aenter__(self) -> AioChannel:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class _AioCalls:
    """One method: decides, and calls in the class that came out."""

    def __init__(self, owner: AioChannel, method: str | bytes, calls: list[Any], kind: str) -> None:
        self._owner = owner
        self._method = method.decode() if isinstance(method, bytes) else method
        self._all = calls
        self._sized = kind.startswith("unary")
        # The time of a stream is the application's.
        self._learns = kind == "unary_unary"

    def __call__(self, request: Any = None, **keywords: Any) -> Any:
        size = size_of(request) if self._sized else 0
        decision, result, added = self._owner._gate.begin(self._method, size)
        given: Any = keywords.get("metadata") or ()
        keywords["metadata"] = (*given, *added)
        began = time.perf_counter()
        arguments = () if request is None else (request,)
        call = self._all[decision.ran](*arguments, **keywords)
        call.isolane_outcome = result

        def done(ended: Any) -> None:
            took = time.perf_counter()
            task = asyncio.ensure_future(self._end(ended, decision, result, began, took))
            self._owner._ending.add(task)
            task.add_done_callback(self._owner._ending.discard)

        call.add_done_callback(done)
        return call

    async def _end(self, call: Any, decision: Decision, result: Outcome, began: float, took: float) -> None:
        ok = await call.code() == grpc.StatusCode.OK
        told = server_time(await call.initial_metadata(), await call.trailing_metadata()) if ok else 0.0
        # Asking for the status took time that is not the call's.
        self._owner._gate.end(decision, result, began + (time.perf_counter() - took), told, ok and self._learns)


def channel(
    target: str,
    admission: Admission,
    credentials: grpc.ChannelCredentials | None = None,
    options: Sequence[tuple[str, Any]] = (),
    default: int | str | None = None,
    methods: Mapping[str, int | str] | None = None,
) -> AioChannel:
    """A grpc.aio channel under admission control, for any generated stub; without credentials it is an insecure one."""
    return AioChannel(target, admission, credentials, options, default, methods)
