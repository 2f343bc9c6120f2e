"""Admission control for grpcio clients: latency objectives by class in an overloaded network (Aequitas).

Problem: a weighted fair network keeps the delay of a class only while its share of the traffic stays small, and no client sees
the others' traffic.
Method: for each destination and class an admit probability falls with calls that miss the class's objective and rises with calls
that meet it. A call that is not admitted runs in the lowest class, and server and application are told. Nothing is dropped or
delayed. `ClassChannel` has one connection for each class, whose packets carry the class's code point; `AdmissionInterceptor`
decides which one a call takes. `channel()` puts the two together.
Units: latencies in seconds where Python has seconds, sizes in bytes; class 0 is the highest.
Limits: a latency runs from handing a call to its channel to its end, less the time that the server says its method took
(`isolane-server-us` in its metadata or its trailer). Streams are decided on and not learned from: their time is the
application's. Code points need Linux and grpcio 1.60 or later; elsewhere calls run unmarked.
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
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import grpc

from isolane.installing import NATIVE

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
    "channel",
    "downgraded_from",
    "outcome",
]

#: Request metadata of a downgraded call; its value is the number of the class that was asked for.
DOWNGRADED = "isolane-downgraded"
#: Request metadata of every call: names of the class that was asked for and of the class it runs in.
REQUESTED_CLASS = "isolane-requested-class"
CLASS = "isolane-class"
#: Response metadata or trailer in which a server says how long its method took, microseconds.
SERVER_TIME = "isolane-server-us"
#: Carries the decision from the interceptor to the channel; never sent.
_ROUTE = "isolane-route"

#: Outcomes that a context keeps: one that lasts as long as its program must not grow with its calls.
OUTCOMES_MAX = 1000

Metadata = Sequence[tuple[str, Any]]


class Decision(NamedTuple):
    """What becomes of a call."""

    #: Class it runs in.
    ran: int
    #: Whether that is lower than what it asked for.
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


@dataclass
class Asking:
    """The class that calls in a context ask for, and the outcomes of the last `OUTCOMES_MAX` of them."""

    asked: int | str
    outcome: Outcome | None = None
    outcomes: deque[Outcome] = field(default_factory=lambda: deque(maxlen=OUTCOMES_MAX))


_asking: contextvars.ContextVar[Asking | None] = contextvars.ContextVar("isolane_asking", default=None)


@contextlib.contextmanager
def asking(asked: int | str) -> Iterator[Asking]:
    """Calls in this context ask for a class, by its number or its name. Contexts are those of threads and tasks."""
    current = Asking(asked)
    token = _asking.set(current)
    try:
        yield current
    finally:
        _asking.reset(token)


class Admission:
    """What a process knows of its destinations. One for all channels and threads; it never waits.

    A call raises ValueError if it asks for a class that the settings do not have, and for no other reason of ours.
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

    def complete(self, ticket: int, latency: float) -> bool:
        """A call ended, `latency` seconds after it was handed to its channel. False if its destination has left meanwhile."""
        return self._core.complete(ticket, max(int(latency * 1e9), 0))

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
        """What the client of the quota server had to say since this was last asked, one line each and the latest sixteen: that
        the server does not answer or refuses and why, and that it answers again."""
        return self._core.said()

    def reload(self, settings: str | None = None) -> bool:
        """Takes other settings over while calls run: this text, or the file if it has changed. Raises ValueError and changes
        nothing when they have a mistake, or change the classes' names, code points or number."""
        if settings is None:
            return self._core.reload()
        self._core.reload_text("settings", settings)
        return True


class ClassChannel(grpc.Channel):
    """One grpcio channel for each class; a call takes the one that its interceptor chose, or the lowest."""

    def __init__(
        self,
        target: str,
        admission: Admission,
        credentials: grpc.ChannelCredentials | None = None,
        options: Sequence[tuple[str, Any]] = (),
    ) -> None:
        self.target = target
        self.channels = []
        for _, dscp in admission.classes:
            # Equal channels would share a connection, and with it one code point.
            own = [*options, ("grpc.dscp", dscp), ("grpc.use_local_subchannel_pool", 1)]
            if credentials is None:
                self.channels.append(grpc.insecure_channel(target, options=own))
            else:
                self.channels.append(grpc.secure_channel(target, credentials, options=own))

    def _calls(self, kind: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> _Calls:
        return _Calls(self.channels, kind, arguments, keywords)

    def unary_unary(self, *arguments: Any, **keywords: Any) -> Any:
        """As grpc.Channel has it."""
        return self._calls("unary_unary", arguments, keywords)

    def unary_stream(self, *arguments: Any, **keywords: Any) -> Any:
        """As grpc.Channel has it."""
        return self._calls("unary_stream", arguments, keywords)

    def stream_unary(self, *arguments: Any, **keywords: Any) -> Any:
        """As grpc.Channel has it."""
        return self._calls("stream_unary", arguments, keywords)

    def stream_stream(self, *arguments: Any, **keywords: Any) -> Any:
        """As grpc.Channel has it."""
        return self._calls("stream_stream", arguments, keywords)

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
    """One method on all channels. grpcio's interceptors ask for it anew at every call, so only the chosen one is made."""

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


# grpcio asks for a class that is also a ClientCallDetails.
class _CallDetails(_Details, grpc.ClientCallDetails):
    pass


class AdmissionInterceptor(
    grpc.UnaryUnaryClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
    grpc.StreamUnaryClientInterceptor,
    grpc.StreamStreamClientInterceptor,
):
    """Decides on every call of a `ClassChannel`, measures it, and tells server and application.

    A call asks for the class of its context (`asking`), or of its method in `methods`, or for `default` (the lowest class).
    """

    def __init__(
        self,
        admission: Admission,
        destination: str,
        default: int | str | None = None,
        methods: Mapping[str, int | str] | None = None,
    ) -> None:
        self._admission = admission
        self._destination = destination
        self._default = admission.lowest if default is None else admission.number(default)
        self._methods = {name: admission.number(asked) for name, asked in (methods or {}).items()}

    def begin(self, method: str, size: int) -> tuple[Decision, Outcome, list[tuple[str, str]]]:
        """Decides on one call: the decision, its outcome so far, and the metadata to add."""
        current = _asking.get()
        asked = self._methods.get(method, self._default) if current is None else self._admission.number(current.asked)
        decision = self._admission.decide(self._destination, asked, size)
        result = Outcome(asked, decision.ran, decision.downgraded, decision.would_downgrade)
        if current is not None:
            current.outcome = result
            current.outcomes.append(result)
        names = self._admission.classes
        added = [(REQUESTED_CLASS, names[asked][0]), (CLASS, names[decision.ran][0])]
        if decision.downgraded:
            added.append((DOWNGRADED, str(asked)))
        return decision, result, added

    def end(self, decision: Decision, result: Outcome, began: float, told: float, learns: bool) -> None:
        """Learns from a call that succeeded, `told` seconds of which were the server's own.

        One that failed or was cancelled says nothing of the network's delay, nor does a stream.
        """
        result.latency = max(time.perf_counter() - began - told, 0.0)
        if learns:
            self._admission.complete(decision.ticket, result.latency)

    def _intercept(self, continuation: Any, details: Any, request: Any, size: int, unary: bool = False) -> Any:
        decision, result, added = self.begin(_text(details.method), size)
        metadata = [*(details.metadata or ()), *added, (_ROUTE, str(decision.ran))]
        routed = _CallDetails(
            details.method,
            details.timeout,
            metadata,
            details.credentials,
            details.wait_for_ready,
            details.compression,
        )
        began = time.perf_counter()
        call = continuation(routed, request)
        call.isolane_outcome = result

        def ended(done: Any) -> None:
            ok = done.code() == grpc.StatusCode.OK
            told = server_time(done.initial_metadata(), done.trailing_metadata()) if ok else 0.0
            self.end(decision, result, began, told, ok and unary)

        # A call that has ended calls back at once; a stream has no such method, but one for its end.
        if hasattr(call, "add_done_callback"):
            call.add_done_callback(ended)
        else:
            call.add_callback(lambda: ended(call))
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
) -> grpc.Channel:
    """A channel under admission control, for any generated stub; without credentials it is an insecure one."""
    inner = ClassChannel(target, admission, credentials, options)
    return grpc.intercept_channel(inner, AdmissionInterceptor(admission, target, default, methods))


def outcome(call: Any) -> Outcome | None:
    """What became of a call that `with_call`, `future` or a stream returned; nothing if it was not under admission."""
    found = getattr(call, "isolane_outcome", None)
    return found if isinstance(found, Outcome) else None


def downgraded_from(context: Any) -> int | None:
    """In a server: the class that an incoming call asked for, if its client downgraded it."""
    for key, value in context.invocation_metadata() or ():
        if key == DOWNGRADED and value.isdigit():
            return int(value)
    return None


def size_of(message: Any) -> int:
    """Size of a message in bytes; 0, which counts as one MTU, when only its serializer knows."""
    if isinstance(message, (bytes, bytearray, memoryview)):
        return len(message)
    measure = getattr(message, "ByteSize", None)
    return int(measure()) if callable(measure) else 0


def server_time(*told: Iterable[tuple[str, Any]] | None) -> float:
    """Seconds that the server says its method took, in one of these metadata; 0 when it says nothing."""
    for key, value in (pair for metadata in told for pair in metadata or ()):
        text = str(value)
        if key == SERVER_TIME and text.isascii() and text.isdigit():
            return int(text) / 1e6
    return 0.0


def _text(method: str | bytes) -> str:
    return method.decode() if isinstance(method, bytes) else method
