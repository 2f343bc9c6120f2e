"""The server's side of HTTP/1.1 between operators: requests start in order, answers leave in that order.

Problem: see `messages`. A peer may also send a byte at a time, announce bodies that it does not send, or take no answers. Method: every
part of an exchange has its limit of time and memory; `listener` bounds the connections.

| part | limit |
|---|---|
| the first request | its head is here `HEAD_S` after the connection opened |
| a head | `HEAD_S` from its first byte to its last |
| a body | after `STANDSTILL_S` it is here at `LEAST_BYTES_PER_S` in the mean, and something comes in each `STANDSTILL_S` |
| answers | after `STANDSTILL_S` the peer took them at `LEAST_BYTES_PER_S` in the mean; while `MOST_WRITTEN_BYTES` wait, its requests are not read |
| bodies | `Limits.bodies_bytes` in all, requests and answers, from the first byte until the answer is written; beyond it 503 |

Browsers send an `origin` header with what a page of another site makes them send: such a request is rejected (403).
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from isolane.pipeline.address import AddressError, is_loopback, split_address
from isolane.pipeline.identity import Identity
from isolane.pipeline.listener import Limits, Port, bind
from isolane.pipeline.messages import Answer, Connection, Message, MessageError

#: The longest time that a head may take.
HEAD_S = 10.0
#: A message or an answer without progress for so long ends its connection. Longer than the wait for a cut network.
STANDSTILL_S = 30.0
#: The slowest body, in the mean. A link of 0.2 Mbit/s is faster.
LEAST_BYTES_PER_S = 16 * 1024
#: Answers that wait in this process for the peer to take them, before requests are no longer read.
MOST_WRITTEN_BYTES = 256 * 1024
#: After bytes that are no message: how long what follows is read and forgotten, so that the sender can read the answer.
LINGER_S = 1.0

Handler = Callable[[Message], Awaitable[Answer]]


@dataclass(eq=False)
class _Owed:
    """An answer that is not written, and what it and its request take: the larger of both bodies."""

    answer: asyncio.Future[Answer]
    size: int = 0
    released: bool = False


class ServerConnection(Connection):
    """Starts a task per request, in order, and writes the answers in the requests' order."""

    def __init__(self, handler: Handler, port: Port, peer: str) -> None:
        super().__init__()
        self.peer = peer
        self.served = 0
        self.body_max = port.limits.body_bytes
        self._handler = handler
        self._port = port
        self._answers: deque[_Owed] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._closing = False
        self._is_full = self._is_paused = False
        #: Bytes of answers so far; and how many had left when none waited last, and when that was.
        self._written, self._left, self._left_s = 0, 0, time.monotonic()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """From asyncio."""
        super().connection_made(transport)
        assert isinstance(transport, asyncio.Transport)
        transport.set_write_buffer_limits(MOST_WRITTEN_BYTES)
        self._port.opened(self)
        self._watch()

    @property
    def is_busy(self) -> bool:
        """Whether a request is in work."""
        return any(not one.answer.done() for one in self._answers)

    def _watch(self) -> None:
        """Ends the connection if a part of an exchange is beyond its time."""
        if self.transport is None:
            return
        if self._is_late():
            self._port.counts["late"] += 1
            self.transport.abort()
            return
        pause = min(HEAD_S, STANDSTILL_S, self._port.limits.idle_s) / 2
        self._timer = asyncio.get_running_loop().call_later(pause, self._watch)

    def _is_late(self) -> bool:
        assert self.transport is not None
        now = time.monotonic()
        waits = self.transport.get_write_buffer_size()
        if waits:
            left = self._written - waits - self._left
            return left < (now - self._left_s - STANDSTILL_S) * LEAST_BYTES_PER_S
        self._left, self._left_s = self._written, now
        if self._is_paused:
            return False
        silent_s = now - self.heard_s
        if self.transport.is_closing():
            return silent_s > STANDSTILL_S
        if self._body is not None:
            over_s = now - self.head_s - STANDSTILL_S
            return silent_s > STANDSTILL_S or self._body_filled < over_s * LEAST_BYTES_PER_S
        if self._filled or not self.served:
            return now - self.head_s > HEAD_S
        return not self._answers and silent_s > self._port.limits.idle_s

    def check_room(self, count: int) -> None:
        """All bodies of the port are bounded together."""
        most = self._port.limits.bodies_bytes
        if self._port.bodies_bytes() + count > most:
            raise MessageError(503, f"bodies on their way take {most} bytes, which is the most; send it again later")

    def connection_lost(self, exc: Exception | None) -> None:
        """From asyncio: the tasks go on, since what they sent on is on its way; their answers have no reader."""
        self._port.closed(self)
        self.transport = None
        self._body = None
        for one in self._answers:
            one.answer.add_done_callback(functools.partial(self._gone, one))
        self._answers.clear()
        if self._timer is not None:
            self._timer.cancel()

    def check_start(self, start: str) -> None:
        """Method, path, version."""
        words = start.split(" ")
        if len(words) != 3 or not words[0].isalpha() or not words[1].startswith("/"):
            raise MessageError(400, f"this is no request: {start[:80]!r}")
        if words[2] not in ("HTTP/1.1", "HTTP/1.0"):
            raise MessageError(400, f"version {words[2][:20]!r}; send HTTP/1.1")

    def on_expect(self) -> None:
        """Leave to send the body, unless answers are due first."""
        if self.transport is not None and not self._answers:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_message(self, message: Message) -> None:
        """Begins to answer."""
        self.served += 1
        last = message.headers.get("connection", "").lower() == "close" or message.start.endswith("1.0")
        if message.method in ("POST", "PUT") and "content-length" not in message.headers:
            self._append(_known(Answer.error(411, "send a content-length")), last)
        elif "origin" in message.headers:
            self._append(_known(Answer.error(403, "requests of a browser's page are rejected; send no origin header")), True)
        else:
            self._append(asyncio.ensure_future(self._run(message)), last, len(message.body))

    def on_error(self, error: MessageError) -> None:
        """Sends the error after the answers that are still due, and closes."""
        self._append(_known(Answer.error(error.status, str(error))), True)

    async def _run(self, message: Message) -> Answer:
        try:
            return await self._handler(message)
        except Exception as error:  # a handler's mistake must not cost the connection's other requests
            return Answer.error(500, f"{type(error).__name__}: {error}")

    def _append(self, answer: asyncio.Future[Answer], last: bool, size: int = 0) -> None:
        if self._closing:
            answer.cancel()
            return
        self._closing = last
        owed = _Owed(answer)
        self._answers.append(owed)
        self._weigh(owed, size)
        answer.add_done_callback(lambda _: self._done(owed))
        self._read_or_pause()

    def _done(self, owed: _Owed) -> None:
        if self.transport is None:
            return
        # An earlier answer's turn may have written this one too.
        if not owed.released and not owed.answer.cancelled():
            self._weigh(owed, max(owed.size, len(owed.answer.result().body)))
        self._flush()

    def _weigh(self, owed: _Owed, size: int) -> None:
        self._port.owed_bytes += size - owed.size
        owed.size = size

    def _release(self, owed: _Owed) -> None:
        self._weigh(owed, 0)
        owed.released = True

    def _gone(self, owed: _Owed, _: asyncio.Future[Answer]) -> None:
        self._release(owed)

    def _read_or_pause(self) -> None:
        """Requests are read while there is room for answers. The time of a pause is not the peer's."""
        pauses = not self.may_begin()
        if self.transport is None or pauses == self._is_paused or self.transport.is_closing():
            return
        self._is_paused = pauses
        if pauses:
            self.transport.pause_reading()
        else:
            self.heard_s = self.head_s = time.monotonic()
            self.transport.resume_reading()
            self.take_heads()

    def may_begin(self) -> bool:
        """Requests wait while the peer takes no answers, or has enough requests in work."""
        return not self._is_full and len(self._answers) < self._port.limits.pipelined

    def pause_writing(self) -> None:
        """From asyncio: the peer reads no answers. The server reads its requests again when it has read those that wait."""
        self._is_full = True
        self._read_or_pause()

    def resume_writing(self) -> None:
        """From asyncio."""
        self._is_full = False
        self._flush()

    def _flush(self) -> None:
        # Closing: a write has failed, and asyncio has not called `connection_lost` yet.
        if self.transport is None or self.transport.is_closing():
            return
        while self._answers and self._answers[0].answer.done() and not self._is_full and not self.transport.is_closing():
            owed = self._answers.popleft()
            answer = Answer.error(500, "given up") if owed.answer.cancelled() else owed.answer.result()
            head = answer.head()
            self._written += len(head) + len(answer.body)
            self.transport.write(head)
            if answer.body:
                self.transport.write(answer.body)
            self._release(owed)
        self._read_or_pause()
        if self._closing and not self._answers:
            if self._broken and self.transport.can_write_eof():
                # Closing now would reset the connection while the sender still writes, and the answer would be lost.
                self.transport.write_eof()
                asyncio.get_running_loop().call_later(LINGER_S, self.close)
            else:
                self.transport.close()

    def close(self) -> None:
        """Ends the connection after what is written."""
        if self.transport is not None:
            self.transport.close()

    def abort(self) -> None:
        """Ends the connection at once."""
        if self.transport is not None:
            self.transport.abort()


def _known(answer: Answer) -> asyncio.Future[Answer]:
    future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    future.set_result(answer)
    return future


class Server:
    """Listens on TCP addresses and Unix sockets, each with its handler and its limits."""

    def __init__(self, identity: Identity | None = None) -> None:
        self._identity = identity
        self.ports: list[Port] = []

    async def listen(self, address: str, handler: Handler, network: bool = False, limits: Limits = Limits()) -> str:
        """Listens on `https://host:port`, `http://host:port` (port 0: any) or `unix:/path`; returns the address with the port.

        Without TLS only loopback and Unix sockets are listened on, unless `network` states that no other machine reaches the address.
        """
        place = split_address(address)
        if place.path is None and not place.tls and not network and not is_loopback(place.host):
            raise AddressError(f"address {address!r}: other machines reach it; write https:// and give --identity, or use 127.0.0.1")
        if place.tls and self._identity is None:
            raise AddressError(f"address {address!r}: https needs certificates; give --identity DIRECTORY")
        context = self._identity.server if place.tls and self._identity is not None else None
        made = [Port(one, limits, context, lambda port, peer: ServerConnection(handler, port, peer)) for one in await bind(place)]
        self.ports += made
        if place.path is not None:
            return address
        return f"{'https' if place.tls else 'http'}://{place.host}:{made[0].address[1]}"

    def counts(self) -> dict[str, Any]:
        """Of all ports: connections now, and since the start those that were accepted, ended for others, late or without proof."""
        names = ("accepted", "shed", "late", "unproven", "refused", "starved")
        found: dict[str, Any] = {name: sum(port.counts[name] for port in self.ports) for name in names}
        found["open"] = sum(len(port.open) for port in self.ports)
        found["entering"] = sum(port.entering for port in self.ports)
        found["body_bytes"] = sum(port.bodies_bytes() for port in self.ports)
        return found

    def stop_listening(self) -> None:
        """No new connections; the open ones stay."""
        for port in self.ports:
            port.stop()

    def close(self) -> None:
        """Ends everything after what is written."""
        self.stop_listening()
        for port in self.ports:
            for connection in list(port.open):
                connection.close()
