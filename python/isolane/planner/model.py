"""The words of the planner: operators and their knobs, queries, tiers and links, launches, plans.

Problem: everything that plans, profiles or runs a live ML query must mean the same by these words. Units end the names:
`_ms` milliseconds, `_s` seconds, `_bytes` bytes, `_share` a fraction of a capacity (1 is all of it). Method: frozen
dataclasses that check themselves, so that a value of a type is valid; files are read in `formats`.

Limits: a pipeline is a chain (as all pipelines of the paper), tiers are a chain too, from the source (tier 0) towards the
cloud, and data never flows back. Source: Vulcan, sections 4.2 and 4.4.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

Value = int | float | str

#: For each knob of `Query.knobs`, in that order, the index of its value.
Configuration = tuple[int, ...]

#: Operators by name, from the source to the last one.
Order = tuple[str, ...]

#: For each operator of an order, the index of its tier; never decreasing (section 4.4.3.1).
Placement = tuple[int, ...]

#: operator -> knob -> value: a configuration as people and running operators see it.
Settings = dict[str, dict[str, Value]]

Kind = Literal["source", "filter", "model", "post"]
KINDS: tuple[Kind, ...] = ("source", "filter", "model", "post")

#: What an operator `gives` when it passes on the type that it got.
SAME = "same"

#: More orders than this are refused: 8 filters have 40,320.
ORDERS_MAX = 50_000


class PlanError(Exception):
    """Bad input; the message names the object, the value and the remedy (exit code 2)."""


@dataclass(frozen=True)
class Knob:
    """A setting of an operator. Values go from cheap and coarse to costly and fine: the last is the most expensive."""

    name: str
    operator: str
    values: tuple[Value, ...]

    def __post_init__(self) -> None:
        if not self.values:
            raise PlanError(f"knob {self.operator}.{self.name} has no values; give at least one")
        if len(set(self.values)) != len(self.values):
            raise PlanError(f"knob {self.operator}.{self.name} names a value twice: {list(self.values)}")

    def at_percentile(self, percent: float) -> int:
        """The index of the value at this percentile of the range (section 4.4.2.2), to the nearest; ties go up."""
        return math.floor((len(self.values) - 1) * percent / 100.0 + 0.5)


@dataclass(frozen=True)
class OperatorSpec:
    """One step of a pipeline.

    `implementation` is `module:Class` or a path to an ONNX file. `accepts` are the payload types that it can take (none: a
    source), `gives` is what it sends on, or "same". `after` are operators that must come before it. `tiers` restricts
    where it may run (empty: anywhere). `gpu` operators use a tier's GPUs, others its cores. `options` are what the class is made
    with.
    """

    name: str
    kind: Kind
    implementation: str
    knobs: tuple[Knob, ...] = ()
    gpu: bool = False
    accepts: tuple[str, ...] = ()
    gives: str = SAME
    after: tuple[str, ...] = ()
    tiers: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Query:
    """A live ML query: its operators in template order, its objectives and preferences (sections 4.4.1, 4.4.2.1).

    `alpha_accuracy` (per unit of accuracy) and `alpha_latency` (per millisecond) default to values that give both rewards
    the range 0 to 1: 1 / (1 - accuracy_min) and 1 / latency_max_ms. `alpha_money` (per unit of price an hour) makes money a
    resource beside compute and network, `price_max_per_hour` bounds it. `priority`: higher is more important. `workload` names
    the recorded data that live launches use (`Workload`).
    """

    name: str
    operators: tuple[OperatorSpec, ...]
    accuracy_min: float
    latency_max_ms: float
    gamma: float = 0.5
    alpha_accuracy: float = 0.0
    alpha_latency: float = 0.0
    alpha_compute: float = 1.0
    alpha_network: float = 1.0
    alpha_money: float = 0.0
    price_max_per_hour: float = math.inf
    priority: int = 0
    rate_items_per_s: float = 1.0
    profile: str = ""
    workload: str = ""
    utility: str = "ratio"

    def __post_init__(self) -> None:
        check_query(self)
        if not self.alpha_accuracy:
            rest = 1.0 - self.accuracy_min
            object.__setattr__(self, "alpha_accuracy", 1.0 / rest if rest > 0.0 else 1.0)
        if not self.alpha_latency:
            object.__setattr__(self, "alpha_latency", 1.0 / self.latency_max_ms)

    @property
    def knobs(self) -> tuple[Knob, ...]:
        """All knobs, in the order of the operators; a configuration has one index for each."""
        return tuple(knob for operator in self.operators for knob in operator.knobs)

    @property
    def filters(self) -> tuple[str, ...]:
        """The filters in template order."""
        return tuple(operator.name for operator in self.operators if operator.kind == "filter")

    @property
    def template(self) -> Order:
        """The initial pipeline: source, filters, model, post-processing (section 4.4.2.1)."""
        return tuple(operator.name for operator in self.operators)

    def operator(self, name: str) -> OperatorSpec:
        """The operator of this name."""
        for operator in self.operators:
            if operator.name == name:
                return operator
        raise PlanError(f"query {self.name} has no operator {name}; it has {', '.join(self.template)}")

    def orders(self) -> list[Order]:
        """Every order of the filters whose types fit and that respects `after`; the template first if it is one."""
        return list(valid_orders(self))

    def configurations(self) -> list[Configuration]:
        """Every configuration, the last knob changing fastest."""
        return list(itertools.product(*(range(len(knob.values)) for knob in self.knobs)))

    @property
    def code(self) -> list[tuple[str, str]]:
        """The code that this query names: pairs of a role and `module:member` (or an ONNX file)."""
        named = [(f"operator {operator.name}", operator.implementation) for operator in self.operators]
        named += [("workload", self.workload)] if self.workload else []
        return [*named, ("utility", self.utility)] if ":" in self.utility else named

    @property
    def most_expensive(self) -> Configuration:
        """Each knob at its last value."""
        return tuple(len(knob.values) - 1 for knob in self.knobs)

    def settings(self, configuration: Configuration) -> Settings:
        """The configuration by operator and knob; operators without knobs have an empty entry."""
        result: Settings = {operator.name: {} for operator in self.operators}
        for knob, index in zip(self.knobs, configuration, strict=True):
            result[knob.operator][knob.name] = knob.values[index]
        return result

    def configuration(self, settings: Mapping[str, Mapping[str, Value]]) -> Configuration:
        """The inverse of `settings`."""
        result = []
        for knob in self.knobs:
            value = settings.get(knob.operator, {}).get(knob.name)
            if value is None or value not in knob.values:
                allowed = ", ".join(str(each) for each in knob.values)
                raise PlanError(f"{knob.operator}.{knob.name} = {value}: must be one of {allowed}")
            result.append(knob.values.index(value))
        return tuple(result)


@dataclass(frozen=True)
class Tier:
    """A place where operators can run; `order` 0 is where the source is.

    `compute_factor` is the speed of its cores, `gpu_factor` that of its GPUs, each relative to the profiling machine (0.5
    is twice as slow). A tier without cores runs nothing that needs cores, one without GPUs no `gpu` operator; it still
    forwards.
    """

    name: str
    order: int
    compute_factor: float = 1.0
    gpu_factor: float = 1.0
    capacity_cores: float = 1.0
    capacity_gpus: float = 1.0
    price_per_hour: float = 0.0


@dataclass(frozen=True)
class Link:
    """The way from one tier to the next; `delay_ms` is one way and without the time to send."""

    source: str
    target: str
    mbit_per_s: float
    delay_ms: float = 0.0

    @property
    def name(self) -> str:
        """`edge->cloud`, as results name it."""
        return f"{self.source}->{self.target}"


@dataclass(frozen=True)
class Infrastructure:
    """Tiers from the source to the cloud, and the link after each but the last."""

    tiers: tuple[Tier, ...]
    links: tuple[Link, ...]

    def __post_init__(self) -> None:
        check_infrastructure(self)

    def tier(self, name: str) -> Tier:
        """The tier of this name."""
        for tier in self.tiers:
            if tier.name == name:
                return tier
        raise PlanError(f"there is no tier {name}; there are {', '.join(each.name for each in self.tiers)}")


#: The mean that replaces each unknown 99th percentile.
TAILS = {
    "processing_p99_ms": "processing_ms",
    "output_p99_bytes": "output_bytes",
    "core_p99_ms": "core_ms",
    "waiting_p99_ms": "waiting_ms",
}


@dataclass(frozen=True)
class OperatorResult:
    """What one operator did in a launch, on the profiling machine.

    Times are per item that reaches it, bytes per item that it sends on; `pass_rate` is items out per item in (below 1: a
    filter drops; above: it splits). For a source: the time to produce an item, its bytes, and 1.

    `processing_ms` is time on the operator's own resource: a core, or with `gpu` an accelerator. `core_ms` is time on a core besides
    an accelerator. `waiting_ms` is time for which the operator waits for something that is not of its tier, for example a remote
    model: it delays the item wherever the operator runs, and uses nothing. The three add up to wall time. `overlap_ms` is time on a
    core while the accelerator works, as of a thread that waits for it without sleep: it uses the core and delays nothing.
    """

    processing_ms: float
    output_bytes: float
    pass_rate: float = 1.0
    processing_p99_ms: float = -1.0
    output_p99_bytes: float = -1.0
    core_ms: float = 0.0
    waiting_ms: float = 0.0
    core_p99_ms: float = -1.0
    waiting_p99_ms: float = -1.0
    overlap_ms: float = 0.0

    def __post_init__(self) -> None:
        # A profile without tails has none: the mean is used.
        for tail, mean in TAILS.items():
            if getattr(self, tail) < 0.0:
                object.__setattr__(self, tail, getattr(self, mean))

    @property
    def wall_ms(self) -> float:
        """The time of a call on the profiling machine."""
        return self.processing_ms + self.core_ms + self.waiting_ms


@dataclass(frozen=True)
class Launch:
    """One launch of the pipeline in the datacenter: nothing in it depends on placement (section 4.4.3.1).

    `precision` and `recall` are those of all filters as one bulk filter (section 4.4.2.2): the fraction of what the last
    filter sends on that is relevant, and the fraction of what is relevant that it sends on. What counts as one sample (a
    frame, a point, a spectrogram cell) is the query's to say. `launch_cost_s` is the time that the launch took.
    """

    order: Order
    configuration: Configuration
    accuracy: float
    operators: Mapping[str, OperatorResult]
    launch_cost_s: float
    precision: float = 1.0
    recall: float = 1.0


@dataclass(frozen=True)
class FilterScore:
    """A run of the filters alone, as one bulk filter; its time counts as profiling cost but not as a launch."""

    precision: float
    recall: float
    cost_s: float


class Launcher(Protocol):
    """Runs pipelines for the profiler."""

    def launch(self, order: Order, configuration: Configuration) -> Launch:
        """Runs the whole pipeline on the profiling data."""

    def filters(self, order: Order, configuration: Configuration) -> FilterScore:
        """Runs source and filters only."""


class Workload(Protocol):
    """Recorded data with ground truth: what a query names under `workload` (`module:Class`, made without arguments).

    Items are `isolane.pipeline.item.Item`; written `Any` here because the planner never looks into them.
    """

    def items(self) -> Sequence[Any]:
        """The source's items, in time order; ids are their positions."""

    def accuracy(self, outputs: Sequence[Any], reference: Sequence[Any] | None = None) -> float:
        """The accuracy (0 to 1) of a pipeline's outputs against the truth, or against another pipeline's outputs.

        The reference replaces the truth on live data: outputs of the most expensive configuration (section 4.5.1).
        """

    def filter_score(self, passed: Sequence[Any]) -> tuple[float, float]:
        """Precision and recall of the bulk filter that let these items pass."""

    # A workload may also have `accuracy_of(outputs, ids) -> float`: the accuracy against the truth of these items alone. Without that
    # method `isolane edge run` judges the accuracy only of runs over all items.


@dataclass(frozen=True)
class Step:
    """One point of the search path, for people: what was tried, in which order, and what it was worth.

    `meets` says whether both objectives and all capacities hold there.
    """

    placement: Placement
    configuration: Configuration
    utility: float
    accuracy: float
    latency_ms: float
    launched: bool
    meets: bool = True


@dataclass(frozen=True)
class Plan:
    """What was chosen, what it should give, what it cost to find, and why the second best lost.

    `network_share` is by link name, `compute_share` (cores) and `gpu_share` by tier name. `meets` says whether both
    objectives and all capacities hold. `runner_up` is a plan without a runner-up of its own.
    """

    query: str
    searcher: str
    order: Order
    placement: Mapping[str, str]
    configuration: Settings
    accuracy: float
    latency_ms: float
    latency_p99_ms: float
    network_share: Mapping[str, float]
    compute_share: Mapping[str, float]
    gpu_share: Mapping[str, float]
    utility: float
    meets: bool
    launches: int
    profiling_cost_s: float
    price_per_hour: float = 0.0
    runner_up: Plan | None = None
    why: str = ""
    seed: int = 0
    path: tuple[Step, ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class Unmet:
    """Why a plan misses the query's objectives, in words: what it misses, the best that is possible and by what, and changes each of
    which alone would let everything be met."""

    missed: tuple[str, ...]
    possible: str
    remedies: tuple[str, ...]

    def sentence(self) -> str:
        """All of it."""
        return f"the best plan found {' and '.join(self.missed)}; {self.possible}{would('meet all', self.remedies)}"


def would(verb: str, remedies: Sequence[str]) -> str:
    """The end of a sentence that says what a plan does not do."""
    return f"; it would {verb} with {', or '.join(remedies)}" if remedies else ""


def check_query(query: Query) -> None:
    """Raises what is wrong with a query that no file position is needed to explain."""
    who = f"query {query.name}"
    if not 0.0 < query.gamma < 1.0:
        raise PlanError(f"{who}: gamma = {query.gamma}: must be between 0 (latency only) and 1 (accuracy only)")
    if not 0.0 <= query.accuracy_min <= 1.0:
        raise PlanError(f"{who}: accuracy_min = {query.accuracy_min}: must be between 0 and 1")
    for key in ("latency_max_ms", "rate_items_per_s"):
        value = getattr(query, key)
        if not (value > 0.0 and math.isfinite(value)):
            raise PlanError(f"{who}: {key} = {value}: must be above 0")
    if not query.price_max_per_hour > 0.0:
        raise PlanError(f"{who}: price_max_per_hour = {query.price_max_per_hour}: must be above 0")
    for key in ("alpha_accuracy", "alpha_latency", "alpha_compute", "alpha_network", "alpha_money"):
        value = getattr(query, key)
        if not (value >= 0.0 and math.isfinite(value)):
            raise PlanError(f"{who}: {key} = {value}: must not be negative")
    names = [operator.name for operator in query.operators]
    for name in names:
        if names.count(name) > 1:
            raise PlanError(f"{who}: two operators are named {name}; name each once")
    kinds = [operator.kind for operator in query.operators]
    if kinds.count("source") != 1 or kinds[0] != "source":
        raise PlanError(f"{who}: needs exactly one source, as the first operator; has {', '.join(kinds) or 'none'}")
    if "model" not in kinds:
        raise PlanError(f"{who}: has no model; give one operator the kind model")
    ranks = [KINDS.index(kind) for kind in kinds]
    for first, second, name in zip(ranks, ranks[1:], names[1:], strict=False):
        if first > second:
            raise PlanError(
                f"{who}: operator {name} ({KINDS[second]}) is after a {KINDS[first]}; the template is source, "
                "filters, model, post"
            )
    for operator in query.operators:
        for other in operator.after:
            if other not in names:
                raise PlanError(f"{who}: operator {operator.name} is after {other}, which does not exist")
    cycle = find_cycle(query)
    if cycle:
        raise PlanError(f"{who}: the pipeline is cyclic: {' after '.join(cycle)}; drop one `after`")
    if next(valid_orders(query), None) is None:
        raise PlanError(f"{who}: no order of the filters fits: {why_no_order(query)}")


def find_cycle(query: Query) -> list[str]:
    """Operators that wait for each other by `after`, the first repeated at the end; empty if there are none."""
    after = {operator.name: operator.after for operator in query.operators}
    done: set[str] = set()

    def walk(name: str, path: list[str]) -> list[str]:
        if name in path:
            return [*path[path.index(name) :], name]
        if name in done:
            return []
        for other in after[name]:
            found = walk(other, [*path, name])
            if found:
                return found
        done.add(name)
        return []

    for name in after:
        found = walk(name, [])
        if found:
            return found
    return []


def mismatch(query: Query, order: Order) -> str:
    """Why this order cannot run (types, `after`), or an empty string."""
    carried = ""
    before = "nothing"
    for position, name in enumerate(order):
        operator = query.operator(name)
        late = [other for other in operator.after if other not in order[:position]]
        if late:
            return f"{name} must come after {late[0]}"
        if operator.kind != "source" and operator.accepts and carried not in operator.accepts:
            return f"{name} accepts {' or '.join(operator.accepts)}, but {before} gives {carried or 'any'}"
        if operator.gives != SAME:
            carried = operator.gives
        before = name
    return ""


def valid_orders(query: Query) -> Iterator[Order]:
    """All runnable orders, the template's first."""
    names = query.template
    filters = query.filters
    if math.factorial(len(filters)) > ORDERS_MAX:
        raise PlanError(
            f"query {query.name}: {len(filters)} filters have {math.factorial(len(filters))} orders, above the limit of "
            f"{ORDERS_MAX}; put some into one operator"
        )
    for permuted in itertools.permutations(filters):
        order = (names[0], *permuted, *names[1 + len(filters) :])
        if not mismatch(query, order):
            yield order


def why_no_order(query: Query) -> str:
    """The template's own mismatch, as the reader most likely meant that order."""
    return mismatch(query, query.template)


def check_infrastructure(infrastructure: Infrastructure) -> None:
    """Raises what is wrong with tiers and links."""
    tiers = infrastructure.tiers
    if not tiers:
        raise PlanError("there are no tiers; name at least one")
    names = [tier.name for tier in tiers]
    for position, tier in enumerate(tiers):
        if names.count(tier.name) > 1:
            raise PlanError(f"two tiers are named {tier.name}; name each once")
        if tier.order != position:
            raise PlanError(f"tier {tier.name}: order = {tier.order}: tiers must be numbered 0, 1, ... in this order")
        for key in ("compute_factor", "gpu_factor"):
            value = getattr(tier, key)
            if not (value > 0.0 and math.isfinite(value)):
                raise PlanError(f"tier {tier.name}: {key} = {value}: must be above 0 (1 is the profiling machine)")
        for key in ("capacity_cores", "capacity_gpus", "price_per_hour"):
            value = getattr(tier, key)
            if not (value >= 0.0 and math.isfinite(value)):
                raise PlanError(f"tier {tier.name}: {key} = {value}: must not be negative")
    if all(tier.capacity_cores == 0.0 for tier in tiers):
        raise PlanError("no tier has a core: every capacity_cores is 0; give one tier capacity")
    expected = [f"{first}->{second}" for first, second in zip(names, names[1:], strict=False)]
    for link in infrastructure.links:
        if link.name not in expected:
            raise PlanError(
                f"link {link.name} does not join a tier with the next one; the links are {', '.join(expected) or 'none'}"
            )
        if not (link.mbit_per_s > 0.0 and math.isfinite(link.mbit_per_s)):
            raise PlanError(f"link {link.name}: mbit_per_s = {link.mbit_per_s}: must be above 0")
        if not (link.delay_ms >= 0.0 and math.isfinite(link.delay_ms)):
            raise PlanError(f"link {link.name}: delay_ms = {link.delay_ms}: must not be negative")
    given = [link.name for link in infrastructure.links]
    if given != expected:
        missing = [name for name in expected if name not in given]
        problem = f"{missing[0]} is missing" if missing else f"they are {', '.join(given)}"
        raise PlanError(f"links must be {', '.join(expected)}, in this order: {problem}")
