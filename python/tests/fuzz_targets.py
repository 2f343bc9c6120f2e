"""Fuzz targets: every decoder of the Python package that reads what files, peers and servers say.

Method: a target gives bytes to a decoder as the package does, and lets only the errors pass that the decoder's callers handle. Where the
format allows, a decoded value, encoded again, must decode to itself. Two drivers run the targets: `test_fuzz_targets.py` with seeds that it
changes at random, and `fuzz_coverage.py` under atheris, which keeps inputs that reach new code. Inputs that stopped a target are in
`fuzz_corpus/TARGET`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import pathlib
import random
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from planner_data import TWO_TIERS

from isolane import allowed
from isolane.pipeline import deployment
from isolane.pipeline.address import AddressError, split_address
from isolane.pipeline.item import Item, ItemError, decode, decode_batch, encode, encode_batch
from isolane.pipeline.link import DELIVERED, FAILED, FILTERED, OUTCOME, TRACE
from isolane.pipeline.messages import Answer, Connection, Message, MessageError, check_answer
from isolane.pipeline.records import record, summarize
from isolane.planner import formats, live, planning, profiles
from isolane.planner.claims import toy
from isolane.planner.model import OperatorResult, PlanError
from isolane.queries.kserve import Remote, RemoteNet
from isolane.queries.onnx import ModelError

try:
    from isolane import measuring, rpc
except ModuleNotFoundError:
    # Without isolane_native, which a compiler makes, the targets of calls are absent.
    rpc = measuring = None  # type: ignore[assignment]

HERE = pathlib.Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples"


@dataclass(frozen=True)
class Target:
    """A decoder: inputs to begin with, and what to do with an input."""

    seeds: Callable[[], list[bytes]]
    run: Callable[[bytes], None]


def changed(data: bytes, draw: random.Random) -> bytes:
    """One to four changes: bits, cuts, repetitions, numbers, and what parsers stumble over."""
    made = bytearray(data)
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(made) + 1)
        match draw.randrange(6):
            case 0 if at < len(made):
                made[at] ^= 1 << draw.randrange(8)
            case 1:
                del made[at : at + draw.choice([1, 3, 50])]
            case 2:
                made[at:at] = made[max(at - 30, 0) : at] * draw.randint(1, 3)
            case 3:
                made[at:at] = draw.choice(WORDS)
            case 4:
                number = draw.choice(NUMBERS).encode()
                made = bytearray(re.sub(rb"content-length: \d+", b"content-length: " + number, bytes(made), count=1))
            case _:
                # One number of a text, not always the first.
                found = list(re.finditer(rb"\d+(\.\d+)?", bytes(made[at : at + 300])))
                if found:
                    start, end = found[0].span()
                    made[at + start : at + end] = draw.choice(NUMBERS).encode()
    return bytes(made)


#: What parsers stumble over, in HTTP, JSON and YAML.
WORDS = [
    *(b"\r\n", b"\r\n\r\n", b"\x00", b"content-length: 7\r\n", b"transfer-encoding: chunked\r\n", b"expect: 100-continue\r\n"),
    *(b"connection: close\r\n", b" ", b":", b"[" * 300, bytes(200), b"\xff\xfe"),
    *(b"!!bool x", b"!!int ''", b"!!float .", b"!!timestamp x", b"!!binary x", b"null", b"Infinity", b"NaN", b"{}", b"[]", b"&a [*a]", b"\n- "),
]
#: The last but one is too large for a float, and the last has more digits than `int` reads.
NUMBERS = ["0", "1", "12", "-1", f"{2**31}", f"{2**63}", "1e30", "1e999", "9" * 400, "9" * 5000]


def text_of(data: bytes) -> str:
    """The text as the package reads files: what is not UTF-8 is refused there."""
    return data.decode("utf-8", "ignore")


def query(data: bytes) -> None:
    """A query: YAML of an author."""
    with contextlib.suppress(PlanError):
        formats.parse_query(text_of(data), "query.yaml")


def tiers(data: bytes) -> None:
    """Tiers and links: YAML of an author."""
    with contextlib.suppress(PlanError):
        formats.parse_infrastructure(text_of(data), "tiers.yaml")


def plan(data: bytes) -> None:
    """A plan: JSON of an author, read as `isolane edge run` reads it."""
    with contextlib.suppress(PlanError, allowed.NameRefused):
        _, document = formats.parse_plan(text_of(data), "plan.json")
        made = deployment.from_plan(document)
        allowed.foreign(made.code)
        assert all(made.place(stage.tier).slowdown(stage) >= 1.0 for stage in made.stages)


def profile(data: bytes) -> None:
    """A profile: JSON of an author."""
    with contextlib.suppress(PlanError):
        # What is written has fewer digits than what is read.
        made = profiles.profile_bytes(profiles.parse_profile(data, "profile.json"), False)
        assert profiles.profile_bytes(profiles.parse_profile(made, "again"), False) == made


def item(data: bytes) -> None:
    """An item, or a batch of them, from a peer. Changed headers rarely have their checksum, so it is also corrected."""
    for one in (data, with_checksum(data)):
        with contextlib.suppress(ItemError):
            found = decode(one)
            assert decode(encode(found)) == found
    with contextlib.suppress(ItemError):
        several = decode_batch(data)
        assert decode_batch(encode_batch(several)) == several


def with_checksum(data: bytes) -> bytes:
    """The item with the checksum that its header should have, if the header is all there."""
    if len(data) < 32:
        return data
    length = min(int.from_bytes(data[24:28], "little"), len(data))
    check = zlib.crc32(data[32:length], zlib.crc32(bytes(4), zlib.crc32(data[:28])))
    return data[:28] + check.to_bytes(4, "little") + data[32:]


class Heard(Connection):
    """Keeps messages, and the error that ends a connection."""

    def __init__(self, answers: bool) -> None:
        super().__init__()
        self.body_max = 100_000
        self.answers = answers
        self.messages: list[Message] = []
        self.errors: list[MessageError] = []

    def check_start(self, start: str) -> None:
        """As the two ends do."""
        if self.answers:
            check_answer(start)

    def on_message(self, message: Message) -> None:
        """Kept."""
        assert self.errors == [] and len(message.body) <= self.body_max
        if self.answers:
            assert 0 <= message.status < 1000
        self.messages.append(message)

    def on_error(self, error: MessageError) -> None:
        """Kept: there is one at most."""
        self.errors.append(error)
        assert len(self.errors) == 1

    def hear(self, data: bytes, step: int) -> None:
        """Receives the data in parts of at most `step` bytes, as asyncio does."""
        while data:
            room: Any = self.get_buffer(-1)
            count = min(step, len(room), len(data))
            assert count > 0, "there is room for a byte"
            room[:count] = data[:count]
            del room
            data = data[count:]
            self.buffer_updated(count)


def message(data: bytes) -> None:
    """Requests and answers on a connection: how they are cut into parts changes nothing."""
    for answers in (False, True):
        whole, parts = Heard(answers), Heard(answers)
        whole.hear(data, 1 << 20)
        parts.hear(data, 7)
        said = [[(one.start, one.headers, one.body) for one in each.messages] for each in (whole, parts)]
        assert said[0] == said[1] and [str(each) for each in whole.errors] == [str(each) for each in parts.errors]


def outcome(data: bytes) -> None:
    """What a peer says of an item: the trace before the first zero byte, the body after it."""
    trace, _, body = data.partition(b"\x00")
    for word in (DELIVERED, FILTERED, FAILED, "other"):
        found = record(1, Item(7, 100.0), 0.0, Answer(200, body, {OUTCOME: word, TRACE: trace.decode("latin-1")}))
        assert found.outcome in (DELIVERED, FILTERED, FAILED) and (found.outcome != FAILED or found.reason)
        json.dumps(summarize(1, [found]).document())


def launch(data: bytes) -> None:
    """What the process of a launch, where operators ran, sends to the planner."""
    with contextlib.suppress(PlanError, live.BudgetSpent):
        found = live.read_answer(data, "a launch")
        measured = [number for each in found.results.values() for number in dataclasses.astuple(each)]
        assert all(math.isfinite(each) for each in (found.accuracy, *found.score, *measured))
        assert live.read_answer(json.dumps(live.answer_of(lambda: found)).encode(), "again") == found


class Quoted(Remote):
    """An inference server that says what the input says."""

    def __init__(self, said: list[bytes]) -> None:
        self.name, self.binary, self._said = "server:1", True, said

    def exchange(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> tuple[Any, bytes]:
        """The next part of the input."""
        length = self._said.pop(0) if method == "POST" else b""
        return {"Inference-Header-Content-Length": length.decode("latin-1")} if length else {}, self._said.pop(0)


def inference(data: bytes) -> None:
    """Metadata and answer of an inference server, with the length of the answer's head: three parts between zero bytes."""
    parts = [*data.split(b"\x00", 2), b"", b""][:3]
    with contextlib.suppress(ModelError):
        net = RemoteNet(Quoted(parts), "model", {})
        assert all(isinstance(each, np.ndarray) for each in net.run(np.zeros((1, 4), np.float32)))


def name(data: bytes) -> None:
    """Names of code in files: whether they are accepted. Addresses of operators. Nothing is imported."""
    text = text_of(data)
    with contextlib.suppress(allowed.NameRefused):
        allowed.is_allowed(text)
    with contextlib.suppress(AddressError):
        place = split_address(text)
        assert place.path is not None or (place.host and 0 <= place.port <= 65535)


def call(data: bytes) -> None:
    """Metadata of calls from clients and servers, and the settings of admission."""
    text = text_of(data)
    assert measuring.server_time(((measuring.SERVER_TIME, text),)) >= 0.0
    asked = rpc.downgraded_from(Metadata(((rpc.DOWNGRADED, text),)))
    assert asked is None or asked >= 0
    with contextlib.suppress(ValueError):
        rpc.Admission(text)


@dataclass(frozen=True)
class Metadata:
    """The context of an incoming call, as far as it is read."""

    pairs: tuple[tuple[str, str], ...]

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        """Key and value."""
        return self.pairs


#: Short ones: a reader of YAML in Python takes 10 us for each character.
QUERY = """\
version: 1
query: driving
accuracy_min: 0.8
latency_max_ms: 400
operators:
  - {name: lidar, kind: source, implementation: "m:Lidar", options: {timeout_s: 5, list: [1, a]}, gives: points}
  - name: ground
    kind: filter
    implementation: "m:Ground"
    accepts: [points]
    knobs: [{name: distance_m, values: [0.5, 0.1]}]
  - {name: detector, kind: model, implementation: detector.onnx, gpu: true, accepts: points}
"""


def plans() -> list[bytes]:
    """A plan with its runner-up."""
    query = toy.query(0.6, 600.0)
    planned = planning.plan_query(query, toy.TIERS, toy.Toy(), "exhaustive", order=toy.order("GV")).plan
    return [json.dumps(formats.plan_json(planned, query, toy.TIERS)).encode()]


def measurements() -> list[bytes]:
    """A profile with every launch of a query."""
    query = toy.query(0.6, 600.0)
    launches = tuple(toy.Toy().launch(order, each) for order in query.orders() for each in query.configurations())
    return [profiles.profile_bytes(profiles.Profile(query.name, "machine", query.knobs, launches), False)]


def items() -> list[bytes]:
    """An item, and a batch of two."""
    arrays = {"image": np.zeros((2, 3), np.uint8), "score": 0.5, "label": "car", "none": np.zeros((0, 4), np.float32)}
    one = Item(7, 100.5, dict(arrays))
    return [encode(one), encode_batch([one, Item(8, 101.0)])]


def messages() -> list[bytes]:
    """Requests and answers, alone and one after the other."""
    post, say = b"POST /1 HTTP/1.1\r\nx: y\r\ncontent-length: 40\r\n\r\n" + bytes(40), Answer.of({"a": 1})
    answer = say.head() + bytes(say.body)
    return [post, post * 3 + b"GET / HTTP/1.1\r\n\r\n", answer, b"HTTP/1.1 100 Continue\r\n\r\n" + answer * 2]


HOP = {"operator": "y", "tier": "edge", "received_s": 1.0, "bytes_in": 5, "begun_s": 1.0, "ended_s": 2.0, "process_ms": 1.0}
HOP |= {"processor_ms": 0.5, "idle_ms": 0.0, "bytes_out": 3}


def outcomes() -> list[bytes]:
    """A delivered item, a failed one, and one without a trace."""
    trace, reason = json.dumps([HOP, HOP]).encode(), json.dumps({"operator": "y", "reason": "z"}).encode()
    return [trace + b"\0" + encode_batch([Item(1, 2.0)]), trace + b"\0" + reason, b"[]\0" + reason]


def launches() -> list[bytes]:
    """A result and a reason."""
    ran = live.Ran(0.5, {"a": OperatorResult(1.0, 2.0)}, (0.5, 1.0))
    return [json.dumps(live.answer_of(lambda: ran)).encode(), b'{"error": "no"}', b'{"spent": true}']


def inferences() -> list[bytes]:
    """Metadata of a model, and answers in binary and in JSON."""
    output = {"name": "y", "datatype": "FP32", "shape": [1, 2]}
    described = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}], "outputs": [output]}).encode()
    binary = json.dumps({"outputs": [{**output, "parameters": {"binary_data_size": 8}}]}).encode()
    plain = json.dumps({"outputs": [{**output, "data": [1.0, 2.0]}]}).encode()
    return [b"\0".join((described, str(len(binary)).encode(), binary + bytes(range(8)))), b"\0".join((described, b"", plain))]


def names() -> list[bytes]:
    """Names and addresses."""
    return [b"isolane.queries.traffic.operators:Sampler", b"detector.onnx", b"https://host:8443", b"unix:/run/a", b"http://[::1]:80/"]


def calls() -> list[bytes]:
    """Numbers as calls carry them, and settings."""
    return [b"1500", b"2", (EXAMPLES / "rpc.toml").read_bytes()]


TARGETS = {
    "query": Target(lambda: [QUERY.encode()], query),
    "tiers": Target(lambda: [TWO_TIERS.encode()], tiers),
    "plan": Target(plans, plan),
    "profile": Target(measurements, profile),
    "item": Target(items, item),
    "message": Target(messages, message),
    "outcome": Target(outcomes, outcome),
    "launch": Target(launches, launch),
    "inference": Target(inferences, inference),
    "name": Target(names, name),
}
if rpc is not None:
    TARGETS["call"] = Target(calls, call)


def seeds_of(target: str) -> list[bytes]:
    """The target's own seeds, and the inputs that stopped it once."""
    return TARGETS[target].seeds() + [each.read_bytes() for each in sorted((HERE / "fuzz_corpus" / target).glob("*"))]
