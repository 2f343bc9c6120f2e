"""One listening socket with bounded places: which connections it takes, and which it ends for others.

Problem: peers that never show a certificate, or open many connections, must not keep other peers out or fill memory. Method: this file
accepts connections itself, since asyncio's servers take as many as come. Two kinds of places are apart:

- *entering*: accepted, and TLS is not done. `Limits.entering` places; a handshake ends after `HANDSHAKE_S`.
- *open*: can send requests. `Limits.open` places, `Limits.per_address` of them for one address.

A newcomer without a place takes one of the address that has most places. Of entering connections the oldest goes; of open ones without
a request in work first one that never completed a request, then the one that was silent for longest. Where there is none, the newcomer
is closed.
An address is an IPv4 address, the first 64 bits of an IPv6 address, or the user of a Unix socket. A Unix socket takes connections
of its own user and of root.

Memory: a connection takes about 0.4 MiB with TLS and 64 KiB without, and its bodies. `Limits.bodies_bytes` bounds the bodies of a port, requests and answers, from the first byte until the answer is written. Without free descriptors or memory the port
sheds one connection and pauses for `PAUSE_S`.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import math
import os
import pathlib
import select
import socket
import ssl
import stat
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from isolane.pipeline.address import Place
from isolane.pipeline.item import MAX_BYTES

#: How long a new connection may take for TLS.
HANDSHAKE_S = 5.0
#: Connections that wait in the kernel, and that are accepted before other work goes on.
BACKLOG, ACCEPTS = 128, 16
#: How long a port without free descriptors accepts nothing.
PAUSE_S = 0.1


@dataclass(frozen=True)
class Limits:
    """What one port takes at a time."""

    open: int = 128
    entering: int = 64
    per_address: int = 64
    #: Requests of one connection that wait for their answers.
    pipelined: int = 256
    #: Bytes of one body, and of all bodies: received in part, not answered, or answers that are not written.
    body_bytes: int = MAX_BYTES
    bodies_bytes: int = 2 * MAX_BYTES
    #: How long a connection may stay open without a request.
    idle_s: float = math.inf


class Guest(Protocol):
    """An open connection."""

    peer: str
    heard_s: float
    served: int

    @property
    def is_busy(self) -> bool:
        """Whether a request of it is in work."""

    @property
    def held_bytes(self) -> int:
        """Bytes of the body that it is sending."""

    def close(self) -> None:
        """Ends it after what is written."""

    def abort(self) -> None:
        """Ends it at once."""


@dataclass(eq=False)
class _Entering:
    peer: str
    socket: socket.socket
    since_s: float


_Guest = TypeVar("_Guest", bound=Guest)


class Port:
    """A listening socket, its connections and the memory of their bodies. `make` makes the protocol of a connection from its peer."""

    def __init__(
        self,
        listening: socket.socket,
        limits: Limits,
        context: ssl.SSLContext | None,
        make: Callable[[Port, str], asyncio.BaseProtocol],
    ) -> None:
        self.limits = limits
        self.open: dict[Guest, None] = {}
        #: Bytes of whole bodies whose answers are not written, and of those answers.
        self.owed_bytes = 0
        self.counts: Counter[str] = Counter()
        self._listening = listening
        self._context = context
        self._make = make
        self._entering: dict[_Entering, asyncio.Task[None]] = {}
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.TimerHandle | None = None
        listening.setblocking(False)
        self._listen()

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of a TCP socket."""
        host, port = self._listening.getsockname()[:2]
        return host, port

    @property
    def entering(self) -> int:
        """Connections whose TLS is not done."""
        return len(self._entering)

    def bodies_bytes(self) -> int:
        """Bytes of all bodies."""
        return self.owed_bytes + sum(one.held_bytes for one in self.open)

    def stop(self) -> None:
        """Takes no more connections; the open ones stay."""
        if self._pause is not None:
            self._pause.cancel()
        if self._listening.fileno() >= 0:
            self._loop.remove_reader(self._listening)
            self._listening.close()
        for one in list(self._entering):
            self._shed_entering(one, "closed")

    def _listen(self) -> None:
        self._pause = None
        self._loop.add_reader(self._listening, self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPTS):
            try:
                taken, _ = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:
                # Without a free descriptor the kernel returns this error also where no connection waits.
                waiting = select.poll()
                waiting.register(self._listening, select.POLLIN)
                if waiting.poll(0):
                    self._starve()
                return
            self._enter(taken)

    def _starve(self) -> None:
        """Without descriptors or memory: frees some, and leaves the processor to other work meanwhile."""
        self.counts["starved"] += 1
        self._loop.remove_reader(self._listening)
        self._pause = self._loop.call_later(PAUSE_S, self._listen)
        idle = [one for one in self.open if not one.is_busy]
        # Without TLS an entering connection has only just come.
        if self._entering and (self._context is not None or not idle):
            self._shed_oldest()
        elif idle:
            self._shed_open(_first(idle, _age))

    def _enter(self, taken: socket.socket) -> None:
        taken.setblocking(False)
        peer = _peer(taken)
        if peer is None:
            self.counts["refused"] += 1
            taken.close()
            return
        self.counts["accepted"] += 1
        if len(self._entering) >= self.limits.entering:
            self._shed_oldest()
        entering = _Entering(peer, taken, time.monotonic())
        self._entering[entering] = self._loop.create_task(self._handshake(entering))

    async def _handshake(self, entering: _Entering) -> None:
        handshake_s = None if self._context is None else HANDSHAKE_S
        try:
            await self._loop.connect_accepted_socket(
                lambda: self._make(self, entering.peer), entering.socket, ssl=self._context, ssl_handshake_timeout=handshake_s
            )
        except OSError:  # also what TLS says of a stranger
            self.counts["unproven"] += 1
        finally:
            self._entering.pop(entering, None)

    def _shed_oldest(self) -> None:
        places = Counter(one.peer for one in self._entering)
        self._shed_entering(_first(self._entering, lambda one: (-places[one.peer], one.since_s)), "shed")

    def _shed_entering(self, one: _Entering, what: str) -> None:
        """Its task sees the end of the connection, and closes it."""
        self.counts[what] += 1
        self._entering.pop(one, None)
        with contextlib.suppress(OSError):
            one.socket.shutdown(socket.SHUT_RDWR)

    def opened(self, guest: Guest) -> None:
        """A connection can send requests from now on, if it finds a place."""
        places = Counter(one.peer for one in self.open)
        mine = places[guest.peer]
        self.open[guest] = None
        if mine < self.limits.per_address and sum(places.values()) < self.limits.open:
            return
        if mine >= self.limits.per_address:
            others = [one for one in self.open if one.peer == guest.peer]
        else:
            others = [one for one in self.open if places[one.peer] >= mine]
        idle = [one for one in others if one is not guest and not one.is_busy]
        self._shed_open(_first(idle, lambda one: (-places[one.peer], *_age(one))) if idle else guest)

    def closed(self, guest: Guest) -> None:
        """A connection is gone."""
        self.open.pop(guest, None)

    def _shed_open(self, one: Guest) -> None:
        self.counts["shed"] += 1
        self.open.pop(one, None)
        one.abort()


def _age(one: Guest) -> tuple[float, ...]:
    return (float(one.served > 0), one.heard_s)


_One = TypeVar("_One")


def _first(those: Iterable[_One], key: Callable[[_One], tuple[float, ...]]) -> _One:
    return min(those, key=key)


def _peer(taken: socket.socket) -> str | None:
    """Who is counted for a connection; None if it may not come at all."""
    if taken.family == socket.AF_UNIX:
        _, user, _ = struct.unpack("3i", taken.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
        return f"user {user}" if user in (0, os.geteuid()) else None
    try:
        host = ipaddress.ip_address(taken.getpeername()[0].partition("%")[0])
    except (OSError, ValueError):  # it is gone already
        return None
    if isinstance(host, ipaddress.IPv4Address):
        return str(host)
    return str(host.ipv4_mapped or ipaddress.ip_network((host, 64), strict=False))


def _listens(path: pathlib.Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as trial:
        trial.setblocking(False)
        try:
            trial.connect(str(path))
        except ConnectionRefusedError:
            return False
        except OSError:  # its queue is full
            return True
    return True


async def bind(place: Place) -> list[socket.socket]:
    """Listening sockets of an address: several where a name has several addresses."""
    if place.path is not None:
        return [_bind_unix(pathlib.Path(place.path))]
    loop = asyncio.get_running_loop()
    host = place.host.strip("[]")
    found = await loop.getaddrinfo(host, place.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    made: list[socket.socket] = []
    port = place.port
    for family, _, _, _, where in dict.fromkeys(found):
        try:
            made.append(socket.create_server((where[0], port), family=family, backlog=BACKLOG))
        except OSError as error:
            for one in made:
                one.close()
            raise OSError(error.errno, f"cannot listen on {place.host}:{port}: {error.strerror}") from error
        port = made[0].getsockname()[1]
    return made


def _bind_unix(path: pathlib.Path) -> socket.socket:
    """Only the socket of a process that is gone is replaced; other files stay."""
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISSOCK(path.lstat().st_mode) and not _listens(path):
            path.unlink()
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listening.bind(str(path))
    except OSError as error:
        listening.close()
        raise OSError(error.errno, f"cannot listen on unix:{path}: {error.strerror}") from error
    finally:
        os.umask(before)
    listening.listen(BACKLOG)
    return listening
