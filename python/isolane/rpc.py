"""Admission control for grpcio clients: latency objectives by class in an overloaded network (Aequitas).

Problem: a weighted fair network keeps the delay of a class only while its share of the traffic stays small, and no client sees
the others' traffic.
Method: for each destination and class an admit probability falls with calls that miss the class's objective and rises with calls
that meet it. A call that is not admitted runs in the lowest class, and server and application are notified. Nothing is dropped or
delayed. `ClassChannel` has one connection for each class, whose packets carry the class's code point; `AdmissionInterceptor`
decides which one a call takes. `channel()` puts the two together.
Units: latencies in seconds where Python has seconds, sizes in bytes; class 0 is the highest.
Limits: a latency runs from handing a call to its channel to its end, less the time that the server says its method took
(`isolane-server-us` in its metadata or its trailer). A call that ends by its deadline, by cancellation or with its connection
lasted at least as long as it did; grpcio does not report whether a call that waited until its deadline had a connection. grpcio
retries inside a call: the attempts of a retried call are measured together. Streams are decided on and not measured: their time
is the application's. Code points need Linux and grpcio 1.60 or later; elsewhere calls run unmarked.
Source: Aequitas (in the thesis "cloud QoS"), section 3.5.

    admission = isolane.rpc.Admission.from_file("/etc/isolane/rpc.toml")
    with isolane.rpc.channel("storage:443", admission, credentials=credentials) as channel:
        stub = StorageStub(channel)
        with isolane.rpc.asking("critical") as asked:
            stub.Write(request)
        if asked.outcome.downgraded: ...
"""

from __future__ import annotations

import contextlib
import contextvars
import itertools
import os
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import grpc

from isolane.channels import PerClass
from isolane.digits import whole_number
from isolane.installing import NATIVE
from isolane.measuring import SERVER_TIME, End, current_span, ended, size_of

try:
    from isolane_native import Core
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f"isolane.rpc needs the module isolane_native; {NATIVE}", name=error.name) from error

__all__ = [
    "Admission",
    "AdmissionInterceptor",
    "Asking",
    "CLASS",
    "ClassChannel",
    "DOWNGRADED",
    "Outcome",
    "REQUESTED_CLASS",
    "SERVER_TIME",
    "asking",
    "backends_of",
    "channel",
    "downgraded_from",
    "outcome",
]

#: Request metadata of a downgraded call; its value is the number of the requested class.
DOWNGRADED = "isolane-downgraded"
#: Request metadata of every call: names of the requested class and of the class in which the call runs.
REQUESTED_CLASS = "isolane-requested-class"
CLASS = "isolane-class"
#: Carries the decision from the interceptor to the channel; never sent.
_ROUTE = "isolane-route"

#: How long a backend that was not there is left out of the turn.
_ABSENT_SECONDS = 1.0

#: Outcomes that a context keeps: one that lasts as long as its program must not grow with its calls.
OUTCOMES_MAX = 1000

Metadata = Sequence[tuple[str, Any]]


class Decision(NamedTuple):
    """What becomes of a call."""

    #: Class it runs in.
    ran: int
    #: Whether that is lower than the requested class.
    downgraded: bool
    #: Whether it would be, were the mode not shadow.
    would_downgrade: bool
    #: Given back when the call ends.
    ticket: int


@dataclass
class Outcome:
    """What became of a call, for its application. The latency comes when the call has ended."""

    asked: int
    ran: int
    downgraded: bool
    would_downgrade: bool
    latency: float | None = None
    #: The backend's address, or the target where the backends are not known.
    destination: str = ""


@dataclass
class Call:
    """A call between its decision and its end."""

    decision: Decision
    result: Outcome
    #: Metadata to send with it.
    added: list[tuple[str, str]]
    #: The channel that it takes: `isolane.channels.PerClass` has their order.
    route: int
    backend: int
    timeout: float | None
    span: Any
    #: Of `time.perf_counter`.
    began: float


@dataclass
class Asking:
    """The requested class of the calls in a context, and the outcomes of the last `OUTCOMES_MAX` of them."""

    asked: int | str
    outcome: Outcome | None = None
    outcomes: deque[Outcome] = field(default_factory=lambda: deque(maxlen=OUTCOMES_MAX))


_asking: contextvars.ContextVar[Asking | None] = contextvars.ContextVar("isolane_asking", default=None)


@contextlib.contextmanager
def asking(asked: int | str) -> Iterator[Asking]:
    """Calls in this context request a class, by its number or its name. Contexts are those of threads and tasks."""
    current = Asking(asked)
    token = _asking.set(current)
    try:
        yield current
    finally:
        _asking.reset(token)


class Admission:
    """The state of a process's destinations. One for all channels and threads; calls to known destinations never wait.

    A call raises ValueError if it requests a class that the settings do not have, and for no other reason of ours.
    """

    def __init__(self, settings: str) -> None:
        """With settings as TOML text; docs/guides/rpc.md describes the keys. Raises ValueError with line, key and remedy."""
        self._take(Core.from_text("settings", settings))

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Admission:
        """With the settings of a file, which `reload` reads again."""
        made = cls.__new__(cls)
        made._take(Core.from_file(path))
        return made

    def _take(self, core: Core) -> None:
        self._core = core
        self._classes = core.classes()
        self._numbers: dict[int | str, int] = {name: number for number, (name, _) in enumerate(self._classes)}
        self._numbers.update({number: number for number in range(len(self._classes))})

    @property
    def classes(self) -> list[tuple[str, int]]:
        """Names and code points, the highest class first."""
        return list(self._classes)

    @property
    def lowest(self) -> int:
        """The class that takes what is not admitted."""
        return len(self._classes) - 1

    @property
    def mode(self) -> str:
        """enforce, shadow or off."""
        return self._core.mode()

    def number(self, asked: int | str) -> int:
        """The number of a class. Raises ValueError when there is none."""
        try:
            return self._numbers[asked]
        except KeyError:
            names = ", ".join(f"{number} ({name})" for number, (name, _) in enumerate(self._classes))
            raise ValueError(f"class {asked!r} is none of the settings'; give one of {names}") from None

    def decide(self, destination: str, asked: int | str, size: int) -> Decision:
        """Decides on a call of `size` bytes."""
        return Decision._make(self._core.decide(destination.encode(), self.number(asked), max(size, 0)))

    def complete(self, ticket: int, latency: float, response_bytes: int = 0) -> bool:
        """A call with a response of `response_bytes` ended, `latency` seconds after it was handed to its channel. The objective
        is for the packets of both directions. False if its destination has left meanwhile."""
        return self._core.complete(ticket, _ns(latency), max(response_bytes, 0))

    def give_up(self, ticket: int, elapsed: float) -> bool:
        """A call ended without an answer after `elapsed` seconds, by its deadline, by cancellation or with its connection: it
        lasted at least so long. Beyond its objective that is a miss; before, it says nothing. Whether it was a miss."""
        return self._core.give_up(ticket, _ns(elapsed))

    def probability(self, destination: str, asked: int | str) -> float:
        """The admit probability of a destination and class; 1 when nothing is known of it."""
        known = self._core.probability(destination.encode(), self.number(asked))
        return 1.0 if known is None else known

    def forget(self, destination: str) -> bool:
        """Drops what is known of a destination that has departed."""
        return self._core.forget(destination.encode())

    def metrics(self) -> str:
        """OpenMetrics text, for a scrape."""
        return self._core.metrics()

    def said(self) -> list[str]:
        """The messages of the quota server's client since the last call, one line each and the latest sixteen: that
        the server does not answer or refuses and why, and that it answers again."""
        return self._core.said()

    def reload(self, settings: str | None = None) -> bool:
        """Takes other settings over while calls run: this text, or the file if it has changed. Raises ValueError and changes
        nothing when they have a mistake, or change the classes' names, code points or number."""
        if settings is None:
            return self._core.reload()
        self._core.reload_text("settings", settings)
        return True


def _ns(seconds: float) -> int:
    return max(int(seconds * 1e9), 0)


def backends_of(target: str) -> list[str]:
    """Addresses of the backends behind a name, `host:port`, for `channel(..., backends=)`. Raises OSError when the name has no
    address, ValueError without a port."""
    host, colon, port = target.rpartition(":")
    if not colon or not port.isdigit():
        raise ValueError(f"target {target!r} has no port; give host:port")
    addresses = []
    for family, _, _, _, at in socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM):
        address = str(at[0])
        addresses.append(f"[{address}]:{port}" if family == socket.AF_INET6 else f"{address}:{port}")
    return list(dict.fromkeys(addresses))


class ClassChannel(PerClass, grpc.Channel):
    """One grpcio channel for each class, of each backend if they are given; a call takes the one that its interceptor chose, or
    the lowest."""

    def __init__(
        self,
        target: str,
        admission: Admission,
        credentials: grpc.ChannelCredentials | None = None,
        options: Sequence[tuple[str, Any]] = (),
        backends: Sequence[str] = (),
    ) -> None:
        super().__init__(grpc, target, admission.classes, credentials, options, backends)
        self.target = target

    def _calls(self, kind: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> _Calls:
        return _Calls(self.channels, kind, arguments, keywords)

    def subscribe(self, callback: Callable[[grpc.ChannelConnectivity], None], try_to_connect: bool = False) -> None:
        """Of the lowest class, which every channel has."""
        self.channels[-1].subscribe(callback, try_to_connect)

    def unsubscribe(self, callback: Callable[[grpc.ChannelConnectivity], None]) -> None:
        """As grpc.Channel has it."""
        self.channels[-1].unsubscribe(callback)

    def connect(self, timeout: float) -> None:
        """Connects all classes. Raises grpc.FutureTimeoutError when that takes longer than `timeout` seconds."""
        for one in [grpc.channel_ready_future(channel) for channel in self.channels]:
            one.result(timeout)

    def close(self) -> None:
        """Closes the channels of all classes."""
        for one in self.channels:
            one.close()

    def __enter__(self) -> ClassChannel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Calls:
    """One method on all channels. grpcio's interceptors need it again at every call, so only the chosen one is made."""

    def __init__(self, channels: list[Any], kind: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        self._channels = channels
        self._kind = kind
        self._arguments = arguments
        self._keywords = keywords

    def _route(self, keywords: dict[str, Any]) -> Any:
        route = len(self._channels) - 1
        kept = []
        for key, value in keywords.get("metadata") or ():
            if key == _ROUTE:
                route = int(value)
            else:
                kept.append((key, value))
        keywords["metadata"] = tuple(kept)
        return getattr(self._channels[route], self._kind)(*self._arguments, **self._keywords)

    def __call__(self, request: Any, **keywords: Any) -> Any:
        return self._route(keywords)(request, **keywords)

    def with_call(self, request: Any, **keywords: Any) -> Any:
        return self._route(keywords).with_call(request, **keywords)

    def future(self, request: Any, **keywords: Any) -> Any:
        return self._route(keywords).future(request, **keywords)


class _Details(NamedTuple):
    method: str
    timeout: float | None
    metadata: Metadata | None
    credentials: Any
    wait_for_ready: bool | None
    compression: Any


# grpcio needs a class that is also a ClientCallDetails.
class _CallDetails(_Details, grpc.ClientCallDetails):
    pass


class AdmissionInterceptor(
    grpc.UnaryUnaryClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
    grpc.StreamUnaryClientInterceptor,
    grpc.StreamStreamClientInterceptor,
):
    """Decides on every call of a `ClassChannel`, measures it, and notifies server and application.

    A call requests the class of its context (`asking`), or of its method in `methods`, or for `default` (the lowest class). With
    backends, calls take them in turn, and each is a destination; one that was not there is left out for a second.
    """

    def __init__(
        self,
        admission: Admission,
        destination: str,
        default: int | str | None = None,
        methods: Mapping[str, int | str] | None = None,
        backends: Sequence[str] = (),
    ) -> None:
        self._admission = admission
        self._destinations = list(backends) or [destination]
        self._absent_until = [0.0] * len(self._destinations)
        self._turn = itertools.count()
        self._default = admission.lowest if default is None else admission.number(default)
        self._methods = {name: admission.number(asked) for name, asked in (methods or {}).items()}

    def _backend(self) -> int:
        count = len(self._destinations)
        if count == 1:
            return 0
        first, now = next(self._turn), time.monotonic()
        turns = ((first + more) % count for more in range(count))
        return next((at for at in turns if self._absent_until[at] <= now), first % count)

    def begin(self, method: str, size: int, timeout: float | None = None) -> Call:
        """Decides on one call of `size` bytes that may take `timeout` seconds."""
        current = _asking.get()
        asked = self._methods.get(method, self._default) if current is None else self._admission.number(current.asked)
        backend = self._backend()
        destination = self._destinations[backend]
        decision = self._admission.decide(destination, asked, size)
        result = Outcome(asked, decision.ran, decision.downgraded, decision.would_downgrade, destination=destination)
        if current is not None:
            current.outcome = result
            current.outcomes.append(result)
        names = self._admission.classes
        added = [(REQUESTED_CLASS, names[asked][0]), (CLASS, names[decision.ran][0])]
        if decision.downgraded:
            added.append((DOWNGRADED, str(asked)))
        span = current_span()
        if span is not None:
            span.set_attributes(
                {
                    "isolane.requested_class": names[asked][0],
                    "isolane.class": names[decision.ran][0],
                    "isolane.downgraded": decision.downgraded,
                    "isolane.would_downgrade": decision.would_downgrade,
                    "isolane.backend": destination,
                }
            )
        route = backend * len(names) + decision.ran
        return Call(decision, result, added, route, backend, timeout, span, time.perf_counter())

    def end(self, call: Call, end: End) -> None:
        """Learns from the end of a call."""
        elapsed = end.at - call.began
        latency = max(elapsed - end.server, 0.0)
        call.result.latency = latency
        if call.span is not None and call.span.is_recording():
            call.span.set_attribute("isolane.latency_us", int(latency * 1e6))
        if end.had_no_connection():
            self._absent_until[call.backend] = time.monotonic() + _ABSENT_SECONDS
        elif not end.learns:
            pass
        elif end.code == grpc.StatusCode.OK:
            self._admission.complete(call.decision.ticket, latency, end.response_bytes)
        elif end.is_lower_bound(call.timeout, elapsed):
            self._admission.give_up(call.decision.ticket, elapsed)

    def _intercept(self, continuation: Any, details: Any, request: Any, size: int, unary: bool = False) -> Any:
        made = self.begin(_text(details.method), size, details.timeout)
        metadata = [*(details.metadata or ()), *made.added, (_ROUTE, str(made.route))]
        routed = _CallDetails(
            details.method,
            details.timeout,
            metadata,
            details.credentials,
            details.wait_for_ready,
            details.compression,
        )
        made.began = time.perf_counter()
        call = continuation(routed, request)
        call.isolane_outcome = made.result

        def over(done: Any) -> None:
            self.end(made, ended(done, unary, cancelled=unary and done.cancelled()))

        # A call that has ended calls back at once; a stream has no such method, but one for its end.
        if hasattr(call, "add_done_callback"):
            call.add_done_callback(over)
        else:
            call.add_callback(lambda: over(call))
        return call

    def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        """Called by grpcio."""
        return self._intercept(continuation, client_call_details, request, size_of(request), unary=True)

    def intercept_unary_stream(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        """Called by grpcio."""
        return self._intercept(continuation, client_call_details, request, size_of(request))

    def intercept_stream_unary(self, continuation: Any, client_call_details: Any, request_iterator: Any) -> Any:
        """Called by grpcio. The size of a stream is not known when it begins: it counts as one MTU."""
        return self._intercept(continuation, client_call_details, request_iterator, 0)

    def intercept_stream_stream(self, continuation: Any, client_call_details: Any, request_iterator: Any) -> Any:
        """Called by grpcio. The size of a stream is not known when it begins: it counts as one MTU."""
        return self._intercept(continuation, client_call_details, request_iterator, 0)


def channel(
    target: str,
    admission: Admission,
    credentials: grpc.ChannelCredentials | None = None,
    options: Sequence[tuple[str, Any]] = (),
    default: int | str | None = None,
    methods: Mapping[str, int | str] | None = None,
    backends: Sequence[str] = (),
) -> grpc.Channel:
    """A channel under admission control, for any generated stub; without credentials it is an insecure one.

    Give `backends` (`backends_of(target)`) where a name has several servers: each has a port and so an admit probability of
    its own, and calls take them in turn."""
    inner = ClassChannel(target, admission, credentials, options, backends)
    return grpc.intercept_channel(inner, AdmissionInterceptor(admission, target, default, methods, backends))


def outcome(call: Any) -> Outcome | None:
    """What became of a call that `with_call`, `future` or a stream returned; nothing if it was not under admission."""
    found = getattr(call, "isolane_outcome", None)
    return found if isinstance(found, Outcome) else None


def downgraded_from(context: Any) -> int | None:
    """In a server: the requested class of an incoming call, if its client downgraded it."""
    for key, value in context.invocation_metadata() or ():
        if key == DOWNGRADED and (number := whole_number(str(value))) is not None:
            return number
    return None


def _text(method: str | bytes) -> str:
    return method.decode() if isinstance(method, bytes) else method
