"""What is to run where: a plan, reduced to what executors need.

Problem: the planner's file says much that matters to people only, and a plan that cannot run should fail before anything
starts. Method: stages in order, tiers and links checked against each other. A tier slower than this machine (`compute_factor` or
`gpu_factor` below 1) is imitated by `slowdown`; one that is faster runs at this machine's speed, which is this lab's limit.
Units: `mbit_per_s`, `delay_ms` one way, `rate_items_per_s`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from isolane.pipeline.operator import KnobValue
from isolane.pipeline.spaces import Wire
from isolane.planner.model import PlanError


@dataclass(frozen=True)
class Stage:
    """One operator: its class, its machine, and its knobs."""

    name: str
    implementation: str
    tier: str
    knobs: dict[str, KnobValue] = field(default_factory=dict)
    gpu: bool = False
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Place:
    """A tier: how many times faster than the profiling machine its cores and GPUs are."""

    name: str
    compute_factor: float = 1.0
    gpu_factor: float = 1.0

    def slowdown(self, stage: Stage) -> float:
        """How many times longer the stage takes here than on this machine; never below 1."""
        return max(1.0 / (self.gpu_factor if stage.gpu else self.compute_factor), 1.0)


@dataclass(frozen=True)
class Deployment:
    """Stages from the source on, tiers from the edge on, and the link after each tier but the last."""

    query: str
    stages: tuple[Stage, ...]
    places: tuple[Place, ...]
    wires: tuple[Wire, ...]
    workload: str = ""
    rate_items_per_s: float = 1.0
    latency_max_ms: float = 1000.0
    accuracy_min: float = 0.0

    def __post_init__(self) -> None:
        names = [stage.name for stage in self.stages]
        if not names:
            raise PlanError(f"plan of {self.query}: it has no operators")
        for name in names:
            if names.count(name) > 1:
                raise PlanError(f"plan of {self.query}: two operators are named {name}; name each once")
        for stage in self.stages:
            self.place(stage.tier)
        if len(self.wires) != len(self.places) - 1:
            raise PlanError(f"plan of {self.query}: {len(self.places)} tiers need {len(self.places) - 1} links")

    def place(self, tier: str) -> Place:
        """The tier of this name."""
        for place in self.places:
            if place.name == tier:
                return place
        known = ", ".join(place.name for place in self.places) or "none"
        raise PlanError(f"plan of {self.query}: there is no tier {tier}; there are {known}")

    def stage(self, name: str) -> Stage:
        """The stage of this name."""
        for stage in self.stages:
            if stage.name == name:
                return stage
        known = ", ".join(stage.name for stage in self.stages)
        raise PlanError(f"plan of {self.query}: there is no operator {name}; there are {known}")

    @property
    def code(self) -> list[tuple[str, str]]:
        """The code that this deployment names: pairs of a role and `module:Class` (or an ONNX file)."""
        named = [(f"operator {stage.name}", stage.implementation) for stage in self.stages]
        return [*named, ("workload", self.workload)] if self.workload else named

    def with_stage(self, stage: Stage) -> Deployment:
        """The same with one stage replaced by its namesake."""
        stages = tuple(stage if one.name == stage.name else one for one in self.stages)
        return dataclasses.replace(self, stages=stages)


def from_plan(document: Mapping[str, Any]) -> Deployment:
    """The deployment that a plan's file describes."""
    try:
        stages = tuple(
            Stage(
                _text(one, "name"),
                _text(one, "implementation"),
                _text(one, "tier"),
                dict(one["settings"]),
                bool(one.get("gpu", False)),
                dict(one.get("options", {})),
            )
            for one in document["operators"]
        )
        infrastructure = document["infrastructure"]
        places = tuple(
            Place(_text(one, "name"), _above_zero(one, "compute_factor"), _above_zero(one, "gpu_factor"))
            for one in infrastructure["tiers"]
        )
        wires = tuple(Wire(_above_zero(one, "mbit_per_s"), _number(one, "delay_ms")) for one in infrastructure["links"])
        objectives = document["objectives"]
        return Deployment(
            str(document["query"]),
            stages,
            places,
            wires,
            str(document.get("workload", "")),
            _above_zero(document, "rate_items_per_s"),
            _above_zero(objectives, "latency_max_ms"),
            _number(objectives, "accuracy_min"),
        )
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        words = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
        raise PlanError(f"the plan cannot be run: {words}; write one with `isolane edge plan ... --json`") from error


def _text(entry: Mapping[str, Any], key: str) -> str:
    value = entry[key]
    if not isinstance(value, str) or not value:
        raise ValueError(f"{key} = {str(value)[:80]}: must be a text")
    return value


def _number(entry: Mapping[str, Any], key: str) -> float:
    value = float(entry[key])
    if not 0.0 <= value < math.inf:
        raise ValueError(f"{key} = {value:g}: must be a number, at least 0")
    return value


def _above_zero(entry: Mapping[str, Any], key: str) -> float:
    value = _number(entry, key)
    if value == 0.0:
        raise ValueError(f"{key} = 0: must be above 0")
    return value
