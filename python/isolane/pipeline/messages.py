"""HTTP/1.1 between operators: messages read straight into their own memory, many requests in flight on one connection.

Problem: an item of some hundred kilobytes must pass a hop in well under 2 ms, and items must stay in order while several of
them are on the way. Method: the part of HTTP/1.1 (RFC 9112) that operators, `curl` and Kubernetes probes use - a start line,
headers, a body of known length, persistent connections, requests one after the other without waiting (pipelining) and answers
in that order - on asyncio's buffered protocol: a body is received where `item.decode` will read it. General servers copy each
body two or three times, and start a pipelined request only when the one before it is answered, which would make a pipeline as
slow as the sum of its operators.

Memory is allocated for received bytes, not for the announced length: a body begins with `FIRST_BYTES` and doubles as it fills. `server`
has the limits of a server. Connections to other machines are TLS with certificates of one authority on both ends
(`identity`); without certificates a server listens on loopback and Unix sockets only.

Limits: no chunked bodies (status 411 or 501), heads of at most 16 KiB, bodies of at most `MAX_BYTES`, JSON of at most `JSON_BYTES`.
Times are seconds since the epoch, by the machine's clock.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from isolane.digits import whole_number
from isolane.pipeline import clock
from isolane.pipeline.address import split_address
from isolane.pipeline.identity import Identity
from isolane.pipeline.item import MAX_BYTES

#: A head is a start line and headers; traces of a pipeline of ten operators take 3 KiB.
HEAD_BYTES = 16 * 1024
#: The most that one read returns while a head is awaited.
READ_BYTES = 64 * 1024
#: JSON takes many times its size once it is read: configurations, metrics and reasons are far smaller.
JSON_BYTES = 256 * 1024
#: What a body's memory begins with.
FIRST_BYTES = 64 * 1024

STATUS = {
    200: "OK",
    400: "Bad Request",
    403: "Forbidden",
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
    """Bytes that are no message of this part of HTTP/1.1, with the status of the error."""

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
        return read_json(self.body)


def read_json(text: bytes | bytearray | str) -> Any:
    """The document that a peer sent, null if it is empty; ValueError if it is no JSON, too long or nested too deeply."""
    if len(text) > JSON_BYTES:
        raise ValueError(f"{len(text)} bytes of JSON; {JSON_BYTES} at most")
    try:
        return json.loads(text or "null")
    except RecursionError:
        raise ValueError("JSON that is nested too deeply") from None


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
        #: The largest body.
        self.body_max = MAX_BYTES
        #: When something came last, and when the message that is coming began.
        self.heard_s = self.head_s = time.monotonic()

    def on_message(self, message: Message) -> None:
        """A whole message."""
        raise NotImplementedError

    def on_error(self, error: MessageError) -> None:
        """What came is no message; nothing more is read."""
        raise NotImplementedError

    def check_room(self, count: int) -> None:
        """Raises `MessageError` if a body may not take so many bytes more."""

    def _growth(self, body: bytearray) -> int:
        """Bytes that a full body grows by: it doubles, up to its length."""
        return min(len(body), self._body_length - len(body))

    @property
    def held_bytes(self) -> int:
        """What the body that is being received takes."""
        return 0 if self._body is None else len(self._body)

    def may_begin(self) -> bool:
        """Whether another message may begin now. Where it may not, the transport is paused, and `take_heads` goes on later."""
        return True

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
                elif self._body_filled == len(self._body):
                    self.check_room(self._growth(self._body))
                return
            if self._filled == 0:
                self._first_s, self.head_s = clock.now(), self.heard_s
            self._filled += nbytes
        except MessageError as error:
            self._break(error)
        else:
            self.take_heads()

    def take_heads(self) -> None:
        """Reads the complete messages, while `may_begin` returns true."""
        try:
            while self._filled and self._body is None and self.may_begin() and self._take_head():
                pass
        except MessageError as error:
            self._break(error)

    def _break(self, error: MessageError) -> None:
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
        self.check_room(min(length, max(here, FIRST_BYTES)))
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
        count = whole_number(length)
        if count is None:
            raise MessageError(400, f"content-length is {length[:40]!r}; it should be a number of bytes")
        if count > self.body_max:
            raise MessageError(413, f"a body of {length} bytes: {self.body_max} at most")
        self._start, self._headers = start, headers
        return count

    def _complete(self) -> None:
        assert self._body is not None
        message = Message(self._start, self._headers, self._body, self._first_s, clock.now(), self._half_s, self._half_bytes)
        self._body, self._first_s, self.head_s = None, message.last_s, self.heard_s
        self.on_message(message)


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
