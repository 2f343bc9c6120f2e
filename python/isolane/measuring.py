"""What the end of a call says of its network latency, for `isolane.rpc` and `isolane.aio`.

Method: a call that the server answered is measured. A call that ended by its deadline, by cancellation or with its connection
lasted at least as long as it did. A call that the server itself failed is not measured: the server may have failed it before the
request had arrived.
Units: seconds, bytes.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import grpc

from isolane.digits import whole_number

__all__ = ["SERVER_TIME", "End", "current_span", "server_time", "size_of"]

#: Response metadata or trailer in which a server says how long its method took, microseconds.
SERVER_TIME = "isolane-server-us"

#: How grpcio begins the details of a call that had no connection, and what it says of one whose connection was lost.
_NO_CONNECTION = "failed to connect"
_LOST = ("Socket closed", "Connection reset", "Broken pipe")

#: A server keeps a call's deadline too and in coarse units: it may end the call a little before the client does.
_DUE = 0.9


@dataclass(frozen=True)
class End:
    """How a call ended."""

    code: grpc.StatusCode
    #: Of `time.perf_counter`.
    at: float
    #: The server's own part of the time.
    server: float = 0.0
    response_bytes: int = 0
    details: str = ""
    #: By the application.
    cancelled: bool = False
    #: Whether its time is the network's: a stream's is the application's.
    learns: bool = True

    def had_no_connection(self) -> bool:
        """Whether the backend was not there."""
        return self.code == grpc.StatusCode.UNAVAILABLE and self.details.startswith(_NO_CONNECTION)

    def is_lower_bound(self, timeout: float | None, elapsed: float) -> bool:
        """Whether the call lasted at least as long as it did, of a call that may take `timeout` seconds."""
        if self.code == grpc.StatusCode.DEADLINE_EXCEEDED:
            return timeout is not None and elapsed >= _DUE * timeout
        if self.code == grpc.StatusCode.CANCELLED:
            return self.cancelled
        lost = any(words in self.details for words in _LOST)
        return self.code == grpc.StatusCode.UNAVAILABLE and lost and not self.had_no_connection()


def ended(call: Any, unary: bool, cancelled: bool) -> End:
    """The end of a call of grpcio that has ended now."""
    now = time.perf_counter()
    code = call.code()
    if code != grpc.StatusCode.OK:
        return End(code, now, details=call.details() or "", cancelled=cancelled, learns=unary)
    server_s = server_time(call.initial_metadata(), call.trailing_metadata())
    return End(code, now, server_s, size_of(call.result()) if unary else 0, learns=unary)


async def ended_aio(call: Any, at: float, unary: bool) -> End:
    """The end of a call of grpc.aio, which ended at `at`: asking for its status takes time that is not the call's."""
    code = await call.code()
    if code != grpc.StatusCode.OK:
        return End(code, at, details=await call.details() or "", cancelled=call.cancelled(), learns=unary)
    server_s = server_time(await call.initial_metadata(), await call.trailing_metadata())
    return End(code, at, server_s, size_of(await call) if unary else 0, learns=unary)


def size_of(message: Any) -> int:
    """Size of a message in bytes; 0, which counts as one MTU, when only its serializer knows."""
    if isinstance(message, (bytes, bytearray, memoryview)):
        return len(message)
    measure = getattr(message, "ByteSize", None)
    return int(measure()) if callable(measure) else 0


def server_time(*sets: Iterable[tuple[str, Any]] | None) -> float:
    """Seconds that the server says its method took, in one of these metadata; 0 when it says nothing, or what is no such number."""
    for key, value in (pair for metadata in sets for pair in metadata or ()):
        if key == SERVER_TIME and (number := whole_number(str(value))) is not None:
            return number / 1e6
    return 0.0


def current_span() -> Any:
    """The OpenTelemetry span of this context that records; None without one, or in a program that does not use OpenTelemetry."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return None
    span = trace.get_current_span()
    return span if span.is_recording() else None
