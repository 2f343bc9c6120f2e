"""Profile data: launches that were measured once and are replayed since, so that planning needs no pipeline.

Problem: a searcher's cost is counted in launches; with every order and configuration measured beforehand, a launch is a
look-up that costs what the measured one did. Units end the names. Format: JSON, compressed when the name ends in `.gz`:

    {"version": 1, "format": "isolane-profile", "query": ..., "machine": ..., "scene": ...,
     "knobs": [{"operator": ..., "name": ..., "values": [...]}, ...],        # of `Query.knobs`, in their order
     "entries": [{"order": [...], "configuration": [index of each knob's value],
                  "accuracy": ..., "precision": ..., "recall": ..., "launch_cost_s": ...,
                  "operators": {name: [processing_ms, output_bytes, pass_rate, processing_p99_ms, output_p99_bytes,
                                       core_ms, waiting_ms, core_p99_ms, waiting_p99_ms, overlap_ms]}}]}

Of an operator's numbers the last one, three, five or seven may be missing. Source: Vulcan, section 4.4.3.1 (what a launch caches).
"""

from __future__ import annotations

import dataclasses
import gzip
import json
import math
import pathlib
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from isolane.planner.model import (
    Configuration,
    FilterScore,
    Knob,
    Launch,
    OperatorResult,
    Order,
    PlanError,
    Query,
)

VERSION = 1

#: An unpacked profile above this is refused: it is no profile.
BYTES_MAX = 200_000_000

#: What makes a profile of any query whose file names its `workload`.
HOW = "python -m isolane.queries profile QUERY.yaml"

#: Significant digits of a written number: more than any measurement has, and the files stay small.
DIGITS = 6


@dataclass(frozen=True)
class Profile:
    """All launches of one query on one machine. `scene` names the content, where there are several."""

    query: str
    machine: str
    knobs: tuple[Knob, ...]
    launches: tuple[Launch, ...]
    scene: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)


def profile_bytes(profile: Profile, compressed: bool = True) -> bytes:
    """The file's bytes: the same for the same profile."""
    data = {
        "version": VERSION,
        "format": "isolane-profile",
        "query": profile.query,
        "machine": profile.machine,
        "scene": profile.scene,
        "extra": dict(profile.extra),
        "knobs": [{"operator": knob.operator, "name": knob.name, "values": list(knob.values)} for knob in profile.knobs],
        "entries": [entry_json(launch) for launch in profile.launches],
    }
    text = json.dumps(data, separators=(",", ":")).encode()
    return gzip.compress(text, 9, mtime=0) if compressed else text


def entry_json(launch: Launch) -> dict[str, Any]:
    """One launch as the file has it."""
    return {
        "order": list(launch.order),
        "configuration": list(launch.configuration),
        "accuracy": rounded(launch.accuracy),
        "precision": rounded(launch.precision),
        "recall": rounded(launch.recall),
        "launch_cost_s": rounded(launch.launch_cost_s),
        "operators": {name: numbers_of(result) for name, result in launch.operators.items()},
    }


def numbers_of(result: OperatorResult) -> list[float]:
    """An operator's numbers, in the order of the fields; without those of other resources where it used none."""
    own = [rounded(float(each)) for each in dataclasses.astuple(result)]
    return own if own[9] else own[:9] if any(own[5:9]) else own[:5]


def rounded(value: float) -> float:
    """The number with `DIGITS` significant digits."""
    short = float(f"{value:.{DIGITS}g}")
    return int(short) if short == int(short) else short


def write_profile(path: pathlib.Path, profile: Profile) -> None:
    """Writes the file; a name that ends in `.gz` is compressed."""
    path.write_bytes(profile_bytes(profile, path.suffix == ".gz"))


def load_profile(path: pathlib.Path) -> Profile:
    """The profile in this file."""
    try:
        data = path.read_bytes()
        if path.suffix == ".gz":
            data = unpacked(data, path)
    except OSError as error:
        raise PlanError(f"{path}: cannot be read: {error}") from error
    return parse_profile(data, str(path))


def parse_profile(data: bytes, file: str) -> Profile:
    """The profile in this text; `file` names it in errors."""
    try:
        return profile_from(json.loads(data))
    except PlanError as error:
        raise PlanError(f"{file}: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        raise PlanError(f"{file}: is no profile ({error!r}); `python -m isolane.queries profile` writes one") from error


def unpacked(data: bytes, path: pathlib.Path) -> bytes:
    """The compressed file's content, bounded."""
    engine = zlib.decompressobj(zlib.MAX_WBITS | 16)
    try:
        content = engine.decompress(data, BYTES_MAX)
    except zlib.error as error:
        raise PlanError(f"{path}: is not compressed as its name says: {error}") from error
    if engine.unconsumed_tail:
        raise PlanError(f"{path}: is above {BYTES_MAX} bytes unpacked; split the profile")
    if not engine.eof:
        raise PlanError(f"{path}: ends in the middle; write it again")
    return content


def profile_from(data: Any) -> Profile:
    """The profile that the decoded JSON says, checked."""
    if not isinstance(data, dict) or data.get("format") != "isolane-profile":
        raise PlanError("is no profile; `python -m isolane.queries profile` writes one")
    if data.get("version") != VERSION:
        raise PlanError(f"version = {data.get('version')}: this program reads version {VERSION}")
    knobs = tuple(Knob(each["name"], each["operator"], tuple(each["values"])) for each in data["knobs"])
    launches = tuple(launch_from(each, knobs) for each in data["entries"])
    return Profile(data["query"], data["machine"], knobs, launches, data.get("scene", ""), data.get("extra", {}))


def launch_from(entry: Mapping[str, Any], knobs: Sequence[Knob]) -> Launch:
    """One entry, checked."""
    order: Order = tuple(entry["order"])
    configuration: Configuration = tuple(int(each) for each in entry["configuration"])
    who = f"entry {'>'.join(order)} {list(configuration)}"
    if len(configuration) != len(knobs):
        raise PlanError(f"{who}: has {len(configuration)} settings for {len(knobs)} knobs")
    for index, knob in zip(configuration, knobs, strict=True):
        if not 0 <= index < len(knob.values):
            raise PlanError(f"{who}: knob {knob.operator}.{knob.name} has no value {index}")
    operators = {name: OperatorResult(*(float(each) for each in values)) for name, values in entry["operators"].items()}
    missing = [name for name in order if name not in operators]
    if missing:
        raise PlanError(f"{who}: nothing was measured of {missing[0]}")
    numbers = [entry["launch_cost_s"]]
    fractions = [entry["accuracy"], entry.get("precision", 1.0), entry.get("recall", 1.0)]
    for result in operators.values():
        numbers += dataclasses.astuple(result)
    if not all(math.isfinite(each) and each >= 0.0 for each in numbers):
        raise PlanError(f"{who}: a time, size or rate is negative or no number")
    if not all(0.0 <= each <= 1.0 for each in fractions):
        raise PlanError(f"{who}: accuracy, precision and recall must be between 0 and 1")
    return Launch(order, configuration, fractions[0], operators, numbers[0], fractions[1], fractions[2])


class Replay:
    """A launcher that looks launches up. The profile must have the query's knobs; a launch that is missing is an error."""

    def __init__(self, query: Query, profile: Profile) -> None:
        if profile.query != query.name:
            raise PlanError(
                f"the profile is of query {profile.query}, not of {query.name}; keep `query: {profile.query}`, name the right "
                f"file under `profile`, or measure with `{HOW} --output PROFILE.json.gz`"
            )
        if profile.knobs != query.knobs:
            raise PlanError(f"the profile of {query.name} has other knobs than the query: {difference(query, profile)}")
        self.query = query
        self.profile = profile
        self.entries = {(launch.order, launch.configuration): launch for launch in profile.launches}

    def launch(self, order: Order, configuration: Configuration) -> Launch:
        """The recorded launch."""
        found = self.entries.get((order, configuration))
        if found is None:
            settings = self.query.settings(configuration)
            raise PlanError(
                f"query {self.query.name}: order {' > '.join(order)} with {settings} was not profiled; "
                f"measure it again with `{HOW}`"
            )
        return found

    def filters(self, order: Order, configuration: Configuration) -> FilterScore:
        """The recorded score; the cost is the filters' and the source's part of the launch's time."""
        launch = self.launch(order, configuration)
        model = next(index for index, name in enumerate(order) if self.query.operator(name).kind == "model")
        return FilterScore(launch.precision, launch.recall, launch.launch_cost_s * share_of_time(launch, model))


def share_of_time(launch: Launch, count: int) -> float:
    """The first `count` operators' share of the time per source item; 0 if no time was measured."""
    reach = 1.0
    spent = []
    for name in launch.order:
        spent.append(reach * launch.operators[name].wall_ms)
        reach *= launch.operators[name].pass_rate
    total = sum(spent)
    return sum(spent[:count]) / total if total > 0.0 else 0.0


def difference(query: Query, profile: Profile) -> str:
    """The first knob that differs, in words."""
    for own, recorded in zip(query.knobs, profile.knobs, strict=False):
        if own != recorded:
            return (
                f"the query has {own.operator}.{own.name} = {list(own.values)}, "
                f"the profile {recorded.operator}.{recorded.name} = {list(recorded.values)}; profile it again"
            )
    return f"{len(query.knobs)} against {len(profile.knobs)}; profile it again"
