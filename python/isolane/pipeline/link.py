"""The way from an operator to the next: in order, kept until answered, retried, and never waited for in vain.

Problem: the sender of an item must keep it until its fate is known, since the next operator may crash, hang, answer garbage
or be cut off, and may move while items are on the way to it. An answer means that everything made of the item was delivered,
filtered out or has failed; until then the item is here.

Method: one persistent connection, requests in order without waiting for answers. Lost connections are made again with growing
pauses, and unanswered items sent again in order; the receiver knows an item that it has seen by its key. Items that were on a
connection that broke go one at a time until answered, so that one that kills its operator is found: after `LOSSES` it has failed
with that reason, and the others live. What kernel and peer cannot acknowledge for `USER_TIMEOUT_MS` is a cut network; what a
living connection does not answer past an item's deadline with nothing moving for `STALL_S` is a dead peer. After `CIRCUIT_AFTER`
failures in a row the circuit is open: items wait, up to `WAITING_MAX` of them and to their deadlines, for the next attempt.

`switch` names another receiver: what was not sent goes there; what was sent is answered by the old one, or, if that breaks, goes
there as well. Limits: the receiver gets the time that an item has left, less `SLACK_S`; the way there is not subtracted.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import json
import socket
import struct
import termios
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

from isolane.pipeline.identity import Identity
from isolane.pipeline.messages import Answer, Connection, Message, MessageError, check_answer, connect, request_head

#: Unanswered items on one connection, and their bytes: several senders fit into what a receiver takes (`listener.Limits`).
WINDOW, WINDOW_BYTES = 64, 64 * 1024 * 1024
#: Items that wait while the next operator cannot be reached.
WAITING_MAX = 256
#: Broken connections that an item may have been on (the last ones alone) before it has failed itself.
LOSSES = 3
#: Failures in a row after which the circuit counts as open.
CIRCUIT_AFTER = 4
#: The first and the longest pause between attempts to connect.
PAUSE_S, PAUSE_MAX_S = 0.02, 0.5
#: An attempt to connect takes at most this long.
CONNECT_S = 2.0
#: The next operator's deadline is this much before ours, so that its answer still comes in time.
SLACK_S = 0.2
#: Sent bytes without an acknowledgement for so long mean a cut network.
USER_TIMEOUT_MS = 5000
#: Silence on a living connection past an item's deadline that means a dead peer.
STALL_S = 2.0

#: Causes of a broken connection that are in the network and not in the item on it.
_NETWORK = {errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN}

#: `LEFT` is the time that an item has left, in seconds: clocks of two machines are not compared, and a clock that is set changes nothing.
OUTCOME, TRACE, KEY, LEFT = "x-isolane-outcome", "x-isolane-trace", "x-isolane-key", "x-isolane-left-s"
DELIVERED, FILTERED, FAILED = "delivered", "filtered", "failed"


def failed(operator: str, reason: str, trace: list[dict[str, Any]] | None = None) -> Answer:
    """The answer that an item has failed, where and why. Its status is 200: the question was answered."""
    document = Answer.of({"operator": operator, "reason": reason})
    document.headers.update({OUTCOME: FAILED, TRACE: json.dumps(trace or [], separators=(",", ":"))})
    return document


@dataclass(eq=False)
class _Pending:
    """An item that is on its way or waits for it."""

    key: str
    body: bytes
    deadline_s: float
    answer: asyncio.Future[Answer]
    since_s: float
    losses: int = 0
    timer: asyncio.TimerHandle | None = None


class _LegConnection(Connection):
    """The connection of a leg."""

    def __init__(self, leg: _Leg) -> None:
        super().__init__()
        self.leg = leg
        self.error: Exception | None = None

    def check_start(self, start: str) -> None:
        """Version and status."""
        check_answer(start)

    def on_message(self, message: Message) -> None:
        """The answer to the oldest unanswered request."""
        if message.status >= 200:
            self.leg.answered(message)

    def on_error(self, error: MessageError) -> None:
        """Garbage: this connection is of no more use."""
        self.fail(f"answered with what is no HTTP ({error})")

    def fail(self, reason: str) -> None:
        """Gives the connection up."""
        self.error = self.error or ConnectionError(reason)
        if self.transport is not None:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """From asyncio."""
        self.transport = None
        self.leg.lost(self.error or exc or ConnectionError("closed the connection"))


class _Leg:
    """What goes to one address."""

    def __init__(self, link: Link, address: str) -> None:
        self.link, self.address = link, address
        self.queue: deque[_Pending] = deque()
        self.sent: deque[_Pending] = deque()
        self.connection: _LegConnection | None = None
        self.failures = 0
        self.error = ""
        self.retired = False
        self._connecting: asyncio.Task[None] | None = None
        self._stall: asyncio.TimerHandle | None = None

    def pump(self) -> None:
        """Writes what may be written."""
        if self.queue and self.connection is None and not self.retired:
            if self._connecting is None:
                self._connecting = asyncio.ensure_future(self._connect())
            return
        while self.queue and self.connection is not None:
            transport = self.connection.transport
            # Closing: a write has failed, and asyncio has not called `connection_lost` yet.
            if transport is None or transport.is_closing():
                return
            pending = self.queue[0]
            if pending.answer.done():
                self.queue.popleft()
                continue
            alone = pending.losses > 0 or any(one.losses for one in self.sent)
            full = len(self.sent) >= WINDOW or sum(len(one.body) for one in self.sent) + len(pending.body) > WINDOW_BYTES
            if self.sent and (alone or full):
                return
            self.queue.popleft()
            self.sent.append(pending)
            left = {KEY: pending.key, LEFT: f"{max(pending.deadline_s - SLACK_S - time.monotonic(), 0.0):.6f}"}
            transport.write(request_head("POST", "/process", len(pending.body), left))
            transport.write(pending.body)
            self.link.sent_items += 1
            self.link.sent_bytes += len(pending.body)

    async def _connect(self) -> None:
        pause = PAUSE_S
        while not self.retired and any(not one.answer.done() for one in self.queue):
            try:
                _, made = await asyncio.wait_for(connect(self.address, lambda: _LegConnection(self), self.link.identity), CONNECT_S)
            except (OSError, asyncio.TimeoutError) as error:
                words = f"no connection in {CONNECT_S:g} s" if isinstance(error, asyncio.TimeoutError) else str(error)
                self._failure(words)
                await asyncio.sleep(pause)
                pause = min(2 * pause, PAUSE_MAX_S)
                continue
            self.connection = made
            self.link.connects += 1
            if made.transport is not None:
                _tune(made.transport.get_extra_info("socket"))
            break
        self._connecting = None
        self.pump()
        self.finish()

    def _failure(self, words: str) -> None:
        self.failures += 1
        self.error = words
        if self.failures == CIRCUIT_AFTER:
            self.link.circuit_opened += 1

    def answered(self, message: Message) -> None:
        """Takes an answer; garbage and refusals count as a broken connection."""
        if not self.sent:
            assert self.connection is not None
            self.connection.fail("answered without a request")
            return
        outcome = message.headers.get(OUTCOME)
        if message.status == 503 and self.connection is not None:
            self.connection.fail("takes no items now")
            return
        if message.status != 200 or outcome not in (DELIVERED, FILTERED, FAILED):
            words = bytes(message.body[:120]).decode("utf-8", "replace").strip()
            if 400 <= message.status < 500:
                self._resolve(failed(self.link.target, f"refused the item with status {message.status}: {words}"))
                return
            assert self.connection is not None
            self.connection.fail(f"answered with garbage: status {message.status}, outcome {outcome!r}, {words!r}")
            return
        headers = {OUTCOME: outcome, TRACE: message.headers.get(TRACE, "[]")}
        self._resolve(Answer(200, message.body, headers))

    def _resolve(self, answer: Answer) -> None:
        pending = self.sent.popleft()
        self.failures, self.error = 0, ""
        settle(pending, answer)
        self.pump()
        self.finish()

    def lost(self, error: Exception) -> None:
        """The connection broke: what was on it is sent again, one at a time, unless it has had its chances."""
        self.connection = None
        between = isinstance(error, OSError) and error.errno in _NETWORK
        self._failure(str(error) or type(error).__name__)
        self.link.breaks += 1
        unanswered = [one for one in self.sent if not one.answer.done()]
        refused = str(error) == "takes no items now"
        alone = len(self.sent) == 1
        self.sent.clear()
        for one in unanswered:
            if not between and not refused:
                one.losses = one.losses + 1 if alone else max(one.losses, 1)
            if one.losses >= LOSSES:
                reason = f"the connection broke {one.losses} times with this item on it: {self.error}"
                settle(one, failed(self.link.target, reason))
        again = [one for one in unanswered if not one.answer.done()]
        if self.retired:
            self.link.take_over(again)
            self.finish()
            return
        self.queue.extendleft(reversed(again))
        asyncio.get_running_loop().call_later(PAUSE_S, self.pump)

    def expired(self, pending: _Pending) -> None:
        """An item's deadline passed while it was sent: checks that the peer answers."""
        if self._stall is None and pending in self.sent:
            self._watch(pending, self._progress())

    def _watch(self, pending: _Pending, seen: tuple[float, int]) -> None:
        self._stall = asyncio.get_running_loop().call_later(STALL_S, self._stalled, pending, seen)

    def _stalled(self, pending: _Pending, seen: tuple[float, int]) -> None:
        self._stall = None
        if self.connection is None or pending not in self.sent:
            return
        if self._progress() == seen:
            self.connection.fail(f"silent for {STALL_S:g} s past an item's deadline")
        else:
            self._watch(pending, self._progress())

    def _progress(self) -> tuple[float, int]:
        """When data last arrived, and how much waits to be sent."""
        if self.connection is None or self.connection.transport is None:
            return 0.0, 0
        transport = self.connection.transport
        return self.connection.heard_s, transport.get_write_buffer_size() + _unsent(transport)

    def retire(self) -> list[_Pending]:
        """Sends nothing more; returns what was not sent."""
        self.retired = True
        rest = [one for one in self.queue if not one.answer.done()]
        self.queue.clear()
        self.finish()
        return rest

    def finish(self) -> None:
        """Closes a retired leg once everything on it is answered."""
        if not self.retired or any(not one.answer.done() for one in self.sent):
            return
        self.link.legs.discard(self)
        if self._stall is not None:
            self._stall.cancel()
        if self.connection is not None and self.connection.transport is not None:
            self.sent.clear()
            self.connection.transport.close()


def settle(pending: _Pending, answer: Answer) -> None:
    """Gives an item its answer, once."""
    if pending.timer is not None:
        pending.timer.cancel()
    if not pending.answer.done():
        pending.answer.set_result(answer)


def _tune(sock: Any) -> None:
    """Ends connections over a cut network; keeps little in the kernel, so that a change of the way is felt soon."""
    if sock is None or sock.family == socket.AF_UNIX:
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, USER_TIMEOUT_MS)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, 2), (socket.TCP_KEEPINTVL, 1), (socket.TCP_KEEPCNT, 3)):
        sock.setsockopt(socket.IPPROTO_TCP, option, value)


def _unsent(transport: asyncio.Transport) -> int:
    """Bytes in the kernel that the peer has not acknowledged."""
    sock = transport.get_extra_info("socket")
    try:
        return int(struct.unpack("i", fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(4)))[0])
    except (OSError, ValueError, AttributeError):
        return 0


class Link:
    """Sends items to `address` on behalf of `owner`; `target` is the receiver's name, for reasons."""

    def __init__(self, target: str, address: str, identity: Identity | None = None) -> None:
        self.target = target
        self.identity = identity
        self.legs: set[_Leg] = set()
        self.sent_items = self.sent_bytes = self.connects = self.breaks = self.circuit_opened = 0
        self._leg = self._new_leg(address)

    def _new_leg(self, address: str) -> _Leg:
        leg = _Leg(self, address)
        self.legs.add(leg)
        return leg

    @property
    def address(self) -> str:
        """Where new items go."""
        return self._leg.address

    def send(self, key: str, body: bytes, deadline_s: float) -> asyncio.Future[Answer]:
        """Accepts an item; the future always ends with an answer, at the latest at the deadline (of `time.monotonic`)."""
        loop = asyncio.get_running_loop()
        pending = _Pending(key, body, deadline_s, loop.create_future(), time.monotonic())
        if len(self._leg.queue) >= WAITING_MAX:
            settle(pending, failed(self.target, f"{WAITING_MAX} items already wait for it{self._why()}"))
            return pending.answer
        left = max(deadline_s - time.monotonic(), 0.0)
        pending.timer = loop.call_later(left, self._expire, pending)
        self._leg.queue.append(pending)
        self._leg.pump()
        return pending.answer

    def _why(self) -> str:
        return f" ({self._leg.address}: {self._leg.error})" if self._leg.error else ""

    def _expire(self, pending: _Pending) -> None:
        waited = time.monotonic() - pending.since_s
        state = "no answer to it" if any(pending in leg.sent for leg in self.legs) else "could not be sent"
        settle(pending, failed(self.target, f"its deadline passed after {waited:.1f} s: {state}{self._why()}"))
        for leg in list(self.legs):
            leg.expired(pending)
            leg.finish()

    def switch(self, address: str, target: str | None = None) -> None:
        """From now on items go to this address. What the old one has, it answers."""
        self.target = target or self.target
        if address == self._leg.address:
            return
        old = self._leg
        self._leg = self._new_leg(address)
        self.take_over(old.retire())

    def take_over(self, pendings: list[_Pending]) -> None:
        """Puts items before the others on the current leg."""
        self._leg.queue.extendleft(reversed(pendings))
        self._leg.pump()

    def drop_old(self) -> None:
        """Gives up connections to former receivers: what they did not answer goes to the current one."""
        for leg in list(self.legs):
            if leg.retired and leg.connection is not None:
                leg.connection.fail("the former receiver is gone")

    @property
    def unanswered(self) -> int:
        """Items on their way or waiting."""
        return sum(sum(not one.answer.done() for one in (*leg.queue, *leg.sent)) for leg in self.legs)

    @property
    def draining(self) -> int:
        """Items that former receivers still have to answer."""
        return sum(len(leg.sent) for leg in self.legs if leg.retired)

    def metrics(self) -> dict[str, Any]:
        """Counts for `GET /metrics`."""
        leg = self._leg
        return {
            "target": self.target,
            "address": leg.address,
            "sent_items": self.sent_items,
            "sent_bytes": self.sent_bytes,
            "unanswered": self.unanswered,
            "waiting": len(leg.queue),
            "draining": self.draining,
            "connects": self.connects,
            "breaks": self.breaks,
            "circuit": "open" if leg.failures >= CIRCUIT_AFTER else "closed",
            "circuit_opened": self.circuit_opened,
            "last_error": leg.error,
        }

    def close(self) -> None:
        """Ends all connections; what is unanswered has failed."""
        for leg in list(self.legs):
            for pending in (*leg.queue, *leg.sent):
                settle(pending, failed(self.target, "the sender stopped"))
            leg.retire()
