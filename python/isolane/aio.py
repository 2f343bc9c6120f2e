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

from isolane.channels import PerClass
from isolane.measuring import ended_aio, size_of
from isolane.rpc import Admission, AdmissionInterceptor, Call

__all__ = ["AioChannel", "channel"]


class AioChannel(PerClass, grpc.aio.Channel):
    """One grpc.aio channel for each class, of each backend if they are given; every call takes the one that admission gives it.

    Any generated stub takes this channel. Without `credentials` the channel is insecure; `isolane.rpc.channel` describes `backends`.
    """

    def __init__(
        self,
        target: str,
        admission: Admission,
        credentials: grpc.ChannelCredentials | None = None,
        options: Sequence[tuple[str, Any]] = (),
        default: int | str | None = None,
        methods: Mapping[str, int | str] | None = None,
        backends: Sequence[str] = (),
    ) -> None:
        self._gate = AdmissionInterceptor(admission, target, default, methods, backends)
        # Endings that still wait for their status: the loop itself keeps only weak references.
        self._ending: set[asyncio.Task[None]] = set()
        super().__init__(grpc.aio, target, admission.classes, credentials, options, backends)

    def _calls(self, kind: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> _AioCalls:
        method = arguments[0] if arguments else keywords["method"]
        calls = [getattr(channel, kind)(*arguments, **keywords) for channel in self.channels]
        return _AioCalls(self, method, calls, kind)

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
        made = self._owner._gate.begin(self._method, size, keywords.get("timeout"))
        given: Any = keywords.get("metadata") or ()
        keywords["metadata"] = (*given, *made.added)
        made.began = time.perf_counter()
        arguments = () if request is None else (request,)
        call = self._all[made.route](*arguments, **keywords)
        call.isolane_outcome = made.result

        def done(ended: Any) -> None:
            task = asyncio.ensure_future(self._end(ended, made, time.perf_counter()))
            self._owner._ending.add(task)
            task.add_done_callback(self._owner._ending.discard)

        call.add_done_callback(done)
        return call

    async def _end(self, call: Any, made: Call, at: float) -> None:
        self._owner._gate.end(made, await ended_aio(call, at, self._learns))


#: As `isolane.rpc.channel`.
channel = AioChannel
