"""HTTP/1.1 between operators: messages read straight into their own memory, many requests in flight on one connection.

Problem: an item of some hundred kilobytes must pass a hop in well under 2 ms, and items must stay in order while several of
them are on the way. Method: the part of HTTP/1.1 (RFC 9112) that operators, `curl` and Kubernetes probes use - a start line,
headers, a body of known length, persistent connections, requests one after the other without waiting (pipelining) and answers
in that order - on asyncio's buffered protocol: a body is received where `item.decode` will read it. General servers copy each
body two or three times, and start a pipelined request only when the one before it is answered, which would make a pipeline as
slow as the sum of its operators.

Memory is taken for what has come, not for what a head announces: a body begins with `FIRST_BYTES` and doubles as it fills. All
bodies that a server is receiving take `BODIES_BYTES` at most, it has `CONNECTIONS_MAX` connections at most, and a message that stands
still for `STANDSTILL_S` ends its connection. Connections to other machines are TLS with certificates of one authority on both ends
(`identity`); without certificates a server listens on loopback and Unix sockets only.

Limits: no chunked bodies (411 or 501 says so), heads of at most 16 KiB, bodies of at most `MAX_BYTES`. Times are seconds since
the epoch, by the machine's clock.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from isolane.pipeline import clock
from isolane.pipeline.identity import Identity
from isolane.pipeline.item import MAX_BYTES

#: A head is a start line and headers; traces of a pipeline of ten operators take 3 KiB.
HEAD_BYTES = 16 * 1024
#: What one read may bring while a head is awaited.
READ_BYTES = 64 * 1024
#: Requests of one connection that wait for their answer; a sender beyond it is not read.
MAX_PIPELINED = 256

#: What a body's memory begins with.
FIRST_BYTES = 64 * 1024
#: What all bodies that a server is receiving may take together: two of the largest.
BODIES_BYTES = 2 * MAX_BYTES
#: Connections of a server at a time; a newcomer beyond it takes the place of the one that was silent for longest.
CONNECTIONS_MAX = 128
#: How long a newcomer may take to show its certificate.
HANDSHAKE_S = 5.0
#: A message of which nothing more comes for so long ends its connection. Longer than a cut network is waited for.
STANDSTILL_S = 30.0

#: After bytes that are no message: how long what follows is read and forgotten, so that the sender can read the answer.
LINGER_S = 1.0

STATUS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    411: "Length Required",
    413: "Content Too Large",
    422: "Unprocessable Content",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    501: "Not Implemented",
    502: "Bad Gateway",
    503: "Service Unavailable",
}


class MessageError(Exception):
    """Bytes that are no message of this part of HTTP/1.1, with the status that says so."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(frozen=True)
class Message:
    """A request or an answer: its first line, its headers (names in lower case), its body, and when it came.

    `half_bytes` of the body had come by `half_s`, when at least half of it had: the rest and the time until `last_s` say how fast
    the way is, without the time that a connection takes to gather speed.
    """

    start: str
    headers: dict[str, str]
    body: bytearray
    first_s: float
    last_s: float
    half_s: float
    half_bytes: int

    @property
    def method(self) -> str:
        """A request's method."""
        return self.start.split(" ", 1)[0]

    @property
    def path(self) -> str:
        """A request's path without its query."""
        return self.start.split(" ")[1].partition("?")[0]

    @property
    def status(self) -> int:
        """An answer's status."""
        return int(self.start.split(" ")[1])

    def json(self) -> Any:
        """The body as JSON; ValueError if it is none."""
        return json.loads(bytes(self.body) or b"null")


@dataclass(frozen=True)
class Answer:
    """What a server says."""

    status: int = 200
    body: bytes | bytearray = b""
    headers: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def of(document: Any, status: int = 200) -> Answer:
        """An answer with a JSON document."""
        text = json.dumps(document, ensure_ascii=True, allow_nan=False) + "\n"
        return Answer(status, text.encode(), {"content-type": "application/json"})

    @staticmethod
    def error(status: int, reason: str) -> Answer:
        """An answer that says what is wrong."""
        return Answer.of({"error": reason}, status)

    def head(self) -> bytes:
        """The bytes before the body."""
        lines = [f"HTTP/1.1 {self.status} {STATUS.get(self.status, 'Status')}", f"content-length: {len(self.body)}"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace")


def request_head(method: str, path: str, length: int, headers: dict[str, str] | None = None) -> bytes:
    """The bytes before a request's body."""
    lines = [f"{method} {path} HTTP/1.1", "host: isolane", f"content-length: {length}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace")


class Connection(asyncio.BufferedProtocol):
    """Cuts what arrives into messages. Subclasses take them in `on_message` and errors in `on_error`."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self._head = bytearray(READ_BYTES)
        self._filled = 0
        self._start = ""
        self._headers: dict[str, str] = {}
        self._body: bytearray | None = None
        self._body_filled = 0
        self._body_length = 0
        self._first_s = 0.0
        self._half_s = 0.0
        self._half_bytes = 0
        self._broken = False
        self.heard_s = time.monotonic()

    def on_message(self, message: Message) -> None:
        """A whole message."""
        raise NotImplementedError

    def on_error(self, error: MessageError) -> None:
        """What came is no message; nothing more is read."""
        raise NotImplementedError

    def may_take(self, count: int) -> bool:
        """Whether a body may take so many bytes more."""
        return True

    def _growth(self, body: bytearray) -> int:
        """Bytes that a full body grows by: it doubles, up to its length."""
        return min(len(body), self._body_length - len(body))

    @property
    def held_bytes(self) -> int:
        """What the body that is being received takes."""
        return 0 if self._body is None else len(self._body)

    @property
    def is_amid(self) -> bool:
        """Whether a part of a message is here and the rest is not."""
        return self._body is not None or self._filled > 0

    def on_expect(self) -> None:
        """The sender waits for leave to send a body."""

    def check_start(self, start: str) -> None:
        """Raises `MessageError` if this is no start line."""
        raise NotImplementedError

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """From asyncio."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def get_buffer(self, sizehint: int) -> bytearray:
        """From asyncio: where the next bytes go."""
        if self._body is not None:
            if self._body_filled == len(self._body):
                # Not in `buffer_updated`: there the caller still holds a view of the memory.
                self._body.extend(bytes(self._growth(self._body)))
            return memoryview(self._body)[self._body_filled :]  # type: ignore[return-value]
        return memoryview(self._head)[self._filled :]  # type: ignore[return-value]

    def buffer_updated(self, nbytes: int) -> None:
        """From asyncio: so many bytes arrived."""
        self.heard_s = time.monotonic()
        if self._broken:
            self._filled = 0
            return
        try:
            if self._body is not None:
                self._body_filled += nbytes
                if not self._half_bytes and 2 * self._body_filled >= self._body_length:
                    self._half_s, self._half_bytes = clock.now(), self._body_filled
                if self._body_filled == self._body_length:
                    self._complete()
                elif self._body_filled == len(self._body) and not self.may_take(self._growth(self._body)):
                    raise MessageError(503, f"bodies on their way take {BODIES_BYTES} bytes, which is the most; send it again later")
                return
            if self._filled == 0:
                self._first_s = clock.now()
            self._filled += nbytes
            while self._filled and self._body is None and self._take_head():
                pass
        except MessageError as error:
            self._broken, self._body, self._filled = True, None, 0
            self.on_error(error)

    def eof_received(self) -> bool:
        """From asyncio: the other side is done; so are we."""
        return False

    def _take_head(self) -> bool:
        """Reads a head and what came with it; False if it is not all here yet."""
        end = self._head.find(b"\r\n\r\n", 0, self._filled)
        if end < 0 and self._filled < HEAD_BYTES:
            return False
        if not 0 <= end <= HEAD_BYTES:
            raise MessageError(431, f"a head has at most {HEAD_BYTES} bytes")
        length = self._parse(bytes(self._head[:end]))
        at = end + 4
        here = min(self._filled - at, length)
        if not self.may_take(min(length, max(here, FIRST_BYTES))):
            raise MessageError(503, f"bodies on their way take {BODIES_BYTES} bytes, which is the most; send it again later")
        self._body = bytearray(min(length, max(here, FIRST_BYTES)))
        self._body_length = length
        self._body[:here] = self._head[at : at + here]
        self._body_filled = here
        self._half_s, self._half_bytes = (self._first_s, here) if 2 * here >= length else (0.0, 0)
        rest = self._filled - at - here
        self._head[:rest] = self._head[at + here : self._filled]
        self._filled = rest
        if here == length:
            self._complete()
        elif self._headers.get("expect", "").lower() == "100-continue":
            self.on_expect()
        return True

    def _parse(self, head: bytes) -> int:
        """Takes start line and headers; returns the body's length."""
        start, *lines = head.decode("latin-1").split("\r\n")
        self.check_start(start)
        headers: dict[str, str] = {}
        for line in lines:
            name, colon, value = line.partition(":")
            if not colon or not name or name != name.strip():
                raise MessageError(400, f"this header is none: {line[:80]!r}")
            name = name.lower()
            if name == "content-length" and name in headers:
                raise MessageError(400, "content-length comes twice")
            headers[name] = value.strip()
        if "transfer-encoding" in headers:
            raise MessageError(501, "bodies in chunks are not read; send a content-length")
        length = headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit() and len(length) < 16):
            raise MessageError(400, f"content-length is {length[:40]!r}; it should be a number of bytes")
        if int(length) > MAX_BYTES:
            raise MessageError(413, f"a body of {length} bytes: {MAX_BYTES} at most")
        self._start, self._headers = start, headers
        return int(length)

    def _complete(self) -> None:
        assert self._body is not None
        message = Message(self._start, self._headers, self._body, self._first_s, clock.now(), self._half_s, self._half_bytes)
        self._body, self._first_s = None, message.last_s
        self.on_message(message)


Handler = Callable[[Message], Awaitable[Answer]]


class ServerConnection(Connection):
    """Starts a task per request, in order, and writes the answers in the requests' order."""

    def __init__(self, handler: Handler, open_connections: dict[ServerConnection, None]) -> None:
        super().__init__()
        self._handler = handler
        self._open = open_connections
        self._answers: deque[asyncio.Future[Answer]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._closing = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """From asyncio."""
        super().connection_made(transport)
        if len(self._open) >= CONNECTIONS_MAX:
            idle = [one for one in self._open if not one._answers]
            # All are being answered: the newcomer is one too many.
            shed = min(idle, key=lambda one: one.heard_s) if idle else self
            if shed.transport is not None:
                shed.transport.abort()
        self._open[self] = None
        self._watch()

    def _watch(self) -> None:
        """Ends the connection if a message stands still."""
        if self.transport is None:
            return
        loop = asyncio.get_running_loop()
        if self.is_amid and time.monotonic() - self.heard_s > STANDSTILL_S:
            self.transport.abort()
            return
        self._timer = loop.call_later(STANDSTILL_S / 2, self._watch)

    def may_take(self, count: int) -> bool:
        """All bodies of the server are bounded together."""
        return sum(one.held_bytes for one in self._open) + count <= BODIES_BYTES

    def connection_lost(self, exc: Exception | None) -> None:
        """From asyncio: the tasks go on, since what they sent on is on its way; their answers have no reader."""
        self._open.pop(self, None)
        self.transport = None
        self._body = None
        self._answers.clear()
        if self._timer is not None:
            self._timer.cancel()

    def check_start(self, start: str) -> None:
        """Method, path, version."""
        words = start.split(" ")
        if len(words) != 3 or not words[0].isalpha() or not words[1].startswith("/"):
            raise MessageError(400, f"this is no request: {start[:80]!r}")
        if words[2] not in ("HTTP/1.1", "HTTP/1.0"):
            raise MessageError(400, f"speaks {words[2][:20]!r}; HTTP/1.1 is understood here")

    def on_expect(self) -> None:
        """Leave to send the body, unless answers are due first."""
        if self.transport is not None and not self._answers:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_message(self, message: Message) -> None:
        """Begins to answer."""
        last = message.headers.get("connection", "").lower() == "close" or message.start.endswith("1.0")
        if message.method in ("POST", "PUT") and "content-length" not in message.headers:
            self._append(_done(Answer.error(411, "send a content-length")), last)
            return
        self._append(asyncio.ensure_future(self._run(message)), last)

    def on_error(self, error: MessageError) -> None:
        """Says so after what is still due, and closes."""
        self._append(_done(Answer.error(error.status, str(error))), True)

    async def _run(self, message: Message) -> Answer:
        try:
            return await self._handler(message)
        except Exception as error:  # a handler's mistake must not cost the connection's other requests
            return Answer.error(500, f"{type(error).__name__}: {error}")

    def _append(self, answer: asyncio.Future[Answer], last: bool) -> None:
        if self._closing:
            answer.cancel()
            return
        self._closing = last
        self._answers.append(answer)
        answer.add_done_callback(lambda _: self._flush())
        if self.transport is not None and len(self._answers) >= MAX_PIPELINED:
            self.transport.pause_reading()

    def _flush(self) -> None:
        if self.transport is None:
            return
        full = len(self._answers) >= MAX_PIPELINED
        while self._answers and self._answers[0].done():
            done = self._answers.popleft()
            answer = Answer.error(500, "given up") if done.cancelled() else done.result()
            self.transport.write(answer.head())
            if answer.body:
                self.transport.write(answer.body)
        if full and len(self._answers) < MAX_PIPELINED:
            self.transport.resume_reading()
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


def _done(answer: Answer) -> asyncio.Future[Answer]:
    future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    future.set_result(answer)
    return future


class Server:
    """Listens on TCP addresses and Unix sockets, each with its handler."""

    def __init__(self, identity: Identity | None = None) -> None:
        self._identity = identity
        self._servers: list[asyncio.Server] = []
        self._open: dict[ServerConnection, None] = {}

    async def listen(self, address: str, handler: Handler, network: bool = False) -> str:
        """Listens on `https://host:port`, `http://host:port` (port 0: any) or `unix:/path`; returns the address with the port.

        Without TLS only loopback and Unix sockets are listened on, unless `network` says that nobody else reaches the address.
        """
        loop = asyncio.get_running_loop()
        place = split_address(address)

        def connection() -> ServerConnection:
            return ServerConnection(handler, self._open)

        if place.path is not None:
            self._servers.append(await loop.create_unix_server(connection, place.path))
            return address
        if not place.tls and not network and not is_loopback(place.host):
            raise AddressError(f"address {address!r}: other machines reach it; write https:// and give --identity, or use 127.0.0.1")
        context = None
        if place.tls:
            if self._identity is None:
                raise AddressError(f"address {address!r}: https needs certificates; give --identity DIRECTORY")
            context = self._identity.server
        handshake_s = HANDSHAKE_S if place.tls else None
        server = await loop.create_server(connection, place.host, place.port, ssl=context, ssl_handshake_timeout=handshake_s)
        self._servers.append(server)
        scheme = "https" if place.tls else "http"
        return f"{scheme}://{place.host}:{server.sockets[0].getsockname()[1]}"

    def stop_listening(self) -> None:
        """No new connections; the open ones stay."""
        for server in self._servers:
            server.close()
        self._servers.clear()

    def close(self) -> None:
        """Ends everything after what is written."""
        self.stop_listening()
        for connection in list(self._open):
            connection.close()


class AddressError(ValueError):
    """An address that is none."""


@dataclass(frozen=True)
class Place:
    """Where an address leads: a path, or a host and port, with or without TLS."""

    path: str | None
    host: str = ""
    port: int = 0
    tls: bool = False


def split_address(address: str) -> Place:
    """The path of `unix:/path`, or host and port of `http://host:port` or `https://host:port`."""
    if address.startswith("unix:/"):
        return Place(address.removeprefix("unix:"))
    tls = address.startswith("https://")
    rest = address.removeprefix("https://" if tls else "http://").rstrip("/")
    host, colon, port = rest.rpartition(":")
    if not colon:
        host, port = rest, "443" if tls else "80"
    if not address.startswith(("http://", "https://")) or not host or not port.isdigit() or int(port) > 65535:
        raise AddressError(f"address {address!r}: write https://host:port, http://host:port or unix:/path")
    return Place(None, host, int(port), tls)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches this address."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


class _OneAnswer(Connection):
    """The client's side of a single request."""

    def __init__(self, answer: asyncio.Future[Message]) -> None:
        super().__init__()
        self._answer = answer

    def check_start(self, start: str) -> None:
        """Version and status."""
        check_answer(start)

    def on_message(self, message: Message) -> None:
        """The answer, if it is none of those that say to go on."""
        if message.status >= 200 and not self._answer.done():
            self._answer.set_result(message)

    def on_error(self, error: MessageError) -> None:
        """No answer."""
        self._fail(ConnectionError(f"answered with what is no HTTP: {error}"))

    def connection_lost(self, exc: Exception | None) -> None:
        """From asyncio."""
        self._fail(exc or ConnectionError("closed the connection without an answer"))

    def _fail(self, error: Exception) -> None:
        if not self._answer.done():
            self._answer.set_exception(error)


def check_answer(start: str) -> None:
    """Raises `MessageError` if this is no answer's first line."""
    words = start.split(" ", 2)
    if len(words) < 2 or not words[0].startswith("HTTP/1.") or not (words[1].isascii() and words[1].isdigit()):
        raise MessageError(502, f"this is no answer: {start[:80]!r}")
    if len(words[1]) != 3:
        raise MessageError(502, f"this is no status: {words[1][:20]!r}")


async def request(
    method: str,
    address: str,
    path: str,
    body: bytes = b"",
    timeout_s: float = 5.0,
    headers: dict[str, str] | None = None,
    identity: Identity | None = None,
) -> Message:
    """One request on its own connection; OSError or TimeoutError if there is no answer."""
    try:
        return await asyncio.wait_for(_ask(method, address, path, body, headers or {}, identity), timeout_s)
    except asyncio.TimeoutError:
        raise TimeoutError(f"{method} {path} at {address}: no answer in {timeout_s:g} s") from None


async def _ask(method: str, address: str, path: str, body: bytes, headers: dict[str, str], identity: Identity | None) -> Message:
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Message] = loop.create_future()
    transport, _ = await connect(address, lambda: _OneAnswer(answer), identity)
    try:
        transport.write(request_head(method, path, len(body), {"connection": "close", **headers}))
        transport.write(body)
        return await answer
    finally:
        transport.abort()


_Protocol = TypeVar("_Protocol", bound=Connection)


async def connect(
    address: str, protocol: Callable[[], _Protocol], identity: Identity | None = None
) -> tuple[asyncio.Transport, _Protocol]:
    """A connection to `https://host:port`, `http://host:port` or `unix:/path`; OSError if there is none."""
    loop = asyncio.get_running_loop()
    place = split_address(address)
    if place.path is not None:
        return await loop.create_unix_connection(protocol, place.path)
    if place.tls and identity is None:
        raise ConnectionError(f"{address}: https needs certificates; give --identity DIRECTORY")
    context = identity.client if place.tls and identity is not None else None
    return await loop.create_connection(protocol, place.host, place.port, ssl=context)


async def request_json(method: str, address: str, path: str, document: Any = None, timeout_s: float = 5.0) -> Any:
    """One request with a JSON document; the answer's document, or ConnectionError with the reason that it gave."""
    body = b"" if document is None else json.dumps(document).encode()
    message = await request(method, address, path, body, timeout_s, {"accept": "application/json"})
    try:
        found = message.json()
    except ValueError:
        raise ConnectionError(f"{method} {path} at {address}: answered {message.status} without JSON") from None
    if message.status != 200:
        reason = found.get("error", found) if isinstance(found, dict) else found
        raise ConnectionError(f"{method} {path} at {address}: {reason}")
    return found
